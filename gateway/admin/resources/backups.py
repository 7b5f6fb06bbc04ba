"""Backups by schedule: their list, and one that is made now."""

from collections.abc import Sequence

from anyio import to_thread

from config.settings import Settings
from gateway.admin.registry_parts import JobParts
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import ProblemDetails, unavailable
from registry.database.backup_places import BackupRefused, place_of
from registry.database.embedded_server import DatabaseError
from registry.database.postgres import Database
from registry.database.scheduled_backups import Backups, StoredBackup

READ, WRITE = "admin:backups:read", "admin:backups:write"


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
            async with Database.open(
                self._settings.database, wait=False, migrate=False
            ) as database:
                return await (await self._backups()).make(database)
        except (BackupRefused, DatabaseError) as error:
            raise ProblemDetails(500, "backup-failed", str(error)) from error

    async def _backups(self) -> Backups:
        own = self._settings.backups
        return Backups(await to_thread.run_sync(place_of, own), own.keep)  # imports slowly

    def _check_operator(self, request: OperationInput) -> None:
        """A backup has the data of all tenants. Raises ProblemDetails."""
        if not self._dependencies.is_operator(request):
            raise ProblemDetails(403, "forbidden", "Only operators see and make backups.")
