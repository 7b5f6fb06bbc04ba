"""How tokens are had: by login, by a refresh token, by a program of its own, and in exchange."""

import time
from secrets import token_urlsafe
from typing import Any

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import InvalidRequestError, InvalidScopeError, grants
from authlib.oauth2.rfc6749.errors import UnauthorizedClientError
from authlib.oauth2.rfc6749.grants import BaseGrant, TokenEndpointMixin
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc.errors import JoseError

from tests.servers.issuer.accounts import (
    OPENID,
    TOKEN_EXCHANGE,
    USERS,
    Client,
    Code,
    Grantee,
    RefreshToken,
    is_below,
    within,
)
from tests.servers.issuer.keys import Keys

SECRETS = ("client_secret_basic", "client_secret_post")
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
TOKEN_TYPES = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt")


class InvalidTarget(OAuth2Error):
    """RFC 8707, section 2."""

    error = "invalid_target"


class Pkce(CodeChallenge):
    """RFC 7636 for everybody, and not in the clear (OAuth 2.1, section 7.6)."""

    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        if not grant.request.payload.data.get("code_challenge_method"):
            raise InvalidRequestError("Missing 'code_challenge_method'")
        super().validate_code_challenge(grant, redirect_uri)


class AccessTokens(JWTBearerTokenGenerator):
    """JWTs (RFC 9068) for one audience."""

    def __init__(self, issuer: str, keys: Keys, lifetime_s: int) -> None:
        super().__init__(
            issuer, "ES256", lambda **_about: token_urlsafe(32), lambda _client, _grant: lifetime_s
        )
        self._keys = keys

    def get_jwks(self) -> Any:
        return self._keys.signing

    def get_audiences(self, _client: Client, grantee: Grantee, _scope: str) -> str:
        return grantee.audience

    def get_extra_claims(
        self, _client: Client, _grant_type: str, grantee: Grantee, _scope: str
    ) -> dict[str, Any]:
        claims = {"roles": list(grantee.roles), "act": grantee.actor, "exp": grantee.ends}
        return {name: value for name, value in claims.items() if value}


class Login(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = (*SECRETS, "none")

    def validate_authorization_request(self) -> str:
        redirect_uri: str = super().validate_authorization_request()
        try:
            self.server.target(self.request)
        except InvalidTarget as error:
            error.redirect_uri = redirect_uri
            raise
        return redirect_uri

    def save_authorization_code(self, code: str, request: Any) -> None:
        user, said = request.user, request.payload.data
        self.server.accounts.codes[code] = Code(
            code,
            request.client.client_id,
            request.payload.redirect_uri,
            within(request.client.get_allowed_scope(request.payload.scope), user.scopes),
            Grantee(user.name, self.server.target(request), user.roles),
            said["code_challenge"],
            said["code_challenge_method"],
            said.get("nonce", "") if OPENID in said.get("scope", "").split() else "",
        )

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        """Good once; for who got it, and for what it was got for."""
        found = self.server.accounts.codes.pop(code, None)
        if found is None or found.client_id != client.client_id or found.ends < time.time():
            return None
        self.server.same_target(self.request, found.grantee)
        return found

    def delete_authorization_code(self, authorization_code: Code) -> None:
        """It went when it was looked up."""

    def authenticate_user(self, authorization_code: Code) -> Grantee:
        return authorization_code.grantee

    def create_token_response(self) -> Any:
        """With an ID token for a client that asked for one (OpenID Connect Core, 3.1.3.3)."""
        code = self.request.authorization_code
        status, token, headers = super().create_token_response()
        if code.nonce:
            now = int(time.time())
            token["id_token"] = self.server.keys.sign(
                {
                    "iss": self.server.issuer,
                    "sub": code.grantee.subject,
                    "aud": self.request.client.client_id,
                    "iat": now,
                    "exp": now + self.server.lifetime_s,
                    "nonce": code.nonce,
                }
            )
        return status, token, headers


class Refresh(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = (*SECRETS, "none")
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> RefreshToken | None:
        found = self.server.accounts.refresh_tokens.get(refresh_token)
        if found is None or found.grantee.subject not in USERS:
            return None
        self.server.same_target(self.request, found.grantee)
        return found

    def authenticate_user(self, refresh_token: RefreshToken) -> Grantee:
        return refresh_token.grantee

    def revoke_old_credential(self, refresh_token: RefreshToken) -> None:
        """Each is good once (OAuth 2.1, section 4.3.1)."""
        self.server.accounts.refresh_tokens.pop(refresh_token.text, None)


class ByItself(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = SECRETS

    def create_token_response(self) -> Any:
        grantee = Grantee(self.request.client.client_id, self.server.target(self.request))
        scope = self.request.payload.scope
        token = self.generate_token(user=grantee, scope=scope, include_refresh_token=False)
        return 200, token, self.TOKEN_RESPONSE_HEADER


class Exchange(BaseGrant, TokenEndpointMixin):
    """RFC 8693: a token for another audience, on behalf of whom the first one is about."""

    GRANT_TYPE = TOKEN_EXCHANGE
    TOKEN_ENDPOINT_AUTH_METHODS = SECRETS

    def validate_token_request(self) -> None:
        client = self.authenticate_token_endpoint_client()
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError("The client may not exchange tokens")
        self.request.client = client
        self._subject = self._token("subject_token")
        if not client.receives or not is_below(self._subject["aud"], client.receives):
            raise InvalidRequestError("The subject_token was not issued for this client")
        self._actor = None
        if self.request.form.get("actor_token"):
            self._actor = self._token("actor_token")
            if self._actor["sub"] != client.client_id:
                raise InvalidRequestError("The actor_token is not the client's own")
        if self.request.form.get("requested_token_type", ACCESS_TOKEN) not in TOKEN_TYPES:
            raise InvalidRequestError("Only access tokens can be requested")

    def create_token_response(self) -> Any:
        has = self._subject.get("scope", "").split()
        wanted = self.request.payload.scope
        if not set((wanted or "").split()) <= set(has):
            raise InvalidScopeError("The subject_token does not have this scope")
        grantee = Grantee(
            self._subject["sub"],
            self.server.target(self.request),
            tuple(self._subject.get("roles", ())),
            self._acting(),
            min(self._subject["exp"], int(time.time()) + self.server.lifetime_s),
        )
        token = self.generate_token(
            user=grantee, scope=within(wanted, has), include_refresh_token=False
        )
        token["expires_in"] = max(0, int(grantee.ends or 0) - int(time.time()))
        token["issued_token_type"] = ACCESS_TOKEN
        return 200, token, self.TOKEN_RESPONSE_HEADER

    def _acting(self) -> dict[str, Any] | None:
        """Who acts now, and through whom it came so far (section 4.1)."""
        before = self._subject.get("act")
        if self._actor is None:
            return before
        return {"sub": self._actor["sub"], **({"act": before} if before else {})}

    def _token(self, name: str) -> dict[str, Any]:
        """The claims of a token of ours that still holds."""
        if self.request.form.get(f"{name}_type") not in TOKEN_TYPES:
            raise InvalidRequestError(f"The {name}_type is none that is known")
        try:
            claims: dict[str, Any] = self.server.keys.read(self.request.form.get(name, ""))
        except (JoseError, ValueError) as error:
            raise InvalidRequestError(f"The {name} is no token of this server") from error
        if claims["iss"] != self.server.issuer or claims["exp"] <= time.time():
            raise InvalidRequestError(f"The {name} does not hold any more")
        return claims
