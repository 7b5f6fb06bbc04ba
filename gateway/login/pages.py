"""Pages of the login: without scripts, in the console's languages and colours.

No `form-action` in their policy: Chrome applies it to where a form's answer redirects, and that is
a provider, and then the client. No `Cross-Origin-Opener-Policy`: some clients open the page as a
pop-up, and wait for it.
"""

from functools import cache
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse

from gateway.console.rendering import templates_of
from gateway.console.sessions import cookies_of
from gateway.console.texts import Texts, language_of
from gateway.context import new_request_id

STATIC = "/login/static/"
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all forms would have the Origin "null"
    "cache-control": "no-store",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """The page of a template, with a number that the log has, too."""
    language = language_of(
        cookies_of(request.headers.get("cookie", "")).get("language", ""),
        request.headers.get("accept-language", ""),
    )
    number = new_request_id()
    text = (
        _environment()
        .get_template(template)
        .render(_=Texts(language), language=language, number=number, **values)
    )
    return HTMLResponse(text, status, {**SECURITY, "x-request-id": number})


@cache
def _environment() -> Environment:
    return templates_of("gateway.login")
