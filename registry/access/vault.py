"""Encryption of columns: AES-256-GCM with `secrets.key`, bound to the row that they are in."""

import os

import msgspec
from cryptography.exceptions import InvalidTag

from registry.access.secrets import KEY_ID_LENGTH, NONCE_BYTES, Keys, SecretRefused


class Vault:
    def __init__(self, keys: Keys, host_id: str) -> None:
        self._keys = keys
        self._host_id = host_id

    def seal(self, plain: bytes, *place: str) -> bytes:
        """`place` names the row and the column: elsewhere the text cannot be opened. Raises
        SecretRefused without a key."""
        key_id, cipher = self._keys.sealing()
        nonce = os.urandom(NONCE_BYTES)
        return key_id.encode() + nonce + cipher.encrypt(nonce, plain, self._place_key(place))

    def unseal(self, sealed: bytes, *place: str) -> bytes:
        """Raises SecretRefused."""
        key_id, nonce = sealed[:KEY_ID_LENGTH].decode("ascii", "replace"), sealed[KEY_ID_LENGTH:]
        nonce, text = nonce[:NONCE_BYTES], nonce[NONCE_BYTES:]
        try:
            return self._keys.opening(key_id).decrypt(nonce, text, self._place_key(place))
        except (InvalidTag, ValueError) as error:
            raise SecretRefused("an encrypted column is not what was stored there") from error

    def _place_key(self, place: tuple[str, ...]) -> bytes:
        return msgspec.json.encode([self._host_id, *place])
