"""Names that are unique beside those of other sources."""

from functools import partial
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.names.tool_names import LIMIT, Naming, add_suffix, qualify
from schemas.source import Prefix


def names(naming: Naming, plain: str, key: str = "k", count: int = 2) -> list[str]:
    return list(islice(naming.names(plain, key), count))


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("conditional", ["list", "crm_list"]),
        ("always", ["crm_list", "crm_list_8254c329"]),
        ("never", ["list"]),
    ],
)
def test_a_prefix_decides_the_names_of_tools(prefix: Prefix, expected: list[str]) -> None:
    assert names(Naming("crm", prefix), "list") == expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("conditional", ["x:y", "toolgate://crm/x:y"]),
        ("always", ["toolgate://crm/x:y"]),
        ("never", ["x:y"]),
    ],
)
def test_a_prefix_decides_the_names_of_resources(prefix: Prefix, expected: list[str]) -> None:
    assert list(Naming("crm", prefix).uris("x:y")) == expected


def test_a_uri_that_would_pass_for_another_sources_is_never_plain() -> None:
    uri = "toolgate://other/x:y"
    assert list(Naming("crm").uris(uri)) == [f"toolgate://crm/{uri}"]
    assert list(Naming("crm", "never").uris(uri)) == []


def assign_names(naming: Naming, taken: set[str], *plain: str, **before: str) -> dict[str, str]:
    wanted = {name: partial(naming.names, name, name) for name in plain}
    return naming.assign(wanted, before, lambda name: name.casefold() in taken)


def test_prefixed_names_of_two_sources_stay_apart() -> None:
    one = assign_names(Naming("a_b", "always"), set(), "c")
    other = assign_names(Naming("a", "always"), set(one.values()), "b_c")
    assert one["c"] == "a_b_c"
    assert other["b_c"].startswith("a_b_c_")
    assert len(other["b_c"]) == len("a_b_c_") + 8


def test_a_name_that_is_taken_is_not_given_where_nothing_may_stand_in_front() -> None:
    assert assign_names(Naming("crm", "never"), {"list"}, "List", "get") == {"get": "get"}


def test_a_source_may_have_names_that_differ_only_in_case() -> None:
    """Against those of other sources case does not count (mending 22)."""
    pair = assign_names(Naming("crm"), set(), "getUser", "getuser")
    assert pair == {"getUser": "getUser", "getuser": "getuser"}
    pair = assign_names(Naming("crm"), {"getuser"}, "getUser", "getuser")
    assert pair == {"getUser": "crm_getUser", "getuser": "crm_getuser"}


LONG = "list_every_open_invoice_of_a_customer_with_its_lines_and_taxes_by_currency"


@pytest.mark.parametrize(
    ("prefix", "previous"),
    [
        ("conditional", "getUser_0a1b2c3d"),
        ("conditional", "crm_getUser_0a1b2c3d"),
        ("always", "crm_getUser_0a1b2c3d4e"),
        ("never", "getUser_0a1b2c3d"),
    ],
)
def test_a_name_that_told_a_pair_apart_stays(prefix: Prefix, previous: str) -> None:
    """An upgrade renames no tool (mending 22)."""
    names = assign_names(Naming("crm", prefix), set(), "getUser", "getuser", getUser=previous)
    assert names["getUser"] == previous
    assert names["getuser"] in {"getuser", "crm_getuser"}


@pytest.mark.parametrize("source", ["crm", "accounting-of-the-northern-branches"])
def test_a_long_name_that_was_shortened_stays(source: str) -> None:
    """The earlier rule gave 64 characters, qualified ones included (mending 22)."""
    plain = add_suffix(LONG, LONG)
    for previous in (plain, qualify(source, plain), add_suffix(qualify(source, plain), "k")):
        assert len(previous) <= 64
        assert assign_names(Naming(source), set(), LONG, **{LONG: previous}) == {LONG: previous}
    assert assign_names(Naming(source), set(), LONG) == {LONG: LONG}


@pytest.mark.parametrize("previous", ["getUsers_0a1b2c3d", "getUser_v2", "getUser_0a1b2c3g", "get"])
def test_a_name_that_no_rule_could_give_is_replaced(previous: str) -> None:
    assert assign_names(Naming("crm"), set(), "getUser", getUser=previous) == {"getUser": "getUser"}


def test_existing_names_are_kept_before_newcomers() -> None:
    assert assign_names(Naming("crm"), set(), "a", "b", b="crm_b") == {"b": "crm_b", "a": "a"}


def test_by_another_rule_no_old_name_stays() -> None:
    assert assign_names(Naming("crm"), set(), "a", a="crm_a") == {"a": "crm_a"}
    assert assign_names(Naming("crm", rule_changed=True), set(), "a", a="crm_a") == {"a": "a"}
    assert assign_names(Naming("crm", "always"), set(), "a", a="a") == {"a": "crm_a"}


NAME = st.text("abB_", min_size=1, max_size=140)


SOURCE = st.text("ab", min_size=1, max_size=63)


@given(SOURCE, st.lists(NAME, unique=True, max_size=8), st.sampled_from(["always", "conditional"]))
def test_names_are_legal_and_each_has_its_own(
    source: str, plain: list[str], prefix: Prefix
) -> None:
    cut = {name[:LIMIT] for name in plain}
    taken = {name.casefold() for name in sorted(cut)[::2]}
    values = list(assign_names(Naming(source, prefix), taken, *cut).values())
    assert len(set(values)) == len(values) == len(cut)
    assert not taken & {name.casefold() for name in values}
    assert all(len(name) <= LIMIT for name in values)
