"""The admin API on a loopback port: with a database, sessions and tokens, without a gateway."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from config.access import SecretsSettings
from config.settings import Settings, Toolset
from config.sources import SourceSettings
from gateway.admin.health import Health
from gateway.admin.http_api import AdminAction
from gateway.admin.resources.status import Restarted
from gateway.app.admin import AdminParts, admin_api
from gateway.app.erasers import ErasedPlaces, rows_of_gateway
from gateway.audit.erasure import AuditEraser
from gateway.guards.authentication import Authenticator
from gateway.hybrid.functions import load_function
from gateway.policy.engine import Engine
from gateway.state.memory import MemorySessions
from gateway.upstreams.http.source_pools import SourcePools
from gateway.upstreams.remote_documents import RemoteDocuments
from registry.catalog.catalogs import Catalogs
from registry.catalog.feed import FeedState
from registry.database.postgres import Database
from registry.search import Search
from registry.sources.import_specs import ImportSpec
from schemas.errors import ImportRejected
from tests.fixtures_database import HOST
from tests.fixtures_gateway import wordless
from tests.fixtures_servers import serving
from tests.gateway.admin.client import KEY, Admin, open_admin
from tests.gateway.guards.signing import by_jwks
from tests.gateway.state.conftest import Node, stores_of


@pytest.fixture
def admin_settings(tmp_path: Path) -> Settings:
    """Those of a gateway that knows one source, and one toolset."""
    defaults = wordless()
    return replace(
        defaults,
        admin=replace(defaults.admin, requests=0),
        auth=by_jwks(tmp_path, [KEY.jwk()]),
        secrets=SecretsSettings(key=base64.b64encode(bytes(32)).decode(), old_keys=()),
        sources={"own": SourceSettings(openapi="/nowhere.json")},
        toolsets={"some": Toolset(include=("get*",))},
    )


async def lists_nothing(spec: ImportSpec) -> bytes:
    raise ImportRejected(f"There is no MCP server {spec.name} in this test.")


async def nothing() -> None:
    pass


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@pytest.fixture
def admin_actions() -> list[AdminAction]:
    """What is to be remembered."""
    return []


@pytest.fixture
async def parts(
    database: Database, admin_settings: Settings, admin_actions: list[AdminAction]
) -> AsyncIterator[AdminParts]:
    settings, catalogs = admin_settings, Catalogs()
    sessions = Node(stores_of(MemorySessions())).sessions
    yield AdminParts(
        settings=settings,
        pool=lambda: database.pool,
        sources=lambda: settings.sources,
        lister=RemoteDocuments(lists_nothing, SourcePools(settings.upstream, {}), settings.imports),
        identify=Authenticator(settings.auth, HOST).identify,
        health=Health(FeedState(loaded=True, database="ok")),
        load_catalogs=lambda: catalogs,
        sessions=sessions,
        node="node",
        streams=lambda: 0,
        engine=lambda _tenant: Engine(settings.policy, {}),
        record=admin_actions.append,
        find=Search(lambda: database.pool, lambda _: None, settings.search).run,
        functions=lambda: {"shout": load_function("tests.gateway.admin.conftest:shout")},
        scripts=lambda: settings.scripts,
        restart=lambda: Restarted("settings"),
        erasure=ErasedPlaces(
            settings=lambda: settings,
            pool=lambda: database.pool,
            own=rows_of_gateway(settings, lambda: database.pool),
            audit=AuditEraser(lambda: database.pool, b"", nothing),
            offers={},
        ).erasure,
    )
    await sessions.close_all()


@pytest.fixture
async def api(parts: AdminParts) -> AsyncIterator[Admin]:
    async with serving(admin_api(parts)) as url, aiohttp.ClientSession() as http:
        yield await open_admin(url, http)
