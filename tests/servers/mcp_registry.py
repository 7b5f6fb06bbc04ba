"""A registry of MCP servers (v0.1) in a thread, that serves files beside it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from schemas.mcp.registry_entries import OFFICIAL, SCHEMA

Json = dict[str, Any]


def server_json(name: str = "io.github.ada/weather", version: str = "1.0.0", **more: Any) -> Json:
    return {
        "$schema": SCHEMA,
        "name": name,
        "description": "Weather of tomorrow.",
        "version": version,
        **more,
    }


@dataclass
class PublishedServers:
    """Versions of servers, the newest last, and files by path: content and headers."""

    versions: list[Json] = field(default_factory=list)
    status: dict[str, Json] = field(default_factory=dict)  # by version: members of its meta
    files: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # target, headers
    bearers: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # by path: files for these
    redirect: str = ""  # where all requests are sent
    token: str = ""  # that is demanded
    page: int = 100

    def answer(self, target: str, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        self.asked.append((target, headers))
        if self.redirect:
            return 302, b"", {"Location": self.redirect + target}
        url = urlsplit(target)
        token, content = self.bearers.get(url.path, ("", b""))
        if token and headers.get("authorization") == f"Bearer {token}":
            return 200, content, {}
        if url.path in self.files:
            return self.files[url.path]
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return 401, b"{}", {}
        found = self._read(
            url.path, {name: values[0] for name, values in parse_qs(url.query).items()}
        )
        return (404, b'{"error": "none"}', {}) if found is None else (200, _encode(found), {})

    def _read(self, path: str, query: dict[str, str]) -> Any:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] != ["v0.1", "servers"]:
            return None
        if len(parts) == 2:
            return self._list(query)
        own = [version for version in self.versions if version["name"] == parts[2]]
        if len(parts) == 4:
            return {"servers": [self._response(each) for each in reversed(own)], "metadata": {}}
        wanted = [each for each in own if parts[4] in ("latest", each["version"])]
        return self._response(wanted[-1]) if wanted else None

    def _list(self, query: dict[str, str]) -> Json:
        latest = {each["name"]: each for each in self.versions}
        names = [name for name in latest if query.get("search", "") in name]
        start = int(query.get("cursor", "0"))
        stop = start + min(self.page, int(query.get("limit", "30")))
        metadata = {"nextCursor": str(stop)} if stop < len(names) else {}
        servers = [self._response(latest[name]) for name in names[start:stop]]
        return {"servers": servers, "metadata": metadata}

    def _response(self, version: Json) -> Json:
        meta = {"status": "active", "publishedAt": "2026-01-02T03:04:05Z", "isLatest": True}
        meta |= self.status.get(str(version["version"]), {})
        return {"server": version, "_meta": {OFFICIAL: meta}}


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()


class _Server(ThreadingHTTPServer):
    published: PublishedServers


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, content, more = self.server.published.answer(self.path, headers)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_registry(published: PublishedServers) -> Iterator[str]:
    """The URL of the registry."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.published = published
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
