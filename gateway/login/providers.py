"""Identity providers: OpenID Connect, code flow with PKCE and nonce, as a confidential client.

Nothing of the gateway's own client reaches a provider: neither its `state`, nor its scopes, nor
`resource`, which Entra ID refuses beside scopes. The redirect URI is another one for each provider,
so that answers cannot be mixed up where a provider sends no `iss` (RFC 9700, 4.4.2).
"""

import base64
import hmac
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from jwt.exceptions import InvalidAudienceError, PyJWTError
from msgspec import Struct

from config.access import CLIENT_PROVIDER, RESERVED_ISSUER, USERS_PROVIDER
from config.login import ProviderSettings, known_as
from config.networks import is_unencrypted
from config.settings import Settings
from gateway.guards.authorization_server_proxy import AuthorizationServer
from gateway.guards.jwt_verifier import TokenVerifier
from gateway.guards.token_claims import claim, strings
from gateway.guards.token_issuers import Issuer, Tenants
from gateway.guards.verification_keys import KeysMissing, RemoteKeys
from gateway.http_client.token_requests import (
    INTERACTIONS,
    INVALID_GRANT,
    ClientCredentials,
    TokenEndpoint,
    TokenFailed,
)
from registry.login.people import Person
from schemas.errors import Fault
from schemas.pkce import challenge_of

log = logging.getLogger("toolgate.login")

NAME_LIMIT = 200  # characters of a display name
EMAIL = "email"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
FINAL_ERRORS = frozenset({INVALID_GRANT, *INTERACTIONS})


class ProviderRefused(Exception):
    """A provider did not log somebody in; the message is safe to show."""


class ProviderAway(Exception):
    """A provider cannot be reached, or does not answer as one does; the message is safe to show."""


class PersonLeft(Exception):
    """A provider no longer renews the login of a person."""


class LoginSecrets(Struct, frozen=True):
    """The secrets of one attempt to log in at a provider. They are derived of the browser's cookie,
    so that whoever reads the database has neither."""

    verifier: str
    nonce: str

    @classmethod
    def derive(cls, browser: str, state: str) -> "LoginSecrets":
        """Secrets of the attempt with this `state`, which is another one for each."""
        return cls(_derive(browser, f"verifier {state}"), _derive(browser, f"nonce {state}"))


