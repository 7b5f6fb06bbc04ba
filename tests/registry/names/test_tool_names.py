import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.names.tool_names import PORTABLE_LIMIT, assign, legal, limit_for, qualify, tool_name

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
METHODS = st.sampled_from(["get", "PUT", "post", "delete"])


@pytest.mark.parametrize(
    ("operation_id", "expected"),
    [
        ("listPets", "listPets"),
        ("repos/list-for-user", "repos_list-for-user"),
        ("Pets.list all (v2)", "Pets_list_all_v2"),
        ("créer-Élève", "creer-Eleve"),  # letters with an ASCII form keep it
        ("ﬁnd①", "find1"),  # compatibility forms as well
        ("__private", "__private"),  # legal already: not touched
        ("x" * 64, "x" * 64),
    ],
)
def test_an_operation_id_becomes_a_legal_name_with_its_words_apart(operation_id, expected):
    assert tool_name(operation_id, "get", "/pets") == expected


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/customers/{id}", "get_customers_by_id"),
        ("get", "/repos/{owner}/{repo}", "get_repos_by_owner_by_repo"),
        ("POST", "/files/{name}.{ext}", "post_files_by_name_by_ext"),
        ("DELETE", "/user-groups/", "delete_user-groups"),
        ("GET", "/", "get"),
    ],
)
def test_without_an_operation_id_method_and_path_name_the_tool(method, path, expected):
    assert tool_name(None, method, path) == expected
    assert tool_name("", method, path) == expected


def test_an_id_without_any_latin_letter_counts_as_none():
    assert tool_name("获取用户", "get", "/users") == "get_users"


def test_letters_that_are_lost_leave_a_hash_so_that_names_stay_apart():
    first, second = tool_name("获取user", "get", "/a"), tool_name("删除user", "get", "/a")
    assert first != second
    assert re.fullmatch(r"user_[0-9a-f]{8}", first)


def test_a_long_name_is_cut_and_ends_in_a_hash_of_the_whole():
    shared = "compute.instances/" * 5
    first, second = tool_name(shared + "a", "get", "/"), tool_name(shared + "b", "get", "/")
    assert first != second
    assert len(first) <= PORTABLE_LIMIT
    assert first.startswith("compute_instances_compute_instances")
    assert re.search(r"[a-z]_[0-9a-f]{8}$", first)


@given(st.none() | st.text(max_size=100), METHODS, st.text(max_size=100))
def test_every_name_is_legal(operation_id, method, path):
    assert LEGAL.fullmatch(tool_name(operation_id, method, path))


def test_the_one_name_that_equals_its_operation_id_is_kept():
    names = assign({"/b@get": ("list_pets", "list/pets"), "/a@get": ("list_pets", "list_pets")})
    assert names["/a@get"] == "list_pets"
    assert re.fullmatch(r"list_pets_[0-9a-f]{8}", names["/b@get"])


def test_names_that_differ_in_case_only_are_kept():
    """Both operations of a pair have the names that they were given (mending 22)."""
    names = assign({"/a@get": ("getPet", "getPet"), "/b@get": ("getpet", "get pet")})
    assert names == {"/a@get": "getPet", "/b@get": "getpet"}


@pytest.mark.parametrize(("length", "expected"), [(64, 64), (65, 65), (128, 128), (129, 128)])
def test_a_name_that_was_given_has_the_length_that_mcp_allows(length, expected):
    """A longer one is cut there, with a hash (mending 22)."""
    given = "a" * length
    name = legal(given, limit=limit_for(given))
    assert len(name) == expected
    assert (name == given) is (length <= 128)
    qualified = qualify("crm", given)
    assert len(qualified) == (64 if length <= 64 else min(length + 4, 128))
    assert qualified.startswith("crm_aaa")


def test_a_name_that_the_gateway_makes_fits_the_apis_of_all_providers():
    """Ids and paths are words of a description, not names of tools (mending 22)."""
    assert len(tool_name("read_" + "items_" * 20, "get", "/")) <= PORTABLE_LIMIT
    assert len(tool_name(None, "get", "/items" * 20)) <= PORTABLE_LIMIT


def test_equal_operation_ids_both_get_a_hash_because_neither_is_the_first():
    names = assign({"/a@get": ("list", "list"), "/b@get": ("list", "list")})
    assert all(re.fullmatch(r"list_[0-9a-f]{8}", name) for name in names.values())


def test_an_operation_called_like_the_hashed_name_of_another_keeps_its_own():
    collision = {"/a@get": ("list", "list"), "/b@get": ("list", "list")}
    hashed = assign(collision)["/b@get"]
    names = assign({**collision, "/c@get": (hashed, hashed)})
    assert names["/c@get"] == hashed
    assert len(set(names.values())) == 3


IDS = st.none() | st.text("aAbé/_-", max_size=6) | st.text("xy/", min_size=60, max_size=70)


@given(st.dictionaries(st.text("/ab{}@", max_size=4), IDS, max_size=8), st.randoms())
def test_names_are_legal_unique_and_independent_of_order(ids, random):
    wanted = {key: (tool_name(own, "get", key), own) for key, own in ids.items()}
    names = assign(wanted)
    shuffled = list(wanted.items())
    random.shuffle(shuffled)
    assert assign(dict(shuffled)) == names
    assert names.keys() == wanted.keys()
    assert len(set(names.values())) == len(names)
    assert all(LEGAL.fullmatch(name) for name in names.values())


def test_a_qualified_name_carries_its_source_under_the_same_limit():
    assert qualify("github", "list_issues") == "github_list_issues"
    long = qualify("s" * 40, "n" * 40)
    assert LEGAL.fullmatch(long)
    assert long != qualify("s" * 40, "n" * 41)
