"""Fixtures of all tests."""

import pytest

pytest_plugins = [
    "tests.fixtures_servers",
    "tests.fixtures_database",
    "tests.fixtures_gateway",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
