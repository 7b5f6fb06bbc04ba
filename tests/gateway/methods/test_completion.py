import pytest

from gateway.methods.prompts import Completion
from registry.catalog.catalog import Catalog
from schemas.errors import Fault, InvalidParams, MethodNotFound, RelayedFault
from schemas.mcp.revisions import V2024_11_05, V2025_11_25
from schemas.mcp.snapshot import ServerFacts
from tests.gateway.methods.federation import (
    Answers,
    context,
    decode_result,
    item,
    lists,
    request,
    source,
)
from tests.revisions import by_revision

pytestmark = pytest.mark.anyio

SILENT = ServerFacts("2025-11-25", {"prompts": {}, "resources": {}})
OLD = ServerFacts("2024-11-05", {"prompts": {}})
ITEMS = [
    item("prompt", "ask"),
    item("prompt", "ask", "two_ask", "two"),
    item("prompt", "mute", source="silent"),
    item("prompt", "old", source="old"),
    item("template", "test://t/{id}"),
    item("template", "test://t/{id}", "toolgate://two/test://t/{id}", "two"),
    item("resource", "test://r", source="two"),
]
SOURCES = [source("one"), source("two"), source("silent", SILENT), source("old", OLD)]
CATALOG = Catalog(sources=SOURCES, items=ITEMS)
VALUES = {"completion": {"values": ["a", "b"], "total": 2}}


def completion(answer=VALUES, catalog=CATALOG):
    relay = Answers(answer)
    return Completion(lists(catalog), relay), relay


def ask(ref, **more):
    argument = {"name": "id", "value": "1"}
    return request("completion/complete", {"ref": ref, "argument": argument, **more})


def prompt(name):
    return {"type": "ref/prompt", "name": name}


def resource(uri):
    return {"type": "ref/resource", "uri": uri}


@by_revision
@pytest.mark.parametrize(
    ("ref", "name", "own"),
    [
        (prompt("ask"), "one", prompt("ask")),
        (prompt("two_ask"), "two", prompt("ask")),
        ({**prompt("two_ask"), "title": "t"}, "two", {**prompt("ask"), "title": "t"}),
        (resource("test://t/{id}"), "one", resource("test://t/{id}")),
        (resource("toolgate://two/test://t/{id}"), "two", resource("test://t/{id}")),
        (resource("test://r"), "two", resource("test://r")),
    ],
)
async def test_the_server_is_asked_that_has_the_thing(revision, ref, name, own):
    methods, relay = completion()
    more = {"context": {"arguments": {"a": "b"}}, "_meta": {"x": 1}}
    result = decode_result(await methods.complete(context(revision), ask(ref, **more)))
    assert result["completion"] == VALUES["completion"]
    assert ("resultType" in result) is revision.result_type
    (asked,) = relay.asked
    assert asked.source.name == name
    assert asked.params == {"ref": own, "argument": {"name": "id", "value": "1"}, **more}


@by_revision
async def test_a_server_that_completes_nothing_is_not_asked(revision):
    methods, relay = completion()
    result = decode_result(await methods.complete(context(revision), ask(prompt("mute"))))
    assert result["completion"] == {"values": []}
    assert relay.asked == []


async def test_a_2024_11_05_server_is_asked_for_completions():
    methods, relay = completion()
    await methods.complete(context(V2025_11_25), ask(prompt("old")))
    assert relay.asked[0].source.name == "old"


@by_revision
async def test_a_server_without_the_method_completes_nothing(revision):
    methods, _ = completion(RelayedFault(-32601, "Method not found"))
    result = decode_result(await methods.complete(context(revision), ask(prompt("old"))))
    assert result["completion"] == {"values": []}


@by_revision
async def test_any_other_error_reaches_the_client(revision):
    methods, _ = completion(RelayedFault(-32602, "No argument id", {"x": 1}))
    with pytest.raises(Fault) as caught:
        await methods.complete(context(revision), ask(prompt("ask")))
    assert (caught.value.code, caught.value.data) == (-32602, {"x": 1})


@by_revision
async def test_clients_get_at_most_100_values(revision):
    methods, _ = completion({"completion": {"values": ["x"] * 500}})
    result = decode_result(await methods.complete(context(revision), ask(prompt("ask"))))
    assert len(result["completion"]["values"]) == 100
    assert result["completion"]["hasMore"] is True


@by_revision
@pytest.mark.parametrize("ref", [prompt("other"), resource("other://x"), resource("other://{id}")])
async def test_unknown_references_are_refused(revision, ref):
    methods, relay = completion()
    with pytest.raises(InvalidParams, match="Unknown"):
        await methods.complete(context(revision), ask(ref))
    assert relay.asked == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        [],
        {"ref": prompt("ask")},
        {"ref": {"type": "ref/tool", "name": "x"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"name": "ask"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "uri": "x"}, "argument": {"name": "a", "value": ""}},
        {"ref": prompt("ask"), "argument": {"name": "a"}},
        {"ref": prompt("ask"), "argument": {"name": "a", "value": 1}},
    ],
)
async def test_bad_params_are_named(params):
    methods, relay = completion()
    with pytest.raises(InvalidParams):
        await methods.complete(context(V2025_11_25), request("completion/complete", params))
    assert relay.asked == []


@by_revision
async def test_completion_is_unknown_without_a_completing_server(revision):
    alone = Catalog(sources=[source("silent", SILENT)], items=[ITEMS[2]])
    methods, _ = completion(catalog=alone)
    if revision is V2024_11_05:  # knows no capability that would have said so
        result = await methods.complete(context(revision), ask(prompt("mute")))
        assert decode_result(result)["completion"] == {"values": []}
    else:
        with pytest.raises(MethodNotFound):
            await methods.complete(context(revision), ask(prompt("mute")))
