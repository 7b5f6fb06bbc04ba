"""`x-toolgate`, in a description and beside it."""

import pytest
import yaml

from registry.importers.openapi import OpenApiOptions, overlay, read
from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.operations import operations
from registry.importers.openapi.x_toolgate import (
    ArgumentMarks,
    ExtensionSettings,
    Overlay,
    argument_marks,
)
from schemas.errors import ImportRejected
from tests.documentation.pages import ROOT, Page
from tests.registry.importers.describe import document


def marks_of(
    marks=None, *, root=None, path=None, beside: Overlay | None = None
) -> ExtensionSettings:
    """The marks of one operation."""
    node = {"operationId": "list", **({} if marks is None else {"x-toolgate": marks})}
    item = {"get": node, **({} if path is None else {"x-toolgate": path})}
    described = document({"/a": item}, **({} if root is None else {"x-toolgate": root}))
    found, skipped = operations(OpenApiDocument(described), beside or Overlay())
    assert skipped == []
    return found[0].marks


def test_all_that_can_be_said_about_an_operation():
    said = {
        "enabled": True,
        "name": "pets",
        "title": "Pets",
        "description": "All of them.",
        "toolsets": ["shop"],
        "examples": [{"limit": 3}],
        "media_type": "text/csv",
        "arguments": {"X-Trace": {"hide": True, "value": None}, "q": {"name": "query"}},
    }
    assert marks_of(said) == ExtensionSettings(
        enabled=True,
        name="pets",
        title="Pets",
        description="All of them.",
        toolsets=("shop",),
        examples=({"limit": 3},),
        media_type="text/csv",
        arguments={
            "X-Trace": ArgumentMarks(hide=True, value=None),
            "q": ArgumentMarks(name="query"),
        },
    )


def test_the_nearer_wins_and_toolsets_add_up():
    beside = overlay(
        {
            "defaults": {"enabled": False, "toolsets": ["b"], "media_type": "text/b"},
            "operations": {"list": {"title": "id"}, "GET /a": {"title": "endpoint"}},
        },
        "o.yaml",
    )
    hidden = {"arguments": {"a": {"hide": True}, "b": {"hide": True}}}
    found = marks_of(
        {"enabled": True, "title": "own", "toolsets": ["d", "a"], "arguments": {"a": {}}},
        root={"toolsets": ["a"], "media_type": "text/a"},
        path={"toolsets": ["c"], **hidden},
        beside=beside,
    )
    assert found.toolsets == ("a", "b", "c", "d")
    assert (found.enabled, found.title, found.media_type) == (True, "endpoint", "text/b")
    assert found.arguments == {"a": ArgumentMarks(), "b": ArgumentMarks(hide=True)}


def test_disabled_operations_are_left_out():
    off = {"get": {"operationId": "off", "x-toolgate": {"enabled": False}}}
    on = {"get": {"operationId": "on", "x-toolgate": {"enabled": True}}}
    described = document({"/off": off, "/on": on, "/unsaid": {"get": {"operationId": "unsaid"}}})
    every, chosen = read(described), read(described, OpenApiOptions(only_marked=True))
    assert [draft.name for draft in every.drafts] == ["on", "unsaid"]
    assert [draft.name for draft in chosen.drafts] == ["on"]
    assert [o.reason for o in chosen.outcomes if o.status == "excluded"] == [
        "x-toolgate has `enabled: false`",
        "no x-toolgate has `enabled: true`",
    ]


@pytest.mark.parametrize("where", ["document", "path"])
def test_a_mark_further_up_counts_for_only_marked(where):
    on = {"x-toolgate": {"enabled": True}}
    paths = {"/a": {"get": {}, **(on if where == "path" else {})}}
    described = document(paths, **(on if where == "document" else {}))
    assert len(read(described, OpenApiOptions(only_marked=True)).drafts) == 1


