"""The Idempotency-Key of a call reaches services of OpenAPI descriptions, where it can matter."""

import pytest

from tests.fixtures_gateway import Client, Recorder

pytestmark = pytest.mark.anyio


async def test_the_key_of_a_call_is_that_of_its_request(client: Client, service: Recorder) -> None:
    calls = (("createPet", {"name": "Rex"}), ("getPet", {"id": 7}), ("deletePet", {"id": 7}))
    for method, params in calls:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        await client.post("/rpc", request, {"Idempotency-Key": "k-1"})
    await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "createPet", "params": {"name": "Tom"}})
    sent = [one["headers"].get("idempotency-key") for one in service.requests]
    assert sent == ["k-1", None, "k-1", None]
