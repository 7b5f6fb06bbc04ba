"""What an import changes, without a database."""

from dataclasses import replace

import msgspec
import pytest
from msgspec import Raw

from registry.names.tool_names import HASH_DIGITS, Naming, TakenNames, add_suffix
from registry.sources.import_plan import KnownOperation, assign, changes, storable
from schemas.binding import GraphQLBinding, OpenAPIBinding, Variable
from schemas.tool import Annotations, ToolDraft


def draft(key: str, name: str, description: str = "Does it.") -> ToolDraft:
    return ToolDraft(key, name, description, {"type": "object"}, OpenAPIBinding("GET", "/x"))


def known_operation(
    name: str, *, of: ToolDraft, present: bool = True, active: bool = True
) -> KnownOperation:
    return KnownOperation(f"e-{of.key}", f"t-{of.key}", name, storable(of)[1], present, active)


SHOP = Naming("shop")
PETS = draft("/pets@get", "list_pets")
PET = draft("/pets/{id}@get", "get_pet")


def test_new_operations_are_added() -> None:
    todo = changes(SHOP, [PETS, PET], {}, TakenNames())
    assert todo.saved.added == ("list_pets", "get_pet")
    assert todo.saved.names == {"/pets@get": "list_pets", "/pets/{id}@get": "get_pet"}
    assert len({row.tool_id for row in todo.rows}) == 2


def test_unchanged_operations_are_not_written() -> None:
    todo = changes(SHOP, [PETS], {PETS.key: known_operation("list_pets", of=PETS)}, TakenNames())
    assert todo.rows == []
    assert todo.saved.unchanged == ("list_pets",)


def test_changed_operations_keep_their_identity() -> None:
    todo = changes(
        SHOP,
        [draft(PETS.key, "list_pets", "Lists.")],
        {PETS.key: known_operation("list_pets", of=PETS)},
        TakenNames(),
    )
    assert [(row.tool_id, row.description) for row in todo.rows] == [("t-/pets@get", "Lists.")]
    assert todo.saved.updated == ("list_pets",)
    assert todo.renamed == []


def test_removed_operations_are_reported_by_their_tool_name() -> None:
    todo = changes(SHOP, [], {PETS.key: known_operation("shop_list_pets", of=PETS)}, TakenNames())
    assert todo.removed == ["e-/pets@get"]
    assert todo.saved.removed == ("shop_list_pets",)


def test_absent_operations_are_not_removed_again() -> None:
    todo = changes(
        SHOP, [], {PETS.key: known_operation("list_pets", of=PETS, present=False)}, TakenNames()
    )
    assert (todo.removed, todo.saved.removed) == ([], ())


def test_returning_operations_become_the_same_active_tool() -> None:
    before = known_operation("list_pets", of=PETS, present=False, active=False)
    todo = changes(SHOP, [PETS], {PETS.key: before}, TakenNames())
    assert todo.saved.added == ("list_pets",)
    assert [(row.tool_id, row.active) for row in todo.rows] == [("t-/pets@get", True)]


def test_tools_disabled_by_hand_stay_disabled() -> None:
    before = known_operation("list_pets", of=PETS, active=False)
    todo = changes(SHOP, [draft(PETS.key, "list_pets", "Lists.")], {PETS.key: before}, TakenNames())
    assert [row.active for row in todo.rows] == [False]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (set(), "list_pets"),
        ({"list_pets"}, "shop_list_pets"),
        ({"list_pets", "shop_list_pets"}, "shop_list_pets_5cb3f9f1"),
    ],
)
def test_names_of_other_sources_are_not_taken(taken: set[str], expected: str) -> None:
    name = assign(SHOP, [PETS], {}, TakenNames(taken))[PETS.key]
    assert name.rpartition("_")[0] == expected.rpartition("_")[0]


def test_a_name_differing_only_in_case_is_qualified() -> None:
    assert assign(SHOP, [draft("/a@get", "List_Pets")], {}, TakenNames(["list_pets"])) == {
        "/a@get": "shop_List_Pets"
    }


