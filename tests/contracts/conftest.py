from collections.abc import AsyncIterator

import pytest

from tests.contracts.backends import Backend, Pair, in_memory, in_postgres, in_redis

REDIS = {"redis": "redis_server", "redis_cluster": "redis_cluster"}  # fixtures


@pytest.fixture(params=["memory", "postgres", "redis", "redis_cluster"])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "postgres":
        settings, cluster = map(request.getfixturevalue, ("database_settings", "cluster"))
        return in_postgres(settings, cluster)
    if request.param in REDIS:
        database = request.getfixturevalue("database_settings")
        return in_redis(request.getfixturevalue(REDIS[request.param]), database)
    return in_memory()


@pytest.fixture(params=["postgres", *REDIS])
def shared_backend(request: pytest.FixtureRequest) -> Backend:
    """A backend that can be away."""
    if request.param == "postgres":
        settings, cluster = map(request.getfixturevalue, ("database_settings", "cluster"))
        return in_postgres(settings, cluster)
    database = request.getfixturevalue("database_settings")
    return in_redis(request.getfixturevalue(REDIS[request.param]), database)


@pytest.fixture
async def nodes(backend: Backend, anyio_backend: str) -> AsyncIterator[Pair]:
    async with backend.nodes() as pair:
        yield pair
