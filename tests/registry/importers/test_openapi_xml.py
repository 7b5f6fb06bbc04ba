from registry.importers.openapi.xml_bodies import TYPES_LIMIT
from schemas.binding import Xml
from tests.registry.importers.describe import components, describe, only

STRING = {"type": "string"}


def xml_of(schema, version="3.0.3", **schemas):
    operation = {"requestBody": {"content": {"application/xml": {"schema": schema}}}}
    body = only(describe(operation, version=version, components=components(**schemas)))
    return body.draft.binding.body.xml, body.draft.binding.body.xml_types


def test_names_attributes_and_namespaces():
    schema = {
        "type": "object",
        "xml": {"name": "Pet", "namespace": "http://e.com", "prefix": "p"},
        "properties": {
            "id": {**STRING, "xml": {"attribute": True}},
            "name": {**STRING, "xml": {"name": "called"}},
            "plain": STRING,
        },
    }
    properties = {"id": Xml(attribute=True), "name": Xml(name="called")}
    expected = Xml(name="Pet", namespace="http://e.com", prefix="p", properties=properties)
    assert xml_of(schema) == (expected, {})


def test_arrays():
    tags = {"type": "array", "xml": {"wrapped": True}, "items": {**STRING, "xml": {"name": "tag"}}}
    found, _ = xml_of({"properties": {"tags": tags}})
    assert found == Xml(properties={"tags": Xml(wrapped=True, items=Xml(name="tag"))})


def test_the_root_is_called_as_its_component():
    assert xml_of({"$ref": "#/components/schemas/Pet"}, Pet={"properties": {"a": STRING}}) == (
        Xml(name="Pet", type="Pet"),
        {},
    )
    named = {"properties": {"a": STRING}, "xml": {"name": "pet"}}
    root, types = xml_of({"$ref": "#/components/schemas/Pet"}, Pet=named)
    assert (root.name, types) == ("pet", {"Pet": Xml(name="pet")})


def test_recursive_xml_types_are_referenced_by_name():
    node = {"properties": {"child": {"$ref": "#/components/schemas/Node"}}, "xml": {"name": "N"}}
    root, types = xml_of({"$ref": "#/components/schemas/Node"}, Node=node)
    assert root == Xml(name="N", type="Node")
    assert types == {"Node": Xml(name="N", properties={"child": Xml(type="Node")})}


def test_parts_of_a_schema_are_read_together():
    base = {"properties": {"id": {**STRING, "xml": {"attribute": True}}}, "xml": {"name": "b"}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"x": STRING}}]}
    assert xml_of(schema, Base=base)[0] == Xml(name="b", properties={"id": Xml(attribute=True)})


def test_node_types_of_3_2():
    schema = {
        "type": "object",
        "properties": {
            "a": {**STRING, "xml": {"nodeType": "attribute"}},
            "t": {**STRING, "xml": {"nodeType": "text"}},
            "l": {"type": "array", "items": STRING, "xml": {"nodeType": "element"}},
        },
    }
    assert xml_of(schema, "3.2.0")[0].properties == {
        "a": Xml(attribute=True),
        "t": Xml(text=True),
        "l": Xml(wrapped=True),
    }


def test_text_is_no_xml_that_we_write():
    assert xml_of(STRING) == (None, {})


def test_too_many_types_degrade_to_the_names_of_properties():
    schemas = {
        f"T{n}": {"properties": {"next": {"$ref": f"#/components/schemas/T{n + 1}"}}}
        for n in range(TYPES_LIMIT + 2)
    }
    schemas[f"T{TYPES_LIMIT + 2}"] = {"properties": {"a": STRING}}
    operation = {
        "requestBody": {"content": {"text/xml": {"schema": {"$ref": "#/components/schemas/T0"}}}}
    }
    one = only(describe(operation, components=components(**schemas)))
    assert f"more than {TYPES_LIMIT} types" in one.reason
    assert one.draft.binding.body.xml == Xml()
