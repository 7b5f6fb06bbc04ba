"""Script tools, from the tool to its result. What scripts may do: sandbox/test_runner.py."""

import sys
from typing import Any

import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from config.load import load
from gateway.context import Context, Identity, Principal
from gateway.sandbox.script_runner import Sandbox
from gateway.upstreams.script import ScriptUpstream
from schemas.binding import ScriptBinding
from schemas.mcp.revisions import V2026_07_28
from schemas.tool import Annotations, TextContent, Tool, ToolResult

pytestmark = pytest.mark.anyio

ON = replace(load(None, {}).scripts, enabled=True, time_s=60)


async def call(source: str, settings: Any = ON) -> ToolResult:
    binding = ScriptBinding("python", source)
    tool = Tool("id", "slug", None, "", Raw(b"{}"), None, Annotations(), binding, "", "digest")
    context = Context(Identity(Principal("ada", "tenant")), V2026_07_28, "r-1")
    return await ScriptUpstream(lambda: settings).call(tool, None, {"text": "A"}, context)


async def test_scripts_are_off_by_default() -> None:
    assert not load(None, {}).scripts.enabled
    assert await call("def main(a): return 1", replace(ON, enabled=False)) == ToolResult(
        (TextContent("slug cannot be called: scripts are switched off (scripts.enabled)"),),
        is_error=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="scripts are run on Linux only")
@pytest.mark.parametrize(
    ("returned", "text", "structure"),
    [
        ("{'a': arguments['text']}", '{"a": "A"}', Raw(b'{"a": "A"}')),
        ("'plain'", "plain", UNSET),
        ("'[1]'", "[1]", Raw(b"[1]")),
        ("None", None, UNSET),
    ],
)
async def test_return_values_of_scripts_become_results(
    returned: str, text: Any, structure: Any
) -> None:
    if reason := await Sandbox(lambda: ON).missing("python"):
        pytest.skip(reason)
    result = await call(f"def main(arguments):\n    return {returned}")
    assert result.content == (() if text is None else (TextContent(text),))
    assert result.structured_content == structure
    assert not result.is_error


@pytest.mark.skipif(sys.platform != "linux", reason="scripts are run on Linux only")
async def test_exceptions_of_scripts_are_readable_for_models() -> None:
    if reason := await Sandbox(lambda: ON).missing("python"):
        pytest.skip(reason)
    result = await call("def main(arguments):\n    raise ValueError('no city')")
    assert result.is_error
    assert result.content == (TextContent("slug failed: line 2: ValueError: no city"),)
