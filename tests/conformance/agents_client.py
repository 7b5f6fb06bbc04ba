"""The official SDK of Python as a client of the scripted agent: `agents_client.py URL SIGNER`, run
with an interpreter that has `a2a-sdk[http-server,signing]`; the cards of SIGNER are signed.
Prints a line for each check; fails at the first that does not hold."""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWK, PyJWKSet

BINDINGS = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"))


def message(prefix: str, **more: str) -> pb.SendMessageRequest:
    part = pb.Part(text="hello")
    id_ = f"{prefix}-{uuid.uuid4()}"
    sent = pb.Message(message_id=id_, role=pb.Role.ROLE_USER, parts=[part], **more)
    return pb.SendMessageRequest(message=sent)


def card_with(card: pb.AgentCard, binding: str, version: str) -> pb.AgentCard:
    """The card with one of its interfaces."""
    copy = pb.AgentCard()
    copy.CopyFrom(card)
    del copy.supported_interfaces[:]
    copy.supported_interfaces.extend(
        interface
        for interface in card.supported_interfaces
        if (interface.protocol_binding, interface.protocol_version) == (binding, version)
    )
    assert len(copy.supported_interfaces) == 1, (binding, version)
    return copy


async def begin(client: Client) -> str:
    """The id of a task that asks for input. Its stream of 1.0 does not end."""
    async for event in client.send_message(message("tck-input-required")):
        task: str = event.task.id
        break
    for _ in range(200):
        found = await client.get_task(pb.GetTaskRequest(id=task))
        if found.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED:
            return task
        await asyncio.sleep(0.05)
    raise AssertionError(found)


async def check_binding(http: httpx.AsyncClient, card: pb.AgentCard, old: bool) -> None:
    for streaming in (True, False):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            supported_protocol_bindings=["JSONRPC", "HTTP+JSON"],
        )
        client = ClientFactory(config).create(card)
        events = [event async for event in client.send_message(message("tck-stream-003"))]
        names = [event.WhichOneof("payload") for event in events]
        assert names[0] == "task", names
        assert not streaming or names[-1] == "status_update", names
        task = events[0].task
        found = await client.get_task(pb.GetTaskRequest(id=task.id))
        assert found.status.state == pb.TaskState.TASK_STATE_COMPLETED, found
        assert found.artifacts[0].parts[0].text == "Stream task lifecycle", found
        asking = await begin(client)
        more = message("tck-complete-task", task_id=asking)
        done = [event async for event in client.send_message(more)]
        assert done, "no answer"
        if not old:
            listed = await client.list_tasks(pb.ListTasksRequest(context_id=task.context_id))
            assert [item.id for item in listed.tasks] == [task.id], listed
        cancelled = await client.cancel_task(pb.CancelTaskRequest(id=await begin(client)))
        assert cancelled.status.state == pb.TaskState.TASK_STATE_CANCELED, cancelled
        hook = pb.TaskPushNotificationConfig(task_id=task.id, url="https://example.com/hook")
        stored = await client.create_task_push_notification_config(hook)
        assert stored.url == hook.url, stored


async def check_signature(http: httpx.AsyncClient, url: str) -> None:
    """The verifier of the SDK, with the keys of the gateway's login."""
    keys = PyJWKSet.from_dict((await http.get(f"{url}/.well-known/jwks.json")).json())
    card = await A2ACardResolver(http, url).get_agent_card()

    def find_key(kid: str | None, jku: str | None) -> PyJWK:
        assert str(jku).endswith("/.well-known/jwks.json"), jku
        return next(key for key in keys.keys if key.key_id == kid)

    verify = create_signature_verifier(find_key, ["ES256"])
    verify(card)
    card.name = "another"
    try:
        verify(card)
    except InvalidSignaturesError:
        return
    raise AssertionError("a changed card was verified")


async def main(url: str, signer: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        for binding, version in BINDINGS:
            await check_binding(http, card_with(card, binding, version), version == "0.3")
            print(f"a2a-sdk: {binding} {version} ok", flush=True)
        await check_signature(http, signer)
        print("a2a-sdk: signature of a card ok", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
