"""The ticket desk, which wants the password of the day, and the company's PII service.

python services.py [--port 8766]
"""

import argparse
import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gateway.http_client.webhooks import SignatureRefused, sign, verify

SECRET = "whsec_ZXhhbXBsZSBvZiBhIHNlY3JldCBvZiBob29rcw=="
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
SEEN: dict[str, float] = {}  # ids of requests: none is good twice


def hide_addresses(value: Any) -> Any:
    if isinstance(value, str):
        return ADDRESS.sub("(address)", value)
    if isinstance(value, dict):
        return {name: hide_addresses(inner) for name, inner in value.items()}
    return [hide_addresses(inner) for inner in value] if isinstance(value, list) else value


class Services(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        (self.check if self.path == "/pii" else self.open_ticket)(body)

    def check(self, body: bytes) -> None:
        """The hook: the arguments of a call, without addresses."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            id_ = verify(headers, body, [SECRET], time.time())
        except SignatureRefused:
            id_ = ""
        if not id_ or SEEN.setdefault(id_, now := time.time()) != now:
            self.answer(401, b"{}")
            return
        arguments = json.loads(body)["arguments"]
        hidden = hide_addresses(arguments)
        said = {"version": "2026.11", **({"arguments": hidden} if hidden != arguments else {})}
        answer = json.dumps(said).encode()
        # over plain HTTP, the answer is signed like the request
        self.answer(200, answer, sign(id_, int(time.time()), answer, [SECRET]))

    def open_ticket(self, body: bytes) -> None:
        if self.headers.get("X-Password") != Path("vault.txt").read_text().strip():
            self.answer(403, b'{"error": "wrong password of the day"}')
            return
        self.answer(200, json.dumps({"ticket": 1, **json.loads(body)}).encode())

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8766)
    ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Services).serve_forever()
