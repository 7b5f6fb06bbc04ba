"""`_fields`: the members that a caller wants."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from gateway.methods.result_processing import PATHS_LIMIT, paths_of, project
from schemas.errors import InvalidParams

PET = {"id": 7, "owner": {"login": "a", "age": 3}, "tags": [{"n": 1, "x": 2}, {"n": 3}, 4]}


def project_value(value, wanted):
    kept, missing = project(Raw(json.dumps(value).encode()), paths_of(wanted))
    return json.loads(bytes(kept)), missing


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (["id"], {"id": 7}),
        ("id", {"id": 7}),
        (" id , owner.login ", {"id": 7, "owner": {"login": "a"}}),
        (["owner", "owner.login"], {"owner": PET["owner"]}),
        (["owner.login", "owner"], {"owner": PET["owner"]}),
        (["tags.n"], {"tags": [{"n": 1}, {"n": 3}]}),
        (["tags"], {"tags": PET["tags"]}),
    ],
)
def test_requested_fields_are_kept_in_order(wanted, kept):
    assert project_value(PET, wanted) == (kept, [])


def test_paths_go_through_arrays_inside_arrays():
    assert project_value([[PET], []], ["owner.age"]) == ([[{"owner": {"age": 3}}], []], [])


def test_missing_fields_are_named():
    found = project_value(PET, ["id", "nope", "owner.x"])
    assert found == ({"id": 7, "owner": {}}, ["nope", "owner.x"])


def test_a_member_in_some_of_many_is_there():
    assert project_value([{"a": 1}, {"b": 2}], ["a"]) == ([{"a": 1}, {}], [])


def test_a_value_without_members_is_kept_unchanged():
    assert project_value(7, ["a"]) == (7, ["a"])


def test_numbers_keep_their_digits():
    raw = Raw(b'{"n": 12345678901234567890.1234567890, "m": 1e400, "x": 1}')
    kept, _ = project(raw, paths_of(["n", "m"]))
    assert bytes(kept) == b'{"n":12345678901234567890.1234567890,"m":1e400}'


@pytest.mark.parametrize(
    "wanted",
    [7, None, {}, [], "", " , ", [1], ["a", 2], ["a..b"], ["."], ["a."], ["x" * 501],
     [".".join("abcdefghijklmnopqrstuvw")], [f"a{n}" for n in range(PATHS_LIMIT + 1)]],
)  # fmt: skip
def test_invalid_lists_of_paths_are_refused(wanted):
    with pytest.raises(InvalidParams, match="_fields"):
        paths_of(wanted)


def test_arrays_without_end_are_left_out():
    raw = Raw(b'{"a": ' + b"[" * 200 + b'{"b": 1}' + b"]" * 200 + b"}")
    kept, _ = project(raw, paths_of(["a.b"]))
    assert len(bytes(kept)) < 100


KEYS = st.sampled_from("abc")
VALUES = st.recursive(
    st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=20,
)


def leaves(value, at=()):
    """Every member of objects, by its path, with arrays as if they were not there."""
    if isinstance(value, list):
        return {path for one in value for path in leaves(one, at)}
    if isinstance(value, dict):
        below = {path for key, one in value.items() for path in leaves(one, (*at, key))}
        return below | {(*at, key) for key in value}
    return set()


@settings(deadline=None)  # a loaded machine is slow, not wrong
@given(
    value=st.dictionaries(KEYS, VALUES, min_size=1),
    wanted=st.lists(st.lists(KEYS, min_size=1, max_size=3).map(".".join), min_size=1, max_size=4),
)
def test_nothing_is_kept_that_was_not_wanted_and_nothing_wanted_is_lost(value, wanted):
    kept, _ = project_value(value, wanted)
    paths = [tuple(one.split(".")) for one in wanted]
    expected = {leaf for leaf in leaves(value) for path in paths if leaf[: len(path)] == path}
    found = leaves(kept)
    assert expected <= found
    on_the_way = {path[:n] for path in paths for n in range(1, len(path))}
    assert found <= expected | on_the_way
