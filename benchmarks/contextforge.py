"""ContextForge with one REST tool, as its documentation sets it up, except that what costs time and
is no part of a call is off: rate limits, records of metrics, the admin pages."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.processes import Child, free_port, start
from benchmarks.request import JSON_HEADERS, HttpRequest, Unavailable
from benchmarks.rig import Rig, uvicorn

TOOL = "get-item"  # what it calls `get_item`
_SECRET = "only-of-this-measurement-on-loopback-0123456789"
_ADMIN = "admin@example.com"  # its default
_SETTINGS: Mapping[str, str] = {
    "JWT_SECRET_KEY": _SECRET,
    "AUTH_ENCRYPTION_SECRET": _SECRET,
    "RATE_LIMITING_ENABLED": "false",
    "DB_METRICS_RECORDING_ENABLED": "false",
    "STRUCTURED_LOGGING_DATABASE_ENABLED": "false",
    "OBSERVABILITY_ENABLED": "false",
    "PLUGINS_ENABLED": "false",
    "MCPGATEWAY_UI_ENABLED": "false",
    "MCPGATEWAY_ADMIN_API_ENABLED": "true",
    "USE_STATEFUL_SESSIONS": "false",
    "JSON_RESPONSE_ENABLED": "true",
    "SSRF_PROTECTION_ENABLED": "false",
    "CACHE_TYPE": "memory",
    "LOG_LEVEL": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Forge:
    child: Child
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {**JSON_HEADERS, "authorization": f"Bearer {self.token}"}

    def register(self, url: str) -> None:
        """Register the tool that gets an item of `url`, a template with {id}."""
        schema = {
            "type": "object",
            "properties": {"id": {"type": "integer"}},
            "required": ["id"],
        }
        tool = {
            "name": "get_item",
            "url": url,
            "integration_type": "REST",
            "request_type": "GET",
            "description": "Get one item",
            "input_schema": schema,
        }
        body = msgspec.json.encode({"tool": tool})
        answer = HttpRequest(self.child.port, "/tools", bodies=(body,), headers=self.headers).send()
        if answer.status >= 300:
            raise Unavailable(f"ContextForge refused the tool: {answer.body[:200].decode()}")


def launch(python: Path, rig: Rig) -> Forge:
    port, home = free_port(), rig.directory / "contextforge"
    home.mkdir()
    settings = {**_SETTINGS, "DATABASE_URL": f"sqlite:///{home / 'registry.db'}"}
    arguments = uvicorn(str(python), "mcpgateway.main:app", port)
    child = start("contextforge", arguments, rig.directory, rig.cores.tested, settings, port)
    return Forge(child, _token(python, settings))


def _token(python: Path, settings: Mapping[str, str]) -> str:
    arguments = ["-m", "mcpgateway.utils.create_jwt_token", "-u", _ADMIN, "-e", "600", "--admin"]
    done = subprocess.run(
        [python, *arguments, "-s", _SECRET],
        capture_output=True,
        text=True,
        check=False,
        env={**settings},
    )
    if done.returncode != 0:
        raise Unavailable(f"ContextForge gives no token: {done.stderr.strip()[-200:]}")
    return done.stdout.strip().rpartition("\n")[2]
