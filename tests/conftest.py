"""Fixtures of all tests."""

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.properties import examples

# how long an example takes depends on what else the machine does
settings.register_profile("toolgate", deadline=None, max_examples=examples(100))
settings.load_profile("toolgate")

pytest_plugins = [
    "tests.fixtures_servers",
    "tests.fixtures_database",
    "tests.fixtures_gateway",
    "tests.fixtures_redis",
]


# `make test-browser` runs those; they need Chromium.
collect_ignore = [] if os.environ.get("TOOLGATE_BROWSER") else ["browser"]

LOGGERS = (None, "toolgate", "toolgate.access", "uvicorn")


def pytest_collection_finish() -> None:
    """What sixteen thousand tests are made of stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Whatever a test configures, the next one hears what it listens for."""
    root = logging.getLogger()
    handlers, levels = list(root.handlers), [logging.getLogger(name).level for name in LOGGERS]
    yield
    root.handlers[:] = [one for one in root.handlers if one in handlers]
    for name, level in zip(LOGGERS, levels, strict=True):
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
