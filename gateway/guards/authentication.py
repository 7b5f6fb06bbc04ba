"""Authentication of HTTP requests: bearer tokens and API keys.

No request is refused here: `Identity` carries the reason why the caller is anonymous, and the code
that requires a principal raises it.
"""

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import anyio
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.exceptions import ExpiredSignatureError, InvalidTokenError, PyJWTError
from starlette.types import Scope

from config.access import Auth
from gateway.context import Identity, Principal
from gateway.guards.api_keys import KeyTable, UnknownKey, is_key
from gateway.guards.jwt_verifier import Token, TokenVerifier
from gateway.guards.token_issuers import Issuer, issuers_of
from gateway.guards.verification_keys import LocalKeys, RemoteKeys
from registry.access.revocations import load_revocations, purge
from registry.database.postgres import Pool
from schemas.errors import Fault, Unavailable
from schemas.hybrid import (
    AUTH_TOKEN_EXPIRED,
    INVALID_AUTH_TOKEN,
    INVALID_SCOPE_TOKEN,
    MISSING_AUTH_TOKEN,
    SCOPE_TOKEN_EXPIRED,
    TOKEN_VERIFICATION_EXCEPTION,
    StatusFault,
    StatusKind,
)

log = logging.getLogger("toolgate.auth")

BEARER = b"bearer "
CREDENTIALS = frozenset((b"authorization", b"x-scope-token", b"x-api-key"))


class TokenFaults(NamedTuple):
    """Faults for a bad token in one header."""

    header: str
    invalid: StatusKind
    expired: StatusKind


AUTHORIZATION = TokenFaults("Authorization", INVALID_AUTH_TOKEN, AUTH_TOKEN_EXPIRED)
API_KEY = AUTHORIZATION._replace(header="X-API-Key")
SCOPE_TOKEN = TokenFaults("X-Scope-Token", INVALID_SCOPE_TOKEN, SCOPE_TOKEN_EXPIRED)


