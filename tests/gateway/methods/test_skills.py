"""list_skills, use_skill, and skills as prompts, resources and entries of skills/list."""

import base64
import hashlib
from typing import Any

import anyio
import pytest
from msgspec import Raw

from config.settings import Toolset
from gateway.context import Context, Identity, Principal, QueryOptions, Session
from gateway.interfaces import SessionChange
from gateway.methods.capabilities import announced_lists, capabilities
from gateway.methods.lists import Lists, Modes
from gateway.methods.prompts import Prompts
from gateway.methods.resources import ResourceMethods
from gateway.methods.skills.acting_agents import Agents, Handles, granted_tools
from gateway.methods.skills.skill_prompts_and_resources import SkillFiles
from gateway.methods.skills.use_skill import ListSkills, SkillLimits, UseSkill
from gateway.protocol.sealed_state import Sealer
from gateway.state.change_streams import LIST_NOTIFICATIONS, Hub
from gateway.state.open_sessions import record_of, update, with_change
from registry.catalog.catalog import Catalog
from registry.embedding.search_kinds import SKILL
from registry.search import Filters, Hit, SearchQuery, SearchResult
from registry.skills.skill_md import Access, compose
from registry.skills.snapshot import Agent, Skill, SkillFile, SkillSnapshot, SkillTool
from schemas.binding import GatewayBinding
from schemas.errors import Fault, Forbidden, InvalidParams, MethodNotFound, Unavailable, Unreachable
from schemas.jsonrpc import encode
from schemas.mcp.revisions import V2025_11_25, V2026_07_28
from schemas.tool import Annotations
from tests.gateway.keeping import keeping
from tests.gateway.methods.federation import (
    PRINCIPAL,
    Answers,
    Held,
    context,
    decode_result,
    item,
    lists,
    request,
    source,
    tool,
)
from tests.revisions import by_revision

pytestmark = pytest.mark.anyio

TOOLS = [tool(name) for name in ("clean", "feed", "paint", "sell")]
FILES = {"references/food.md": b"# Food\n", "logo.bin": b"\x00\xff"}


def skill(name: str, *tools: str, access: Access = "execute", text: str = "", **more: Any) -> Skill:
    head = {"name": name, "description": more.pop("description", f"About {name}.")}
    text = compose(head, text or f"Do {name}.\n")
    end = text.index("---\n", 4) + 4
    linked = tuple(SkillTool(one, one, access) for one in tools)
    front = Raw(encode(head))
    return Skill(
        f"id-{name}", name, head["description"], text[:end], text[end:], front, 1, "1.0", text,
        tools=linked, **more,
    )  # fmt: skip


def file(path: str) -> SkillFile:
    content = FILES[path]
    kind = "text/markdown" if path.endswith(".md") else "application/octet-stream"
    return SkillFile(path, kind, hashlib.sha256(content).hexdigest(), len(content))


CARE = skill("care", "feed", "clean", requires=("basics",), files=tuple(map(file, FILES)))
SKILLS = [
    CARE,
    skill("basics", "clean", text="Wash your hands."),
    skill("care-fish", parent="care"),
    skill("trade", "sell", suggests=("care",)),
]
AGENTS = [Agent("1", "keeper", "", ("trade", "care")), Agent("2", "newcomer", "", ())]
CATALOG = Catalog(TOOLS, [source("one")], skills=SkillSnapshot(SKILLS, AGENTS))
LIMITS = SkillLimits(2000, 5000, 3600)


AWAY = Unavailable("away")


def hits(*names: str, note: str | None = None) -> SearchResult:
    return SearchResult([Hit(f"id-{name}", name, None, "", "", 1, 1, None) for name in names], note)


