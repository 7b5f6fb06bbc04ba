"""Sealed state that clients carry: handles, ids of upstream tasks, cursors.

AES-256-GCM under a separate key for each purpose. Stateless: any node that has the secret can open
what another one sealed.
"""

import base64
import binascii
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from gateway.context import Context
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.mcp.messages import TASKS_EXTENSION

if TYPE_CHECKING:  # loaded with the first state that is sealed: it takes 9 MB
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12  # NIST SP 800-38D, 8.2.2: random nonces suffice for 2^32 messages
TEXT = "requestState is not ours, was changed or is too old: send the request again without it"

S = TypeVar("S", bound=Struct)


class _Sealed(Struct, frozen=True, array_like=True):
    expires: float  # seconds since the epoch
    payload: Raw


class Sealer:
    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        """`secret` is the same on all nodes, whose clocks agree to within a few seconds."""
        self._secret = secret
        self._clock = clock
        self._ciphers: dict[str, AESGCM] = {}

    def seal(self, purpose: str, payload: Struct, bound_to: bytes, ttl_s: float) -> str:
        """Encrypt `payload` to text that only `unseal` with the same purpose and `bound_to` opens,
        for `ttl_s`."""
        inside = _Sealed(self._clock() + ttl_s, Raw(msgspec.msgpack.encode(payload)))
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._cipher(purpose).encrypt(nonce, msgspec.msgpack.encode(inside), bound_to)
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def unseal(self, purpose: str, text: str, as_type: type[S], bound_to: bytes) -> S:
        """Decrypt. Raises InvalidParams, with the same message for every reason."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._open(purpose, text, as_type, bound_to)
        except (ValueError, InvalidTag, msgspec.MsgspecError) as error:
            raise InvalidParams(TEXT) from error

    def _open(self, purpose: str, text: str, as_type: type[S], bound_to: bytes) -> S:
        raw = _unwrap(text)
        nonce, sealed = raw[:NONCE_BYTES], raw[NONCE_BYTES:]
        inside = msgspec.msgpack.decode(
            self._cipher(purpose).decrypt(nonce, sealed, bound_to), type=_Sealed
        )
        if inside.expires <= self._clock():
            raise ValueError("expired")
        return msgspec.msgpack.decode(inside.payload, type=as_type)

    def _cipher(self, purpose: str) -> "AESGCM":
        cipher = self._ciphers.get(purpose)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

            derived = HKDF(SHA256(), 32, salt=None, info=b"toolgate/" + purpose.encode())
            cipher = self._ciphers[purpose] = AESGCM(derived.derive(self._secret))
        return cipher


def _unwrap(text: str) -> bytes:
    """Decode base64. Raises ValueError unless it is the canonical encoding."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise ValueError("not the canonical form")
    return raw


TASK = "task handle"
TASK_TTL_S = 30 * 86_400.0  # its server expires it earlier


class TaskHandle(Struct, frozen=True, array_like=True):
    """The content of our task id: the server that has the task, and its id there."""

    source: str
    task: str
    ttl_ms: int | None = None  # of a task of the gateway: what its client asked for


class TaskIds:
    """Task ids, sealed for the task's owner, and for its form of tasks: a client never uses
    both."""

    def __init__(self, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._sealer = sealer

    async def expose(
        self, source: str, task: str, context: Context, ttl_ms: int | None = None
    ) -> str:
        """The id of a task for its client, for `ttl_ms`; None: for as long as its server has it."""
        sealer = await self._sealer()
        ttl_s = TASK_TTL_S if ttl_ms is None else ttl_ms / 1000
        return sealer.seal(TASK, TaskHandle(source, task, ttl_ms), _owner(context), ttl_s)

    async def read(self, task_id: Any, context: Context) -> TaskHandle:
        """Open a task id. Raises InvalidParams for what is no task of this caller."""
        sealer = await self._sealer()
        try:
            return sealer.unseal(TASK, task_id, TaskHandle, _owner(context))
        except (InvalidParams, TypeError) as error:
            raise InvalidParams("Unknown task: it ended, or never was") from error


def knows_tasks(context: Context) -> bool:
    """Whether a 2026-07-28 request declares that its client supports the tasks extension."""
    extensions = context.capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions


def _owner(context: Context) -> bytes:
    return encode([*context.principal.key, context.revision.handshake])
