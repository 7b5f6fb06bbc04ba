"""The token endpoint, and the revocation of tokens (RFC 7009)."""

import logging
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import jwt
import msgspec
from jwt.exceptions import PyJWTError

from config.access import CLIENT_PROVIDER, USERS_PROVIDER
from gateway.login.access_tokens import LoginKeys
from gateway.login.clients import LoginClient
from gateway.login.login_errors import LoginError
from gateway.login.login_parts import LoginParts
from gateway.login.login_records import Decision, LoginAct
from gateway.login.providers import PersonLeft, Provider, ProviderAway, ProviderRefused
from registry.access.secrets import SecretRefused
from registry.database.postgres import borrow
from registry.login.logins_and_grants import CodeClaim, Grant, Refused, Taken
from registry.login.password_users import Users
from registry.login.people import Person, match_email, note_login
from schemas.pkce import challenge_of

log = logging.getLogger("toolgate.login")

VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG_TYPE = "oauth-id-jag+jwt"
ID_JAG_S = 300.0
OWN_CLAIMS = frozenset(
    {"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "sid", "client_id", "scope", "roles"}
    | {"tenant"}
)

PERSON_GONE = "the person has left their provider"
PERSON_UNCHECKED = "the provider could not be asked about the person for too long; log in again"

WHY: Mapping[str, str] = {
    "unknown": "it is unknown, or has ended",
    "reused": "it was used before; all that it gave has ended",
    "client": "it is another client's",
    "redirect": "redirect_uri is not that of the authorization request",
    "challenge": "code_verifier does not match the code_challenge",
    "resource": "resource is not that of the authorization request",
    "ended": "it has ended",
}


class TokenIssuer:
    def __init__(self, parts: LoginParts, keys: LoginKeys) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._keys = keys

    async def exchange(
        self, client: LoginClient, form: Mapping[str, str], resources: list[str], address: str
    ) -> dict[str, Any]:
        """The answer to a grant. Raises LoginError."""
        match form.get("grant_type", ""):
            case "authorization_code" if "authorization_code" in client.grants:
                return await self._by_code(client, form, resources, address)
            case "refresh_token" if "authorization_code" in client.grants:
                return await self._by_refresh(client, form, resources, address)
            case "client_credentials" if "client_credentials" in client.grants:
                return await self._by_client(client, form, resources, address)
            case grant if grant == JWT_BEARER and self._takes_assertions(client):
                return await self._by_assertion(client, form, resources, address)
            case "":
                raise LoginError(400, "invalid_request", "expected grant_type")
            case "authorization_code" | "refresh_token" | "client_credentials":
                raise LoginError(400, "unauthorized_client", "this client may not use this grant")
            case grant if grant == JWT_BEARER:
                raise LoginError(400, "unauthorized_client", "this client may not use this grant")
            case _:
                raise LoginError(400, "unsupported_grant_type", "this grant is not known here")

    async def revoke(self, client: LoginClient, token: str) -> None:
        """End what a token belongs to; nothing happens for one that is unknown, or another
        client's (RFC 7009, 2.2)."""
        logins = self._parts.logins
        grant = await logins.find_by_refresh(token)
        sid = None if grant is None else str(grant.id)
        tenant = None if grant is None else grant.tenant
        if grant is None:
            claims = await self._own_claims(token)
            if claims.get("client_id") != client.id:
                return
            sid, tenant = claims.get("sid"), claims.get("tenant")
        elif grant.client_id != client.id:
            return
        if not isinstance(sid, str) or not isinstance(tenant, str):
            return
        if not await logins.end(tenant, sid):
            await logins.revoke(tenant, sid)
        await self._parts.revoke_at_once()
        self._parts.record(LoginAct("end", client.id, "allow", tenant))

    async def _by_code(
        self, client: LoginClient, form: Mapping[str, str], resources: list[str], address: str
    ) -> dict[str, Any]:
        verifier, code = form.get("code_verifier", ""), form.get("code", "")
        if not code:
            raise LoginError(400, "invalid_request", "expected code")
        if not VERIFIER.fullmatch(verifier):
            raise LoginError(
                400, "invalid_grant", "expected a code_verifier of 43 to 128 characters"
            )
        redirect = form.get("redirect_uri") or (client.redirect(None) or "")
        resource, challenge = self._resource(resources), challenge_of(verifier)
        claim = CodeClaim(code, client.id, redirect, challenge, resource)
        redeemed = await self._parts.logins.take_code(claim)
        return await self._answer(
            client, await self._check_taken(client, redeemed, "code", address), ()
        )

    async def _by_refresh(
        self, client: LoginClient, form: Mapping[str, str], resources: list[str], address: str
    ) -> dict[str, Any]:
        login = self._settings.login
        redeemed = await self._parts.logins.refresh(
            form.get("refresh_token", ""),
            client.id,
            self._resource(resources),
            grace_s=login.refresh_grace_s,
            idle_s=login.idle_s,
        )
        redeemed = await self._check_taken(client, redeemed, "refresh token", address)
        person = await self._still_there(redeemed.grant)
        answer = await self._answer(
            client, redeemed, tuple(form.get("scope", "").split()), person=person
        )
        self._parts.record(LoginAct.of(person, "refresh", client.id, "allow", address=address))
        return answer

    async def _by_client(
        self, client: LoginClient, form: Mapping[str, str], resources: list[str], address: str
    ) -> dict[str, Any]:
        """A token for the client itself (RFC 6749, 4.4)."""
        if client.method == "none":
            raise LoginError(401, "invalid_client", "a client without a secret is nobody")
        resource = self._resource(resources) or self._parts.issuer
        has = frozenset((*self._parts.scopes.of(client.roles), *client.scopes))
        requested_scopes = tuple(form.get("scope", "").split()) or client.scopes
        host_id = self._settings.tenant.host_id
        person = Person(
            host_id, f"{CLIENT_PROVIDER}:{client.id}", CLIENT_PROVIDER, client.name, client.roles
        )
        self._parts.record(LoginAct.of(person, "token", client.id, "allow", address=address))
        scopes = self._parts.scopes.grant(requested_scopes, has)
        return await self._token(client, person, sid=str(uuid4()), resource=resource, scopes=scopes)

    async def _by_assertion(
        self, client: LoginClient, form: Mapping[str, str], resources: list[str], address: str
    ) -> dict[str, Any]:
        """A token by an identity assertion of a provider (ID-JAG,
        draft-ietf-oauth-identity-assertion-authz-grant): no page, and no refresh token."""
        text = form.get("assertion", "")
        provider, claims = await self._assertion(text)
        if claims.get("client_id") != client.id:
            raise LoginError(400, "invalid_grant", "the assertion is for another client")
        now = datetime.now(UTC).timestamp()
        leeway = self._settings.auth.leeway_s
        if float(claims["exp"]) > now + ID_JAG_S + leeway:
            raise LoginError(400, "invalid_grant", "the assertion is good for too long")
        resource = self._parts.resources.read(_texts(claims.get("resource", [])))
        if resource is None or self._resource(resources) not in ("", resource):
            raise LoginError(400, "invalid_target", "the assertion is for another resource")
        jti = claims.get("jti")
        until = datetime.fromtimestamp(float(claims["exp"]), UTC) + timedelta(seconds=leeway)
        if not isinstance(jti, str) or not await self._parts.logins.use_once(
            f"{provider.name} {jti}", until
        ):
            raise LoginError(400, "invalid_grant", "the assertion has no jti, or was used before")
        try:
            person = provider.person_of(claims)
        except ProviderRefused as error:
            raise LoginError(400, "invalid_grant", str(error)) from error
        host_id = self._settings.tenant.host_id
        async with borrow(self._parts.pool()) as connection:
            person = await match_email(connection, host_id, person)
            allowed = await note_login(connection, host_id, person)
        decision: Decision = "allow" if allowed else "deny"
        self._parts.record(LoginAct.of(person, "id_jag", client.id, decision, address=address))
        if not allowed:
            raise LoginError(400, "invalid_grant", "this person is disabled here")
        wanted_scopes = str(claims.get("scope", "")).split()
        requested_scopes = form.get("scope", "").split()
        wanted_scopes = (
            [scope for scope in wanted_scopes if scope in requested_scopes]
            if requested_scopes
            else wanted_scopes
        )
        scopes = self._parts.scopes.grant(wanted_scopes, self._parts.scopes.of(person.roles))
        return await self._token(client, person, sid=str(uuid4()), resource=resource, scopes=scopes)

    @property
    def takes_assertions(self) -> bool:
        """Whether assertions of some provider are grants."""
        return any(provider.entry.id_jag for provider in self._parts.providers.values())

    def _takes_assertions(self, client: LoginClient) -> bool:
        allowed = client.kind != "configured" or "id_jag" in client.grants
        return self.takes_assertions and allowed and client.method != "none"

    async def _assertion(self, text: str) -> tuple[Provider, Mapping[str, Any]]:
        """The provider of an assertion, and its verified claims. Raises LoginError."""
        try:
            header = jwt.get_unverified_header(text)
            issuer = jwt.decode(text, options={"verify_signature": False}).get("iss")
        except (PyJWTError, ValueError) as error:
            raise LoginError(400, "invalid_grant", "the assertion is no JWT") from error
        if str(header.get("typ", "")).lower().removeprefix("application/") != ID_JAG_TYPE:
            raise LoginError(400, "invalid_grant", f"expected an assertion of type {ID_JAG_TYPE}")
        for provider in self._parts.providers.values():
            if provider.entry.id_jag and provider.entry.issuer == issuer:
                try:
                    return provider, await provider.assertion(text, self._parts.issuer)
                except ProviderRefused as error:
                    raise LoginError(400, "invalid_grant", str(error)) from error
                except ProviderAway as error:
                    raise LoginError(503, "temporarily_unavailable", str(error)) from error
        raise LoginError(400, "invalid_grant", "the assertion is of nobody that is trusted here")

    async def _check_taken(
        self, client: LoginClient, redemption: Taken | Refused, label: str, address: str
    ) -> Taken:
        """Raises LoginError."""
        if isinstance(redemption, Taken):
            return redemption
        grant = redemption.grant
        if grant is not None:
            await self._parts.revoke_at_once()
            act = "reuse" if redemption.reason == "reused" else "end"
            self._parts.record(
                LoginAct(act, client.id, "deny", grant.tenant, grant.principal, address)
            )
        code = "invalid_target" if redemption.reason == "resource" else "invalid_grant"
        raise LoginError(400, code, f"the {label}: {WHY[redemption.reason]}")

    async def _still_there(self, grant: Grant) -> Person:
        """The person of a grant, of whom their provider is asked now and then. Raises LoginError
        where they have left."""
        person = msgspec.convert(grant.person, Person)
        if grant.provider == USERS_PROVIDER:
            return await self._user(grant, person)
        provider = self._parts.providers.get(grant.provider)
        if provider is None:
            return await self._without_check(grant, person, "it is not in login.providers")
        sealed = await self._parts.logins.claim_check(grant.login, self._settings.login.check_s)
        if sealed is None:
            return person
        login = str(grant.login)
        try:
            refresh, renewed = await provider.renew(self._parts.accounts.unseal(login, sealed))
        except PersonLeft as error:
            raise await self._leave(grant, person, PERSON_GONE) from error
        except (ProviderAway, SecretRefused) as error:
            return await self._without_check(grant, person, str(error))
        if renewed is not None and (renewed.principal, renewed.tenant) != (
            person.principal,
            person.tenant,
        ):
            return await self._without_check(grant, person, "it answered about somebody else")
        account_members = None if renewed is None else msgspec.to_builtins(renewed)
        await self._parts.logins.note_check(
            grant.login, self._parts.accounts.seal(login, refresh), account_members
        )
        return renewed or person

    async def _user(self, grant: Grant, person: Person) -> Person:
        """A user of the gateway's own, with the roles that they have now. Raises LoginError."""
        users = Users(self._parts.pool(), self._settings.tenant.host_id)
        user = await users.find(person.name) if self._settings.login.users else None
        if user is None or user.disabled or user.tenant != person.tenant:
            raise await self._leave(grant, person, PERSON_GONE)
        return user.person

    async def _without_check(self, grant: Grant, person: Person, reason: str) -> Person:
        """The person as they were, since an outage logs nobody out. Raises LoginError where it has
        lasted too long for somebody who may have left."""
        log.warning("person_not_checked", extra={"provider": grant.provider, "reason": reason})
        if await self._parts.logins.note_failure(grant.login, self._settings.login.unchecked_s):
            raise await self._leave(grant, person, PERSON_UNCHECKED)
        return person

    async def _leave(self, grant: Grant, person: Person, text: str) -> LoginError:
        """End the login of a person who has left, or may have; returns what the client is told."""
        await self._parts.logins.end(grant.tenant, str(grant.login))
        await self._parts.revoke_at_once()
        self._parts.record(LoginAct.of(person, "left", grant.provider, "deny"))
        return LoginError(400, "invalid_grant", text)

    async def _answer(
        self,
        client: LoginClient,
        redemption: Taken,
        requested_scopes: tuple[str, ...],
        person: Person | None = None,
    ) -> dict[str, Any]:
        grant = redemption.grant
        person = person or msgspec.convert(grant.person, Person)
        has = self._parts.scopes.of(person.roles)
        scopes = tuple(scope for scope in grant.scopes if scope in has)
        if requested_scopes and set(requested_scopes) & set(scopes):
            scopes = tuple(scope for scope in scopes if scope in requested_scopes)
        answer = await self._token(
            client, person, sid=str(grant.id), resource=grant.resource, scopes=scopes
        )
        return {**answer, "refresh_token": redemption.refresh}

    async def _token(
        self,
        client: LoginClient,
        person: Person,
        *,
        sid: str,
        resource: str,
        scopes: tuple[str, ...],
    ) -> dict[str, Any]:
        now, lasts_s = int(time.time()), int(client.access_s or self._settings.login.access_s)
        claims = {
            **{name: value for name, value in person.claims.items() if name not in OWN_CLAIMS},
            "iss": self._parts.issuer,
            "sub": person.principal,
            "aud": resource,
            "iat": now,
            "exp": now + lasts_s,
            "client_id": client.id,
            "sid": sid,
            "scope": " ".join(scopes),
            "roles": [*person.roles],
            "tenant": person.tenant,
        }
        return {
            "access_token": await self._keys.sign(claims),
            "token_type": "Bearer",
            "expires_in": lasts_s,
            "scope": " ".join(scopes),
        }

    async def _own_claims(self, token: str) -> Mapping[str, Any]:
        """The claims of an access token of this login, expired or not; none for any other."""
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.ring.find(header) if self._keys.ring is not None else None
            if key is None and await self._keys.reload() and self._keys.ring is not None:
                key = self._keys.ring.find(header)  # of another node
            if key is None:
                return {}
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[*key.algorithms],
                issuer=self._parts.issuer,
                options={"verify_exp": False, "verify_aud": False},
            )
        except (PyJWTError, ValueError):
            return {}
        return claims

    def _resource(self, resources: list[str]) -> str:
        """The resource of a request; "" where it names none. Raises LoginError."""
        if not any(resources):
            return ""
        resource = self._parts.resources.read(resources)
        if resource is None:
            raise LoginError(400, "invalid_target", "expected one endpoint of this gateway")
        return resource


def _texts(value: Any) -> list[str]:
    """The texts of a claim that is one, or a list of some; a list of "?" for anything else."""
    values = value if isinstance(value, list) else [value]
    return values if all(isinstance(text, str) for text in values) else ["?"]
