"""Checks of settings against the environment: files, addresses, Redis, rights in the database, the
imported sources and the wings. For `toolgate doctor` and `toolgate config check`.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from urllib.parse import urlsplit

import anyio
import psycopg
from anyio import to_thread
from psycopg import AsyncConnection
from redis.exceptions import RedisClusterException, RedisError

from config.settings import DatabaseSettings, ListenerTls, Settings, StateSettings
from config.sources import SourceSettings
from gateway.app.access_for_commands import NONE, Stores, stored_in
from gateway.app.components import components_of
from gateway.cli.common.checks import Check
from gateway.cli.common.database import open_registry
from gateway.cli.common.tls import ListenerCertificate
from gateway.cli.doctor.local_checks import TIMEOUT_S, reaches
from gateway.cli.doctor.login import check_forwarded_tokens
from gateway.state.redis import connect
from gateway.wings.table import enabled_wings, load_wing, section, wing_components, wing_mistakes
from registry.database.embedded_server import DatabaseError, has_cluster
from registry.database.migrate import status
from registry.database.postgres import AWAY, Database, Pool, borrow, make_pool
from registry.documents.fetch import fetch, local_path
from registry.sources.graphql_documents import is_endpoint
from registry.sources.import_specs import configured_import, removed_from_settings
from schemas.errors import ImportRejected, ToolgateError
from schemas.source import Source
from schemas.urls import without_queries

DESCRIPTIONS = ("openapi", "graphql", "hybrid", "overlay")


async def missing_resources(settings: Settings) -> AsyncIterator[Check]:
    """Settings that refer to missing resources, except the contents of the database."""
    for name, source in settings.sources.items():
        for check in missing_files(name, source):
            yield check
    if settings.server.tls.cert:
        yield _certificate(settings.server.tls)
    async for check in _dead_urls(settings):
        yield check
    for check in check_forwarded_tokens(settings):
        yield check
    if settings.state.backend == "redis":
        yield await _redis(settings.state)


def _certificate(tls: ListenerTls) -> Check:
    try:
        ListenerCertificate(tls)
    except ToolgateError as error:
        return Check("tls", "failed", str(error))
    return Check("tls", "ok", f"server.tls: {tls.cert} fits its key")


def missing_files(name: str, source: SourceSettings) -> Iterator[Check]:
    """Missing files that the settings of a source name."""
    tls = source.tls
    named = {
        **{kind: getattr(source, kind) for kind in DESCRIPTIONS},
        **(
            {f"tls.{member}": getattr(tls, member) for member in tls.__struct_fields__}
            if tls
            else {}
        ),
    }
    for key, location in named.items():
        path = local_path(location) if location else None
        if path is not None and not path.exists():
            yield Check("source", "failed", f"sources.{name}.{key}: {path} does not exist")


async def _dead_urls(settings: Settings) -> AsyncIterator[Check]:
    """Unreachable addresses of descriptions and token endpoints, checked concurrently."""
    urls = dict(_urls(settings))
    dead: dict[str, str] = {}

    async def ask(key: str, url: str) -> None:
        if (reason := await _reason(key, url, settings)) is not None:
            dead[key] = reason

    async with anyio.create_task_group() as tasks:
        for key, url in urls.items():
            tasks.start_soon(ask, key, url)
    for key in urls:
        if key in dead:
            yield Check("address", "warning", f"{key}: {without_queries(dead[key])}")


def _urls(settings: Settings) -> Iterator[tuple[str, str]]:
    """Pairs of setting and URL."""
    for name, source in settings.sources.items():
        at = f"sources.{name}"
        for kind in (*DESCRIPTIONS, "mcp"):
            location = getattr(source, kind)
            if location and location.startswith(("http://", "https://")):
                yield f"{at}.{kind}", location
        if source.exchange is not None:
            yield f"{at}.exchange.token_url", source.exchange.token_url
        for scheme, credential in source.credentials.items():
            if credential.token_url:
                yield f"{at}.credentials.{scheme}.token_url", credential.token_url


async def _reason(key: str, url: str, settings: Settings) -> str | None:
    """Why a URL is unusable; None: it works. Only descriptions are fetched: token endpoints need a
    real request."""
    kind = key.rpartition(".")[2]
    if kind not in DESCRIPTIONS or (kind == "graphql" and is_endpoint(url)):
        why = await to_thread.run_sync(partial(reaches, url))
        host = urlsplit(url).hostname
        return None if why is None else f"{host} cannot be reached: {why}"
    try:
        await fetch(
            url,
            limit_bytes=settings.imports.document_limit_bytes,
            timeout_s=min(settings.imports.fetch_timeout_s, 3 * TIMEOUT_S),
            private_networks=settings.imports.private_networks,
        )
    except ImportRejected as error:
        return str(error)
    return None


async def _redis(state: StateSettings) -> Check:
    hint = "sessions, streams and limits that gateways share need it"
    try:
        redis = connect(state.redis_url, min(state.timeout_s, TIMEOUT_S), 1)
        try:
            await redis.ping()
        finally:
            await redis.aclose()
    except ToolgateError as error:
        return Check("redis", "failed", str(error))
    except (RedisError, RedisClusterException, OSError) as error:
        reason = type(error).__name__  # its text may contain the address, and a password in it
        return Check("redis", "failed", f"state.redis_url does not answer ({reason}); {hint}")
    return Check("redis", "ok", "answers (state.redis_url)")


async def replica(database: DatabaseSettings, primary: AsyncConnection) -> Check:
    """Whether searches can read from `database.read_url`."""
    timeout_s = min(database.connect_timeout_s, TIMEOUT_S)
    there = make_pool(database, "read_url", size=1, timeout_s=timeout_s)
    try:
        async with there, borrow(there) as connection:
            system_id, position = await (await primary.execute(_PRIMARY)).fetchone() or ("", "")
            rows = await connection.execute(_REPLICA, [position])
            primary_id, behind = await rows.fetchone() or ("", None)
    except AWAY as error:
        reason = f"database.read_url does not answer ({type(error).__name__})"
        return Check("replica", "warning", f"{reason}; searches read from database.url")
    if behind is None or system_id != primary_id:
        server = "another server" if system_id != primary_id else "no streaming replica"
        reason = f"database.read_url leads to {server}; searches read from database.url"
        return Check("replica", "failed", reason)
    return Check("replica", "ok", f"{max(0, behind)} bytes behind (database.read_url)")


_PRIMARY = """
SELECT system_identifier::text, pg_current_wal_insert_lsn()::text FROM pg_control_system()
"""
_REPLICA = """
SELECT system_identifier::text, pg_wal_lsn_diff(%s, CASE WHEN pg_is_in_recovery()
    THEN pg_last_wal_replay_lsn() END)::bigint FROM pg_control_system()
