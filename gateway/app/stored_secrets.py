"""The credentials of the registry, handed to those who call sources."""

import logging
from collections.abc import Callable, Mapping

from config.access import SecretsSettings
from config.sources import SchemeSettings
from registry.access.secrets import Keys, Secrets
from registry.database.postgres import Pool

log = logging.getLogger("toolgate.access")

Take = Callable[[Mapping[str, Mapping[str, SchemeSettings]]], None]


class StoredSecrets:
    def __init__(self, settings: SecretsSettings, host_id: str, take: Take) -> None:
        """`take` gets them by source and scheme, whenever they have been read."""
        self._keys = Keys.of(settings)
        self._host_id = host_id
        self._take = take
        self._complaints: list[str] = []

    async def load(self, pool: Pool) -> None:
        """One that cannot be read takes nothing from the others."""
        entries, refused = await Secrets(pool, self._host_id, self._keys).read()
        complaints = [str(error) for error in refused]
        if complaints != self._complaints:  # it is read every few seconds
            for complaint in complaints:
                log.error("secret_unreadable", extra={"reason": complaint})
        self._complaints = complaints
        self._take(entries)
