"""Fixtures of all tests."""

import pytest

pytest_plugins = ["tests.fixtures_database", "tests.fixtures_gateway", "tests.fixtures_servers"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
