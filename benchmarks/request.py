"""One HTTP request as a value, and a plain function that sends it before a measurement."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field

JSON_HEADERS: Mapping[str, str] = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


class Unavailable(Exception):
    """Something cannot be measured here; the message says why and becomes the row's note."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # lower-case names
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpRequest:
    port: int  # always on 127.0.0.1
    path: str
    method: str = "POST"
    bodies: tuple[bytes, ...] = (b"",)  # sent in turn: ids that run at one time must differ
    headers: Mapping[str, str] = field(default_factory=lambda: dict(JSON_HEADERS))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def encode(self) -> list[bytes]:
        """The bytes on the wire for each body, HTTP/1.1 keep-alive."""
        return [self._encode(body) for body in self.bodies]

    def _encode(self, body: bytes) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", f"host: 127.0.0.1:{self.port}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if body:
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def send(self, timeout_s: float = 30.0) -> Answer:
        """Send the first body. Raises OSError or http.client.HTTPException without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            return self.send_on(connection)
        finally:
            connection.close()

    def send_on(self, connection: http.client.HTTPConnection) -> Answer:
        """The same on a connection that is kept."""
        body = self.bodies[0] or None
        connection.request(self.method, self.path, body=body, headers=dict(self.headers))
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())


def expect(answer: Answer, needle: bytes) -> None:
    """Raise Unavailable unless the answer is a 200 that contains `needle` and reports no error."""
    if answer.status != 200:
        raise Unavailable(f"answered {answer.status}: {_excerpt(answer.body)}")
    if needle not in answer.body or b'"isError":true' in answer.body:
        raise Unavailable(f"unexpected answer: {_excerpt(answer.body)}")


def _excerpt(body: bytes) -> str:
    return body[:160].decode("utf-8", "replace")
