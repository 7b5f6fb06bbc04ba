"""What is published about events, and the commands."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gateway.wings.events.asyncapi import FOLDER, published_schemas
from tests.fixtures_gateway import Client
from tests.gateway.cli.processes import command, ran
from tests.wings.events.rig import got, invoke_skill, wait_for_end
from tests.wings.events.shared import anyio_backend, client, event_changes, service, shared_events

__all__ = ["anyio_backend", "client", "event_changes", "service", "shared_events"]

pytestmark = pytest.mark.anyio

FILES = Path(__file__).parents[3] / "schemas" / FOLDER


@pytest.mark.parametrize("name", published_schemas())
def test_published_schemas_match_the_code(name: str) -> None:
    """`make schemas` writes them."""
    text = (FILES / name).read_text()
    assert text == published_schemas()[name]
    Draft202012Validator.check_schema(json.loads(text))


def test_an_invocation_event_is_valid() -> None:
    """An invocation event is valid (V02)."""
    schema = json.loads((FILES / "skill-invocation.schema.json").read_text())
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"skillName": "report", "arguments": {}, "correlationId": "c-1"})
    assert not validator.is_valid({"arguments": {}})


async def test_events_are_described_by_asyncapi(client: Client) -> None:
    """Events are described by AsyncAPI (V18)."""
    status, document = await got(client, "/events/v1/asyncapi.json")
    assert (status, document["asyncapi"]) == (200, "3.0.0")
    assert set(document["channels"]) == {"invocations", "agent-commands", "agent-events"}
    for message in document["components"]["messages"].values():
        reference = message["payload"]["properties"]["data"]["$ref"]
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


async def test_a_caller_is_erased(client: Client) -> None:
    """A caller is erased (V29)."""
    one = await invoke_skill(client, "getPet", {"id": 7})
    over = await wait_for_end(client, one["id"])
    body = {"principal": over["principal"]}
    assert (await client.post("/events/v1/erasures", body))[1] == {"invocations": 1}
    blank = await wait_for_end(client, one["id"])
    assert (blank["status"], blank["arguments"], "result" in blank) == ("ACKED", None, False)


async def test_the_command_line_shows_invocations(client: Client) -> None:
    one = await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-7")
    await wait_for_end(client, one["id"])
    on = {"TOOLGATE_EVENTS__ENABLED": "true"}
    code, out, err = await ran("events", "tail", "--once", "--url", client.url, **on)
    assert (code, err) == (0, "")
    assert "ACKED" in out
    assert out.endswith("getPet  pet-7\n")
    code, out, err = await ran("events", "show", "pet-7", "--url", client.url, **on)
    assert (code, json.loads(out)["id"]) == (0, one["id"]), err


async def test_a_call_that_is_accepted_is_printed_and_is_no_job(client: Client) -> None:
    """Answers of 202 that are no jobs were waited for as if they were."""
    arguments = '{"skillName": "getPet", "arguments": {"id": 7}}'
    environment = {"TOOLGATE_EVENTS__ENABLED": "true"}
    code, out, err = await command(
        "events", "invoke", "--args", arguments, "--url", client.url, **environment
    )
    assert (code, err) == (0, "")
    assert (await wait_for_end(client, json.loads(out)["id"]))["status"] == "ACKED"
