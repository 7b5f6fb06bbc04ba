"""What authlib leaves to whoever uses it: requests, answers, clients, and what tokens are for."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from authlib.oauth2 import AuthorizationServer, OAuth2Error
from authlib.oauth2.rfc6749 import JsonPayload, JsonRequest, OAuth2Payload, OAuth2Request
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint, InvalidClientMetadataError
from authlib.oauth2.rfc9207 import IssuerParameter

from tests.servers.issuer.accounts import (
    OPENID,
    SCOPES,
    TOKEN_EXCHANGE,
    Accounts,
    Client,
    Grantee,
    RefreshToken,
    is_below,
)
from tests.servers.issuer.grants import (
    SECRETS,
    AccessTokens,
    ByItself,
    Exchange,
    InvalidTarget,
    Login,
    Pkce,
    Refresh,
)
from tests.servers.issuer.keys import Keys


@dataclass
class Asked:
    """An HTTP request, read."""

    method: str
    url: str
    headers: dict[str, str]
    query: str
    body: bytes = b""


@dataclass
class Answer:
    status: int
    body: Any
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def location(self) -> str:
        return dict(self.headers).get("Location", "")

    @location.setter
    def location(self, url: str) -> None:
        self.headers = [("Location", url)]


class Form(OAuth2Payload):
    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs

    @property
    def data(self) -> dict[str, str]:
        return dict(self._pairs)

    @property
    def datalist(self) -> defaultdict[str, list[str]]:
        found = defaultdict(list)
        for name, value in self._pairs:
            found[name].append(value)
        return found


class FormRequest(OAuth2Request):
    def __init__(self, request: Asked) -> None:
        super().__init__(request.method, request.url, headers=request.headers)
        self._form = parse_qsl(request.body.decode(), keep_blank_values=True)
        self.payload = Form([*parse_qsl(request.query, keep_blank_values=True), *self._form])

    @property
    def form(self) -> dict[str, str]:
        return dict(self._form)


class Json(JsonPayload):
    def __init__(self, value: Any) -> None:
        self._value = value

    @property
    def data(self) -> Any:
        return self._value


class Issuer(IssuerParameter):
    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    def get_issuer(self) -> str:
        return self._issuer


class Registration(ClientRegistrationEndpoint):
    """RFC 7591, open to all: whoever registers gets nothing before somebody logs in."""

    def authenticate_token(self, _request: Any) -> str:
        return "anybody"

    def get_server_metadata(self) -> dict[str, Any]:
        return self.server.metadata

    def generate_client_info(self, request: Any) -> dict[str, Any]:
        info: dict[str, Any] = super().generate_client_info(request)
        method = request.payload.data.get("token_endpoint_auth_method")
        if method == "none":
            del info["client_secret"], info["client_secret_expires_at"]
        return info

    def save_client(
        self, client_info: dict[str, Any], client_metadata: dict[str, Any], _request: Any
    ) -> Client:
        addresses = client_metadata.get("redirect_uris") or ()
        if not addresses:
            raise InvalidClientMetadataError("redirect_uris is missing")
        grants = set(client_metadata.get("grant_types") or ["authorization_code"])
        client = Client(
            client_info["client_id"],
            client_info.get("client_secret", ""),
            client_metadata.get("client_name", ""),
            tuple(addresses),
            tuple(grants & {"authorization_code", "refresh_token"}),
        )
        self.server.accounts.add(client)
        return client


class Revocation(RevocationEndpoint):
    """RFC 7009, of refresh tokens; access tokens end by themselves, soon."""

    CLIENT_AUTH_METHODS = (*SECRETS, "none")

    def query_token(self, token_string: str, _hint: str | None) -> RefreshToken | None:
        return self.server.accounts.refresh_tokens.get(token_string)

    def revoke_token(self, token: RefreshToken, _request: Any) -> None:
        self.server.accounts.refresh_tokens.pop(token.text, None)


class Server(AuthorizationServer):
    def __init__(self, issuer: str, resources: Sequence[str], lifetime_s: int = 300) -> None:
        """`resources`: URLs of what tokens may be for; also of all below them. The first is meant
        where a client does not say."""
        super().__init__([*SCOPES, OPENID])
        self.issuer = issuer
        self.resources = list(resources)
        self.lifetime_s = lifetime_s
        self.accounts = Accounts()
        self.keys = Keys()
        self.register_token_generator("default", AccessTokens(issuer, self.keys, lifetime_s))
        self.register_grant(Login, [Pkce()])
        for grant in (Refresh, ByItself, Exchange):
            self.register_grant(grant)
        self.register_endpoint(Registration)
        self.register_endpoint(Revocation)
        self._iss = Issuer(issuer)
        self.register_extension(self._iss)

    @property
    def metadata(self) -> dict[str, Any]:
        """RFC 8414, section 2."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "scopes_supported": [*SCOPES, OPENID],
            "response_types_supported": ["code"],
            "grant_types_supported": [
                "authorization_code",
                "refresh_token",
                "client_credentials",
                TOKEN_EXCHANGE,
            ],
            "token_endpoint_auth_methods_supported": [*SECRETS, "none"],
            "revocation_endpoint_auth_methods_supported": [*SECRETS, "none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def refusal(self, request: Any, error: OAuth2Error) -> Answer:
        """Of a login that never began; also that says who says so (RFC 9207, section 2)."""
        answer: Answer = self.handle_error_response(request, error)
        self._iss.add_issuer_parameter(self, answer)
        return answer

    def target(self, request: Any) -> str:
        """What the token is to be for (RFC 8707). Raises InvalidTarget."""
        wanted = request.payload.datalist.get("resource", [])
        wanted = wanted or request.payload.datalist.get("audience", [])
        if len(wanted) > 1:
            raise InvalidTarget("One resource at a time")
        if not wanted:
            return self.resources[0]
        found = next((one for one in self.resources if is_below(wanted[0], one)), None)
        if found is None:
            raise InvalidTarget("No such resource is known here")
        return str(wanted[0])

    def same_target(self, request: Any, grantee: Grantee) -> None:
        """A login is for one resource. Raises InvalidTarget."""
        if request.payload.datalist.get("resource") and self.target(request) != grantee.audience:
            raise InvalidTarget("The login was for another resource")

    def query_client(self, client_id: str) -> Client | None:
        return self.accounts.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        if text := token.get("refresh_token"):
            grantee, client = request.user, request.client.client_id
            kept = RefreshToken(text, client, token.get("scope", ""), grantee)
            self.accounts.refresh_tokens[text] = kept

    def create_oauth2_request(self, request: Any) -> Any:
        return request if isinstance(request, OAuth2Request) else FormRequest(request)

    def create_json_request(self, request: Any) -> JsonRequest:
        made = JsonRequest(request.method, request.url, request.headers)
        made.payload = Json(request.body)
        return made

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        return Answer(status, body, list(headers))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Nobody listens."""
