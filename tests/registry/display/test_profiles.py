"""Tools as clients and the providers of their models accept them."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from msgspec.json import encode
from msgspec.structs import replace

from config.settings import Profile
from registry.catalog.catalog import Catalog
from registry.display.discovery_tools import DESCRIBER
from registry.display.portable_patterns import is_portable
from registry.display.profile_names import ProfileNames
from registry.display.profiles import BUILT_IN, PLAIN, Profiles, SelectedProfile
from registry.display.schema_folding import Fold
from registry.display.schemas_for_profiles import NotExpressible, argument_aliases, rewritten
from registry.display.tool_shaper import ToolShaper
from registry.names import tool_names
from registry.names.tool_names import add_suffix
from schemas.tool import Tool
from tests.properties import examples
from tests.registry.anyschema import instances, schemas
from tests.registry.shown import SETTINGS, describe_tool, list_tools, shaper

MORE = "Call describe_tool for all."
REWRITING = [name for name in BUILT_IN if name != PLAIN]
UNIONS = {"anyOf", "oneOf", "allOf"}
OBJECT = {"type": "object", "properties": {"x": {"type": "string"}}}

Json = dict[str, Any]


def write_for(schema: Json, name: str) -> Json:
    """As the catalog has it written for clients of the profile."""
    catalog = Catalog([describe_tool("t", schema)], shaper=shaper())
    [shown] = [tool for tool in list_tools(catalog, name) if tool["name"] == "t"]
    found: Json = shown["inputSchema"]
    return found


def arguments(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def read(schema: Any) -> Any:
    """A rewritten schema as JSON Schema: `nullable` is the one word that says something else."""
    if isinstance(schema, list):
        return [read(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: read(value) for key, value in schema.items() if key != "nullable"}
    if schema.get("nullable") is True:
        return {"anyOf": [plain, {"type": "null"}]}
    return plain


def keywords(schema: Any) -> set[str]:
    """All that a schema says with keywords, not with names."""
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for key, value in schema.items():
        if key in ("properties", "$defs", "patternProperties"):
            found = found.union(*(keywords(one) for one in value.values()))
        elif key in ("items", "additionalProperties"):
            found |= keywords(value)
        elif key in UNIONS:
            found = found.union(*(keywords(one) for one in value))
    return found


def depth(schema: Any) -> int:
    if not isinstance(schema, dict):
        return 0
    inner = [*schema.get("properties", {}).values(), schema.get("items")]
    beside = max((depth(one) for key in UNIONS for one in schema.get(key, ())), default=0)
    kind = schema.get("type")
    own = kind in ("object", "array")
    return max(beside, own + max((depth(one) for one in inner), default=0))


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), name=st.sampled_from(REWRITING))
def test_a_rewritten_schema_accepts_all_values_of_the_whole_schema(
    data: st.DataObject, name: str
) -> None:
    schema = data.draw(schemas())
    value = data.draw(instances(schema))
    assume(isinstance(value, dict) and Draft202012Validator(schema).is_valid(value))
    profile = BUILT_IN[name]
    if not profile.references:
        schema = Fold(20_000, MORE, references=False)(schema).schema
    shown = rewritten(schema, profile, MORE)
    assert Draft202012Validator(read(shown)).is_valid(value)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=schemas(), name=st.sampled_from(REWRITING))
def test_a_rewritten_schema_has_nothing_that_the_profile_does_not_accept(
    schema: Json, name: str
) -> None:
    profile = BUILT_IN[name]
    shown = write_for(schema, name)
    assert shown["type"] == "object"
    assert profile.root_unions or not UNIONS & shown.keys()
    used = keywords(shown)
    if not profile.references:
        assert not {"$ref", "$defs"} & used
        assert not (UNIONS - set(profile.unions)) & used
    if profile.keywords is not None:
        assert used <= set(profile.keywords)
    if profile.depth is not None:
        assert depth(shown) <= profile.depth


@pytest.mark.parametrize("name", REWRITING)
def test_only_portable_patterns_are_listed_for_models(name: str) -> None:
    """Patterns that an engine of a provider refuses are no part of a list (mending 21)."""
    foreign = {"type": "string", "pattern": r"^\p{Lu}(?<!X)$"}
    schema = arguments(
        word=foreign,
        code={"type": "string", "pattern": r"^[A-Z]{2}-\d+$"},
        words={"type": "array", "items": foreign},
        never={"type": "string", "not": foreign},
    )
    shown = write_for(schema, name)
    text = encode(shown).decode()
    assert r"\\p" not in text
    assert "(?<" not in text
    assert shown["properties"]["code"] == schema["properties"]["code"]
    assert shown["properties"]["word"] == {"type": "string"}
    assert "not" not in shown["properties"]["never"]
    assert write_for(schema, "plain") == schema


def test_removed_patterns_narrow_nothing() -> None:
    """Names and branches that only a removed pattern allowed stay allowed (mending 21)."""
    foreign = {"type": "string", "pattern": "(?=.*a)b"}
    schema = arguments(
        by_name={
            "type": "object",
            "patternProperties": {r"^\p{L}+$": {}, "^x-": {"type": "string"}},
            "additionalProperties": False,
        },
        either={"oneOf": [foreign, {"type": "string", "maxLength": 3}]},
    )
    assert write_for(schema, "claude")["properties"] == {
        "by_name": {"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
        "either": {"anyOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]},
    }


@pytest.mark.parametrize(
    ("pattern", "portable"),
    [
        (r"^[a-z0-9][a-z0-9._-]{0,62}$", True),
        (r"^\d{4}-\d{2}-\d{2}T(?:\d{2}:?)+Z?$", True),
        (r"^[^\\/:*?\"<>|\]]+?\u00e9\x20\/$", True),
        ("", True),
        (r"\p{L}", False),
        (r"[^\p{Cc}]", False),
        (r"(?<![/. ])$", False),
        (r"^(?!admin)", False),
        (r"(a)\1", False),
        (r"(?<year>\d+)", False),
        (r"(?P<year>\d+)", False),
        (r"(?i)abc", False),
        (r"\A\w+\Z", False),
        (r"a++", False),
        (r"[[:alpha:]]", False),
        ("(", False),
        ("\\", False),
    ],
)
def test_patterns_are_portable_if_readable_by_all_engines(pattern: str, portable: bool) -> None:
    """Constructs of one engine make a pattern unportable (mending 21)."""
    assert is_portable(pattern) is portable


@pytest.mark.parametrize(
    ("client", "profile"),
    [
        ("claude-code", "claude"),
        ("claude-ai", "claude"),
        ("codex-mcp-client", "codex"),
        ("Visual Studio Code", "openai"),
        ("Visual Studio Code - Insiders", "openai"),
        ("cursor-vscode", "cursor"),
        ("Cursor", "cursor"),
        ("gemini-cli-mcp-client", "gemini"),
        ("openai-mcp", "openai"),
        ("bedrock-agentcore", "bedrock"),
        ("Q DEV CLI", "bedrock"),
        ("mcp", "sdk"),
        ("mcp-use", "frameworks"),
        ("ai-sdk-mcp-client", "frameworks"),
        ("@langchain/mcp-adapters", "frameworks"),
        ("mcp-inspector", "plain"),
        ("my own client", "plain"),
        ("", "plain"),
        (None, "plain"),
        (["claude"], "plain"),
        ("x" * 100_000, "plain"),
    ],
)
def test_the_name_of_a_client_tells_its_profile(client: object, profile: str) -> None:
    assert Profiles(SETTINGS.profiles).of(client).name == profile


def test_frameworks_and_programs_of_the_sdk_get_no_references() -> None:
    """LlamaIndex asks a model for an object where a definition is an enum."""
    species = {"type": "string", "enum": ["cat", "dog"]}
    reference = {"$ref": "#/$defs/Species", "description": "Only these."}
    schema = {**arguments(species=reference), "$defs": {"Species": species}}
    inlined = arguments(species={**species, "description": "Only these."})
    assert write_for(schema, "plain") == schema
    assert write_for(schema, "sdk") == write_for(schema, "frameworks") == inlined


def test_a_configured_profile_precedes_built_in_profiles() -> None:
    mine = Profile(clients=("claude-x*",), root_unions=False)
    profiles = Profiles(replace(SETTINGS.profiles, custom={"mine": mine, "cursor": mine}))
    assert profiles.of("claude-xyz").name == "mine"
    assert profiles.of("claude-code").name == "claude"
    assert profiles.of("cursor").name == "plain"


def test_one_profile_can_be_for_everybody() -> None:
    profiles = Profiles(replace(SETTINGS.profiles, default="gemini"))
    assert profiles.of("claude-code").name == profiles.of(None).name == "gemini"


def test_alternatives_at_the_top_become_one_object_and_are_told_in_words() -> None:
    schema = {
        **arguments(path={"type": "string"}, scope={"type": "integer"}),
        "anyOf": [{"required": ["path"]}, {"required": ["scope"]}],
    }
    assert write_for(schema, "claude") == {
        **arguments(path={"type": "string"}, scope={"type": "integer"}),
        "description": "Give path or scope.",
    }


def test_references_at_the_top_are_followed() -> None:
    schema = {
        "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        "$defs": {
            "A": arguments(kind={"const": "a"}, both={"type": "string"}) | {"required": ["kind"]},
            "B": arguments(kind={"const": "b"}, b={"type": "string"}) | {"required": ["kind"]},
        },
    }
    shown = write_for(schema, "claude")
    assert shown["required"] == ["kind"]
    assert shown["properties"].keys() == {"kind", "both", "b"}
    assert shown["properties"]["kind"] == {"anyOf": [{"const": "a"}, {"const": "b"}]}


def test_inner_unions_are_rewritten_to_unions_of_the_profile() -> None:
    schema = arguments(
        one={"oneOf": [{"type": "string"}, {"type": "integer"}]},
        all={"allOf": [OBJECT, {"required": ["x"]}]},
    )
    openai = write_for(schema, "openai")["properties"]
    assert openai["one"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert openai["all"] == {**OBJECT, "required": ["x"]}
    assert write_for(schema, "codex")["properties"]["one"] == {"type": ["integer", "string"]}
    assert write_for(schema, "claude")["properties"] == schema["properties"]


def test_gemini_gets_one_type_texts_in_enumerations_and_known_formats() -> None:
    schema = arguments(
        name={"type": ["string", "null"], "format": "uri", "minLength": 1},
        kind={"enum": ["a", None]},
        count={"type": "integer", "enum": [1, 2], "description": "How many."},
        when={"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        size={"type": ["integer", "string"]},
    ) | {"additionalProperties": False, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert write_for(schema, "gemini") == arguments(
        name={"type": "string", "nullable": True, "minLength": 1},
        kind={"type": "string", "nullable": True, "enum": ["a"]},
        count={"type": "integer", "description": "How many. One of: 1, 2"},
        when={"type": "string", "format": "date-time", "nullable": True},
        size={"anyOf": [{"type": "integer"}, {"type": "string"}]},
    )


def test_arrays_declare_their_items() -> None:
    schema = arguments(tags={"type": "array"}, deep=arguments(inner={"type": ["array", "null"]}))
    shown = write_for(schema, "openai")["properties"]
    assert shown["tags"] == {"type": "array", "items": {}}
    assert shown["deep"]["properties"]["inner"] == {"type": ["array", "null"], "items": {}}


def test_levels_below_the_depth_limit_are_described_in_words() -> None:
    deep: Json = {"type": "string"}
    for number in range(8):
        deep = arguments(**{f"level_{number}": deep})
    shown = write_for(deep, "gemini")
    assert depth(shown) == 4
    assert "Fields: level_4. Call describe_tool" in str(shown)


def test_an_argument_with_a_rejected_name_has_another_in_the_list() -> None:
    """Arguments are renamed for clients that reject their names, not left out (mending 21)."""
    member = {"type": "array", "items": {"type": "string"}, "description": "Labels."}
    schema = arguments(**{"labels[]": member, "labels": {"type": "string"}, "2nd": {}})
    schema |= {"required": ["labels[]"], "additionalProperties": False}
    schema["dependentRequired"] = {"labels": ["2nd"]}
    shown = write_for(schema, "claude")
    [renamed] = shown["required"]
    assert renamed.startswith("labels_")
    assert shown == arguments(
        **{
            renamed: {**member, "description": "Labels. Its own name is labels[]"},
            "labels": {"type": "string"},
            "2nd": {},
        }
    ) | {"required": [renamed], "additionalProperties": False}
    assert argument_aliases(schema) == {"labels[]": renamed, "2nd": "_2nd"}
    assert set(write_for(schema, "gemini")["properties"]) == {renamed, "labels", "_2nd"}
    assert write_for(schema, "plain") == schema


def test_arguments_at_the_top_of_unions_are_renamed() -> None:
    """Rejected names in branches at the root have their aliases as well (mending 21)."""
    branches = [arguments(**{"a b": {"type": "string"}}), arguments(**{"ü[]": {"type": "string"}})]
    schema = {"type": "object", "anyOf": branches}
    aliases = argument_aliases(schema)
    assert set(aliases) == {"a b", "ü[]"}
    for name in REWRITING:
        if BUILT_IN[name].arguments:
            assert set(write_for(schema, name)["properties"]) == set(aliases.values())


def test_a_tool_that_cannot_be_written_is_left_out_alone(caplog: pytest.LogCaptureFixture) -> None:
    schema = arguments(**{"a b": {"type": "string"}}) | {"required": ["a b"]}
    narrow = replace(SETTINGS.profiles, custom={"narrow": Profile(arguments="^[ac]+$")})
    narrow_shaper = ToolShaper(SETTINGS.budgets, Profiles(narrow))
    catalog = Catalog([describe_tool("bad", schema), describe_tool("good")], shaper=narrow_shaper)
    assert [one["name"] for one in list_tools(catalog, "narrow", narrow_shaper)] == ["good"]
    assert [one["name"] for one in list_tools(catalog)] == ["bad", "good"]
    [record] = [one for one in caplog.records if one.msg == "tools_left_out"]
    assert (record.__dict__["tool"], record.__dict__["profile"]) == ("bad", "narrow")
    assert "'a b'" in record.__dict__["reason"]
    assert catalog.get("bad") is not None
    with pytest.raises(NotExpressible):
        rewritten(schema, BUILT_IN["claude"], MORE)


def test_a_schema_that_is_nested_beyond_reason_fails_nobody_else() -> None:
    deep: Json = {"type": "string"}
    for _ in range(3000):
        deep = {"items": deep}
    text = b'{"type":"object","properties":{"a":%s}}'
    raw = text % (b'{"items":' * 3000 + b"{}" + b"}" * 3000)
    tool = describe_tool("deep")
    object.__setattr__(tool, "input_schema", type(tool.input_schema)(raw))
    catalog = Catalog([tool, describe_tool("good")], shaper=shaper())
    for name in BUILT_IN:
        assert "good" in [one["name"] for one in list_tools(catalog, name)]


def test_required_descriptions_are_filled_in() -> None:
    tools = [
        describe_tool("a"),
        describe_tool("b", title="Bee"),
        describe_tool("c", description="See"),
    ]
    shown = list_tools(Catalog(tools, shaper=shaper()), "bedrock")
    assert [one["description"] for one in shown] == ["a", "Bee", "See"]


def shown_names(names: Sequence[str], chosen: SelectedProfile) -> Mapping[str, str]:
    return ProfileNames(names, Profiles(SETTINGS.profiles)).replacements(chosen)


def test_names_leave_room_for_prefixes_of_the_client() -> None:
    name = "a_tool_with_a_name_of_exactly_sixty_four_characters_in_all_so_it"
    rules = shaper()
    catalog = Catalog([describe_tool(name), describe_tool("short")], shaper=rules)
    for chosen in rules.profiles:
        shown = [one["name"] for one in list_tools(catalog, chosen.name)]
        assert all(len(chosen.prefix + one) <= chosen.profile.name_limit for one in shown)
        assert "short" in shown
        for one in shown:
            found = catalog.find(one)
            assert found is not None
            assert found.name == ("short" if one == "short" else name)
    assert catalog.find(name) is catalog.get(name)
    assert catalog.find("a_tool_of_nobody") is None


def test_names_that_are_cut_stay_apart_and_stay_the_same() -> None:
    chosen = Profiles(SETTINGS.profiles).profile("cursor")
    assert chosen is not None
    long = [f"{'x' * 60}{n:02}" for n in range(50)]
    names = shown_names(long, chosen)
    assert len(set(names.values())) == 50
    assert shown_names(long[:1], chosen) == {long[0]: names[long[0]]}
    taken = names[long[0]].upper()
    again = shown_names([*long, taken], chosen)
    assert again[long[0]] != names[long[0]]
    assert {name: again[name] for name in long[1:]} == {name: names[name] for name in long[1:]}


def test_names_begin_with_a_letter_if_required() -> None:
    chosen = Profiles(SETTINGS.profiles).profile("gemini")
    assert chosen is not None
    assert shown_names(["2fa", "_ok", "ok", "-x"], chosen) == {"2fa": "_2fa", "-x": "_-x"}


def test_names_stay_whole_for_clients_of_no_known_limit() -> None:
    """Built-in profiles of models take at most 64 characters, prefix included (mending 22)."""
    names = ["x" * 128, "findOrder", "findorder"]
    for chosen in Profiles(SETTINGS.profiles):
        shown = shown_names(names, chosen)
        if chosen.name in (PLAIN, "sdk"):
            assert shown == {}
        else:
            assert shown.keys() == {names[0]}
            assert len(chosen.prefix + shown[names[0]]) <= 64


def test_names_that_a_client_folds_are_told_apart() -> None:
    """Both of a pair get a hash of their own name, in whatever order they come (mending 22)."""
    own = {"folding": Profile(names_fold=True)}
    chosen = Profiles(replace(SETTINGS.profiles, custom=own)).profile("folding")
    assert chosen is not None
    names = ["findOrder", "findorder", "other"]
    shown = shown_names(names, chosen)
    assert shown.keys() == {"findOrder", "findorder"}
    assert len({name.casefold() for name in shown.values()}) == 2
    assert shown_names(names[::-1], chosen) == shown


SHORT = replace(BUILT_IN["claude"], name_limit=30, name_prefix="")
CLOSE = {
    "short": SHORT,
    "lettered": replace(SHORT, name_letter=True, name_limit=31),
    "folding": replace(SHORT, names_fold=True, name_limit=128),
    "tiny": replace(SHORT, name_limit=16),
}
WHOLE = [f"{word}_{'of_every_customer_' * 3}" for word in ("list", "2fa", "List")]
MIMICS = [
    *(
        add_suffix(plain, name, limit, digits)
        for name, (limit, digits) in product(WHOLE, ((16, 8), (30, 8), (30, 9), (128, 8)))
        for plain in {name, name if name[0].isalpha() else f"_{name}"}
    ),
    f"_{WHOLE[1]}",
    add_suffix("2fa", WHOLE[0]),
    add_suffix(WHOLE[0], WHOLE[0], 30).upper(),
]


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(st.sets(st.sampled_from([*WHOLE, *MIMICS]), max_size=12), st.data())
def test_a_call_reaches_the_tool_that_a_list_had_by_its_name(
    names: set[str], data: st.DataObject
) -> None:
    """In every profile, and wherever a caller sees a part of the tools only (mending 35)."""
    rules = ToolShaper(None, Profiles(replace(SETTINGS.profiles, custom=CLOSE)))
    catalog = Catalog([describe_tool(name) for name in sorted(names)], shaper=rules)
    hidden = data.draw(st.sets(st.sampled_from(sorted(names)))) if names else set()
    view = catalog.narrow(tool for tool in catalog.tools if tool.name not in hidden)
    for chosen, part in product(rules.profiles, (catalog, view)):
        shown = [part.display_name(tool, chosen) for tool in part.tools]
        assert [tool["name"] for tool in list_tools(part, chosen.name, rules)] == shown
        assert len({name.casefold() if chosen.profile.names_fold else name for name in shown}) == (
            len(shown)
        )
        for tool, name in zip(part.tools, shown, strict=True):
            assert part.find(name) is tool
            assert catalog.find(name) is tool


def test_a_name_of_two_tools_is_that_of_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds a name with the same hash is not called by it (mending 35)."""
    monkeypatch.setattr(tool_names, "_digest", colliding_digest)
    profiles = Profiles(replace(SETTINGS.profiles, custom=CLOSE))
    known = "list_every_open_invoice_of_a_customer"
    before = ProfileNames([known], profiles)
    for newcomer in ("list_every_open_invoice_of_a_baker", "list_every_open_invoice_of_a_driver"):
        after = ProfileNames([known, newcomer], profiles)
        for chosen in map(profiles.profile, ("short", "lettered", "tiny")):
            assert chosen is not None
            assert after.of(known, chosen) not in (before.of(known, chosen), known)
        assert not set(before.originals) & set(after.originals)