class Rig:
    """The handlers over one catalog; `heard` has the sessions that changed."""

    def __init__(
        self,
        catalog: Catalog = CATALOG,
        limits: SkillLimits = LIMITS,
        found: Any = AWAY,
        modes: Modes | None = None,
    ):
        self.lists, self.agents = lists(catalog), Agents("agent")
        if modes is not None:
            self.lists = Lists(
                Held(catalog),
                page_size=100,
                ttl_ms=1000,
                down=lambda *_: (),
                fail_closed=False,
                modes=modes,
            )
        self.tools = catalog.tools
        self.heard: list[str] = []
        self.said: list[bytes] = []
        self.sought: list[SearchQuery] = []
        self.found = found
        self.files_of = dict(FILES)
        self.clock = 1000.0
        sealer = Sealer(b"s" * 32, lambda: self.clock)

        async def get_sealer() -> Sealer:
            return sealer

        self.handles = Handles(self.agents, get_sealer, limits.handle_ttl_s)
        self.listing = ListSkills(
            self.lists, self.agents, find=self._find, limit=5, tokens=limits.answer_tokens
        )
        self.using = UseSkill(
            self.lists,
            self.agents,
            handles=self.handles,
            limits=limits,
            read_file=self._read,
            change=self._change,
            tell=self._tell,
        )
        self.files = SkillFiles(self.lists, self.agents, self._read)

    async def list(self, context: Context, **arguments: Any) -> Any:
        return structured_content(await self.listing.call(OWN, None, arguments, context))

    async def use(self, context: Context, name: str, **more: Any) -> Any:
        return structured_content(await self.using.call(OWN, None, {"name": name, **more}, context))

    async def _find(self, query: SearchQuery) -> SearchResult:
        self.sought.append(query)
        if isinstance(self.found, Fault):
            raise self.found
        return self.found

    async def _read(self, tenant: str, skill: Skill, path: str) -> bytes | None:
        assert (tenant, skill.name) == (PRINCIPAL.tenant, "care")
        return self.files_of.get(path)

    async def _change(self, session: Session, change: SessionChange) -> None:
        update(session, with_change(record_of(session), change))
        self.heard.append(session.id)

    async def _tell(self, _session: Any, message: bytes) -> None:
        self.said.append(message)


OWN = tool("own")


def structured_content(result: Any) -> Any:
    return decode_result(result)["structuredContent"]


def stateless(agent: str | None = None, principal: Principal = PRINCIPAL, **more: Any) -> Context:
    verified = more.pop("verified", False)
    identity = Identity(principal, verified=verified)
    return Context(identity, V2026_07_28, "r-1", options=QueryOptions(agent=agent))


async def test_skills_are_listed_below_their_parents_with_descriptions_only() -> None:
    assert await Rig().list(stateless()) == {
        "skills": [
            {"name": "basics", "description": "About basics."},
            {
                "name": "care",
                "description": "About care.",
                "skills": [{"name": "care-fish", "description": "About care-fish."}],
            },
            {"name": "trade", "description": "About trade."},
        ]
    }


async def test_an_agent_sees_its_own_the_most_important_first() -> None:
    listed = await Rig().list(stateless("keeper"))
    assert [one["name"] for one in listed["skills"]] == ["trade", "care"]
    assert [one["name"] for one in listed["skills"][1]["skills"]] == ["care-fish"]
    listed = await Rig().list(stateless("newcomer"))
    assert listed == {"skills": [], "more": "There are no skills here."}


async def test_an_agent_that_there_is_not_is_an_error_and_may_find_that_out() -> None:
    rig = Rig()
    with pytest.raises(InvalidParams, match="There is no agent 'nobody'; there is keeper"):
        await rig.list(stateless("nobody"))
    assert rig.agents.has_skills(stateless("nobody"), CATALOG)  # calls of these tools say it
    assert not rig.agents.has_skills(stateless("newcomer"), CATALOG)
    assert rig.agents.has_skills(stateless("keeper"), CATALOG)


def claiming(agent: Any) -> Principal:
    return Principal("p", PRINCIPAL.tenant, claims={"agent": agent})


