"""Errors of the login's endpoints, as JSON (OAuth 2.1, 3.2.4), and what all answers have."""

from typing import Any

import msgspec
from starlette.responses import Response

from gateway.context import new_request_id

# Clients in browsers ask from any origin; no answer depends on a cookie (see `LoginServer`).
OPEN = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": "Authorization, Content-Type, MCP-Protocol-Version",
    "access-control-max-age": "3600",
}
SECRET = {"cache-control": "no-store", "pragma": "no-cache", **OPEN}


class LoginError(Exception):
    """A request that is refused; `text` names what was wrong."""

    def __init__(
        self,
        status: int,
        code: str,
        text: str,
        *,
        basic: bool = False,
        retry_s: int = 0,
        number: str = "",
    ) -> None:
        """`basic`: it came with Basic credentials; `retry_s`: when to try again, s; `number`: the
        `request_id` of a line of the log about it."""
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.retry_s = retry_s
        self.headers = {
            **({"www-authenticate": 'Basic realm="toolgate"'} if basic else {}),
            **({"retry-after": str(retry_s)} if retry_s else {}),
            **({"x-request-id": number} if number else {}),
        }

    def response(self) -> Response:
        return as_json(
            {"error": self.code, "error_description": _plain(self.text)},
            self.status,
            {**SECRET, **self.headers},
        )


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(value),
        status,
        {"x-request-id": new_request_id(), **(SECRET if headers is None else headers)},
        media_type="application/json",
    )


def _plain(text: str) -> str:
    """Characters that `error_description` may have (OAuth 2.1, 4.1.2.1)."""
    return "".join(
        character if " " <= character <= "~" and character not in '"\\' else "'"
        for character in text
    )
