"""Wiring of the admin API."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from config.settings import Settings
from gateway.admin.health import Health
from gateway.admin.http_api import AdminAction, AdminApi
from gateway.admin.registry_parts import JobParts, RegistryParts, operation_dependencies
from gateway.admin.resources.erasures import ErasureOperations, PersonErasure
from gateway.admin.resources.jobs import JobOperations
from gateway.admin.resources.search import Find
from gateway.admin.resources.sessions import SessionOperations
from gateway.admin.resources.status import Restart, StatusOperations
from gateway.app.operations import WITH_JOBS, registry_operations
from gateway.context import Identify
from gateway.methods.results_by_revision import SERVER
from gateway.operations.openapi import describe
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.operation_server import Defer, IdempotentRunner
from gateway.operations.problems import ProblemDetails
from gateway.state.idempotency import IdempotencyKeys
from gateway.state.sessions import Sessions
from registry.database.postgres import Pool
from registry.sources.source_reader import Lister

OPEN = ProblemDetails(
    403,
    "auth-mode",
    "There is no admin API while everybody is let in: set auth.mode to jwt or keys.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminParts(RegistryParts):
    """Parts of a gateway that the admin API uses."""

    identify: Identify
    health: Health
    sessions: Sessions
    node: str
    streams: Callable[[], int]  # number of open streams in this process
    erasure: PersonErasure
    record: Callable[[AdminAction], None]
    of_wings: Sequence[Operation] = ()
    jobs_of_wings: Callable[[], Collection[str]] = tuple  # operations that run as jobs
    restart: Restart | None = None
    defer: Defer | None = None  # stores jobs; None: all operations answer at once


class PathPrefix(BaseRoute):
    """Route for `path` and everything below; Starlette's Mount does not match line breaks."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        self._path = path
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        below = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._path}/")
        return (Match.FULL if below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def admin_api(parts: AdminParts) -> AdminApi:
    settings = parts.settings.admin
    return AdminApi(
        settings,
        parts.identify,
        operations=operations_of(parts),
        repeats=IdempotentRunner(IdempotencyKeys(parts.pool, settings.idempotency_ttl_s)),
        record=parts.record,
        refusal=OPEN if parts.settings.auth.mode == "none" else None,
        defer=parts.defer,
    )


def operations_of(parts: AdminParts) -> tuple[Operation, ...]:
    """All operations, and the one that describes them."""

    @cache  # slow and constant
    def describe_api() -> dict[str, Any]:
        return describe(all_, parts.settings.admin.path, SERVER.version)

    async def description(_request: OperationInput) -> Any:
        return describe_api()

    text, kind, why = "Describe this API.", dict[str, Any], "it is about HTTP; lists describe tools"
    describes = Operation(
        "describe", "GET", "/openapi.json", text, "", description, kind, no_tool=why,
        audited=False,  # each command at a gateway begins with it
    )  # fmt: skip
    all_ = (*_with_jobs(parts, _operations(parts)), describes)
    return all_


def _with_jobs(parts: AdminParts, operations: Sequence[Operation]) -> Sequence[Operation]:
    """The operations, and those on their jobs; or all of them without jobs."""
    if parts.defer is None:
        return [replace(each, job=None) if each.job else each for each in operations]
    return with_jobs(parts.settings, parts.dependencies, operations, parts.jobs_of_wings)


def with_jobs(
    settings: Settings,
    dependencies: OperationDependencies,
    operations: Sequence[Operation],
    of_wings: Callable[[], Collection[str]] = tuple,
) -> Sequence[Operation]:
    """The operations, and those on their jobs and on those of wings."""

    def known_operations() -> Sequence[Operation]:
        return all_

    jobs = JobOperations(dependencies, settings.jobs, known_operations, of_wings)
    all_ = (*operations, *jobs.operations)
    return all_


def job_operations(settings: Settings, pool: Callable[[], Pool | None]) -> Sequence[Operation]:
    """The operations on jobs alone."""
    return with_jobs(settings, operation_dependencies(settings, pool), ())


def operations_as_jobs(
    settings: Settings, pool: Callable[[], Pool | None], lister: Lister, find: Find
) -> Sequence[Operation]:
    """The operations that run as jobs, for processes that serve none."""
    parts = JobParts(
        settings=settings, pool=pool, sources=lambda: settings.sources, lister=lister, find=find
    )
    operations = [operation for each in WITH_JOBS for operation in each.of(parts).operations]
    return with_jobs(settings, parts.dependencies, operations)


def _operations(parts: AdminParts) -> tuple[Operation, ...]:
    sessions = parts.sessions
    dependencies = parts.dependencies

    def numbers() -> tuple[str, str, int, int]:
        return SERVER.version, parts.node, len(sessions), parts.streams()

    status = StatusOperations(
        dependencies,
        parts.health,
        catalogs=parts.catalogs,
        numbers=numbers,
        restart=parts.restart,
    )
    return (
        *status.operations,
        *registry_operations(parts),
        *SessionOperations(dependencies, sessions).operations,
        *ErasureOperations(dependencies, parts.erasure).operations,
        *parts.of_wings,
    )