async def test_a_verified_token_names_its_agent() -> None:
    rig, keeper = Rig(), claiming("keeper")
    listed = await rig.list(stateless(principal=keeper, verified=True))
    assert [one["name"] for one in listed["skills"]] == ["trade", "care"]
    with pytest.raises(Forbidden, match="the agent 'keeper'"):
        await rig.list(stateless("newcomer", principal=keeper, verified=True))
    everything = await rig.list(stateless(principal=keeper))
    assert len(everything["skills"]) == 3


@pytest.mark.parametrize("claim", ["", None, 7, ["keeper"]], ids=str)
async def test_a_claim_that_names_nobody_counts_as_none(claim: Any) -> None:
    listed = await Rig().list(stateless("keeper", principal=claiming(claim), verified=True))
    assert [one["name"] for one in listed["skills"]] == ["trade", "care"]


async def test_where_there_are_no_agents_the_claim_is_about_something_else() -> None:
    rig = Rig(Catalog(TOOLS, [source("one")], skills=SkillSnapshot(SKILLS)))
    listed = await rig.list(stateless(principal=claiming("browser"), verified=True))
    assert len(listed["skills"]) == 3
    said = "There is no agent 'keeper'; there are none: toolgate agents add makes one"
    with pytest.raises(InvalidParams, match=said):
        await rig.list(stateless("keeper"))


async def test_an_agent_of_a_token_that_there_is_not_is_refused_without_names() -> None:
    with pytest.raises(InvalidParams) as caught:
        await Rig().list(stateless(principal=claiming("ghost"), verified=True))
    assert "keeper" not in caught.value.message


async def test_a_query_asks_for_the_skills_of_the_agent_alone() -> None:
    rig = Rig(found=hits("care", "elsewhere", note="By words alone."))
    listed = await rig.list(stateless("keeper"), query="how to feed")
    assert listed == {
        "skills": [{"name": "care", "description": "About care."}],
        "note": "By words alone.",
    }
    ids = ["id-trade", "id-care", "id-care-fish"]
    filters = Filters(PRINCIPAL.tenant, ids=ids)
    assert rig.sought == [SearchQuery("how to feed", 5, "hybrid", filters, SKILL, details=False)]


async def test_where_meaning_or_nothing_is_wanted_the_model_hears_that_there_is_none() -> None:
    rig = Rig(found=Unreachable("try again later"))
    result = await rig.listing.call(OWN, None, {"query": "feed"}, stateless())
    assert (result.is_error, result.content[0].text) == (True, "try again later")


async def test_while_the_registry_is_away_words_find_skills() -> None:
    listed = await Rig().list(stateless(), query="trade something")
    assert [one["name"] for one in listed["skills"]] == ["trade"]
    assert "cannot be searched" in listed["note"]


