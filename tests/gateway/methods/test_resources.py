import pytest

from gateway.interfaces import Events
from gateway.methods.resources import ResourceMethods
from gateway.state.change_streams import SUBSCRIPTION_LIMIT, Hub
from gateway.state.open_sessions import record_of, update, with_change
from registry.catalog.catalog import Catalog
from schemas.errors import (
    Fault,
    InvalidParams,
    MethodNotFound,
    RelayedFault,
    SessionRequired,
    Unreachable,
)
from schemas.mcp.messages import META_SERVER
from schemas.mcp.revisions import V2025_11_25, V2026_07_28
from schemas.mcp.snapshot import ServerFacts
from tests.gateway.keeping import keeping
from tests.gateway.methods.federation import (
    META,
    Answers,
    context,
    decode_result,
    item,
    lists,
    request,
    skill_files,
    source,
)
from tests.revisions import by_revision

pytestmark = pytest.mark.anyio

BOTH = Catalog(
    sources=[source("one"), source("two")],
    items=[
        item("resource", "test://a"),
        item("resource", "test://shared"),
        item("resource", "test://shared", "toolgate://two/test://shared", "two"),
        item("template", "test://t/{id}", eras="handshake"),
    ],
)
FILE = {"uri": "test://a", "text": "hello", "x-own": 1}


def resources(answer=None, catalog=BOTH, hub=None):
    relay = Answers({"contents": [FILE]} if answer is None else answer)
    of = lists(catalog)
    return ResourceMethods(
        of, relay, hub=hub or keeping_hub(), stored_answers=keeping(), skills=skill_files(of)
    ), relay


def keeping_hub():
    """A hub that keeps subscriptions in the sessions alone."""

    async def keep(session, change):
        update(session, with_change(record_of(session), change))

    events = Events()
    events.subscription_changed.subscribe(keep)
    return Hub(10, events=events)


async def reading(methods, revision, uri, **more):
    surroundings = context(revision)
    return await methods.read(surroundings, request("resources/read", {"uri": uri, **more}))


async def refusal_of(methods, revision, uri) -> Fault:
    with pytest.raises(Fault) as caught:
        await reading(methods, revision, uri)
    return caught.value


@by_revision
async def test_a_resource_is_read_at_its_server(revision):
    methods, relay = resources()
    result = decode_result(await reading(methods, revision, "test://a", _meta={**META, "x": 1}))
    assert result["contents"] == [FILE]
    (asked,) = relay.asked
    assert (asked.source.name, asked.method, asked.eras) == ("one", "resources/read", "both")
    assert asked.params == {"uri": "test://a", "_meta": {**META, "x": 1}}
    assert relay.contexts[0].params == asked.params
    if revision.result_type:
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert META_SERVER in result["_meta"]
    else:
        assert set(result) == {"contents"}


@by_revision
async def test_each_of_two_servers_with_one_address_is_asked_by_its_own(revision):
    methods, relay = resources({"contents": [{**FILE, "uri": "test://shared"}]})
    for uri, name in (("test://shared", "one"), ("toolgate://two/test://shared", "two")):
        result = await reading(methods, revision, uri)
        assert decode_result(result)["contents"][0]["uri"] == uri
        asked = relay.asked[-1]
        assert (asked.source.name, asked.params["uri"]) == (name, "test://shared")


@by_revision
async def test_contents_without_an_address_get_the_requested_address(revision):
    """As the client knows it: each of two servers has the address (mending 22)."""
    methods, _ = resources({"contents": [{"text": "no address"}]})
    for uri in ("test://shared", "toolgate://two/test://shared"):
        result = decode_result(await reading(methods, revision, uri))
        assert result["contents"] == [{"text": "no address", "uri": uri}]


async def test_a_template_is_read_from_its_server_in_its_era():
    methods, relay = resources()
    await reading(methods, V2025_11_25, "test://t/123")
    assert (relay.asked[0].params["uri"], relay.asked[0].eras) == ("test://t/123", "handshake")


async def test_repeated_reads_with_answers_are_forwarded_whole():
    methods, relay = resources({"resultType": "input_required", "requestState": "s"})
    rounds = {"inputResponses": {"k": {"action": "accept"}}, "requestState": "s"}
    result = decode_result(await reading(methods, V2026_07_28, "test://a", **rounds))
    assert relay.asked[0].params == {"uri": "test://a", **rounds}
    assert (result["resultType"], result["requestState"]) == ("input_required", "s")
    assert "contents" not in result


@by_revision
async def test_an_address_that_nobody_has_is_an_error_of_the_revision(revision):
    methods, relay = resources()
    fault = await refusal_of(methods, revision, "other://x")
    assert (fault.code, fault.data) == (revision.not_found, {"uri": "other://x"})
    assert relay.asked == []