def test_a_name_is_made_legal_and_renames_no_other():
    named = {"get": {"operationId": "a", "x-toolgate": {"name": "Show it/now"}}}
    names = [draft.name for draft in read(document({"/a": named, "/b": {"get": {}}})).drafts]
    assert names == ["Show_it_now", "get_b"]


def test_the_overlay_reaches_tools():
    beside = overlay({"operations": {"GET /a": {"name": "shown"}, "nope": {}}}, "o.yaml")
    result = read(document({"/a": {"get": {}}}), OpenApiOptions(overlay=beside))
    assert [draft.name for draft in result.drafts] == ["shown"]
    assert result.notes == ("the overlay's 'nope' matches no operation",)


def test_overlays_of_the_chapter_make_the_same_tool():
    within, beside = map(yaml.safe_load, Page(ROOT / "docs/importing.md").blocks("yaml"))
    bare = {"name": "trace", "in": "query", "schema": {"type": "string"}}
    plain = document({"/pets/{id}": {"get": {"parameters": [bare]}}})
    marked = read(document(within["paths"]), OpenApiOptions(only_marked=True))
    options = OpenApiOptions(only_marked=True, overlay=overlay(beside, "o.yaml"))
    assert read(plain, options).drafts == marked.drafts
    assert [draft.name for draft in marked.drafts] == ["show_pet"]


_KEYS = "enabled, name, title, description, toolsets, examples, media_type, arguments"


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ({"enable": True}, f"x-toolgate: unknown key 'enable', expected {_KEYS}"),
        (True, f"x-toolgate must be an object with any of {_KEYS}"),
        ({"enabled": "yes"}, "x-toolgate: Expected `bool`, got `str` - at `$.enabled`"),
        ({"examples": [3]}, "x-toolgate: Expected `object`, got `int` - at `$.examples[0]`"),
        ({"toolsets": [" "]}, "x-toolgate: a toolset cannot be called ' '"),
        (
            {"arguments": {"a": {"hidden": True}}},
            "x-toolgate.arguments.a: unknown key 'hidden', expected hide, value, name, description",
        ),
    ],
)
def test_an_operation_whose_marks_nobody_understands_is_skipped(marks, reason):
    paths = {"/a": {"get": {"x-toolgate": marks}}, "/b": {"get": {}}}
    result = read(document(paths))
    assert [(o.key, o.status) for o in result.outcomes] == [
        ("/a@get", "skipped"),
        ("/b@get", "imported"),
    ]
    assert result.outcomes[0].reason == reason


def test_a_name_cannot_be_said_of_many_operations():
    result = read(document({"/a": {"get": {}, "x-toolgate": {"name": "x"}}, "/b": {"get": {}}}))
    assert result.outcomes[0].reason.startswith("x-toolgate of the path: unknown key 'name'")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"operation": {}}, "o.yaml: the overlay: unknown key 'operation', expected defaults, op"),
        ({"operations": []}, None),
        ({"operations": [1]}, "o.yaml: `operations` must be an object by request line or opera"),
        ({"operations": {"a": {"nam": 1}}}, "o.yaml: operations.a: unknown key 'nam', expected e"),
        ({"defaults": {"name": "x"}}, "o.yaml: defaults: unknown key 'name', expected enabled"),
    ],
)
def test_an_overlay_that_is_wrong_says_where(content, reason):
    if reason is None:
        assert overlay(content, "o.yaml") == Overlay()
        return
    with pytest.raises(ImportRejected) as caught:
        overlay(content, "o.yaml")
    assert str(caught.value).startswith(reason)


def test_marks_on_a_parameter():
    assert argument_marks({"name": "q"}) is None
    assert argument_marks({"x-toolgate": {"hide": True, "value": [1]}}) == ArgumentMarks(
        hide=True, value=[1]
    )
    with pytest.raises(SkipOperation, match="unknown key 'enabled', expected hide, value, name"):
        argument_marks({"x-toolgate": {"enabled": False}})
