"""Requests to the authorization endpoint, read before anybody is asked to log in.

The client and its redirect URI come first: with a wrong one the visitor gets a page, since a
redirect would lead wherever somebody wants (RFC 9700, 4.11). All other errors go back to the
client, with `iss` (RFC 9207).
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import Struct

from gateway.login import texts
from gateway.login.clients import LoginClient, LoginClients
from gateway.login.scopes import Resources
from registry.login.logins_and_grants import NewGrant

CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
STATE_LIMIT = 4000  # characters
SCOPES = 100  # of one request
PARAMETERS = 50
PROMPTS = frozenset({"none", "login", "consent", "select_account"})


class AuthorizationRequest(Struct, frozen=True):
    client_id: str
    redirect: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    state: str | None = None
    prompt: str = ""

    def token(self, browser: str) -> str:
        """The token of the form that grants this request: equal for every rendering in one
        browser, so that a page that was fetched twice still works."""
        text = b"toolgate login consent" + msgspec.json.encode(self)
        return hmac.new(browser.encode(), text, hashlib.sha256).hexdigest()

    def is_token(self, browser: str, token: str) -> bool:
        return bool(browser) and hmac.compare_digest(self.token(browser).encode(), token.encode())

    @property
    def other_account(self) -> str:
        """How the provider is asked for another account; "": the one that it knows will do."""
        words = self.prompt.split()
        return next((word for word in ("login", "select_account") if word in words), "")

    def grant(self, client: LoginClient, scopes: tuple[str, ...]) -> NewGrant:
        return NewGrant(
            client.id, client.name, self.redirect, self.challenge, self.resource, scopes
        )

    def answer(self, issuer: str, **parameters: str) -> str:
        """The URL that leads back to the client."""
        return back_to(self.redirect, issuer, self.state, **parameters)


class PageProblem(Exception):
    """A request that cannot be answered by a redirect; the message is for its visitor, the
    way out for whoever sent them."""

    def __init__(self, text: str, advice: str, client: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.advice = advice
        self.client = client


class RedirectProblem(Exception):
    """An error that the client is told of."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


def back_to(redirect: str, issuer: str, state: str | None, **parameters: str) -> str:
    query = {**parameters, **({"state": state} if state is not None else {}), "iss": issuer}
    return f"{redirect}{'&' if '?' in redirect else '?'}{urlencode(query)}"


async def read_request(
    query: str, clients: LoginClients, resources: Resources, issuer: str
) -> tuple[LoginClient, AuthorizationRequest]:
    """Raises PageProblem, and RedirectProblem."""
    try:
        values = read_parameters(query, PARAMETERS)
    except ValueError as error:
        raise PageProblem(texts.UNREADABLE, texts.BEGIN_AGAIN) from error
    client_id = _single(values, "client_id")
    client = await clients.find(client_id) if client_id else None
    if client is None:
        raise PageProblem(texts.UNKNOWN_CLIENT, texts.REGISTER_AGAIN, client=client_id or "")
    if "authorization_code" not in client.grants:
        raise PageProblem(texts.NO_LOGIN_CLIENT, texts.ASK)
    redirect = client.redirect(_single(values, "redirect_uri"))
    if redirect is None:
        raise PageProblem(texts.UNKNOWN_REDIRECT, texts.REGISTER_AGAIN, client=client.name)
    state = _single(values, "state")

    def problem(code: str, text: str) -> RedirectProblem:
        parameters = {"error": code, "error_description": text}
        short = state if state is not None and len(state) <= STATE_LIMIT else None
        return RedirectProblem(back_to(redirect, issuer, short, **parameters))

    if fault := _fault(values):
        raise problem(*fault)
    resource = resources.read(values.get("resource", []))
    if resource is None:
        raise problem("invalid_target", "expected resource to be one endpoint of this gateway")
    scopes = tuple(dict.fromkeys((_single(values, "scope") or "").split()))[:SCOPES]
    challenge, prompt = _single(values, "code_challenge") or "", _single(values, "prompt") or ""
    prompt = " ".join(prompt.split())
    authorization = AuthorizationRequest(
        client.id, redirect, challenge, resource, scopes, state, prompt
    )
    return client, authorization


def _fault(values: Mapping[str, list[str]]) -> tuple[str, str] | None:
    """Code and text of an error that the client is told of; None: there is none."""
    if name := repeated_name(values):
        return "invalid_request", f"{name} is sent more than once"
    if len(_single(values, "state") or "") > STATE_LIMIT:
        return "invalid_request", f"state is longer than {STATE_LIMIT} characters"
    for name in ("request", "request_uri"):
        if name in values:
            return f"{name}_not_supported", f"{name} is not supported"
    if _single(values, "response_type") != "code":
        return "unsupported_response_type", "expected response_type=code"
    if _single(values, "response_mode") not in (None, "query"):
        return "invalid_request", "expected response_mode=query, or none"
    challenge = _single(values, "code_challenge") or ""
    if _single(values, "code_challenge_method") != "S256" or not CHALLENGE.fullmatch(challenge):
        return "invalid_request", "expected a code_challenge of the method S256"
    prompts = (_single(values, "prompt") or "").split()
    if not PROMPTS.issuperset(prompts) or ("none" in prompts and len(prompts) > 1):
        return "invalid_request", "expected prompt out of none, login, consent, select_account"
    return None


def read_parameters(text: str, most: int) -> Mapping[str, list[str]]:
    """The values of a query, or of a form, by name. Raises ValueError, also for more than `most`
    fields."""
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(
        text, keep_blank_values=True, errors="strict", max_num_fields=most
    ):
        values.setdefault(name, []).append(value.replace("\0", ""))
    return values


def repeated_name(values: Mapping[str, list[str]]) -> str | None:
    """A parameter that is sent more than once, and may not be (OAuth 2.1, 3.1)."""
    names = (name for name, texts in values.items() if len(texts) > 1 and name != "resource")
    return next(names, None)


def _single(values: Mapping[str, list[str]], name: str) -> str | None:
    texts = values.get(name)
    return texts[0] if texts else None