@by_revision
async def test_a_resource_that_its_server_has_no_more_is_the_same_error(revision):
    methods, _ = resources(RelayedFault(-32002, "Gone", {"uri": "test://shared"}))
    fault = await refusal_of(methods, revision, "toolgate://two/test://shared")
    assert (fault.code, fault.message) == (revision.not_found, "Gone")
    assert fault.data == {"uri": "toolgate://two/test://shared"}


@by_revision
@pytest.mark.parametrize("answer", [{"contents": []}])
async def test_nothing_is_never_a_resource_of_2026_07_28(revision, answer):
    methods, _ = resources(answer)
    if not revision.result_type:
        assert decode_result(await reading(methods, revision, "test://a")) == answer
    else:
        fault = await refusal_of(methods, revision, "test://a")
        assert (fault.code, fault.data) == (-32602, {"uri": "test://a"})


@by_revision
async def test_a_server_that_cannot_be_reached_is_no_missing_resource(revision):
    methods, _ = resources(Unreachable("one gave no answer"))
    assert (await refusal_of(methods, revision, "test://a")).code == 1502


@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": None}, []])
async def test_bad_params_are_named(params):
    methods, relay = resources()
    for verb in (methods.read, methods.subscribe, methods.unsubscribe):
        with pytest.raises(InvalidParams):
            await verb(context(V2025_11_25), request("resources/read", params))
    assert relay.asked == []


@by_revision
async def test_resource_methods_are_unknown_without_a_server_of_resources(revision):
    facts = ServerFacts("2025-11-25", {"tools": {}, "prompts": {}})
    methods, _ = resources(catalog=Catalog(sources=[source("one", facts)]))
    for verb in (methods.list, methods.templates, methods.read, methods.subscribe):
        with pytest.raises(MethodNotFound, match="no server here has resources"):
            await verb(context(revision), request("resources/x", {"uri": "test://a"}))


@by_revision
async def test_resources_and_templates_are_listed_page_by_page(revision):
    methods, _ = resources()
    uris, cursor = [], {}
    while cursor is not None:
        page = decode_result(
            await methods.list(context(revision), request("resources/list", cursor))
        )
        uris += [one["uri"] for one in page["resources"]]
        assert len(page["resources"]) <= 2
        cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
    assert uris == ["test://a", "test://shared", "toolgate://two/test://shared"]
    page = decode_result(
        await methods.templates(context(revision), request("resources/templates/list"))
    )
    assert page["resourceTemplates"] == [{"uriTemplate": "test://t/{id}", "x-own": 1}]


async def test_a_session_is_told_of_changes_from_then_on():
    hub = keeping_hub()
    methods, _ = resources(hub=hub)
    client = context(V2025_11_25)
    session = client.session
    for _ in range(2):
        ask = request("resources/subscribe", {"uri": "toolgate://two/test://shared"})
        assert await methods.subscribe(client, ask) == {}
    assert session.subscriptions == {"toolgate://two/test://shared"}
    undo = request("resources/unsubscribe", {"uri": "toolgate://two/test://shared"})
    for _ in range(2):
        assert await methods.unsubscribe(client, undo) == {}
    assert session.subscriptions == set()


async def test_a_session_cannot_watch_without_end():
    methods, _ = resources()
    client = context(V2025_11_25)
    for number in range(SUBSCRIPTION_LIMIT):
        await methods.subscribe(client, request("x", {"uri": f"test://t/{number}"}))
    with pytest.raises(InvalidParams, match=str(SUBSCRIPTION_LIMIT)):
        await methods.subscribe(client, request("x", {"uri": "test://t/more"}))


async def test_subscriptions_require_an_existing_resource_and_a_session():
    methods, _ = resources()
    with pytest.raises(Fault) as caught:
        await methods.subscribe(context(V2025_11_25), request("x", {"uri": "other://x"}))
    assert (caught.value.code, caught.value.data) == (-32002, {"uri": "other://x"})
    for verb in (methods.subscribe, methods.unsubscribe):
        with pytest.raises(SessionRequired):
            await verb(context(V2025_11_25, session=None), request("x", {"uri": "test://a"}))


async def test_a_server_that_tells_nothing_cannot_be_watched():
    silent = ServerFacts("2025-11-25", {"resources": {}})
    catalog = Catalog(sources=[source("one", silent)], items=[item("resource", "test://a")])
    methods, _ = resources(catalog=catalog)
    with pytest.raises(MethodNotFound, match="does not tell of its changes"):
        await methods.subscribe(context(V2025_11_25), request("x", {"uri": "test://a"}))
