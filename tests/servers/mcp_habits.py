"""MCP servers of 2025-11-25 with the habits of hosted ones, in a thread: one tool, `echo`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOOLS = [{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}]


@dataclass
class Habits:
    redirects: dict[str, tuple[int, str]] = field(default_factory=dict)  # by path
    asked: list[tuple[str, str]] = field(default_factory=list)  # method of HTTP and target

    def results(self) -> dict[str, Any]:
        return {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "habits", "version": "1.5"},
            },
            "tools/list": {"tools": TOOLS},
            "tools/call": {"content": [{"type": "text", "text": "again"}]},
            "ping": {},
        }


class _Server(ThreadingHTTPServer):
    habits: Habits


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._say(405)

    def do_DELETE(self) -> None:
        self._say(405)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        habits = self.server.habits
        habits.asked.append((self.command, self.path))
        if self.path in habits.redirects:
            status, target = habits.redirects[self.path]
            self._say(status, location=target)
            return
        message = json.loads(body)
        if "id" not in message:
            self._say(202)
            return
        result = habits.results().get(message["method"])
        missing = {"error": {"code": -32601, "message": "Method not found"}}
        answer = missing if result is None else {"result": result}
        self._say(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())

    def _say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        pass


@contextmanager
def running(habits: Habits) -> Iterator[str]:
    """The origin of a server with these habits."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.habits = habits
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