@pytest.mark.parametrize("query", [None, "many"], ids=["all", "query"])
@pytest.mark.parametrize("length", [20, 1000])
async def test_a_list_stays_under_the_ceiling(length: int, query: str | None) -> None:
    many = [skill(f"many-{number:04}", description="many" * (length // 4)) for number in range(500)]
    rig = Rig(Catalog(skills=SkillSnapshot(many)))
    arguments = {"query": query} if query else {}
    result = await rig.listing.call(OWN, None, arguments, stateless())
    assert len(result.content[0].text) <= LIMITS.answer_tokens * 4
    if query is None:
        listed = structured_content(result)
        assert f"{500 - len(listed['skills'])} left out" in listed["more"]


@pytest.mark.parametrize("query", [None, "long"], ids=["all", "query"])
async def test_that_descriptions_are_shortened_is_told(query: str | None) -> None:
    asked = {"query": query} if query else {}
    long = "A long one. " + "It goes on. " * 60
    for text, shortened in ((long, True), ("A long one.", False)):
        many = [skill(f"s{number}", description=text.strip()) for number in range(30)]
        found = hits(*(one.name for one in many))
        listed = await Rig(Catalog(skills=SkillSnapshot(many)), found=found).list(
            stateless(), **asked
        )
        assert listed["skills"][0]["description"].startswith("A long one.")
        assert ("Descriptions are shortened" in listed.get("more", "")) == shortened


async def test_using_a_skill_loads_its_requirements_first() -> None:
    used = await Rig().use(stateless(), "care")
    assert used["loaded"] == ["basics", "care"]
    assert used["instructions"] == (
        "# Skill basics\n\nWash your hands.\n\n# Skill care\n\nDo care."
    )
    assert [one["name"] for one in used["tools"]] == ["clean", "feed"]
    assert used["tools"][0]["inputSchema"] == {"type": "object"}
    assert used["files"] == ["references/food.md", "logo.bin"]
    assert [one["name"] for one in used["see_also"]] == ["care-fish"]
    assert (used["name"], used["version"], used["good_for_s"]) == ("care", "1.0", 3600)


async def test_instructions_are_given_to_models_verbatim() -> None:
    result = await Rig().using.call(OWN, None, {"name": "basics"}, stateless())
    assert result.content[0].text == "Wash your hands."
    assert "instructions" not in result.content[1].text


async def test_long_instructions_are_given_in_parts() -> None:
    text = "".join(f"{number:07}\n" for number in range(100))
    limits = SkillLimits(2000, 100, 3600)
    rig = Rig(Catalog(skills=SkillSnapshot([skill("long", text=text)])), limits)
    read, after = "", 0
    for _ in range(2):
        used = await rig.use(stateless(), "long", **({"after": after} if after else {}))
        read, after = read + used["instructions"], used.get("after", 0)
    assert read == text.strip()
    assert after == 0


async def test_beyond_the_end_there_is_nothing() -> None:
    used = await Rig().use(stateless(), "basics", after=10_000)
    assert (used["instructions"], "after" in used) == ("", False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "basics", "after": 16}, "(Nothing follows: the text has 16 characters.)"),
        ({"name": "care", "file": "empty.md"}, "(The file is empty.)"),
        ({"name": "bare"}, "(It has no instructions.)"),
    ],
    ids=["beyond the end", "empty file", "no instructions"],
)
async def test_missing_text_of_a_skill_is_explained(arguments: Any, said: str) -> None:
    care = skill("care", files=(SkillFile("empty.md", "text/markdown", "", 0),))
    skills = [care, skill("basics", text="Wash your hands."), skill("bare", text="\n")]
    rig = Rig(Catalog(TOOLS, skills=SkillSnapshot(skills)))
    rig.files_of["empty.md"] = b""
    result = await rig.using.call(OWN, None, arguments, stateless())
    assert result.content[0].text == said


async def test_an_unknown_skill_is_refused_with_suggestions() -> None:
    with pytest.raises(InvalidParams, match="there is no skill 'cares'; there is"):
        await Rig().use(stateless(), "cares")
    with pytest.raises(InvalidParams, match="there is no skill 'basics'"):
        await Rig().use(stateless("keeper"), "basics")


async def test_tools_that_are_too_many_are_told_by_name() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(40)}}
    tools = [tool(f"t{number:03}", wide) for number in range(600)]
    catalog = Catalog(
        tools, [source("one")], skills=SkillSnapshot([skill("all", *(one.name for one in tools))])
    )
    result = await Rig(catalog).using.call(OWN, None, {"name": "all"}, stateless())
    assert len(result.content[1].text) <= LIMITS.answer_tokens * 4 + 200
    used = structured_content(result)
    assert "describe_tools" in used["more_tools"]
    assert "left out: t" in used["more_tools"]


async def test_tools_withheld_from_a_skill_and_missing_tools_are_named() -> None:
    reader = tool("read")
    object.__setattr__(reader, "annotations", Annotations(read_only_hint=True))
    catalog = Catalog(
        [*TOOLS, reader],
        [source("one")],
        skills=SkillSnapshot(
            [skill("look", "read", "sell", "gone", access="read", named=("nope",))]
        ),
    )
    used = await Rig(catalog).use(stateless(), "look")
    assert [one["name"] for one in used["tools"]] == ["read"]
    assert used["withheld"] == ["sell (read)"]
    assert used["missing"] == ["gone", "nope"]
    found = granted_tools(catalog.skills.get("look"), catalog)
    found.check(reader)
    with pytest.raises(InvalidParams, match="may use sell with the access level read only"):
        found.check(catalog.get("sell"))
    with pytest.raises(InvalidParams, match="feed is not a tool of the skill look"):
        found.check(catalog.get("feed"))


