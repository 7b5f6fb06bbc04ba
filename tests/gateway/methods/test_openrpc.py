"""Tools as methods of an OpenRPC document."""

from gateway.methods.rpc_discover import openrpc
from tests.registry.shown import describe_tool


def test_references_lead_to_the_components_of_the_tool_and_values_stay() -> None:
    schema = {
        "type": "object",
        "properties": {"pet": {"$ref": "#/$defs/Pet"}, "raw": {"const": {"$ref": "#/$defs/Pet"}}},
        "required": ["raw"],
        "$defs": {"Pet": {"properties": {"owner": {"$ref": "#/$defs/Owner"}}}, "Owner": True},
    }
    document = openrpc([describe_tool("add", schema)])
    method = next(method for method in document["methods"] if method["name"] == "add")
    raw, pet = method["params"]
    assert raw == {"name": "raw", "required": True, "schema": schema["properties"]["raw"]}
    assert pet["schema"] == {"$ref": "#/components/schemas/add.Pet"}
    components = document["components"]["schemas"]
    assert components == {
        "add.Pet": {"properties": {"owner": {"$ref": "#/components/schemas/add.Owner"}}},
        "add.Owner": True,
    }
