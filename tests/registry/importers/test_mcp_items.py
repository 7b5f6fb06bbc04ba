"""Definitions of another server's prompts, resources and resource templates."""

from typing import Any

import pytest

from registry.importers.drafts import ItemDraft
from registry.importers.mcp import read_snapshot
from schemas.source import Outcome
from tests.registry.servers import entry, prompt, resource, snapshot, template


def read(**lists: Any) -> tuple[list[ItemDraft], list[Outcome]]:
    imported = read_snapshot(snapshot(**lists).encode())
    return list(imported.items), list(imported.outcomes)


def test_items_are_carried_whole() -> None:
    members = {"title": "T", "icons": [], "_meta": {"a": 1}, "later": 1.5}
    items, outcomes = read(
        prompts=(prompt("Code Review", arguments=[{"name": "a", "later": 1}], **members),),
        resources=(entry(resource("file:///a b", size=3, **members), "handshake"),),
        templates=(template("file:///{+path}", mimeType="text/plain", **members),),
    )
    assert [(item.kind, item.key, item.name, item.eras) for item in items] == [
        ("prompt", "Code Review", "Code_Review", "both"),
        ("resource", "file:///a b", "file:///a b", "handshake"),
        ("template", "file:///{+path}", "file:///{+path}", "both"),
    ]
    assert items[0].definition == prompt(
        "Code Review", arguments=[{"name": "a", "later": 1}], **members
    )
    assert all(item.definition.items() >= members.items() for item in items)
    assert [outcome.status for outcome in outcomes] == ["imported"] * 3
    assert outcomes[1].operation == "resource file:///a b"
    assert [outcome.key for outcome in outcomes] == [item.id for item in items]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"prompts": ({},)}, "its name is missing, expected text"),
        ({"prompts": (prompt("p", arguments={}),)}, "its arguments are an object, expected an"),
        ({"prompts": (prompt("p", arguments=[{}]),)}, "one of its arguments has no name"),
        ({"resources": (resource(""),)}, "its uri is empty"),
        ({"resources": (resource("no scheme"),)}, "its uri is no absolute URI"),
        ({"resources": (resource("http://[x"),)}, "its uri is no absolute URI"),
        ({"resources": ({"uri": "x:y"},)}, "has no name"),
        ({"resources": (resource("x:" + "y" * 2048),)}, "more than 2048 bytes"),
        ({"templates": (template("x:{"),)}, "its uriTemplate is no URI template"),
        ({"templates": (template("x:" + "{a}" * 99),)}, "its uriTemplate has more than 16"),
        ({"templates": ({"uriTemplate": "x:{y}"},)}, "has no name"),
    ],
)
def test_a_malformed_item_is_skipped_with_the_reason(lists: Any, expected: str) -> None:
    items, [outcome] = read(**lists)
    assert items == []
    assert outcome.status == "skipped"
    assert expected in (outcome.reason or "")


def test_the_first_of_equal_items_counts_and_kinds_do_not_mix() -> None:
    items, outcomes = read(
        resources=(resource("x:y", n=1), resource("x:y", n=2)), templates=(template("x:y"),)
    )
    assert [(item.kind, item.definition.get("n")) for item in items] == [
        ("resource", 1),
        ("template", None),
    ]
    assert [outcome.status for outcome in outcomes] == ["imported", "skipped", "imported"]


def test_prompts_whose_names_become_equal_stay_apart() -> None:
    items, _ = read(prompts=(prompt("a b"), prompt("a.b"), prompt("提示")))
    names = [item.name for item in items]
    assert len(set(names)) == 3
    assert names[2].startswith("prompt_")
