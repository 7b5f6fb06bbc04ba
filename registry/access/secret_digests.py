"""Digests of random secrets: of keys, tickets, codes and tokens.

A slow hash, as for passwords, would add no protection: these secrets cannot be guessed at any
speed, and every call with a key would pay for it.
"""

import hashlib


def secret_digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