class Authenticator:
    """Identifies the sender of a request."""

    def __init__(
        self,
        auth: Auth,
        tenant: str,
        clock: Callable[[], float] = time.time,
        *,
        public_url: str = "",
        bound: Callable[[str], frozenset[str]] | None = None,
        own_issuer: Issuer | None = None,
        reserved: Collection[str] = (),
    ) -> None:
        """An authenticator with these settings. `tenant`: the default tenant, for callers that no
        token assigns to one. `clock`: seconds since the epoch. `bound`: see TokenVerifier; used
        only while `auth.bind_audience` is "endpoint". `own_issuer`: the gateway's login, and
        `reserved` the prefixes of its principals. Raises ToolgateError for unusable keys."""
        self._anonymous = Identity(Principal("anonymous", tenant))
        self._open = auth.mode == "none"
        trusted = issuers_of(auth, tenant, public_url, reserved) if auth.mode == "jwt" else []
        self._issuers = trusted
        self._issuers += [own_issuer] if own_issuer is not None else []
        bound = bound if auth.bind_audience == "endpoint" else None
        self._tokens = TokenVerifier(auth, self._issuers, clock, bound)
        self.keys = KeyTable(clock) if auth.api_keys and not self._open else None

    async def identify(self, scope: Scope) -> Identity:
        if self._open:
            return self._anonymous
        bearers, scope_tokens, keys = [], [], []
        for name, value in scope["headers"]:
            if name not in CREDENTIALS:
                continue
            if name == b"authorization":
                bearers.append(value)
            elif name == b"x-scope-token":
                scope_tokens.append(value)
            elif self.keys is not None:
                keys.append(value)
        if len(bearers) == 1 and not keys and not scope_tokens:
            cached_token = self._tokens.find_known(_bearer(bearers[0]), scope["path"])
            if cached_token is not None and cached_token.identity is not None:
                return cached_token.identity
        caller = await self._caller(bearers, keys, scope["path"])
        if isinstance(caller, Fault):
            return replace(self._anonymous, refusal=caller)
        if not scope_tokens:
            return caller
        spoken = await self._read(scope_tokens, SCOPE_TOKEN, scope["path"])
        if isinstance(spoken, Token) and spoken.tenant != caller.principal.tenant:
            spoken = _log_refusal(
                SCOPE_TOKEN, StatusFault(INVALID_SCOPE_TOKEN), "of another tenant"
            )
        scope_token = spoken.scopes if isinstance(spoken, Token) else spoken
        return replace(caller, scope_token=scope_token)

    async def run(self) -> None:
        """Refresh the remote key sets until cancelled."""
        async with anyio.create_task_group() as tasks:
            for issuer in self._issuers:
                if isinstance(issuer.keys, RemoteKeys):
                    tasks.start_soon(issuer.keys.run)

    def reload(self) -> None:
        """Read key files again. Raises ToolgateError and then keeps the previous keys."""
        local = [issuer.keys for issuer in self._issuers if isinstance(issuer.keys, LocalKeys)]
        for keys, ring in [(keys, keys.read()) for keys in local]:
            if ring != keys.ring:
                keys.ring = ring
                log.info("key_file_changed", extra={"keys": len(ring.keys)})

    async def load_revocations(self, pool: Pool) -> None:
        """Load the list of revoked tokens from the registry."""
        self._tokens.revoke(await load_revocations(pool))

    async def tidy(self, pool: Pool) -> None:
        """Maintain the registry periodically: deferred writes and removal of expired rows."""
        if self.keys is not None:
            await self.keys.write_uses(pool)
        if self._issuers:
            await purge(pool)

    async def _caller(self, bearers: list[bytes], keys: list[bytes], path: str) -> Identity | Fault:
        if keys:
            return await self._holder(keys + bearers, API_KEY)
        if not bearers or (len(bearers) == 1 and not _bearer(bearers[0])):
            return StatusFault(MISSING_AUTH_TOKEN)
        if self.keys is not None and is_key(_bearer(bearers[0])):
            return await self._holder([_bearer(bearers[0]), *bearers[1:]], AUTHORIZATION)
        token = await self._read(bearers, AUTHORIZATION, path)
        if isinstance(token, Fault):
            return token
        if token.identity is None:
            return _log_refusal(AUTHORIZATION, StatusFault(INVALID_AUTH_TOKEN), "names nobody")
        return token.identity

    async def _holder(self, fields: list[bytes], refusals: TokenFaults) -> Identity | Fault:
        """The identity of the single API key that was sent."""
        reason = "sent more than once"
        if self.keys is not None and len(fields) == 1:
            text = fields[0].strip()
            try:
                return self.keys.read(text)
            except UnknownKey as error:
                reason = type(error).__name__
            except Unavailable as error:
                return _log_refusal(refusals, error, type(error).__name__)
            with suppress(UnknownKey):
                return await self.keys.read_when_loaded(text)
        return _log_refusal(refusals, StatusFault(refusals.invalid), reason)

    async def _read(self, fields: list[bytes], refusals: TokenFaults, path: str) -> Token | Fault:
        """The single bearer token that was sent, with or without the "Bearer" prefix."""
        try:
            if len(fields) > 1:
                raise InvalidTokenError("sent more than once")
            return await self._tokens.read(_bearer(fields[0]) or fields[0], path)
        except ExpiredSignatureError:
            return _log_refusal(refusals, StatusFault(refusals.expired), "expired")
        except InvalidTokenError as error:
            return _log_refusal(refusals, StatusFault(refusals.invalid), type(error).__name__)
        except Unavailable as error:
            return _log_refusal(refusals, error, type(error).__name__)
        except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError) as error:
            fault = StatusFault(TOKEN_VERIFICATION_EXCEPTION, f"of {refusals.header}")
            return _log_refusal(refusals, fault, type(error).__name__)


def _bearer(value: bytes) -> bytes:
    """The token of an Authorization header; empty for another scheme."""
    return value[len(BEARER) :].strip() if value[: len(BEARER)].lower() == BEARER else b""


def _log_refusal(refusals: TokenFaults, fault: Fault, reason: str) -> Fault:
    """Log the refusal and return `fault`. `reason` is a category of mistake: token contents are
    never logged."""
    log.info("token_refused", extra={"header": refusals.header, "reason": reason})
    return fault
