"""Settings of the secrets that stand in the database."""

from msgspec import Struct

from config.types import SecretKey


class SecretsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    key: SecretKey
    old_keys: tuple[SecretKey, ...]
