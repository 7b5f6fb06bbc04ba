"""What /metrics counts by name."""

import pytest

from gateway.protocol.dispatcher import METHODS
from tests.fixtures_gateway import Client

pytestmark = pytest.mark.anyio


async def test_every_method_that_is_served_is_counted_by_its_name(client: Client) -> None:
    """Others are counted as "other", since clients invent names freely."""
    gateway = client.gateway
    served = {*gateway.dispatcher._methods, *gateway.portal_dispatcher._methods}
    assert served <= METHODS
