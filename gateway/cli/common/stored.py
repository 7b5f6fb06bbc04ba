"""Stored rules and credentials, for commands that judge them beside those of the settings."""

from collections.abc import Mapping, Sequence

from config.settings import Settings
from gateway.cli.common.database import Registry
from gateway.upstreams.http.connections import Entries
from registry.access.policies import Policies, StoredRule
from registry.access.secrets import Keys, Secrets

Stored = Mapping[str, Entries]  # credentials of the registry, by source
NONE: Stored = {}


async def rules_in(registry: Registry) -> Sequence[StoredRule]:
    return await Policies(registry.database.pool, registry.host_id).all()


async def stored_in(settings: Settings, registry: Registry) -> Stored:
    """The readable credentials of the registry, by source."""
    secrets = Secrets(registry.database.pool, registry.host_id, Keys.of(settings.secrets))
    entries, _ = await secrets.read()
    return entries