def _derive(browser: str, purpose: str) -> str:
    digest = hmac.digest(browser.encode(), f"toolgate login {purpose}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class _Metadata(Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    authorization_response_iss_parameter_supported: bool | None = False


_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderAnswer(Struct, frozen=True):
    """Tokens of a person, "" for those that were not sent."""

    access_token: str
    id_token: str
    refresh_token: str
    lasts_s: float | None  # of the access token
    issued_type: str  # its type (RFC 8693)


class Provider:
    """One entry of `login.providers`."""

    def __init__(self, name: str, entry: ProviderSettings, settings: Settings) -> None:
        self.name = name
        self.title = entry.title or name
        self.entry = entry
        self._settings = settings
        self._server = AuthorizationServer(entry.issuer, settings.oauth)
        self.redirect = f"{settings.server.public_url.rstrip('/')}/login/callback/{name}"
        self._said = ("", "")  # key set and issuer, by the metadata
        self._keys = RemoteKeys("", settings.auth.algorithms, settings.auth)  # of that key set
        self._tokens = TokenVerifier(settings.auth, (), time.time)  # likewise

    async def url(
        self, login_secrets: LoginSecrets, state: str, prompt: str, more: Mapping[str, str]
    ) -> str:
        """Where a browser logs in; `prompt` is of OpenID Connect, `more`: further parameters, whose
        `scope` is asked for besides. Raises ProviderAway."""
        metadata = await self._metadata()
        scope = " ".join((*self.entry.scopes, more.get("scope", ""))).strip()
        query = {
            **more,
            **({"prompt": prompt} if prompt else {}),
            **self.entry.authorize,  # such as `prompt: consent`, without which some renew nothing
            "response_type": "code",
            "client_id": self.entry.client_id,
            "redirect_uri": self.redirect,
            "scope": scope,
            "state": state,
            "nonce": login_secrets.nonce,
            "code_challenge": challenge_of(login_secrets.verifier),
            "code_challenge_method": "S256",
        }
        url = metadata.authorization_endpoint
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def person(
        self, login_secrets: LoginSecrets, answer: Mapping[str, str]
    ) -> tuple[Person, str]:
        """The person who logged in, and the refresh token ("" without one), by the provider's
        answer to the browser. Raises ProviderRefused and ProviderAway."""
        metadata = await self._metadata()
        named = "" if metadata.authorization_response_iss_parameter_supported else metadata.issuer
        if answer.get("iss", named) != metadata.issuer:  # RFC 9207, 2.4
            raise ProviderRefused("The answer is from another provider.")
        if "code" not in answer:
            full_name = " ".join(
                answer[name][:200] for name in ("error", "error_description") if name in answer
            )
            raise ProviderRefused(
                f"{self.title} refused the login: {full_name or 'without a reason'}"
            )
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": self.redirect,
            "code_verifier": login_secrets.verifier,
        }
        tokens = await self._exchange(metadata.token_endpoint, form)
        claims = await self._verify(metadata, tokens.id_token)
        if claims.get("nonce") != login_secrets.nonce:
            raise ProviderRefused("The ID token is for another login.")
        return self.person_of(claims), tokens.refresh_token

    async def renew(self, refresh_token: str) -> tuple[str, Person | None]:
        """The refresh token from now on, and what the provider now says of the person, if it does.
        Raises PersonLeft and ProviderAway: with an outage nobody is logged out."""
        metadata = await self._metadata()
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        try:
            tokens = await self._exchange(metadata.token_endpoint, form, gone=FINAL_ERRORS)
            person = None
            if tokens.id_token:
                person = self.person_of(await self._verify(metadata, tokens.id_token))
        except ProviderRefused as error:  # as a client of which the secret has expired
            raise ProviderAway(str(error)) from error
        return tokens.refresh_token or refresh_token, person

    async def tokens(self, refresh_token: str, scope: str) -> ProviderAnswer:
        """New tokens of a person; `scope`: "" for that of their login. Raises PersonLeft,
        ProviderRefused and ProviderAway."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        form |= {"scope": scope} if scope else {}
        return await self._exchange(await self.token_endpoint(), form, gone=FINAL_ERRORS)

    async def identity_assertion(
        self, id_token: str, *, audience: str, resource: str, scope: str
    ) -> str:
        """An assertion to the authorization server `audience` of who the person is. Raises
        PersonLeft, ProviderRefused and ProviderAway."""
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": ID_JAG,
            "subject_token": id_token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            **({"scope": scope} if scope else {}),
        }
        answer = await self._exchange(await self.token_endpoint(), form, gone=FINAL_ERRORS)
        if answer.issued_type != ID_JAG:  # any other would be good for more than to be told
            raise ProviderRefused(f"{self.title} gives no identity assertions (ID-JAG)")
        return answer.access_token

    async def token_endpoint(self) -> str:
        """Raises ProviderAway."""
        return (await self._metadata()).token_endpoint

    async def assertion(self, text: str, audience: str) -> Mapping[str, Any]:
        """The claims of a token that the provider signed for `audience`. Raises ProviderRefused
        and ProviderAway."""
        try:
            verifier = await self._verifier(await self._metadata())
            return await verifier.made_for(text.encode(), audience)
        except KeysMissing as error:
            raise ProviderAway(str(error)) from error
        except (PyJWTError, ValueError, TypeError) as error:
            raise ProviderRefused(f"The assertion is not good: {error}") from error

    def person_of(self, claims: Mapping[str, Any]) -> Person:
        """Raises ProviderRefused for claims that name nobody."""
        if EMAIL in self.entry.identifying_claims and not has_verified_email(claims):
            raise ProviderRefused(
                f"{self.title} does not say that the e-mail address is verified (the claim "
                "email_verified), by which it names a person here."
            )
        issuer = self._issuer
        subject = claim(claims, self.entry.subject_claim)
        principal = issuer.name({"sub": subject})
        if principal is None:
            raise ProviderRefused("The ID token has no usable subject.")
        try:
            tenant = issuer.tenants.of(claims)
        except PyJWTError as error:
            raise ProviderRefused(f"The ID token names no tenant that there is: {error}") from error
        values = strings(claim(claims, self.entry.roles_claim))
        mapping = self.entry.roles
        roles = {mapping[value] for value in values if value in mapping} if mapping else values
        name = next(
            (
                claims[key]
                for key in ("name", "preferred_username", "email")
                if isinstance(claims.get(key), str) and claims[key].strip()
            ),
            principal,
        )
        extra = {key: claim(claims, key) for key in self.entry.claims}
        if not has_verified_email(claims):
            extra.pop(EMAIL, None)  # a rule would believe what people wrote themselves
        person = Person(
            tenant,
            principal,
            self.name,
            name[:NAME_LIMIT],
            tuple(sorted(roles)),
            {key: value for key, value in extra.items() if value is not None},
            claims[EMAIL] if self.entry.id_jag_email and has_verified_email(claims) else "",
        )
        if b"\\u0000" in msgspec.json.encode(person):  # which PostgreSQL does not store
            raise ProviderRefused("The ID token has a claim with the character NUL.")
        return person

    @property
    def _issuer(self) -> Issuer:
        entry, auth = self.entry, self._settings.auth
        is_gateway_issuer = bool(auth.issuer) and auth.issuer == entry.issuer
        return Issuer(
            iss=entry.issuer,
            keys=self._keys,
            tenants=Tenants(
                entry.tenant or self._settings.tenant.host_id,
                entry.tenant_claim,
                entry.tenants or None,
            ),
            prefix="" if is_gateway_issuer else f"{known_as(auth, self.name, entry)}:",
            reserved=_reserved_prefixes(self._settings) if is_gateway_issuer else frozenset(),
        )

    async def _verify(self, metadata: _Metadata, id_token: str) -> Mapping[str, Any]:
        """The claims of an ID token for this client (OpenID Connect Core 1.0, 3.1.3.7). Raises
        ProviderRefused and ProviderAway."""
        if not id_token:
            raise ProviderRefused(f"{self.title} sent no ID token: has it the scope openid?")
        try:
            verifier = await self._verifier(metadata)
            claims = await verifier.made_for(id_token.encode(), self.entry.client_id)
            if claims.get("azp", self.entry.client_id) != self.entry.client_id:
                raise InvalidAudienceError("its `azp` is another client")
            return claims
        except KeysMissing as error:
            raise ProviderAway(str(error)) from error
        except (PyJWTError, ValueError, TypeError) as error:
            log.warning("id_token_refused", extra={"provider": self.name, "reason": str(error)})
            raise ProviderRefused(f"The ID token is not good: {error}") from error

    async def _verifier(self, metadata: _Metadata) -> TokenVerifier:
        """The verifier of what the metadata says now, whose keys are as old as those of
        `auth.issuers` may be."""
        place = metadata.jwks_uri, metadata.issuer
        if self._said != place:
            self._said = place
            auth = self._settings.auth
            self._keys = RemoteKeys(metadata.jwks_uri, auth.algorithms, auth)
            issuer = replace(self._issuer, iss=metadata.issuer)
            self._tokens = TokenVerifier(auth, [issuer], time.time)
        await self._keys.fetch_due()
        return self._tokens

    async def _exchange(
        self, url: str, form: dict[str, str], gone: Collection[str] = ()
    ) -> ProviderAnswer:
        """The answer of the token endpoint. Raises PersonLeft for an error of `gone`, and
        ProviderRefused and ProviderAway."""
        entry = self.entry
        client = ClientCredentials(
            url,
            entry.client_id,
            entry.client_secret,
            "header" if entry.client_auth == "basic" else "body",
        )
        endpoint = TokenEndpoint(client, "a login", self._settings.login.timeout_s, tls=True)
        try:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
                status, body = await endpoint.post(http, form)
        except TokenFailed as error:
            raise ProviderAway(f"{self.title} does not answer") from error
        members = _members_of(body)
        texts = {name: text for name, text in members.items() if isinstance(text, str)}
        code = texts.get("error", "")
        if status == 200 and not code:
            if not {"access_token", "id_token"} & texts.keys():
                raise ProviderAway(f"{self.title} answered with something else")
            lasts_s = members.get("expires_in")
            return ProviderAnswer(
                texts.get("access_token", ""),
                texts.get("id_token", ""),
                texts.get("refresh_token", ""),
                float(lasts_s) if isinstance(lasts_s, int | float) else None,
                texts.get("issued_token_type", ""),
            )
        reason = f"{code} {texts.get('error_description', '')}".strip()[:300]
        log.warning(
            "provider_refused", extra={"provider": self.name, "status": status, "reason": reason}
        )
        if code in gone:
            raise PersonLeft(reason)
        if status < 500 and code:
            raise ProviderRefused(f"{self.title} gave no token: {reason}")
        raise ProviderAway(f"{self.title} answered HTTP {status}")

    async def _metadata(self) -> _Metadata:
        """Raises ProviderAway."""
        try:
            metadata = msgspec.json.decode(await self._server.metadata(), type=_Metadata)
        except Fault as error:
            raise ProviderAway(f"The metadata of {self.title} cannot be had") from error
        except msgspec.MsgspecError as error:
            raise ProviderAway(f"The metadata of {self.title} is incomplete: {error}") from error
        for name in _ENDPOINTS:  # to which secrets go, and from which keys come
            if not _is_encrypted(getattr(metadata, name)):
                text = f"expected an https:// URL as its {name}, but for a server on loopback"
                raise ProviderAway(f"The metadata of {self.title} cannot be used: {text}")
        return metadata


def has_verified_email(claims: Mapping[str, Any]) -> bool:
    """Whether the provider vouches for the e-mail address; some write the boolean as text."""
    verified = claims.get("email_verified")
    address = claims.get(EMAIL)
    return isinstance(address, str) and "@" in address and (verified is True or verified == "true")


def _is_encrypted(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https") and not is_unencrypted(url)
    except ValueError:
        return False


def _members_of(body: bytes) -> Mapping[str, Any]:
    """The members of a JSON object; none of anything else. Some providers write null for what they
    leave out, and numbers for descriptions."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _reserved_prefixes(settings: Settings) -> frozenset[str]:
    """Prefixes of principals that are not of the issuer without one."""
    names = (RESERVED_ISSUER, USERS_PROVIDER, CLIENT_PROVIDER)
    return frozenset({*settings.auth.issuers, *settings.login.providers, *names})
