"""The service behind the gateway: hears everything, says what it is told to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from tests.registry.importers.features.case import Answer
from tests.servers.rest import body_of, respond

_BOUNDARY = re.compile(r'boundary="?([^";]+)')


@dataclass(frozen=True)
class Heard:
    line: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Scripted:
    """Serves `files` by path, below /files/ and /docs/; any other request is remembered, and
    answered with `answer`."""

    url: str = ""
    answer: Answer = field(default_factory=Answer)
    heard: list[Heard] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        if scope["path"].startswith(("/files/", "/docs/")):
            found = self.files.get(scope["path"])
            await respond(send, 404 if found is None else 200, found or b"")
            return
        self.heard.append(_record_request(scope, body))
        answer = self.answer
        headers = dict(answer.headers)
        if answer.media_type is not None:
            headers["content-type"] = answer.media_type
        await respond(send, answer.status, answer.body, headers.items())


def _record_request(scope: Scope, body: bytes) -> Heard:
    headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
    target = scope["raw_path"].decode()
    if query := scope["query_string"].decode():
        target = f"{target}?{query}"
    if boundary := _BOUNDARY.search(headers.get("content-type", "")):
        body = body.replace(boundary[1].encode(), b"BOUNDARY")
        headers["content-type"] = headers["content-type"].replace(boundary[1], "BOUNDARY")
    return Heard(f"{scope['method']} {target}", headers, body)