"""


async def rights(connection: AsyncConnection) -> AsyncIterator[Check]:
    """Whether the database user has the rights that pending migrations need."""
    rows = await connection.execute(
        "SELECT extension.oid IS NOT NULL, role.rolsuper OR coalesce(version.trusted, false)"
        " AND has_database_privilege(current_database(), 'CREATE'),"
        " has_schema_privilege(current_schema(), 'CREATE'), current_user, current_database()"
        " FROM pg_roles AS role"
        " LEFT JOIN pg_extension AS extension ON extname = 'vector'"
        " LEFT JOIN pg_available_extensions AS known ON known.name = 'vector'"
        " LEFT JOIN pg_available_extension_versions AS version"
        " ON (version.name, version.version) = (known.name, known.default_version)"
        " WHERE role.rolname = current_user"
    )
    row = await rows.fetchone()
    if row is None:
        return
    has_extension, may_extend, may_create, user, name = row
    if not has_extension and not may_extend:
        hint = f"an administrator can, in the database {name}: CREATE EXTENSION vector"
        yield Check("database", "failed", f"{user} may not create the extension vector; {hint}")
    if not may_create:
        hint = "an administrator can GRANT CREATE ON its SCHEMA"
        yield Check("database", "failed", f"{user} may not create tables in {name}; {hint}")


async def missing_imports(settings: Settings) -> list[Check]:
    """The check `imported`, if the registry is readable; an embedded database that was never used
    is not created for it."""
    if not has_cluster(settings.database):
        return []
    try:
        async with open_registry(settings, migrate=False) as registry:
            return list(import_checks(settings, await registry.store.sources(registry.host_id)))
    except (DatabaseError, psycopg.Error):
        return []  # reported by the other checks of the registry


def import_checks(settings: Settings, sources: Sequence[Source]) -> Iterator[Check]:
    """Sources of the settings without an import, and imported ones missing in the settings."""
    imported_names = {source.name for source in sources}
    for name, source_settings in settings.sources.items():
        if name not in imported_names and (spec := configured_import(name, source_settings)):
            how = "`toolgate serve` imports it"
            if not spec.facts.loaded:
                how += f", or now: toolgate sources refresh {name}"
            yield Check(
                "source", "warning", f"{name}: in the settings, but not imported yet; {how}"
            )
        elif name not in imported_names:
            yield Check("source", "warning", f"{name}: {ADJUSTS_NOTHING}")
    for name in removed_from_settings(sources, settings.sources):
        yield Check("source", "warning", f"{name}: {LEFT_OVER}")


ADJUSTS_NOTHING = (
    "the settings adjust it, but it does not exist: import it, or add one of openapi, graphql, "
    "hybrid, python, mcp and command to its settings"
)
LEFT_OVER = (
    "left over: the settings have it no longer, so it is served without headers and credentials of "
    "the settings; to remove it: toolgate sources prune"
)


async def wings_of_installation(settings: Settings) -> list[Check]:
    """The checks `wing` of the settings, and of the registry if it is readable: as in
    `unimported`."""
    if enabled_wings(settings) and has_cluster(settings.database):
        try:
            async with open_registry(settings, migrate=False) as registry:
                return [check async for check in wings(settings, registry.database.pool)]
        except (DatabaseError, psycopg.Error):
            pass  # reported by the other checks of the registry
    return [check async for check in wings(settings)]


async def wings(settings: Settings, pool: Pool | None = None) -> AsyncIterator[Check]:
    """Whether each wing that is switched on can be imported, and what it finds itself. `pool`
    None: without a database."""
    stored = NONE
    if pool is not None and settings.secrets.key and any(_strategies(settings).values()):
        stored = await stored_in(settings, pool)
    for name in enabled_wings(settings):
        try:
            wing = load_wing(name)
        except ToolgateError as error:
            yield Check("wing", "failed", str(error))
            continue
        if texts := wing_mistakes(settings, wing):
            for text in texts:
                yield Check("wing", "failed", text)
            continue
        async for missing in _missing_model(name, settings, stored):
            yield missing
        if wing.checks is None:
            yield Check("wing", "ok", f"{name}: can be opened")
            continue
        async for check in wing.checks(section(settings, name), settings.tenant.host_id, pool):
            yield Check("wing", check.status, f"{name}: {check.detail}")


def _strategies(settings: Settings) -> dict[str, str | None]:
    """The strategies of the models that wings ask; None: one asks none."""
    knowledge, extraction = settings.knowledge, settings.memory.extraction
    return {
        "agent": settings.agent.strategy,
        "knowledge": knowledge.strategy if knowledge.model else None,
        "memory": extraction.strategy if extraction.enabled else None,
    }


async def _missing_model(wing: str, settings: Settings, stores: Stores) -> AsyncIterator[Check]:
    """Why requests to the model of a wing would fail, if it asks one and that is not configured."""
    strategy = _strategies(settings).get(wing)
    if strategy is None:
        return
    # their client is imported for installations alone that ask models
    from gateway.wings.models.configured_models import ConfiguredModels
    from gateway.wings.models.messages import ModelFailed

    async with ConfiguredModels(settings.models, lambda: stores) as models:
        try:
            models.of(strategy)
        except ModelFailed as error:
            yield Check("models", "warning", f"{wing}: {error}")


async def database(store: Database, settings: Settings) -> AsyncIterator[Check]:
    """The server, and the migrations that were applied."""
    async with store.connect() as connection:
        version = connection.info.parameter_status("server_version")
        where = "embedded" if settings.database.url == "embedded" else "database.url"
        yield Check("database", "ok", f"PostgreSQL {version} ({where})")
        states = await status(connection, (*components_of(settings), *wing_components(settings)))
        if any(state.applied is None for state in states):
            async for check in rights(connection):
                yield check
        if settings.database.read_url:
            yield await replica(settings.database, connection)
    pending = [f"{state.component}/{state.name}" for state in states if state.applied is None]
    if pending:
        hint = "`toolgate serve` applies them, or `toolgate migrate` now"
        yield Check("migrations", "warning", f"{', '.join(pending)} pending; {hint}")
    else:
        yield Check("migrations", "ok", f"{len(states)} applied")
