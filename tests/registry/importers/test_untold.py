"""What is said of operations, fields and actions that nobody described."""

from typing import Any

import pytest

from registry.importers.generated_descriptions import (
    action_description,
    field_description,
    operation_description,
)
from registry.importers.openapi import OpenApiOptions, read

SCHEMA: dict[str, Any] = {
    "properties": {"page": {"type": "integer"}, "id": {"type": "string"}, "any": {}},
    "required": ["id"],
}


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/users/{id}/followers", "List followers of a user."),
        ("GET", "/v1/users/{id}", "Get a user."),
        ("GET", "/2010-04-01/Accounts/{Sid}/Calls.json", "List calls of an account."),
        ("GET", "/search", "Get search."),
        ("GET", "/", "Get /."),
        ("GET", "/{anything}", "Get /{anything}."),
        ("POST", "/petCategories", "Create a pet category."),
        ("POST", "/orders/{id}/cancel", "Cancel an order."),
        ("POST", "/search", "Search."),
        ("POST", "/orders/{id}", "Change an order."),
        ("PUT", "/boxes/{id}", "Replace a box."),
        ("PATCH", "/users/{id}/address", "Update address of a user."),
        ("DELETE", "/api/v2/addresses/{id}", "Delete an address."),
        ("PURGE", "/caches/{id}", "Purge a cache."),
    ],
)
def test_an_operation_is_told_by_its_path(method: str, path: str, told: str) -> None:
    assert operation_description(method, path, {}) == told


def test_parameters_are_told_with_their_types_the_demanded_first() -> None:
    told = operation_description("GET", "/users/{id}", SCHEMA)
    assert told == "Get a user. Parameters: id (string), page (integer), any."
    many = {"properties": {f"p{n}": {} for n in range(20)}}
    assert operation_description("GET", "/users", many).endswith("p10, p11, and more.")


def test_fields_and_actions_are_told_by_their_names_and_types() -> None:
    assert field_description("query", "petsByOwner", "[Pet!]!", {}) == (
        "List pets by owner. Answers with [Pet!]!."
    )
    assert field_description("query", "pet", "Pet", SCHEMA).startswith(
        "Get pet. Parameters: id (string)"
    )
    assert field_description("mutation", "createPet", "Pet", {}) == "Create pet. Answers with Pet."
    assert (
        action_description("rule", "deleteRule", {})
        == "Delete rule, an action of the service rule."
    )


def test_no_operation_is_without_text() -> None:
    empty = [{}, {"summary": " "}, {"description": "<p> </p>"}, {"description": "\n"}]
    paths = {f"/users/{{id}}/n{n}s": {"get": one} for n, one in enumerate(empty)}
    root = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}
    drafts = read(root, OpenApiOptions()).drafts
    assert [one.description[:16] for one in drafts] == [f"List n{n}s of a us" for n in range(4)]
