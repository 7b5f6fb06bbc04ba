"""Backups by schedule, for commands that list and make them, too."""

from contextlib import AbstractAsyncContextManager

from config.backups import BackupsSettings
from config.settings import Settings
from registry.database.backup_places import place_of
from registry.database.postgres import Database
from registry.database.scheduled_backups import BackupReport, Backups, StoredBackup

__all__ = ["BackupReport", "StoredBackup", "backups_of", "opened_database"]


def backups_of(settings: BackupsSettings) -> Backups:
    """The backups in the place of the settings. Raises BackupRefused. With a bucket it imports for
    a second."""
    return Backups(place_of(settings), settings.keep)


def opened_database(settings: Settings) -> AbstractAsyncContextManager[Database]:
    """The database as it is, without migrations. Raises DatabaseError."""
    return Database.open(settings.database, wait=False, migrate=False)