async def test_a_handle_is_good_for_its_bearer_until_expiry() -> None:
    rig = Rig()
    handle = (await rig.use(stateless("keeper"), "care"))["skill"]
    found = await rig.handles.granted_tools(stateless(), CATALOG, handle)
    assert [*found.tools] == ["clean", "feed"]
    stranger = Principal("other", PRINCIPAL.tenant)
    for bearer in (stateless(principal=stranger), stateless(principal=Principal("p", "elsewhere"))):
        with pytest.raises(InvalidParams, match="nor a handle that is good for you"):
            await rig.handles.granted_tools(bearer, CATALOG, handle)
    rig.clock += 3601
    with pytest.raises(InvalidParams, match="nor a handle that is good for you"):
        await rig.handles.granted_tools(stateless(), CATALOG, handle)


@pytest.mark.parametrize("agent", ["keeper", None])
async def test_a_handle_is_of_its_agent_alone(agent: str | None) -> None:
    rig = Rig()
    handle = (await rig.use(stateless(agent), "care"))["skill"]
    with pytest.raises(InvalidParams, match="its handle is not of the agent newcomer"):
        await rig.handles.granted_tools(stateless("newcomer"), CATALOG, handle)
    found = await rig.handles.granted_tools(stateless(agent), CATALOG, handle)
    assert [*found.tools] == ["clean", "feed"]


async def test_a_handle_ends_with_the_skills_of_its_agent() -> None:
    rig = Rig()
    handle = (await rig.use(stateless("keeper"), "care"))["skill"]
    later = Catalog(
        TOOLS, [source("one")], skills=SkillSnapshot(SKILLS, [Agent("1", "keeper", "", ())])
    )
    with pytest.raises(InvalidParams, match="here no longer"):
        await rig.handles.granted_tools(stateless(), later, handle)
    named = await rig.handles.granted_tools(stateless(), later, "care")
    assert named.skill is CARE


async def test_in_a_session_its_tools_are_listed_from_then_on() -> None:
    rig, here = Rig(modes=Modes("search", 1000)), context(V2025_11_25)
    used = await rig.use(here, "care")
    assert used["skill"] == "care"
    assert await list_tools(rig, here) == ["clean", "feed"]
    await rig.use(here, "care")
    assert (rig.heard, rig.said) == (["s"], [LIST_NOTIFICATIONS["tools"]])
    assert await list_tools(rig, context(V2025_11_25)) == []
    assert await list_tools(rig, stateless()) == []


async def list_tools(rig: Rig, here: Context) -> list[str]:
    """The tools of the list that are not the gateway's own."""
    found = decode_result(await rig.lists.tools(here, request("tools/list")))["tools"]
    return [one["name"] for one in found if one["name"] in {tool.name for tool in rig.tools}]


def wide(name: str) -> list[Any]:
    """Tools of about 100 tokens each."""
    schema = {"type": "object", "description": "x" * 350}
    return [tool(f"{name}{number}", schema) for number in range(3)]


FIRST, SECOND = wide("first"), wide("second")
HEAVY = Catalog(
    [*FIRST, *SECOND, tool("clean")],
    [source("one")],
    skills=SkillSnapshot(
        [
            skill("first", *(one.name for one in FIRST)),
            skill("second", *(one.name for one in SECOND)),
            skill("both", *(one.name for one in [*FIRST, *SECOND])),
            skill("light", "clean"),
        ]
    ),
)


