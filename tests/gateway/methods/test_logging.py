import pytest

from gateway.methods.lifecycle import LogLevels
from gateway.state.open_sessions import record_of, update, with_change
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams, MethodNotFound
from schemas.mcp.messages import LOG_LEVELS
from schemas.mcp.revisions import HANDSHAKE, V2025_11_25
from schemas.mcp.snapshot import ServerFacts
from tests.gateway.methods.federation import context, lists, request, source

pytestmark = pytest.mark.anyio
by_revision = pytest.mark.parametrize("revision", HANDSHAKE.values(), ids=HANDSHAKE)

CATALOG = Catalog(sources=[source("one")])


class Kept:
    """Keeps what sessions say of themselves, and which levels that were."""

    def __init__(self):
        self.levels = []

    async def __call__(self, session, change):
        update(session, with_change(record_of(session), change))
        self.levels.append(change.log_level)


def set_level(level):
    return request("logging/setLevel", {"level": level})


@by_revision
async def test_a_session_sets_its_log_level(revision):
    kept, client = Kept(), context(revision)
    methods = LogLevels(lists(CATALOG), kept)
    levels = [*LOG_LEVELS, LOG_LEVELS[-1]]
    for level in levels:
        assert await methods.set_level(client, set_level(level)) == {}
        assert client.session.log_level == level
    assert kept.levels == levels  # also the last one: another node may have another


@by_revision
@pytest.mark.parametrize("level", ["verbose", "", "INFO", "info ", 1, None, ["info"]])
async def test_a_level_that_does_not_exist_is_refused(revision, level):
    kept, client = Kept(), context(revision)
    with pytest.raises(InvalidParams):
        await LogLevels(lists(CATALOG), kept).set_level(client, set_level(level))
    assert (client.session.log_level, kept.levels) == (None, [])


async def test_an_unknown_level_is_refused_with_the_known_levels():
    with pytest.raises(InvalidParams, match=r"'loud'; expected one of debug, info, .*emergency"):
        await LogLevels(lists(CATALOG), Kept()).set_level(context(V2025_11_25), set_level("loud"))


async def test_a_client_without_a_session_stores_no_level():
    kept = Kept()
    client = context(V2025_11_25, session=None)
    assert await LogLevels(lists(CATALOG), kept).set_level(client, set_level("info")) == {}
    assert kept.levels == []


async def test_logging_is_unknown_without_a_logging_server():
    mute = Catalog(sources=[source("one", ServerFacts("2025-11-25", {"tools": {}}))])
    with pytest.raises(MethodNotFound, match="no server here has logging"):
        await LogLevels(lists(mute), Kept()).set_level(context(V2025_11_25), set_level("info"))
