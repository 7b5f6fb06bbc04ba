"""Prompts, resources, completions and skills of somebody to whom rules deny some of them."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from config.access import Rule
from gateway.methods.lists import Lists
from gateway.methods.prompts import Completion, Prompts
from gateway.methods.resources import ResourceMethods
from gateway.methods.skills.acting_agents import granted_tools
from gateway.policy.visibility import PolicyView
from gateway.state.change_streams import Hub
from registry.catalog.catalog import Catalog
from registry.skills.snapshot import Skill, SkillSnapshot, SkillTool
from schemas.errors import Fault
from schemas.mcp.revisions import V2025_11_25, V2026_07_28
from tests.gateway.keeping import keeping
from tests.gateway.methods.federation import (
    Answers,
    Held,
    context,
    decode_result,
    item,
    request,
    skill_files,
    source,
    tool,
)
from tests.gateway.policy.oracle import usual

pytestmark = pytest.mark.anyio

ITEMS = [
    item("prompt", "greet"),
    item("prompt", "secret_prompt"),
    item("resource", "test://open"),
    item("resource", "test://secret"),
    item("template", "test://files/{name}"),
    item("template", "test://vault/{name}", source="two"),
]
WHOLE = Catalog([tool("a"), tool("b")], [source("one"), source("two")], items=ITEMS)


def lists(default: str = "allow", catalog: Catalog = WHOLE, **rules: Rule) -> Lists:
    policy = replace(usual(), default=default, rules=rules)
    held = Held(catalog)
    return Lists(
        held,
        page_size=50,
        ttl_ms=1000,
        down=lambda _tenant, _catalog: (),
        fail_closed=False,
        policy_view=PolicyView(policy, 50),
    )


DENIED = {
    "names": Rule("deny", tools=("*secret*",)),
    "vault": Rule("deny", tools=("test://vault/*",)),
}


def reading(of: Lists) -> tuple[ResourceMethods, Answers]:
    relay = Answers({"contents": [{"uri": "test://open", "text": "hello"}]})
    return ResourceMethods(
        of, relay, hub=Hub(10), stored_answers=keeping(), skills=skill_files(of)
    ), relay


def names(of: Lists, kind: str, member: str) -> list[str]:
    page = of.page(context(V2025_11_25), request("x/list"), kind)
    return [
        one.get("name") or one.get("uri") or one["uriTemplate"]
        for one in decode_result(page)[member]
    ]


async def answer(work) -> tuple[int, str]:
    with pytest.raises(Fault) as caught:
        await work
    return caught.value.code, caught.value.message


def test_lists_leave_out_denied_entries() -> None:
    of = lists(**DENIED)
    assert names(of, "prompt", "prompts") == ["greet"]
    assert names(of, "resource", "resources") == ["test://open"]
    assert names(of, "template", "resourceTemplates") == ["test://files/{name}"]


@pytest.mark.parametrize("revision", [V2025_11_25, V2026_07_28], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "uri",
    [
        "test://secret",
        "toolgate://one/test://secret",
        "test://files/secret",  # of a template that is open
        "test://vault/1",
        "toolgate://two/test://vault/1",
    ],
)
async def test_a_resource_that_is_denied_is_not_there(revision, uri: str) -> None:
    of = lists(**DENIED)
    methods, relay = reading(of)
    asking = context(revision)
    denied = await answer(methods.read(asking, request("resources/read", {"uri": uri})))
    if revision.handshake:
        wish = request("resources/subscribe", {"uri": uri})
        assert await answer(methods.subscribe(asking, wish)) == denied
    nothing = request("resources/read", {"uri": "nowhere://x"})
    assert denied == await answer(reading(of)[0].read(asking, nothing))
    assert not relay.asked


async def test_permitted_resources_are_read() -> None:
    methods, relay = reading(lists(**DENIED))
    for uri in ("test://open", "test://files/notes"):
        await methods.read(context(V2025_11_25), request("resources/read", {"uri": uri}))
    assert [one.params["uri"] for one in relay.asked] == ["test://open", "test://files/notes"]


async def test_an_allowed_template_opens_its_resources() -> None:
    allowed = Rule("allow", tools=("test://files/{name}",))
    methods, relay = reading(lists("deny", one=allowed))
    wanted = request("resources/read", {"uri": "test://files/notes"})
    await methods.read(context(V2025_11_25), wanted)
    assert len(relay.asked) == 1
    other = request("resources/read", {"uri": "test://open"})
    assert await answer(methods.read(context(V2025_11_25), other))
    assert len(relay.asked) == 1


async def test_a_prompt_that_is_denied_is_not_there() -> None:
    of, relay = lists(**DENIED), Answers({"messages": []})
    prompts, completion = Prompts(of, relay, skill_files(of)), Completion(of, relay)
    asking = context(V2025_11_25)

    async def got(name: str) -> list[tuple[int, str]]:
        about = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a"}}
        about["argument"]["value"] = ""
        work = (
            prompts.get(asking, request("prompts/get", {"name": name})),
            completion.complete(asking, request("completion/complete", about)),
        )
        told = [await answer(one) for one in work]
        return [(code, text.replace(name, "?")) for code, text in told]

    assert await got("secret_prompt") == await got("nothing")
    assert not relay.asked


def test_a_skill_does_not_name_tools_that_are_denied() -> None:
    links = (SkillTool("a", "a", "execute"), SkillTool("b", "b", "execute"))
    links = (*links, SkillTool("gone", "gone", "execute"))
    skill = Skill(
        "1", "work", "It works", "", "", Raw(b"{}"), 1, "1", "d", tools=links, named=("b",)
    )
    catalog = Catalog([tool("a"), tool("b")], [source("one")], skills=SkillSnapshot([skill]))
    of = lists(catalog=catalog, one=Rule("deny", tools=("b",)))
    found = granted_tools(skill, of.visible(context(V2025_11_25)))
    assert (list(found.tools), found.missing) == (["a"], ["gone"])


def test_a_fully_denied_source_is_hidden() -> None:
    of = lists(one=Rule("deny", sources=("two",)))
    assert set(of.catalog(context(V2025_11_25)).sources) == {"one"}


def test_callers_with_equal_views_share_one_catalog() -> None:
    of = lists(**DENIED, other=Rule("deny", roles=("nobody",), tools=("a",)))
    first = of.catalog(context(V2025_11_25))
    assert of.catalog(context(V2026_07_28)) is first
    assert lists().catalog(context(V2025_11_25)) is WHOLE
