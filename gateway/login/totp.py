"""One-time codes of users (TOTP, RFC 6238), as authenticator apps take them: SHA-1, six digits,
thirty seconds."""

import base64
import os
import re
import secrets
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

SECRET_BYTES = 20  # RFC 4226, 4: 160 bits are recommended
STEP_S = 30
DRIFT = (0, -1, 1)  # steps that a clock may be off
RECOVERY_CODES = 8
_is_secret = re.compile(r"[A-Z2-7]{32}").fullmatch
_is_code = re.compile(r"[0-9]{6}").fullmatch


def new_secret() -> str:
    """A random secret, in base32."""
    return base64.b32encode(os.urandom(SECRET_BYTES)).decode()


def is_secret(text: str) -> bool:
    return _is_secret(text) is not None


def step_of(secret: str, code: str, now: float) -> int | None:
    """The step whose code this is, of the present one and its neighbours; None: of none."""
    digits = code.replace(" ", "")
    if _is_code(digits) is None:
        return None
    present = int(now) // STEP_S
    for step in (present + drift for drift in DRIFT):
        if secrets.compare_digest(_totp(secret).generate(step * STEP_S), digits.encode()):
            return step
    return None


def provisioning_uri(secret: str, name: str, public_url: str) -> str:
    """The address by which an authenticator app takes a secret."""
    return _totp(secret).get_provisioning_uri(name, urlsplit(public_url).hostname or public_url)


def new_recovery_codes() -> list[str]:
    """Random codes, each good once, for a person who has lost the device."""
    texts = [secrets.token_hex(8) for _ in range(RECOVERY_CODES)]
    return ["-".join(text[n : n + 4] for n in range(0, 16, 4)) for text in texts]


def plain_recovery_code(text: str) -> str:
    """A typed code without what people write between its digits."""
    return re.sub(r"[^0-9a-f]", "", text.lower())


def _totp(secret: str) -> TOTP:
    return TOTP(base64.b32decode(secret), 6, SHA1(), STEP_S)  # noqa: S303 - what apps compute