def test_a_qualified_name_stays_when_the_plain_name_is_free_again() -> None:
    before = {PETS.key: known_operation("shop_list_pets", of=PETS)}
    assert changes(SHOP, [PETS], before, TakenNames()).saved.unchanged == ("shop_list_pets",)


def test_a_name_that_the_description_changed_is_changed() -> None:
    todo = changes(
        SHOP,
        [draft(PETS.key, "pets_list")],
        {PETS.key: known_operation("list_pets", of=PETS)},
        TakenNames(),
    )
    assert todo.saved.names == {PETS.key: "pets_list"}
    assert todo.renamed == ["t-/pets@get"]


def test_a_newcomer_does_not_take_a_name_that_is_in_use() -> None:
    before = {PETS.key: known_operation("shop_list_pets", of=PETS)}
    newcomer = draft("/a@get", "shop_list_pets")
    names = assign(SHOP, [newcomer, PETS], before, TakenNames(["list_pets"]))
    assert names == {PETS.key: "shop_list_pets", "/a@get": "shop_shop_list_pets"}


def test_characters_that_postgresql_cannot_hold_are_replaced() -> None:
    hostile = ToolDraft(
        "/x@get",
        "x",
        "a\0b\ud800c",
        {"type": "object", "properties": {"n\0": {"const": "\0", "enum": [1, None, "\udfff"]}}},
        OpenAPIBinding("GET", "/x"),
    )
    clean, _ = storable(hostile)
    assert clean.description == "a\ufffdb?c"
    assert clean.input_schema["properties"] == {
        "n\ufffd": {"const": "\ufffd", "enum": [1, None, "?"]}
    }
    assert clean.binding == hostile.binding


def test_the_order_of_properties_is_a_difference() -> None:
    one = ToolDraft("k", "n", "d", {"a": 1, "b": 2}, OpenAPIBinding("GET", "/x"))
    other = ToolDraft("k", "n", "d", {"b": 2, "a": 1}, OpenAPIBinding("GET", "/x"))
    assert storable(one)[1] != storable(other)[1]


def test_fields_that_have_their_defaults_are_in_no_digest() -> None:
    """Or the next release that has one field more would take every tool for changed."""
    said = ToolDraft("/x@get", "x", "X.", {"type": "object"}, OpenAPIBinding("GET", "/x"))
    digest = "25c2f41b80e11bade28d355f3dbcf9f6df8d67dbe52f2430e17432643153a7dd"
    assert storable(said)[1] == digest
    assert storable(replace(said, toolsets=("a",)))[1] != storable(said)[1]
    assert storable(replace(said, operation="a"))[1] != storable(said)[1]


def test_an_operation_that_moved_is_found_by_its_id() -> None:
    moved = replace(draft("/v2/pets@get", "list_pets"), operation="list")
    before = replace(known_operation("list_pets", of=PETS), operation="list")
    todo = changes(SHOP, [moved], {PETS.key: before}, TakenNames())
    assert todo.saved.updated == ("list_pets",)
    assert todo.moved == {before.endpoint_id: "/v2/pets@get"}
    assert (todo.removed, todo.aliases) == ([], {})


def test_a_renamed_tool_keeps_a_free_former_name_as_alias() -> None:
    before = {PETS.key: known_operation("list_pets", of=PETS)}
    renamed = draft(PETS.key, "pets_list")
    assert changes(SHOP, [renamed], before, TakenNames()).aliases == {"list_pets": "t-/pets@get"}
    assert changes(SHOP, [renamed], before, TakenNames(["list_pets"])).aliases == {}
    newcomer = draft("/a@get", "list_pets")
    assert changes(SHOP, [renamed, newcomer], before, TakenNames()).aliases == {}
    pair = draft("/a@get", "List_Pets")
    assert changes(SHOP, [renamed, pair], before, TakenNames()).aliases == {
        "list_pets": "t-/pets@get"
    }


