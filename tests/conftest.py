"""Fixtures of all tests."""

import gc
import logging
import os
import sys
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import settings

from tests.properties import examples

# how long an example takes depends on what else the machine does
settings.register_profile("toolgate", deadline=None, max_examples=examples(100))
settings.load_profile("toolgate")

pytest_plugins = [
    "tests.clusters",
    "tests.forkserver",
    "tests.workers",
    "tests.backends",
    "tests.generated_schemas",
    "tests.fixtures_servers",
    "tests.fixtures_database",
    "tests.fixtures_gateway",
    "tests.fixtures_redis",
]


# `make test-browser` runs those; they need Chromium.
collect_ignore = [] if os.environ.get("TOOLGATE_BROWSER") else ["browser"]

LOGGERS = ("", "toolgate", "toolgate.access", "toolgate.upstream", "uvicorn")
LEVELS = {name: logging.getLogger(name).level for name in LOGGERS}


GC_THRESHOLD = 100_000  # objects; one gateway makes more than the default of 700 allows
WORKERS_OF_A_CORE = 2  # tests wait for half of their time: for processes, databases, deadlines
WORKER_BYTES = 3 * 2**29  # with its PostgreSQL, fork server and children


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Workers of `--numprocesses auto`: as many as the cores and the free memory can bear."""
    cores = len(psutil.Process().cpu_affinity()) if sys.platform == "linux" else os.cpu_count() or 1
    room = psutil.virtual_memory().available // WORKER_BYTES
    return max(1, min(cores * WORKERS_OF_A_CORE, room))


def pytest_collection() -> None:
    """The collector would look at ever more tests, and find nothing to collect."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What sixteen thousand tests are made of stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Whatever a test configures, or a fixture of more than a test, the next one hears what it
    listens for."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    reset_levels()
    yield
    root.handlers[:] = [one for one in root.handlers if one in handlers]
    reset_levels()


def reset_levels() -> None:
    for name, level in LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level != level:  # `setLevel` clears the caches of all loggers
            logger.setLevel(level)
    upstream = logging.getLogger("toolgate.upstream")  # commands listen to it, and let none hear
    upstream.propagate = True


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
