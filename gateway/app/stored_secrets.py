"""Stored secrets of a tenant, loaded and handed to those who call services."""

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
        """Stored secrets of a tenant; `take` is called with all entries, by source and scheme,
        after each load."""
        self._keys = Keys.of(settings)
        self._host_id = host_id
        self._take = take
        self.entries: Mapping[str, Mapping[str, SchemeSettings]] = {}  # of the last load
        self._complaints: list[str] = []

    async def load(self, pool: Pool) -> None:
        """Load all secrets; an unreadable one does not affect the others."""
        entries, refused = await Secrets(pool, self._host_id, self._keys).read()
        complaints = [str(error) for error in refused]
        if complaints != self._complaints:  # log only changes: secrets are read every few seconds
            for complaint in complaints:
                log.error("secret_unreadable", extra={"reason": complaint})
        self._complaints = complaints
        self.entries = entries
        self._take(entries)
