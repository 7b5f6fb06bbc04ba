"""An agent of the official SDK of Python, run by an interpreter that has it:
`PYTHON a2a_sdk.py PORT INTERFACES STREAMS KEY`, as in `18771 rpc,old 1 key.json`. KEY: a file with
the JWK that the card is signed with, named "k1".

Imports nothing of the tests, since it runs in another environment.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.signing import create_agent_card_signer
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from jwt import PyJWK
from starlette.applications import Starlette

FORM = {"schema": {"type": "object", "properties": {"name": {"type": "string"}}}}
LOGIN = "https://login.example.com/start"
INTERFACES = {
    "rpc": ("/rpc", "JSONRPC", "1.0"),
    "old": ("/rpc", "JSONRPC", "0.3"),
    "rest": ("/rest", "HTTP+JSON", "1.0"),
}


def data_part(value: Any) -> Any:
    return Part(data=ParseDict(value, Value()))


class Executor(AgentExecutor):
    """Does what the first word of a message says."""

    async def execute(self, context: Any, queue: Any) -> None:
        text = context.get_user_input()
        ids = {"context_id": context.context_id}
        if text.startswith("say "):
            part = Part(text=text[4:])
            await queue.enqueue_event(
                Message(message_id="m1", role=Role.ROLE_AGENT, parts=[part], **ids)
            )
            return
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        if context.current_task is not None:
            await self._answer(context, updater, text)
            return
        submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        message = context.message
        await queue.enqueue_event(
            Task(id=context.task_id, status=submitted, history=[message], **ids)
        )
        await updater.start_work(updater.new_agent_message([Part(text="reading maps")]))
        await self._work(updater, text)

    async def _answer(self, context: Any, updater: Any, text: str) -> None:
        parts = context.message.parts
        data = [MessageToDict(part.data) for part in parts if part.HasField("data")]
        name = data[0]["name"] if data else text
        await updater.add_artifact([Part(text=f"hello {name}")], artifact_id="a")
        await updater.complete()

    async def _work(self, updater: Any, text: str) -> None:
        if text == "ask":
            parts = [Part(text="Who travels?"), data_part(FORM)]
            await updater.requires_input(updater.new_agent_message(parts))
            return
        if text == "login":
            parts = [Part(text=f"Log in at {LOGIN} first")]
            await updater.requires_auth(updater.new_agent_message(parts))
            await asyncio.sleep(0.3)
        if text == "slow":
            await asyncio.sleep(60)
        if text == "fail":
            await updater.failed(updater.new_agent_message([Part(text="no trains today")]))
            return
        await updater.add_artifact([Part(text="one ")], artifact_id="a")
        await updater.add_artifact([Part(text="two")], artifact_id="a", append=True)
        if text == "data":
            image = Part(raw=b"hi", media_type="image/png", filename="p.png")
            link = Part(url="https://files.example.com/t.pdf", media_type="application/pdf")
            await updater.add_artifact([data_part({"price": 7}), image, link], artifact_id="b")
        await updater.complete()

    async def cancel(self, context: Any, queue: Any) -> None:
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def main(port: str, names: str, streams: str, key: str) -> None:
    base = f"http://127.0.0.1:{port}"
    offered = [INTERFACES[name] for name in names.split(",")]
    card = AgentCard(
        name="Traveller",
        description="Plans journeys",
        version="1",
        supported_interfaces=[
            AgentInterface(url=base + path, protocol_binding=binding, protocol_version=version)
            for path, binding, version in offered
        ],
        capabilities=AgentCapabilities(streaming=streams == "1"),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="t", name="Trips", description="Plans trips", tags=["travel"])],
    )
    header = {"kid": "k1", "alg": "ES256", "typ": "JOSE", "jku": None}
    create_agent_card_signer(PyJWK.from_json(Path(key).read_text()).key, header)(card)
    handler = DefaultRequestHandler(
        agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=card
    )
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    app = Starlette(routes=routes)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")


if __name__ == "__main__":
    main(*sys.argv[1:5])
