"""Passwords: how they are hashed, and which ones are refused.

Argon2id of 19 MiB, or scrypt where the installed OpenSSL has none (before 3.2); a hash names its
parameters, so that later ones can be others.
"""

import base64
import hmac
import os
import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gateway.login import texts

ARGON2 = "argon2id$19456$2$1"  # KiB, iterations, lanes
SCRYPT = "scrypt$131072$8$1"  # n, r, p
SALT_BYTES = 16
LONGEST = 256  # characters
WAITING = 32  # for each password that is hashed at once
RUN = 0.6  # share of characters that follow the one before in the alphabet, or repeat it
LEAST = 6  # different characters that have to be left without well-known words
WORDS = (
    *("correcthorsebatterystaple", "qwertzuiop", "qwertyuiop", "asdfghjkl", "yxcvbnm", "zxcvbnm"),
    *("1qaz2wsx3edc", "1q2w3e4r5t", "administrator", "qwerty", "qwertz", "azerty", "asdfgh"),
    *("toolgate", "gateway", "password", "passwort", "passw0rd", "p@ssw0rd", "letmein", "welcome"),
    *("changeme", "iloveyou", "sunshine", "princess", "football", "baseball", "superman"),
    *("trustno1", "whatever", "admin", "login", "secret", "geheim", "monkey", "dragon", "master"),
    *("hello", "user", "test", "guest", "root", "pass", "abc123", "1234567890"),
    *("123456789", "12345678", "1234567", "123456", "12345", "1234", "123"),
)
"""The roots of passwords that are guessed first, and names of this product."""

T = TypeVar("T")


class PasswordRefused(Exception):
    """A password that does not do; `text` and its `values` say why. `name` is of a user who
    exists."""

    def __init__(self, text: str, status: int = 403, name: str = "", **values: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.name = name
        self.values = values


class Passwords:
    """Methods raise PasswordRefused where too many passwords wait to be hashed."""

    def __init__(self, at_once: int) -> None:
        self._limiter = CapacityLimiter(at_once)
        self._waiting = WAITING * at_once
        self._nobody = ""  # a hash that no password has been made for

    async def hash(self, password: str) -> str:
        return await self._run(lambda: hash_of(password))

    async def check(self, password: str, hash_text: str | None) -> bool:
        """Whether a password is right; for a user without one, or none at all, it takes as
        long."""
        if hash_text is None:
            self._nobody = self._nobody or await self.hash(os.urandom(SALT_BYTES).hex())
        expected = self._nobody if hash_text is None else hash_text
        return await self._run(lambda: is_password(password, expected)) and hash_text is not None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._limiter.statistics().tasks_waiting >= self._waiting:
            raise PasswordRefused(texts.BUSY, 503)
        return await run_sync(work, limiter=self._limiter)


def hash_of(password: str) -> str:
    salt = os.urandom(SALT_BYTES)
    try:
        return _encode(ARGON2, salt, _derive(password, ARGON2, salt))
    except UnsupportedAlgorithm:
        return _encode(SCRYPT, salt, _derive(password, SCRYPT, salt))


def is_password(password: str, hash_text: str) -> bool:
    parameters, salt, derived = hash_text.rsplit("$", 2)
    expected = base64.b64decode(derived)
    return hmac.compare_digest(_derive(password, parameters, base64.b64decode(salt)), expected)


def weakness(password: str, name: str, least: int) -> str:
    """The reason why a password is refused; "": it is not."""
    password = unicodedata.normalize("NFKC", password)
    if len(password) < least:
        return texts.SHORT
    if len(password) > LONGEST:
        return texts.LONG
    plain = password.casefold()
    remaining = plain
    for word in sorted({*WORDS, *re.findall(r"[^\W_]{3,}", name.casefold())}, key=len)[::-1]:
        remaining = remaining.replace(word, " ")
    steps = [abs(ord(b) - ord(a)) for a, b in pairwise(plain)]
    is_run = sum(step <= 1 for step in steps) > RUN * len(steps)
    is_repeated = plain in (plain + plain)[1:-1]
    return texts.EASY if is_run or is_repeated or len(set(remaining) - {" "}) < LEAST else ""


def _derive(password: str, parameters: str, salt: bytes) -> bytes:
    """Raises UnsupportedAlgorithm."""
    plain = unicodedata.normalize("NFKC", password).encode()
    kind, a, b, c = parameters.split("$")
    if kind == "argon2id":
        argon2 = Argon2id(salt=salt, length=32, memory_cost=int(a), iterations=int(b), lanes=int(c))
        return argon2.derive(plain)
    return Scrypt(salt=salt, length=32, n=int(a), r=int(b), p=int(c)).derive(plain)


def _encode(parameters: str, salt: bytes, key: bytes) -> str:
    parts = (base64.b64encode(part).decode() for part in (salt, key))
    return "$".join((parameters, *parts))
