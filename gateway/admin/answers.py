"""What is sent back."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import Send

from gateway.admin.problems import MEDIA_TYPE, ProblemDetails

# Answers are for who asked and for now, and nothing for a browser to make something of.
COMMON = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class AdminResponse:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


def problem_response(problem: ProblemDetails, request_id: str) -> AdminResponse:
    return AdminResponse(problem.status, problem.encode(request_id), problem.headers, MEDIA_TYPE)


def tag_of(body: bytes) -> str:
    """The entity tag of a representation: strong, so the same bytes (RFC 9110, 8.8.3)."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


async def send_response(
    send: Send, response: AdminResponse, request_id: str, *, head: bool
) -> None:
    """`head`: only what would stand in front of the body."""
    headers = {**COMMON, "x-request-id": request_id}
    headers |= {name.lower(): value for name, value in response.headers.items()}
    if response.status not in {204, 304}:
        headers |= {"content-type": response.media_type, "content-length": str(len(response.body))}
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": pairs})
    body = b"" if head or response.status in {204, 304} else response.body
    await send({"type": "http.response.body", "body": body})
