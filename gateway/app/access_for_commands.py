"""Stored rules, credentials and revoked tokens, for commands that judge by them, too."""

from collections.abc import Mapping, Sequence

from config.settings import Settings
from gateway.upstreams.http.source_pools import Entries
from registry.access.policies import Policies, StoredRule
from registry.access.revocations import RevocationCache, load_revocations
from registry.access.secrets import Keys, Secrets
from registry.database.postgres import Pool

Revocations = RevocationCache
Stores = Mapping[str, Entries]  # credentials of the registry, by source
NONE: Stores = {}


async def rules_in(pool: Pool, host_id: str) -> Sequence[StoredRule]:
    return await Policies(pool, host_id).all()


async def stored_in(settings: Settings, pool: Pool) -> Stores:
    """The readable credentials of the registry, by source."""
    secrets = Secrets(pool, settings.tenant.host_id, Keys.of(settings.secrets))
    entries, _ = await secrets.read()
    return entries


async def revocations_in(pool: Pool) -> Revocations:
    """The revoked tokens."""
    return await load_revocations(pool)
