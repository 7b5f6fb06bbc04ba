"""Proof keys of authorization codes (PKCE, RFC 7636), method S256."""

import base64
import hashlib


def challenge_of(verifier: str) -> str:
    """The code_challenge of a code_verifier (RFC 7636, 4.2)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
