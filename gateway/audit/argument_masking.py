"""Masking of arguments in audit records: secrets, hidden members and long texts. Pure."""

from typing import Any

from schemas.jsonrpc import encode
from schemas.masking import MASK, Masks

# In any spelling: client_secret, clientSecret, Client-Secret.
SECRETS = (
    *("password", "passwd", "passphrase", "secret", "token", "apikey", "authorization"),
    *("credential", "privatekey", "accesskey", "cookie"),
)
READ_BYTES = 65_536  # longer arguments are not masked, so only their size is kept


def format_arguments(arguments: Any, data: bytes, masks: Masks | None, limit_bytes: int) -> bytes:
    """`arguments` as JSON, with members masked that their schema or their names mark as secret;
    truncated to `limit_bytes`."""
    if len(data) > READ_BYTES:
        return b"[%d bytes]" % len(data)
    value = arguments if masks is None else masks.mask(arguments)
    value = _mask_secret_names(value)
    text: bytes = data if value is arguments else encode(value)
    if len(text) <= limit_bytes:
        return text
    return text[:limit_bytes].decode(errors="ignore").encode() + "…".encode()


def _mask_secret_names(value: Any) -> Any:
    """Mask members with secret names; the same object if there are none."""
    if isinstance(value, dict):
        after = {
            name: MASK if inner is not None and is_secret_name(name) else _mask_secret_names(inner)
            for name, inner in value.items()
        }
        same = all(new is old for new, old in zip(after.values(), value.values(), strict=True))
        return value if same else after
    if isinstance(value, list):
        items = [_mask_secret_names(inner) for inner in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def is_secret_name(name: Any) -> bool:
    """Whether what has this name is likely a secret."""
    letters = str(name).lower().replace("_", "").replace("-", "")
    return any(secret in letters for secret in SECRETS)
