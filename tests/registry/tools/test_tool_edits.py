"""Tools made and changed by hand, in a real database: beside imports, which must not undo them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from registry.database.postgres import Database
from registry.sources.tool_store import SourceDraft, ToolStore
from registry.tools.editable_columns import Address, Details, ManualEdit, NewTool
from registry.tools.tool_edits import ToolEdits
from registry.tools.tool_errors import NoSuchTool, ToolRefused
from schemas.binding import FunctionBinding, OpenAPIBinding, ScriptBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

SHOP = SourceDraft("shop", "openapi", "shop.yaml", "http://localhost:9000", True)
OBJECT = {"type": "object", "properties": {"q": {"type": "string"}}}


def draft(name: str, **fields: Any) -> ToolDraft:
    binding = OpenAPIBinding("GET", f"/{name}")
    return replace(ToolDraft(f"/{name}@get", name, f"Does {name}.", OBJECT, binding), **fields)


IMPORTED = [draft("listPets"), draft("getPet")]


def new(name: str, address: Address | None = None, **fields: Any) -> NewTool:
    return NewTool(draft(name, **fields), address)


@pytest.fixture
async def tools(database: Database, store: ToolStore) -> ToolEdits:
    await store.save(HOST, SHOP, IMPORTED)
    return ToolEdits(database.pool, HOST)


async def names(store: ToolStore) -> list[str]:
    return [one.name for one in await store.tools(HOST)]


async def value(database: Database, column: str, name: str) -> Any:
    async with database.pool.connection() as connection:
        found = await connection.execute(
            f"SELECT {column} FROM tool_t WHERE name = %s".encode(), [name]
        )
        return (await found.fetchone() or [None])[0]


async def test_a_tool_is_made_with_a_source_of_its_own(
    tools: ToolEdits, store: ToolStore, database: Database
) -> None:
    await tools.add([new("weather", Address("sky", "https://sky.example"), title="W\0")])
    tool = next(one for one in await store.tools(HOST) if one.name == "weather")
    assert (tool.source, tool.title) == ("sky", "W\N{REPLACEMENT CHARACTER}")
    source = await store.source(HOST, "sky")
    assert source is not None
    assert (source.kind, source.base_url, source.base_url_trusted) == (
        "manual",
        "https://sky.example",
        True,
    )
    assert source.tool_count == 1
    assert await value(database, "description_source", "weather") == "manual"


@pytest.mark.parametrize(
    ("binding", "kind"),
    [
        (OpenAPIBinding("GET", "/x"), "rest"),
        (FunctionBinding("count"), "python"),
        (ScriptBinding("javascript", "main"), "javascript"),
        (ScriptBinding("python", "main"), "python"),
    ],
    ids=["rest", "function", "javascript", "python"],
)
async def test_the_kind_of_implementation_is_read_from_the_binding(
    tools: ToolEdits, database: Database, binding: Any, kind: str
) -> None:
    await tools.add([new("t", binding=binding)])
    assert await value(database, "implementation_type", "t") == kind
    assert (await tools.catalog_row("t")).source == ""


async def test_the_source_is_among_the_words_of_search_and_embedding(
    tools: ToolEdits, database: Database
) -> None:
    await tools.add([new("weather", Address("sky", "https://sky.example"))])
    async with database.pool.connection() as connection:
        found = await connection.execute(
            "SELECT source FROM tool_search_v WHERE name = 'weather' AND live"
        )
        assert await found.fetchone() == ("sky",)
        found = await connection.execute(
            "SELECT source_text FROM entity_source_v JOIN tool_t ON tool_id = entity_id"
            " WHERE name = 'weather'"
        )
        assert "\nsource: sky\n" in (await found.fetchone() or ("",))[0]


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ([new("ok"), new("LISTpets")], "a tool listPets already, which is of the source shop"),
        ([new("ok"), new("ok")], "two tools of this name"),
        ([new("ok"), new("bad", input_schema={"type": "object", "properties": []})], "no object"),
        ([new("ok"), new("bad", Address("nowhere"))], "there is no source nowhere"),
        ([new("ok"), new("bad", Address("shop", "http://other"))], "with another address"),
        (
            [new("ok"), NewTool(draft("bad"), None, Details(sensitivity_tier="x" * 65))],
            "sensitivity tier may have 64",
        ),
    ],
    ids=["taken", "twice", "schema", "source", "address", "length"],
)
async def test_all_or_nothing(
    tools: ToolEdits, store: ToolStore, added: list[NewTool], told: str
) -> None:
    with pytest.raises(ToolRefused, match=told):
        await tools.add(added)
    assert await names(store) == ["getPet", "listPets"]
    assert [one.name for one in await store.sources(HOST)] == ["shop"]


async def test_tools_made_by_hand_may_differ_in_case_only(
    tools: ToolEdits, store: ToolStore
) -> None:
    """Each is found by its exact name only (mending 22)."""
    long = "x" * 128
    await tools.add([new("ok"), new("OK"), new(long), new("sole")])
    assert await names(store) == sorted(["OK", "getPet", "listPets", "ok", "sole", long])
    assert (await tools.catalog_row("OK")).name == "OK"
    assert (await tools.catalog_row("ok")).name == "ok"
    for name in ("oK", "SOLE"):
        with pytest.raises(NoSuchTool, match=name):
            await tools.disable([name])
    assert await tools.disable(["OK"]) == ["OK"]
    with pytest.raises(ToolRefused, match="a tool ok already, which was made by hand"):
        await tools.add([new("ok")])
    with pytest.raises(ToolRefused, match="a tool OK already, which was made by hand, and is dis"):
        await tools.add([new("OK")])
    await tools.remove("ok")
    assert await tools.enable(["OK"]) == ["OK"]
    assert (await tools.catalog_row("OK")).disabled is False


async def test_an_imported_tool_of_a_pair_is_enabled_beside_its_pair(
    tools: ToolEdits, store: ToolStore
) -> None:
    """Its source owns both names (mending 22)."""
    await store.save(HOST, SHOP, [*IMPORTED, draft("getpet")])
    assert await tools.disable(["getPet"]) == ["getPet"]
    assert await tools.enable(["getPet"]) == ["getPet"]
    assert await names(store) == ["getPet", "getpet", "listPets"]


async def test_a_dry_run_checks_and_writes_nothing(tools: ToolEdits, store: ToolStore) -> None:
    await tools.add([new("weather", Address("sky", "https://sky.example"))], dry_run=True)
    with pytest.raises(ToolRefused):
        await tools.add([new("getPet")], dry_run=True)
    assert await names(store) == ["getPet", "listPets"]
    assert await store.source(HOST, "sky") is None


async def test_imports_keep_manual_tools(tools: ToolEdits, store: ToolStore) -> None:
    await tools.add([new("photo", Address("shop"))])
    saved = await store.save(HOST, SHOP, [draft("listPets", description="Other"), draft("photo")])
    assert saved.removed == ("getPet",)
    assert await names(store) == ["listPets", "photo", "shop_photo"]


async def test_a_manual_description_is_kept_until_reset(
    tools: ToolEdits, store: ToolStore, database: Database
) -> None:
    await tools.edit(
        "listPets", ManualEdit(description="Mine", details=Details(routing_domain="sales")), "ada"
    )
    await store.save(HOST, SHOP, [draft("listPets", description="Newer"), draft("getPet")])
    standing = await tools.catalog_row("listPets")
    assert (standing.overridden, standing.override_user) == (True, "ada")
    assert (standing.description_source, standing.routing_domain) == ("manual", "sales")
    assert await value(database, "description", "listPets") == "Mine"

    assert await tools.reset_description("listPets") == "Newer"
    assert not (await tools.catalog_row("listPets")).overridden
    await store.save(HOST, SHOP, [draft("listPets", description="Newest"), draft("getPet")])
    assert await value(database, "description", "listPets") == "Newest"


async def test_an_imported_tool_is_edited_only_in_members_outside_imports(
    tools: ToolEdits,
) -> None:
    change = ManualEdit(title="T", tags=("a",), description="Mine")
    with pytest.raises(ToolRefused, match="its title, tags would be overwritten by the next"):
        await tools.edit("listPets", change, "ada")
    assert not (await tools.catalog_row("listPets")).overridden


async def test_of_a_tool_made_by_hand_everything(
    tools: ToolEdits, store: ToolStore, database: Database
) -> None:
    await tools.add([new("weather", title="Old", tags=("sun",))])
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    details = Details(
        routing_domain="d",
        semantic_namespace="n",
        sensitivity_tier="t",
        semantic_weight=1.5,
        lifecycle_status="deprecated",
        target_personas="p",
        keywords=("rain", "snow"),
    )
    await tools.edit(
        "weather",
        ManualEdit(
            description="Now",
            title="",
            input_schema=schema,
            examples=({"city": "Rome"},),
            tags=("a", "b"),
            details=details,
        ),
        "ada",
    )
    tool = next(one for one in await store.tools(HOST) if one.name == "weather")
    assert (tool.title, tool.description) == (None, "Now")
    assert b'"examples"' in bytes(tool.input_schema)
    standing = await tools.catalog_row("weather")
    assert (standing.overridden, standing.lifecycle_status, standing.semantic_weight) == (
        False,
        "deprecated",
        1.5,
    )
    assert (standing.tags, standing.keywords) == (["a", "b"], ["rain", "snow"])
    await tools.edit("weather", ManualEdit(details=Details(routing_domain="", keywords=())), "ada")
    standing = await tools.catalog_row("weather")
    assert (standing.routing_domain, standing.keywords) == (None, None)
    assert standing.semantic_namespace == "n"
    with pytest.raises(ToolRefused, match="made by hand: it has no other description"):
        await tools.reset_description("weather")


@pytest.mark.parametrize(
    ("details", "told"),
    [
        (Details(sensitivity_tier="x" * 65), "the sensitivity tier may have 64 characters"),
        *(
            (Details(semantic_weight=weight), "the semantic weight is above 0 and at most 100")
            for weight in (0.0, 100.5, math.inf, math.nan)
        ),
    ],
    ids=str,
)
async def test_details_that_fit_no_column_or_no_order_are_refused(
    tools: ToolEdits, details: Details, told: str
) -> None:
    with pytest.raises(ToolRefused, match=told):
        await tools.edit("listPets", ManualEdit(details=details), "ada")
    with pytest.raises(ToolRefused, match=told):
        await tools.add([replace(new("weather"), details=details)])


async def test_disabled_tools_stay_disabled_after_imports(
    tools: ToolEdits, store: ToolStore
) -> None:
    assert await tools.disable(["listPets"]) == ["listPets"]
    assert await tools.disable(["listPets"]) == []
    assert await names(store) == ["getPet"]
    for drafts in ([draft("listPets", description="NewTool"), draft("getPet")], [], IMPORTED):
        await store.save(HOST, SHOP, drafts)
        assert "listPets" not in await names(store)
    assert [one.name for one in await tools.list_disabled()] == ["listPets"]
    assert await tools.enable(["listPets"]) == ["listPets"]
    assert await names(store) == ["getPet", "listPets"]


async def test_tools_missing_from_their_description_are_not_enabled(
    tools: ToolEdits, store: ToolStore
) -> None:
    await tools.disable(["listPets"])
    await store.save(HOST, SHOP, [draft("getPet")])
    await tools.enable(["listPets"])
    assert await names(store) == ["getPet"]
    await store.save(HOST, SHOP, IMPORTED)
    assert await names(store) == ["getPet", "listPets"]


async def test_a_name_that_another_took_cannot_be_enabled(
    tools: ToolEdits, store: ToolStore
) -> None:
    await tools.disable(["listPets"])
    with pytest.raises(ToolRefused, match="of the source shop, and is disabled"):
        await tools.add([new("listPets")])
    other = SourceDraft("zoo", "openapi", "zoo.yaml", "http://localhost:9001", True)
    await store.save(HOST, other, [draft("listPets")])
    with pytest.raises(ToolRefused, match="which is of the source zoo"):
        await tools.enable(["listPets"])


async def test_an_unknown_tool_among_several_stops_all_changes(
    tools: ToolEdits, store: ToolStore
) -> None:
    with pytest.raises(NoSuchTool):
        await tools.disable(["listPets", "nobody"])
    assert await names(store) == ["getPet", "listPets"]


async def test_only_manual_tools_are_removed(tools: ToolEdits, store: ToolStore) -> None:
    await tools.add([new("weather", Address("sky", "https://sky.example")), new("rain", None)])
    with pytest.raises(
        ToolRefused, match="imported from shop, and the next import would restore it"
    ):
        await tools.remove("listPets")
    await tools.remove("weather")
    assert await names(store) == ["getPet", "listPets", "rain"]
    assert await store.source(HOST, "sky") is None  # nothing else used it


async def test_a_source_takes_its_tools_along(tools: ToolEdits, store: ToolStore) -> None:
    await tools.add([new("photo", Address("shop")), new("rain")])
    assert await store.remove(HOST, "shop") == 3
    assert await names(store) == ["rain"]


async def test_tenants_have_tools_of_their_own(
    tools: ToolEdits, store: ToolStore, database: Database
) -> None:
    other = ToolEdits(database.pool, "00000000-0000-0000-0000-000000000002")
    await other.add([new("listPets")])
    with pytest.raises(NoSuchTool):
        await other.disable(["getPet"])
    assert await names(store) == ["getPet", "listPets"]


async def test_nothing_that_nobody_sees_is_written_by_hand(
    tools: ToolEdits, store: ToolStore
) -> None:
    await tools.add([new("own", description="Does\U000e0041 it.")])
    await tools.edit("own", ManualEdit(title="O\u202ewn", examples=({"a": "x\u200b"},)), "ada")
    await tools.edit("listPets", ManualEdit(description="Lists\u200b pets."), "ada")
    found = {one.name: one for one in await store.tools(HOST)}
    assert (found["own"].title, found["own"].description) == ("Own", "Does it.")
    assert '"examples":[{"a":"x"}]' in bytes(found["own"].input_schema).decode().replace(" ", "")
    assert found["listPets"].description == "Lists pets."