def colliding_digest(text: str, digits: int | None = tool_names.HASH_DIGITS) -> str:
    """A hash whose first eight digits are those of every text."""
    return f"{'0' * 8}{hashlib.sha256(text.encode()).hexdigest()}"[:digits]


def test_a_tool_has_a_name_however_many_are_in_use() -> None:
    """A server that lists every shortened name of its tool breaks no list (mending 35)."""
    profiles = Profiles(replace(SETTINGS.profiles, custom=CLOSE))
    mimics = [add_suffix(WHOLE[0], WHOLE[0], 16, digits) for digits in range(8, 15)]
    tiny = profiles.profile("tiny")
    assert tiny is not None
    names = ProfileNames([WHOLE[0], *mimics], profiles)
    assert len(names.of(WHOLE[0], tiny)) == 16
    assert names.of(WHOLE[0], tiny) not in mimics


def test_a_list_for_a_profile_is_written_once() -> None:
    catalog = Catalog([describe_tool("a", {**arguments(a=OBJECT), "title": "x"})], shaper=shaper())
    assert encode(list_tools(catalog, "gemini")) == encode(list_tools(catalog, "gemini"))
    assert [one.profile.name for one in catalog.lists.tool_lists] == ["gemini"]


def test_a_prefix_that_leaves_no_room_leaves_names_that_tell_the_tools_apart() -> None:
    own = {"mine": Profile(name_limit=48, name_prefix="p" * 60)}
    chosen = Profiles(replace(SETTINGS.profiles, custom=own)).profile("mine")
    assert chosen is not None
    names = shown_names([f"{'x' * 40}{n}" for n in range(9)], chosen)
    assert len({*names.values()}) == 9
    assert {len(name) for name in names.values()} == {16}


@pytest.mark.parametrize(
    ("tool", "free"),
    [
        (describe_tool("tools"), True),
        (describe_tool("search_tools"), False),
        (describe_tool("tools", aliases=("search_tools",)), False),
    ],
)
def test_a_tool_of_the_gateway_gives_way_to_its_namesakes(tool: Tool, free: bool) -> None:
    catalog = Catalog([tool], shaper=shaper())
    own = next(one for one in catalog.own.values() if one.name == "search_tools")
    assert catalog.finds_always(own) is free
    assert (catalog.find("search_tools") is own) is free
    assert catalog.finds_always(DESCRIBER)
    assert not catalog.finds_always(describe_tool("search_tools"))
