"""Tools of strangers in the requests to models, as each provider accepts them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from config.sources import SourceSettings
from tests.fixtures_gateway import Recorder, running
from tests.fixtures_servers import serving
from tests.servers.provider import Answer, chat_whole, providing
from tests.wings.agent.rig import Rig, agent_settings
from tests.wings.agent.test_context import caller
from tests.wings.agent.test_rights import call_agent
from tests.wings.agent.test_squatters import Squatter

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {
        "stamps[]": {"type": "array", "items": {"$ref": "#/$defs/stamp"}},
        "land": {"type": "string", "pattern": r"^(?<!x)\p{Lu}+$"},
    },
    "$defs": {"stamp": {"type": "string"}},
    "required": ["stamps[]"],
}


class Collector(Squatter):
    """A server with a schema that providers refuse."""

    schema: ClassVar[Any] = SCHEMA


@asynccontextmanager
async def collecting(
    database: DatabaseSettings, folder: Path, collector: Collector, **strategy: Any
) -> AsyncIterator[Rig]:
    service = Recorder()
    async with (
        serving(service) as service.url,
        serving(collector) as url,
        providing(Answer()) as provider,
    ):
        settings = agent_settings(
            database, folder / "pets.json", service, provider.url, context_tools=()
        )
        models = settings.models
        scripted = replace(models.strategies["scripted"], **strategy)
        models = replace(models, strategies={**models.strategies, "scripted": scripted})
        sources = {**settings.sources, "stamps": SourceSettings(mcp=f"{url}/mcp")}
        async with running(replace(settings, models=models, sources=sources)) as client:
            yield Rig(client, provider, service)


def offered_schema(rig: Rig, name: str) -> Any:
    """The schema of a tool in the first request to the model."""
    tools = [tool["function"] for tool in rig.provider.requests[0].body["tools"]]
    return next((tool["parameters"] for tool in tools if tool["name"] == name), None)


async def test_a_model_is_offered_schemas_that_its_provider_accepts(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Its calls reach a server by the names of arguments that the server knows (mending 21)."""
    collector = Collector("stamp_collector")
    async with collecting(database_settings, tmp_path, collector) as rig:
        rig.script(
            chat_whole("", [("c1", "stamp_collector", '{"stamps": ["penny black"]}')]),
            chat_whole("Done."),
        )
        await call_agent(rig, caller("ann"), "agent_ask", message="stamp collector")
        schema = offered_schema(rig, "stamp_collector")
        assert schema["properties"].keys() == {"stamps", "land"}
        assert schema["required"] == ["stamps"]
        assert not [sign for sign in ("\\\\p{", "?<!", "$ref") if sign in json.dumps(schema)]
        [call] = collector.calls
        assert call["arguments"] == {"stamps[]": ["penny black"]}


@pytest.mark.parametrize("profile", ["plain", "gemini"])
async def test_the_settings_of_a_model_name_its_profile(
    database_settings: DatabaseSettings, tmp_path: Path, profile: str
) -> None:
    """Services differ behind the same dialect (mending 21)."""
    long = "stamp_collector_" + "x" * 48  # 64 characters: one more than Gemini takes
    names = ("stamp_collector", long)
    async with collecting(database_settings, tmp_path, Collector(*names), profile=profile) as rig:
        rig.script(chat_whole("Done."))
        await call_agent(rig, caller("ann"), "agent_ask", message=f"stamp collector {long}")
        schema = offered_schema(rig, "stamp_collector")
        if profile == "plain":
            assert schema == SCHEMA
        else:
            assert schema["properties"]["stamps"]["items"] == {"type": "string"}
            assert "$defs" not in schema
        assert (offered_schema(rig, long) is None) is (profile == "gemini")


async def test_a_model_calls_tools_under_names_that_its_provider_accepts(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """The server gets the call under its own name: long, in exact case (mending 22)."""
    long = ("stamp_collector_of_the_northern_branches_" * 4)[:128]
    pair = ("stamp_Album", "stamp_album")
    collector = Collector(long, *pair)
    async with collecting(database_settings, tmp_path, collector) as rig:
        rig.script(chat_whole("Done."))
        message = f"stamp collector {' '.join(pair)}"
        await call_agent(rig, caller("ann"), "agent_ask", message=message)
        names = {tool["function"]["name"] for tool in rig.provider.requests[0].body["tools"]}
        [short] = [name for name in names if name.startswith("stamp_collector")]
        assert set(pair) < names
        assert len(short) <= 64
        calls = [(f"c{n}", name, '{"stamps": []}') for n, name in enumerate((short, *pair))]
        rig.script(chat_whole("", calls), chat_whole("Done."))
        await call_agent(rig, caller("ann"), "agent_ask", message=message)
        assert [one["name"] for one in collector.calls] == [long, *pair]
