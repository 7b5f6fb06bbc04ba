"""Fixtures of a module whose tests leave their gateway as it was, and share it:

    from tests.gateway.shared import anyio_backend, client, service

    __all__ = ["anyio_backend", "client", "service"]

A test that changes it takes `settings`, and runs a gateway of its own.
"""

import pytest

from tests.fixtures_gateway import Client, Recorder, SharedGateway


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture
def service(shared_gateway: SharedGateway) -> Recorder:
    return shared_gateway.renew_service()


@pytest.fixture
def client(shared_gateway: SharedGateway, service: Recorder) -> Client:
    return shared_gateway.client
