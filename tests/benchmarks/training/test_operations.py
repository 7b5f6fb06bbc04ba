import json

import pytest

from benchmarks.training.operations import (
    PER_OPERATION,
    operation_pairs,
    operations,
    request,
    terse_tools,
    variant,
)
from benchmarks.training.sets import BadTrainingSet, seeded, tool_text

SHOP = {
    "info": {"title": "Shop"},
    "paths": {
        "/v1/orders": {
            "parameters": [{"$ref": "#/components/parameters/page"}],
            "get": {
                "operationId": "listOrders",
                "summary": "List orders",
                "tags": ["orders"],
                "parameters": [
                    {"name": "state", "in": "query", "schema": {"enum": ["open", "closed"]}}
                ],
            },
            "post": {
                "operationId": "createOrder",
                "requestBody": {"content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Order"}}}},
            },
        },
        "/v1/orders/{id}": {"delete": {"operationId": "deleteOrder", "summary": "Delete an order"}},
        "/v2/orders/{id}": {"delete": {"operationId": "dropOrder"}},
        "/v1/orders/{id}/notes.json": {"get": {"operationId": "listNotes"}},
    },
    "components": {
        "parameters": {"page": {"name": "page", "in": "query", "schema": {"type": "integer"}}},
        "schemas": {"Order": {"properties": {"product": {}, "count": {}}}},
    },
}  # fmt: skip


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(SHOP))
    return path


def operations_by_name(path):
    return {one.name: one for one in operations(path)}


def test_parameters_come_from_path_operation_and_body(shop):
    found = operations_by_name(shop)
    assert [one.name for one in found["listOrders"].parameters] == ["page", "state"]
    assert found["listOrders"].parameters[1].values == ("open", "closed")
    assert [one.name for one in found["createOrder"].parameters] == ["page", "product", "count"]


def test_the_same_file_and_seed_give_the_same_pairs(shop):
    assert operation_pairs(shop, 7) == operation_pairs(shop, 7) != operation_pairs(shop, 8)


def test_siblings_are_hard_negatives_of_each_other(shop):
    pairs = operation_pairs(shop, 7)
    assert len(pairs) == 5 * PER_OPERATION
    assert all(pair.distinct for pair in pairs)
    groups = {pair.tool.id.split(" ", 1)[1]: pair.group for pair in pairs}
    assert groups["get /v1/orders"] == groups["delete /v1/orders/{id}"] == "shop orders"


def test_versions_of_one_operation_are_no_negatives_of_each_other(shop):
    also = {pair.tool.id: pair.also for pair in operation_pairs(shop, 7)}
    both = {"Shop delete /v1/orders/{id}", "Shop delete /v2/orders/{id}"}
    assert also["Shop delete /v1/orders/{id}"] == also["Shop delete /v2/orders/{id}"] == both


def draw_requests(operation, times=200):
    chance = seeded(1)
    return {request(operation, chance).lower() for _ in range(times)}


def test_requests_without_a_summary_are_made_of_method_and_path(shop):
    found = draw_requests(operations_by_name(shop)["listNotes"])
    assert "list notes for a order" in found
    assert not any("json" in one for one in found)


def test_a_request_says_the_verb_of_a_summary_in_other_words(shop):
    found = draw_requests(operations_by_name(shop)["deleteOrder"])
    assert {"please remove an order", "please get rid of an order"} <= found


def test_a_request_names_a_value_of_an_enumeration_or_a_parameter(shop):
    found = draw_requests(operations_by_name(shop)["listOrders"])
    assert any("with state closed" in one for one in found)
    assert any("page" in one for one in found)


def test_texts_of_one_operation_vary_as_catalogs_do(shop):
    chance = seeded(1)
    texts = {
        tool_text(variant(operations_by_name(shop)["deleteOrder"], chance)) for _ in range(100)
    }
    assert "shop: delete order. Delete an order" in texts
    assert "delete v1 orders id." in texts
    assert any("delete v1 orders id" in one and "delete order" in one for one in texts)


def test_terse_tools_have_the_first_sentence_and_the_names_of_parameters(shop):
    first = next(iter(terse_tools(shop)))
    assert (first["id"], first["description"], first["server"]) == (
        "listOrders", "List orders", "Shop"
    )  # fmt: skip
    assert list(first["parameters"]["properties"]) == ["page", "state"]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"paths": {"/x": 3}}'])
def test_invalid_descriptions_are_refused_by_their_path(tmp_path, text):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(BadTrainingSet, match=r"wrong\.json: expected an OpenAPI description"):
        operation_pairs(path, 7)