def test_another_rule_of_naming_leaves_no_aliases() -> None:
    before = {PETS.key: known_operation("list_pets", of=PETS)}
    todo = changes(Naming("shop", "always", rule_changed=True), [PETS], before, TakenNames())
    assert (todo.saved.updated, todo.aliases) == (("shop_list_pets",), {})


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_values_that_a_binding_carries_are_kept_beside_text_that_is_mended(text: str) -> None:
    fixed = Variable("", "region", "Region", Raw(b'{"in": ["EU"]}'))
    hidden = replace(draft("a", "a", text), binding=GraphQLBinding("query", "a", (fixed,)))
    clean, _ = storable(hidden)
    assert clean.description in ("a\ufffdb", "a?b")
    assert isinstance(clean.binding, GraphQLBinding)
    [kept] = clean.binding.variables
    assert isinstance(kept.fixed, Raw)
    assert msgspec.json.decode(kept.fixed) == {"in": ["EU"]}


def test_texts_of_a_tool_have_no_hidden_characters() -> None:
    tag = "\U000e0041\u200b"
    schema = {"properties": {"q": {"description": f"a{tag}", "enum": [f"x{tag}"]}}}
    given = ToolDraft(
        key=f"/a{tag}@get",
        name="a",
        title=f"T{tag}",
        description=f"Send{tag} it.",
        input_schema=schema,
        output_schema={"title": f"O{tag}"},
        annotations=Annotations(title=f"A{tag}"),
        binding=OpenAPIBinding("GET", f"/a{tag}"),
        definition={"_meta": {f"k{tag}": f"v{tag}"}},
        tags=(f"pets{tag}",),
    )
    clean, digest = storable(given)
    assert clean == replace(
        given,
        title="T",
        description="Send it.",
        input_schema={"properties": {"q": {"description": "a", "enum": ["x"]}}},
        output_schema={"title": "O"},
        annotations=Annotations(title="A"),
        definition={"_meta": {"k": "v"}},
        tags=("pets",),
    )
    assert storable(clean) == (clean, digest)


LONG = "list_every_open_invoice_of_a_customer_with_its_lines_and_taxes_by_currency"


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        *(
            (LONG, add_suffix(LONG, LONG, limit, digits))
            for limit in (16, 44, 63)
            for digits in (HASH_DIGITS, HASH_DIGITS + 1, 13)
        ),
        (LONG, add_suffix(LONG, LONG, 49).upper()),
        ("List_pets", add_suffix("List_pets", "List_pets")),  # for a client that folds case
        ("2fa_" + LONG, add_suffix("_2fa_" + LONG, "2fa_" + LONG, 49)),
        ("2fa", "_2fa"),  # for a client whose names begin with a letter
        ("shop_" + LONG, add_suffix("shop_" + LONG, "shop_" + LONG, 49).removeprefix("shop_")),
    ],
)
def test_shortened_names_of_other_sources_are_not_given(shown: str, name: str) -> None:
    """Anybody can compute the name of a tool in a profile (mending 35)."""
    taken = TakenNames([shown])
    given = assign(SHOP, [draft("/a@get", name)], {}, taken)["/a@get"]
    assert given != name if not shown.startswith("shop_") else given == name
    assert not taken.shows(given)
    never = assign(Naming("shop", "never"), [draft("/a@get", name)], {}, taken)
    assert never.get("/a@get", given) == given


def test_a_name_of_the_same_form_that_shows_nothing_stays() -> None:
    name = add_suffix(LONG, LONG[1:], 49)
    assert assign(SHOP, [draft("/a@get", name)], {}, TakenNames([LONG])) == {"/a@get": name}


@pytest.mark.parametrize("present", [True, False])
def test_a_tool_in_use_keeps_the_shortened_name_of_a_later_tool(present: bool) -> None:
    """The later one is shown by another name; a tool that was removed meanwhile comes back as a
    newcomer (mending 35)."""
    pets = draft("/a@get", add_suffix(LONG, LONG, 49))
    before = {pets.key: known_operation(pets.name, of=pets, present=present)}
    names = assign(SHOP, [pets], before, TakenNames([LONG]))
    assert (names[pets.key] == pets.name) is present
