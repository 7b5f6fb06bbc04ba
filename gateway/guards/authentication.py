"""Who sends an HTTP request, by the tokens that come with it.

Nothing is refused here: `Identity` says why nobody is known, and whoever needs to know raises it.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from jwt.exceptions import ExpiredSignatureError, InvalidTokenError, PyJWTError
from starlette.types import Scope

from config.settings import Auth
from gateway.context import Identity, Principal
from gateway.guards.tokens import Token, Tokens
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


class Refusals(NamedTuple):
    """How a header says what is wrong with its token."""

    header: str
    invalid: StatusKind
    expired: StatusKind


AUTHORIZATION = Refusals("Authorization", INVALID_AUTH_TOKEN, AUTH_TOKEN_EXPIRED)
SCOPE_TOKEN = Refusals("X-Scope-Token", INVALID_SCOPE_TOKEN, SCOPE_TOKEN_EXPIRED)


class Authenticator:
    """Identifies the sender of a request.

    The keys are read once, when this is made: a changed key file takes a restart.
    """

    def __init__(self, auth: Auth, tenant: str, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since the epoch. Raises ToolgateError for keys that are of no use."""
        self._tenant = tenant
        self._anonymous = Identity(Principal("anonymous", tenant))
        self._tokens = Tokens(auth, clock) if auth.mode == "jwt" else None

    def identify(self, scope: Scope) -> Identity:
        if self._tokens is None:
            return self._anonymous
        bearers, scope_tokens = [], []
        for name, value in scope["headers"]:
            if name == b"authorization":
                bearers.append(value)
            elif name == b"x-scope-token":
                scope_tokens.append(value)
        principal = self._principal(self._tokens, bearers)
        if isinstance(principal, StatusFault):
            return Identity(self._anonymous.principal, principal)
        spoken = _read(self._tokens, scope_tokens, SCOPE_TOKEN) if scope_tokens else None
        return Identity(
            principal,
            verified=True,
            scope_token=spoken.scopes if isinstance(spoken, Token) else spoken,
        )

    def _principal(self, tokens: Tokens, sent: list[bytes]) -> Principal | StatusFault:
        if not sent or (len(sent) == 1 and not _bearer(sent[0])):
            return StatusFault(MISSING_AUTH_TOKEN)
        token = _read(tokens, sent, AUTHORIZATION)
        if isinstance(token, StatusFault):
            return token
        if token.name is None:
            return _refused(AUTHORIZATION, StatusFault(INVALID_AUTH_TOKEN), "names nobody")
        return Principal(token.name, self._tenant, token.scopes, token.claims)


def _bearer(value: bytes) -> bytes:
    """The token of an Authorization header; empty when it is of another kind."""
    return value[len(BEARER) :].strip() if value[: len(BEARER)].lower() == BEARER else b""


def _read(tokens: Tokens, sent: list[bytes], refusals: Refusals) -> Token | StatusFault:
    """The one token that was sent, with or without "Bearer" before it."""
    try:
        if len(sent) > 1:
            raise InvalidTokenError("sent more than once")
        return tokens.read(_bearer(sent[0]) or sent[0])
    except ExpiredSignatureError:
        return _refused(refusals, StatusFault(refusals.expired), "expired")
    except InvalidTokenError as error:
        return _refused(refusals, StatusFault(refusals.invalid), type(error).__name__)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError) as error:
        fault = StatusFault(TOKEN_VERIFICATION_EXCEPTION, f"of {refusals.header}")
        return _refused(refusals, fault, type(error).__name__)


def _refused(refusals: Refusals, fault: StatusFault, reason: str) -> StatusFault:
    """`fault`, noted. `reason` is a kind of mistake; what stands in tokens is not for the log."""
    log.info("token_refused", extra={"header": refusals.header, "reason": reason})
    return fault
