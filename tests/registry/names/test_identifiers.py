"""Identifiers of tools in programs."""

import keyword
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from registry.names.identifiers import identifier_names
from tests.properties import examples


def test_names_are_identifiers_of_both_languages() -> None:
    names = ["gh.list-issues", "listPets", "class", "delete", "search", "then", "3d", "__class__",
             "-x-", "Straße", "日本", "constructor", "_"]  # fmt: skip
    identifiers = {name: identifier for identifier, name in identifier_names(names).items()}
    assert len(identifiers) == len(names)
    assert identifiers["gh.list-issues"] == "gh_list_issues"
    assert identifiers["listPets"] == "listPets"
    for name in ("class", "delete", "search", "then", "constructor"):
        assert identifiers[name] == f"{name}_"
    assert identifiers["3d"] == "tool_3d"
    assert identifiers["__class__"] == "tool_class__"
    assert identifiers["-x-"] == "x"


def test_a_collision_leaves_identifiers_of_exact_names_unchanged() -> None:
    names = identifier_names(["a-b", "a_b", "a.b"])
    assert names["a_b"] == "a_b"
    others = {identifier: name for identifier, name in names.items() if name != "a_b"}
    assert set(others.values()) == {"a-b", "a.b"}
    assert all(identifier.startswith("a_b_") for identifier in others)
    assert identifier_names(["a_b", "a-b"]).items() <= names.items()


NAMES = st.lists(
    st.one_of(
        st.text(max_size=200),
        st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True),
        st.sampled_from(["a-b", "a_b", "a.b", "a b", "a__b", "class", "class_", "search_", "_a"]),
    ),
    unique=True,
    max_size=30,
)


@settings(deadline=None, max_examples=examples(200))
@given(NAMES, st.randoms(use_true_random=False))
def test_identifiers_are_unique_and_do_not_depend_on_order(
    names: list[str], order: random.Random
) -> None:
    identifiers = identifier_names(names)
    assert sorted(identifiers.values()) == sorted(names)
    for identifier in identifiers:
        assert identifier.isascii()
        assert identifier.isidentifier()
        assert not keyword.iskeyword(identifier)
        assert identifier[0] != "_"
        assert not hasattr(object, identifier)
    shuffled = list(names)
    order.shuffle(shuffled)
    assert identifier_names(shuffled) == identifiers
    alone = {name for name in names if list(identifier_names([name])) == [name]}
    assert all(identifiers[name] == name for name in alone)