async def test_tools_of_the_newest_skills_are_listed_within_the_budget() -> None:
    rig, here = Rig(HEAVY, modes=Modes("search", 500)), context(V2025_11_25)
    for name in ("light", "first"):
        assert "more_tools" not in await rig.use(here, name)
    assert await list_tools(rig, here) == ["clean", "first0", "first1", "first2"]
    used = await rig.use(here, "second")
    assert used["more_tools"] == (
        "tools/list has no room for the tools of first: call them by name, or with call_tool."
    )
    assert await list_tools(rig, here) == ["clean", "second0", "second1", "second2"]
    assert len(rig.heard) == 3


async def test_a_skill_with_too_many_tools_leaves_the_list_unchanged() -> None:
    rig, here = Rig(HEAVY, modes=Modes("search", 500)), context(V2025_11_25)
    await rig.use(here, "light")
    used = await rig.use(here, "both")
    assert "no room for the tools of both" in used["more_tools"]
    assert len(used["tools"]) == 6
    assert await list_tools(rig, here) == ["clean"]
    assert len(rig.heard) == 1


async def test_a_list_keeps_to_its_size_whatever_a_session_used_before() -> None:
    rig, here = Rig(HEAVY, modes=Modes("search", 500)), context(V2025_11_25)
    assert here.session is not None
    here.session.skills = {"both", "first", "gone"}
    assert await list_tools(rig, here) == ["first0", "first1", "first2"]


@pytest.mark.parametrize("mode", ["direct", "auto"])
async def test_where_all_tools_are_listed_nothing_is_said_of_room(mode: Any) -> None:
    rig, here = Rig(HEAVY, modes=Modes(mode, 500)), context(V2025_11_25)
    used = await rig.use(here, "both")
    assert ("more_tools" in used) == (mode == "auto")


async def test_two_skills_at_once_are_both_used() -> None:
    rig, here = Rig(HEAVY, modes=Modes("search", 500)), context(V2025_11_25)
    async with anyio.create_task_group() as group:
        for name in ("light", "first"):
            group.start_soon(rig.use, here, name)
    assert await list_tools(rig, here) == ["clean", "first0", "first1", "first2"]


async def test_files_are_read_through_the_tool() -> None:
    rig = Rig()
    read = await rig.use(stateless(), "care", file="references/food.md")
    assert read == {"name": "care", "file": "references/food.md", "content": "# Food\n"}
    own = await rig.use(stateless(), "care", file="SKILL.md")
    assert own["content"] == CARE.text
    with pytest.raises(InvalidParams, match=r"no text; read the resource skill://care/logo\.bin"):
        await rig.use(stateless(), "care", file="logo.bin")
    with pytest.raises(InvalidParams, match=r"no '\.\./x'; there is SKILL\.md, references"):
        await rig.use(stateless(), "care", file="../x")


async def test_a_toolset_has_the_skills_of_its_tools() -> None:
    part = SkillSnapshot(SKILLS, AGENTS).within({"sell"})
    assert [*part.of(None)] == ["care-fish", "trade"]
    assert [one.name for one in part.with_requirements("care")] == ["basics", "care"]
    assert part.get("care") is None


def prompts(rig: Rig) -> Prompts:
    return Prompts(rig.lists, Answers(), rig.files)


def resources(rig: Rig) -> ResourceMethods:
    return ResourceMethods(
        rig.lists, Answers(), hub=Hub(10), stored_answers=keeping(), skills=rig.files
    )


@by_revision
async def test_skills_are_prompts(revision: Any) -> None:
    rig, here = Rig(), context(revision)
    first = decode_result(await prompts(rig).list(here, request("prompts/list")))
    assert first["prompts"][0] == {"name": "basics", "description": "About basics."}
    assert "nextCursor" in first
    got = decode_result(await prompts(rig).get(here, request("prompts/get", {"name": "basics"})))
    content = {"type": "text", "text": "Wash your hands."}
    assert got["messages"] == [{"role": "user", "content": content}]
    assert got["description"] == "About basics."
    with pytest.raises(InvalidParams, match="Unknown prompt: nope"):
        await prompts(rig).get(here, request("prompts/get", {"name": "nope"}))


