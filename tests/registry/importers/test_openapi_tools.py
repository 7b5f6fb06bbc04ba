import pytest

from registry.importers.drafts import DESCRIPTION_LIMIT
from schemas.binding import OpenAPIBinding
from tests.registry.importers.describe import describe, document, only


@pytest.mark.parametrize(
    ("operation", "title", "description"),
    [
        ({}, None, "Create a thing."),
        ({"summary": "Make"}, None, "Make"),
        ({"description": " Makes.\n"}, None, "Makes."),
        ({"summary": "Make", "description": "Details."}, "Make", "Make\n\nDetails."),
        ({"summary": "Make", "description": "Make it."}, "Make", "Make it."),
        ({"summary": "Make", "description": "Make"}, None, "Make"),
        ({"summary": " ", "description": None}, None, "Create a thing."),
        ({"summary": 5, "description": ["x"]}, None, "Create a thing."),
        ({"description": "<b>HTML</b> goes, List<T> stays"}, None, "HTML goes, List<T> stays"),
    ],
)
def test_title_and_description(operation, title, description):
    draft = only(describe(operation)).draft
    assert (draft.title, draft.description) == (title, description)


def test_a_long_description_is_cut_between_words():
    description = only(describe({"description": "word " * 2000})).draft.description
    assert len(description) <= DESCRIPTION_LIMIT
    assert description.endswith("word…")
    unbroken = only(describe({"description": "x" * 5000})).draft.description
    assert len(unbroken) == DESCRIPTION_LIMIT


READ = (True, False, True)


@pytest.mark.parametrize(
    ("method", "hints"),
    [
        ("GET", READ),
        ("HEAD", READ),
        ("OPTIONS", READ),
        ("TRACE", READ),
        ("PUT", (False, True, True)),
        ("DELETE", (False, True, True)),
        ("PATCH", (False, True, False)),
    ],
)
def test_hints_follow_the_verb(method, hints):
    found = only(describe({}, f"{method} /")).draft.annotations
    assert (found.read_only_hint, found.destructive_hint, found.idempotent_hint) == hints
    assert found.open_world_hint is True


def test_a_post_is_marked_only_as_writing():
    found = only(describe({}, "POST /")).draft.annotations
    assert (found.read_only_hint, found.idempotent_hint) == (False, False)
    assert not found.destructive_hint  # not set, which MCP reads as true
    assert found.destructive_hint is not False


def test_key_method_and_path():
    draft = only(describe({}, "GET /a/{b}")).draft
    assert draft.key == "/a/{b}@get"
    assert (draft.binding.method, draft.binding.path) == ("GET", "/a/{b}")


def test_a_path_without_leading_slash_gets_a_slash():
    one = only(describe({}, "GET pets"))
    assert (one.draft.key, one.draft.binding.path) == ("pets@get", "/pets")
    assert "does not begin with a slash" in one.reason


def test_tags_that_are_no_text_are_dropped():
    assert only(describe({"tags": ["a", 1, "", None]})).draft.tags == ("a",)
    assert only(describe({"tags": "a"})).draft.tags == ()


def server(url: str, **variables: str) -> dict:
    return {"url": url, "variables": {name: {"default": v} for name, v in variables.items()}}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"servers": [server("https://{r}.example.com", r="eu")]}, "https://eu.example.com"),
        ({"servers": []}, "http://path.example.com"),
        ({}, "http://path.example.com"),
    ],
)
def test_the_operation_s_server_goes_before_the_path_s(operation, expected):
    item = {"servers": [server("http://path.example.com")], "get": operation}
    root = [server("https://root.example.com")]
    assert only(document({"/": item}, servers=root)).draft.binding.server == expected


@pytest.mark.parametrize(
    "url", ["ftp://example.com", "https://{host}/", "https://", "//other", "http://[x", "//[x"]
)
def test_a_server_that_is_no_url_is_ignored_and_reported(url):
    one = only(describe({"servers": [server(url)]}))
    assert one.draft.binding.server is None
    assert "is no http(s) URL; ignored" in one.reason


@pytest.mark.parametrize("url", ["/v2", "v2", "/v2/{area}", "/"])
def test_a_server_may_be_relative_to_the_source_s(url):
    one = only(describe({"servers": [server(url, area="eu")]}))
    assert (one.draft.binding.server, one.outcome.status) == (url.format(area="eu"), "imported")


def test_a_variable_without_a_default_is_its_first_choice():
    variables = {"area": {"enum": ["eu", "us"]}}
    servers = [{"url": "https://{area}.example.com", "variables": variables}]
    assert only(describe({"servers": servers})).draft.binding.server == "https://eu.example.com"


@pytest.mark.parametrize("servers", [None, {}, [1], [{"url": 5}], [{"url": ""}], [{}]])
def test_broken_servers_are_no_servers(servers):
    assert only(describe({"servers": servers})).draft.binding == OpenAPIBinding("POST", "/things")
