"""Pages with forms, and the check that a form comes from one of them."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from gateway.console.page_request import read_form
from gateway.console.sessions import csrf_token, is_csrf_token
from gateway.login import pages
from gateway.login.browser_sessions import Accounts, Visit, is_same_origin
from gateway.operations.request_parsing import headers_of, receive_body

NO_STORE = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


class FormPages:
    """The base of pages that people fill in."""

    form_kib = 16

    def __init__(self, accounts: Accounts, public_url: str) -> None:
        self._accounts = accounts
        self._public_url = public_url
        self._prefix = urlsplit(public_url).path

    def _log_refusal(self, members: Mapping[str, Any]) -> None:
        """Log a page that says why something is refused."""
        raise NotImplementedError

    def _page(
        self,
        request: Request,
        visit: Visit,
        template: str,
        *,
        token: Callable[[str], str] = csrf_token,
        **values: Any,
    ) -> Response:
        """A page with a form, whose token belongs to the browser's cookie."""
        cookie = Response()
        browser = self._accounts.bind(cookie, visit.browser)
        response = pages.page(
            request, template, prefix=self._prefix, token=token(browser), **values
        )
        response.headers.raw.extend(
            header for header in cookie.headers.raw if header[0] == b"set-cookie"
        )
        return response

    def _problem(
        self,
        request: Request,
        status: int,
        text: str,
        advice: str,
        *,
        client: str = "",
        detail: str = "",
        again: str = "",
        seconds: int = 0,
    ) -> Response:
        response = pages.page(
            request,
            "problem.html",
            status,
            prefix=self._prefix,
            text=text,
            advice=advice,
            client=client[:200],
            detail=detail,
            again=again,
            seconds=seconds,
        )
        number = response.headers["x-request-id"]
        self._log_refusal({"request_id": number, "status": status, "reason": text})
        return response

    def _is_ours(self, request: Request, visit: Visit, form: Mapping[str, str]) -> bool:
        """Whether a page of this gateway sent the form, in the same browser."""
        return is_same_origin(request.headers, self._public_url) and is_csrf_token(
            visit.browser, form.get("_csrf", "")
        )

    async def _form(self, request: Request) -> Mapping[str, str]:
        """The fields of a form, the last of each name. Raises ProblemDetails."""
        body = await receive_body(
            request.receive,
            headers_of(request.scope),
            self.form_kib * 1024,
            f"{self.form_kib} KiB of a form",
        )
        try:
            return {name: values[-1] for name, values in read_form(body).items()}
        except ValueError:
            return {}
