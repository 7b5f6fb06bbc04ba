"""Backups by schedule: their list, and one that is made now."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from anyio import to_thread

from config.backups import BackupsSettings
from config.settings import Settings
from gateway.admin.registry_parts import JobParts
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import ProblemDetails, unavailable
from registry.database.backup_places import BackupRefused, place_of
from registry.database.embedded_server import DatabaseError
from registry.database.postgres import Database
from registry.database.scheduled_backups import BackupReport, Backups, StoredBackup

__all__ = ["BackupOperations", "BackupReport", "StoredBackup", "backups_of", "opened_database"]

READ, WRITE = "admin:backups:read", "admin:backups:write"


def backups_of(settings: BackupsSettings) -> Backups:
    """The backups in the place of the settings. Raises BackupRefused. With a bucket it imports for
    a second."""
    return Backups(place_of(settings), settings.keep)


def opened_database(settings: Settings) -> AbstractAsyncContextManager[Database]:
    """The database as it is, without migrations. Raises DatabaseError."""
    return Database.open(settings.database, wait=False, migrate=False)


class BackupOperations:
    _is_on, _schedule = True, ""  # for the lists of commands, which are made without settings

    def __init__(self, dependencies: OperationDependencies, settings: Settings) -> None:
        self._dependencies = dependencies
        self._settings = settings
        self._is_on = settings.backups.enabled
        self._schedule = settings.backups.schedule

    @classmethod
    def of(cls, parts: JobParts) -> "BackupOperations":
        return cls(parts.dependencies, parts.settings)

    @property
    def operations(self) -> Sequence[Operation]:
        if not self._is_on:
            return ()
        return (
            Operation(
                "listBackups", "GET", "/backups", "List the backups, the newest first.", READ,
                self.list, ListPage[StoredBackup], query=Paging, problems=(403,),
            ),
            Operation(
                "runBackup", "POST", "/backups", "Back up the database now.", WRITE, self.run,
                StoredBackup, problems=(403,),
                job=AsJob(always=True, lock="backups", once=True, schedule=self._schedule),
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[StoredBackup]:
        self._check_operator(request)
        try:
            stored = await (await self._backups()).all()
        except BackupRefused as error:
            raise unavailable(str(error)) from error
        return self._dependencies.pages.page(request.query, stored, lambda backup: backup.name)

    async def run(self, request: OperationInput) -> StoredBackup:
        self._check_operator(request)
        try:
            async with opened_database(self._settings) as database:
                return await (await self._backups()).make(database)
        except (BackupRefused, DatabaseError) as error:
            raise ProblemDetails(500, "backup-failed", str(error)) from error

    async def _backups(self) -> Backups:
        return await to_thread.run_sync(backups_of, self._settings.backups)  # imports slowly

    def _check_operator(self, request: OperationInput) -> None:
        """A backup has the data of all tenants. Raises ProblemDetails."""
        if not self._dependencies.is_operator(request):
            raise ProblemDetails(403, "forbidden", "Only operators see and make backups.")
