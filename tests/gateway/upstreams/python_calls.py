"""What the tests of actions in Python have in common: a service of one action, and its calls."""

from typing import Any

from msgspec import Raw

from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.hybrid.python_services import Handler, Service
from gateway.interfaces import RepeatableCommand
from gateway.upstreams.python import ActionLimits, PythonUpstream
from schemas.binding import PythonBinding
from schemas.mcp.revisions import PORTAL
from schemas.tool import Annotations, Tool, ToolResult

ID = "lightapi.net/rule/deleteRule/0.1.0"
ADA = Principal("ada", "tenant")


def tool(binding: PythonBinding, source: str = "rules") -> Tool:
    return Tool("id", "name", None, "", Raw(b"{}"), None, Annotations(), binding, source, "digest")


class Keys:
    """Stands for the table of Idempotency-Keys, which has tests of its own."""

    def __init__(self) -> None:
        self.commands: list[RepeatableCommand] = []
        self.kept: list[ToolResult] = []

    async def once(self, command: RepeatableCommand, run: Any) -> ToolResult:
        self.commands.append(command)
        self.kept.append(await run())
        return self.kept[-1]


def upstream_of(handler: Handler, once: Any = None, **limits: Any) -> PythonUpstream:
    timeout_s = limits.pop("timeout_s", 30)
    limited = ActionLimits(lambda source: timeout_s, **{"threads": 2, "calls": 2, **limits})
    service = Service("x", (), {ID: handler})
    return PythonUpstream({"rules": service}, once or Keys().once, limited)


def call_arguments(
    key: str | None = None, **members: Any
) -> tuple[Tool, None, dict[str, Any], Context]:
    """The arguments of `PythonUpstream.call`."""
    call_headers = CallHeaders(idempotency_key=key)
    context = Context(Identity(ADA, verified=True), PORTAL, "r-1", headers=call_headers)
    return tool(PythonBinding(ID, **members)), None, {}, context