async def test_no_prompt_of_a_server_stands_in_for_a_skill() -> None:
    """Whenever it is listed, and however the server calls it."""
    items = [
        *(item("prompt", name) for name in ("care", "one_care", "TRADE", "other")),
        item("resource", "skill://care/SKILL.md"),
    ]
    catalog = Catalog(TOOLS, [source("one")], items=items, skills=SkillSnapshot(SKILLS, AGENTS))
    rig = Rig(catalog)
    here = stateless("keeper")
    listed = catalog.lists.item_page(
        "prompt", V2026_07_28, after=None, limit=10, agent=catalog.skills.agent("keeper")
    )
    names = [one["name"] for one in decode_result(listed.entries)]
    renamed = [name for name in names if name.startswith("one_care_")]
    assert names == ["care", "care-fish", "one_TRADE", "one_care", *renamed, "other", "trade"]
    assert len(renamed) == 1
    got = await prompts(rig).get(here, request("prompts/get", {"name": "care"}))
    assert decode_result(got)["messages"][0]["content"]["text"].endswith("Do care.")
    for part in (
        catalog,
        catalog.toolset("t", Toolset()),
        catalog.without(["sell"], (), frozenset()),
    ):
        assert part.prompt("care") is None
        assert part.prompt(*renamed).key == "care"
    read = await resources(rig).read(
        here, request("resources/read", {"uri": "skill://care/SKILL.md"})
    )
    assert decode_result(read)["contents"][0]["text"] == CARE.text  # ours, whatever a server lists


@by_revision
async def test_skills_are_resources(revision: Any) -> None:
    rig, here = Rig(), context(revision)
    listed = decode_result(await resources(rig).list(here, request("resources/list")))
    assert listed["resources"][0] == {
        "uri": "skill://basics/SKILL.md",
        "name": "basics",
        "description": "About basics.",
        "mimeType": "text/markdown",
        "size": len(SKILLS[1].text),
    }
    for uri, expected in {
        "skill://care/SKILL.md": {"mimeType": "text/markdown", "text": CARE.text},
        "skill://care/references/food.md": {"mimeType": "text/markdown", "text": "# Food\n"},
        "skill://care/logo.bin": {
            "mimeType": "application/octet-stream",
            "blob": base64.b64encode(FILES["logo.bin"]).decode(),
        },
    }.items():
        read = decode_result(
            await resources(rig).read(here, request("resources/read", {"uri": uri}))
        )
        assert read["contents"] == [{"uri": uri, **expected}]


BAD_URIS = [
    "skill://care/nope.md",
    "skill://care/../care/SKILL.md",
    "skill://care/references%2F..%2F..%2Fetc",
    "skill://nope/SKILL.md",
    "skill://care",
    "skill://",
    "skill:///etc/passwd",
]


@pytest.mark.parametrize("uri", BAD_URIS)
async def test_invalid_uris_of_skill_files_are_not_found(uri: str) -> None:
    catalog = Catalog(skills=SkillSnapshot(SKILLS))
    with pytest.raises(Fault) as caught:
        await resources(Rig(catalog)).read(stateless(), request("resources/read", {"uri": uri}))
    assert (caught.value.code, caught.value.data) == (-32602, {"uri": uri})


async def test_an_agent_reads_its_own_skills_alone() -> None:
    rig, here = Rig(Catalog(TOOLS, skills=SkillSnapshot(SKILLS, AGENTS))), stateless("keeper")
    listed = decode_result(await resources(rig).list(here, request("resources/list")))
    assert [one["name"] for one in listed["resources"]] == ["care-fish", "care"]  # two on a page
    asked = request("x", {"uri": "skill://basics/SKILL.md"})
    with pytest.raises(Fault):
        await resources(rig).read(here, asked)
    with pytest.raises(InvalidParams):
        await rig.files.get(here, asked)


