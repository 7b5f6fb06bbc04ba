"""The way of a login, walked as a client would, up to where a person is needed.

Sees what a client and a browser see; what only the gateway knows, as the secret at a provider, is
checked where the settings are those of that gateway. No step repairs or stores anything, but for
the registration of a client, which a gateway forgets where nobody logs in with it.
"""

import base64
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from html import unescape
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from msgspec import Struct, field

from config.access import Auth
from config.login import LoginSettings
from config.settings import Settings
from gateway.cli.common.checks import Check
from gateway.cli.doctor.login_clients import GRANTS, KnownClient
from gateway.cli.running.login import listen_for_answer, wait_for_answer
from gateway.guards.verification_keys import RemoteKeys
from gateway.http_client.token_requests import (
    INVALID_CLIENT,
    ClientCredentials,
    TokenEndpoint,
    TokenFailed,
)
from registry.documents.fetch import read_at_most
from schemas.issuers import is_same_issuer, well_known
from schemas.pkce import challenge_of

BODY_BYTES = 2**20
TIMEOUT_S = 30.0
REDIRECTS = 5  # of a provider, on the way to its own page
TEXT_LIMIT = 300  # characters of an answer that is quoted
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "toolgate-doctor", "version": "1"},
    },
}
RESOURCE_METADATA = re.compile(r'resource_metadata="?([^",\s]+)')
PROVIDERS = re.compile(r'name="choice" value="at:([^"]+)"')
HIDDEN_FIELD = re.compile(r'type="hidden" name="([^"]+)" value="([^"]*)"')
HEADING = re.compile(r"<h1[^>]*>")
INVISIBLE = re.compile(r"<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
TAG = re.compile(r"<[^>]*>")
ENTRA_ERROR = re.compile(r"AADSTS\d+[^\"<\\]*")  # its pages of errors have the status 200
T = TypeVar("T")
NATIVE = frozenset({"127.0.0.1", "[::1]", "localhost"})


class StepFailed(Exception):
    """A step of the way failed; the message says what was wrong and what was expected."""


class Resource(Struct):
    resource: str
    authorization_servers: tuple[str, ...] = ()


class Server(Struct):
    """Metadata of an authorization server, or of a provider (RFC 8414, OpenID Discovery 1.0)."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    jwks_uri: str = ""
    code_challenge_methods_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    client_id_metadata_document_supported: bool = False


class Registration(Struct):
    client_id: str
    client_secret: str = ""
    token_endpoint_auth_method: str = "none"  # noqa: S105 - a name of RFC 7591


class Reply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """The status, and what the answer says in its own words."""
        words = _error_of(self.body) or visible_text(self.text)
        return f"HTTP {self.status}{f': {words[:TEXT_LIMIT]}' if words else ''}"


class Walk(Struct, kw_only=True):
    """One walk; what a step learns is there for the next ones."""

    http: aiohttp.ClientSession
    url: str  # of the endpoint
    client: KnownClient
    settings: Settings | None  # of the same gateway, as far as it is known
    resource: Resource = field(default_factory=lambda: Resource(""))
    server: Server = field(default_factory=lambda: Server(""))
    registration: Registration = field(default_factory=lambda: Registration(""))
    page: Reply = Reply(0, {}, b"")
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    async def steps(self, opens: Callable[[str], None] | None = None) -> AsyncIterator[Check]:
        """Each step as it ends; the last one has failed, or all is well. `opens`: how a person gets
        the address to log in at; None: nobody logs in."""
        for name, step in (
            ("challenge", self._read_challenge),
            ("resource", self._read_resource),
            ("server", self._read_server),
            ("register", self._register),
            ("authorize", self._authorize),
        ):
            check = await run_step(name, step)
            yield check
            if check.status == "failed":
                return
        for provider in dict.fromkeys(PROVIDERS.findall(self.page.text)):
            async for check in self._provider_steps(unescape(provider)):
                yield check
                if check.status == "failed":
                    return
        check = await run_step("token", self._ask_token)
        yield check
        if opens is not None and check.status != "failed":
            yield await run_step("call", lambda: self._log_in(opens))

    async def _read_challenge(self) -> str:
        reply = await self._ask("POST", self.url, json=INITIALIZE)
        if reply.status == 200:
            raise StepFailed(f"{self.url} answers without a token: nobody is asked to log in")
        if reply.status != 401:
            raise StepFailed(f"{self.url} answers {reply.reason}; expected 401")
        challenge = RESOURCE_METADATA.search(reply.headers.get("www-authenticate", ""))
        if challenge is None:
            raise StepFailed(
                "the 401 has no resource_metadata in WWW-Authenticate: is auth.mode jwt, and does "
                "a proxy pass that header on?"
            )
        self.resource = Resource(challenge[1])
        return f"401 leads to {challenge[1]}"

    async def _read_resource(self) -> str:
        place = self.resource.resource
        reply = await self._ask("GET", place)
        if reply.status != 200:
            raise StepFailed(f"{place} answers {reply.reason}")
        resource = _decode(reply.body, Resource, place)
        if resource.resource.rstrip("/") != self.url.rstrip("/"):
            raise StepFailed(
                f"{place} is about {resource.resource}, and clients expect {self.url}: is "
                "server.public_url the URL that they use?"
            )
        if not resource.authorization_servers:
            raise StepFailed(f"{place} names no authorization server: is login.enabled set?")
        self.resource = resource
        return f"log in at {resource.authorization_servers[0]}"

    async def _read_server(self) -> str:
        server = self.server = await self._metadata(self.resource.authorization_servers[0])
        if "S256" not in server.code_challenge_methods_supported:
            raise StepFailed("its metadata do not announce S256, without which clients stop")
        missing = [
            name
            for name in ("authorization_endpoint", "token_endpoint")
            if not getattr(server, name)
        ]
        if missing:
            raise StepFailed(f"its metadata have no {missing[0]}")
        return f"metadata of {server.issuer}"

    async def _register(self) -> str:
        client, server = self.client, self.server
        methods = server.token_endpoint_auth_methods_supported
        has_document = client.document and (not client.needs_none or "none" in methods)
        if has_document and server.client_id_metadata_document_supported:
            self.registration = Registration(client.document)
            if server.registration_endpoint:  # others need it, in browsers, too
                reply = await self._ask("OPTIONS", server.registration_endpoint)
                if reply.status >= 400:
                    raise StepFailed(f"{server.registration_endpoint} answers {reply.reason}")
            return f"known by its document {client.document}"
        if not server.registration_endpoint:
            raise StepFailed(
                f"{client.name} has to register itself, and this gateway takes no registrations: "
                "set login.registration to open, or give it an entry of login.clients"
            )
        reply = await self._ask("POST", server.registration_endpoint, json=client.registration)
        if reply.status not in (200, 201):
            raise StepFailed(
                f"{server.registration_endpoint} refuses {client.name}: {reply.reason}"
            )
        self.registration = _decode(reply.body, Registration, server.registration_endpoint)
        method = self.registration.token_endpoint_auth_method
        if method != client.method:
            raise StepFailed(f"it asked for the method {client.method}, and got {method}")
        return f"registered as {self.registration.client_id}, {method}"

    def _authorization_url(self, redirect: str, state: str) -> str:
        query = {
            "response_type": "code",
            "client_id": self.registration.client_id,
            "redirect_uri": redirect,
            "state": state,
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            "resource": self.resource.resource,
        }
        return f"{self.server.authorization_endpoint}?{urlencode(query)}"

    async def _authorize(self) -> str:
        url = self._authorization_url(self.client.redirect, secrets.token_urlsafe(16))
        reply = await self._ask("GET", url, headers={"Sec-Fetch-Site": "none"})
        if reply.status in (302, 303) and "location" in reply.headers:
            answer = _query_of(reply.headers["location"])
            raise StepFailed(f"the client is told {_words_of(answer)}")
        if reply.status != 200:
            raise StepFailed(f"{self.client.redirect}: the page is {reply.reason}")
        self.page = reply
        names = [unescape(name) for name in PROVIDERS.findall(reply.text)]
        if not names and 'type="password"' not in reply.text:
            raise StepFailed("the page offers no way to log in: see login.providers, login.users")
        ways = [*names, *(["a password"] if 'type="password"' in reply.text else [])]
        return f"a page asks to allow {self.client.name}, by {', '.join(ways)}"

    async def _provider_steps(self, name: str) -> AsyncIterator[Check]:
        """Steps of a browser at one provider, and before them those of the gateway itself."""
        settings = self._own_settings()
        entry = settings.login.providers.get(name) if settings else None
        if settings is not None and entry is not None:
            metadata = Server("")

            async def read_metadata() -> str:
                nonlocal metadata
                metadata = await self._metadata(entry.issuer)
                return f"metadata of {entry.issuer}"

            for title, step in (
                ("discovery", read_metadata),
                ("keys", lambda: self._check_keys(settings.auth, metadata)),
                ("secret", lambda: self._check_secret(settings.login, name, metadata)),
            ):
                check = await run_step(f"{name}: {title}", step)
                yield check
                if check.status == "failed":
                    return
        yield await run_step(f"{name}: redirect", lambda: self._visit(name))

    def _own_settings(self) -> Settings | None:
        """The settings, if these are of the gateway that is walked."""
        if self.settings is None:
            return None
        is_this_gateway = self.settings.server.public_url.rstrip("/") == self.server.issuer.rstrip(
            "/"
        )
        return self.settings if is_this_gateway else None

    async def _check_keys(self, auth: Auth, metadata: Server) -> str:
        keys = RemoteKeys(metadata.jwks_uri, auth.algorithms, auth)
        reason = await keys.check()
        if reason is not None:
            raise StepFailed(f"{metadata.jwks_uri or 'no jwks_uri in its metadata'}: {reason}")
        return f"keys at {metadata.jwks_uri}"

    async def _check_secret(self, login: LoginSettings, name: str, metadata: Server) -> str:
        """A code that nobody was given is refused; the secret must not be."""
        entry = login.providers[name]
        credentials = ClientCredentials(
            metadata.token_endpoint,
            entry.client_id,
            entry.client_secret,
            "header" if entry.client_auth == "basic" else "body",
        )
        endpoint = TokenEndpoint(credentials, "a login", login.timeout_s, tls=True)
        form = {
            "grant_type": "authorization_code",
            "code": "of-the-doctor",
            "redirect_uri": self._callback(name),
            "code_verifier": self.verifier,
        }
        try:
            status, body = await endpoint.post(self.http, form)
        except TokenFailed as error:
            raise StepFailed(f"{metadata.token_endpoint}: {error}") from error
        words = _error_of(body)
        if status >= 500 or not words:
            raise StepFailed(f"{metadata.token_endpoint} answers {Reply(status, {}, body).reason}")
        if status == 401 or words.split()[0] in (INVALID_CLIENT, "unauthorized_client"):
            raise StepFailed(
                f"client_id or client_secret of login.providers.{name} is not accepted: {words}"
            )
        return f"accepted at {metadata.token_endpoint}"

    def _callback(self, name: str) -> str:
        return f"{self.server.issuer.rstrip('/')}/login/callback/{name}"

    async def _visit(self, name: str) -> str:
        """Press the button of a provider, and follow the browser's way to the provider's page."""
        page = self._authorization_url(self.client.redirect, secrets.token_urlsafe(16))
        reply = await self._ask("GET", page, headers={"Sec-Fetch-Site": "none"})
        form = {**dict(HIDDEN_FIELD.findall(reply.text)), "choice": f"at:{name}"}
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(page))
        headers = {"Sec-Fetch-Site": "same-origin", "Origin": origin}
        reply = await self._ask("POST", page, headers=headers, data=form)
        if reply.status != 303:
            raise StepFailed(f"the gateway does not send a browser on: {reply.reason}")
        place = reply.headers["location"]
        for _ in range(REDIRECTS):
            if place.startswith(self._callback(name)):
                answer = _query_of(place)
                if "code" not in answer:
                    raise StepFailed(f"the provider answers {_words_of(answer)}")
                return "the provider logs somebody in at once"
            reply = await self._ask("GET", place)
            if reply.status not in (301, 302, 303, 307, 308):
                break
            place = urljoin(place, reply.headers.get("location", ""))
        host = urlsplit(place).netloc
        refusal = ENTRA_ERROR.search(reply.text)
        if refusal is not None:
            raise StepFailed(f"{host} refuses: {unescape(refusal[0])[:TEXT_LIMIT]}")
        if reply.status != 200:
            raise StepFailed(
                f"{host} answers {reply.reason}; its redirect URI has to be {self._callback(name)}"
            )
        return f"{host} asks a person to log in"

    async def _ask_token(self) -> str:
        """A code that nobody was given is refused; the client must not be."""
        status, answer = await self._token(
            {"grant_type": GRANTS[0], "code": "of-the-doctor", "redirect_uri": self.client.redirect}
        )
        if answer.get("error") != "invalid_grant":
            words = _words_of(answer) if answer else "no JSON"
            raise StepFailed(f"{self.server.token_endpoint} answers HTTP {status}: {words}")
        return f"{self.server.token_endpoint} knows {self.client.name}"

    async def _token(self, form: Mapping[str, str]) -> tuple[int, Mapping[str, Any]]:
        client, headers = self.registration, {}
        fields = {**form, "client_id": client.client_id, "code_verifier": self.verifier}
        if client.token_endpoint_auth_method == "client_secret_basic":  # noqa: S105
            pair = base64.b64encode(f"{client.client_id}:{client.client_secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        elif client.client_secret:
            fields["client_secret"] = client.client_secret
        reply = await self._ask("POST", self.server.token_endpoint, headers=headers, data=fields)
        try:
            answer = msgspec.json.decode(reply.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            answer = {}
        return reply.status, answer

    async def _log_in(self, opens: Callable[[str], None]) -> str:
        """Log a person in, make a call with the token, and give it back."""
        parts, state = urlsplit(self.client.redirect), secrets.token_urlsafe(32)
        async with listen_for_answer(state, parts.path) as (port, arrived):
            redirect = f"http://{parts.hostname}:{port}{parts.path}"
            opens(self._authorization_url(redirect, state))
            back = await wait_for_answer(arrived)
        if back.get("iss") != self.server.issuer:  # RFC 9207
            raise StepFailed("the answer to the browser is from another server")
        if "code" not in back:
            raise StepFailed(f"not logged in: {_words_of(back)}")
        form = {"grant_type": GRANTS[0], "code": back["code"], "redirect_uri": redirect}
        status, tokens = await self._token(form)
        if status != 200:
            raise StepFailed(f"no token: HTTP {status}, {_words_of(tokens)}")
        bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
        reply = await self._ask("POST", self.url, json=INITIALIZE, headers=bearer)
        if self.server.revocation_endpoint and "refresh_token" in tokens:
            revocation = {
                "token": tokens["refresh_token"],
                "client_id": self.registration.client_id,
            }
            await self._ask("POST", self.server.revocation_endpoint, data=revocation)
        if reply.status != 200:
            raise StepFailed(f"a call with the token answers {reply.reason}")
        return f"a call with the token succeeds, with the scopes {tokens.get('scope') or 'of none'}"

    async def _metadata(self, issuer: str) -> Server:
        """The metadata of a server, from the first usual place that has them."""
        missing = []
        for place in well_known(issuer):
            reply = await self._ask("GET", place)
            if reply.status == 200:
                server = _decode(reply.body, Server, place)
                if not is_same_issuer(server.issuer, issuer):
                    raise StepFailed(f"{place} has the issuer {server.issuer}, expected {issuer}")
                return server
            missing.append(f"{place} answers HTTP {reply.status}")
        raise StepFailed(f"no metadata of {issuer}: {'; '.join(missing)}")

    async def _ask(self, method: str, url: str, **request: Any) -> Reply:
        """Raises StepFailed where nobody answers."""
        headers = {"Accept": "application/json, text/event-stream, text/html"}
        request["headers"] = {**headers, **request.get("headers", {})}
        try:
            async with self.http.request(method, url, allow_redirects=False, **request) as response:
                body = await read_at_most(response, BODY_BYTES) or b""
                return Reply(response.status, response.headers, body)
        except TimeoutError as error:
            raise StepFailed(f"{_bare(url)} does not answer within {TIMEOUT_S:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise StepFailed(f"{_bare(url)} cannot be reached: {reason}") from error


async def run_step(name: str, step: Callable[[], Awaitable[str]]) -> Check:
    try:
        return Check(name, "ok", await step())
    except StepFailed as error:
        return Check(name, "failed", str(error))


def can_come_back(client: KnownClient) -> bool:
    """Whether a client leads back to a program of the person's own computer."""
    parts = urlsplit(client.redirect)
    return parts.scheme == "http" and parts.hostname in NATIVE


def visible_text(page: str) -> str:
    """The text of a page from its heading on, in one line."""
    page = INVISIBLE.sub(" ", page)
    heading = HEADING.search(page)
    return " ".join(unescape(TAG.sub(" ", page[heading.start() if heading else 0 :])).split())


def _bare(url: str) -> str:
    return url.partition("?")[0]


def _query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def _words_of(answer: Mapping[str, Any]) -> str:
    """The error of an answer (RFC 6749, 4.1.2.1 and 5.2), in the server's own words."""
    words = " ".join(str(answer[key]) for key in ("error", "error_description") if key in answer)
    return words[:TEXT_LIMIT] or "neither a code nor an error"


def _error_of(body: bytes) -> str:
    """The error that a JSON document tells of; "" for any other text."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return _words_of(answer) if isinstance(answer, dict) and "error" in answer else ""


def _decode(body: bytes, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StepFailed(f"{_bare(place)} is not as expected: {error}") from error