@by_revision
async def test_the_extension_tells_every_file_with_its_digest(revision: Any) -> None:
    rig, here = Rig(), context(revision)
    listed = decode_result(await rig.files.list(here, request("skills/list")))
    entries = {one["uri"]: one for one in listed["skills"]}
    entry = entries["skill://care/SKILL.md"]
    assert entry["frontmatter"] == {"name": "care", "description": "About care."}
    for one in entry["resources"]:
        read = await resources(rig).read(here, request("resources/read", {"uri": one["uri"]}))
        (content,) = decode_result(read)["contents"]
        text = content.get("text")
        data = text.encode() if text is not None else base64.b64decode(content["blob"])
        assert one["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert one["size"] == len(data)
    assert len(entry["resources"]) == 3
    got = decode_result(await rig.files.get(here, request("skills/get", {"uri": entry["uri"]})))
    assert got["skill"] == entry
    if revision.result_type:
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        assert isinstance(listed["ttlMs"], int)


async def test_pages_of_skills_list_each_skill_once() -> None:
    many = [skill(f"s{number:04}", text="x" * 100) for number in range(3000)]
    rig, seen, cursor = Rig(Catalog(skills=SkillSnapshot(many))), [], None
    while cursor is not None or not seen:
        params = {"cursor": cursor} if cursor else {}
        page = decode_result(await rig.files.list(stateless(), request("skills/list", params)))
        seen += [one["frontmatter"]["name"] for one in page["skills"]]
        cursor = page.get("nextCursor")
    assert seen == [one.name for one in many]


async def test_directories_have_their_direct_children() -> None:
    rig = Rig()

    async def children(uri: str) -> list[tuple[str, str]]:
        params = {"uri": uri}
        read = decode_result(await rig.files.directory(stateless(), request("x", params)))
        return [(one["name"], one["mimeType"]) for one in read["resources"]]

    assert await children("skill://care") == [
        ("SKILL.md", "text/markdown"),
        ("logo.bin", "application/octet-stream"),
        ("references", "inode/directory"),
    ]
    assert await children("skill://care/references") == [("food.md", "text/markdown")]
    for uri in ("skill://care/SKILL.md", "skill://care/none", "skill://nope", "https://x"):
        with pytest.raises(InvalidParams, match="no such directory"):
            await children(uri)


@by_revision
async def test_unlisted_skills_are_invisible(revision: Any) -> None:
    hidden = SkillSnapshot(SKILLS, AGENTS)
    hidden.listed = False
    for skills in (hidden, SkillSnapshot()):
        rig, here = Rig(Catalog(TOOLS, skills=skills)), context(revision)
        offered = capabilities(Catalog(TOOLS, skills=skills), revision)
        assert {"prompts", "extensions"} & offered.keys() == set()
        asked = request("x", {"uri": "skill://care/SKILL.md"})
        for call in (rig.files.list, rig.files.get, prompts(rig).list, resources(rig).list):
            with pytest.raises(MethodNotFound):
                await call(here, asked)
        with pytest.raises(Fault):
            await resources(rig).read(here, asked)


def test_skills_are_announced_and_their_changes_told() -> None:
    assert announced_lists(CATALOG) == ["tools", "prompts", "resources"]
    offered = capabilities(CATALOG, V2026_07_28)
    assert offered["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    changed = [*SKILLS[1:], skill("care", "feed", text="Other.")]
    after = Catalog(TOOLS, [source("one")], skills=SkillSnapshot(changed, AGENTS))
    assert after.changed_lists(CATALOG) == {"prompts", "resources"}
    none = Catalog(TOOLS, [source("one")])
    assert none.changed_lists(CATALOG) == {"tools", "prompts", "resources"}


def test_the_gateways_own_tools_know_skills_where_there_are_some() -> None:
    own = {one.name for one in CATALOG.own.values()}
    assert {"list_skills", "use_skill"} <= own
    assert isinstance(CATALOG.own["use_skill"].binding, GatewayBinding)
    assert "use_skill" not in Catalog(TOOLS).own
