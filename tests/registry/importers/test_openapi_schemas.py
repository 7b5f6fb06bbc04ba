import pytest

from registry.importers.openapi import read
from tests.registry.importers.describe import (
    body_schema,
    components,
    describe,
    json_body,
    only,
    query,
)

NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"nullable": True}, {}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        (
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"allOf": [{"type": "object"}, {"minProperties": 1}], "nullable": True},
            {"anyOf": [{"allOf": [{"type": "object"}, {"minProperties": 1}]}, NULL]},
        ),
        (
            {"allOf": [{"type": "object"}], "nullable": True, "description": "d"},
            {"anyOf": [{"type": "object"}, NULL], "description": "d"},
        ),
        ({"maximum": 5, "exclusiveMaximum": True}, {"exclusiveMaximum": 5}),
        ({"minimum": 5, "exclusiveMinimum": False}, {"minimum": 5}),
        ({"exclusiveMinimum": True}, {}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"type": "array", "items": [{}]}, {"type": "array", "prefixItems": [{}]}),
        (
            {"items": [{}], "additionalItems": {"type": "string"}},
            {"prefixItems": [{}], "items": {"type": "string"}},
        ),
        (
            {"dependencies": {"a": ["b"], "c": {"minProperties": 2}}},
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"minProperties": 2}}},
        ),
        ({"allOf": [{"type": "null"}], "title": "t"}, {"type": "null", "title": "t"}),
        ({"additionalProperties": True}, {"additionalProperties": {}}),
        ({"additionalProperties": False}, {"additionalProperties": {"not": {}}}),
    ],
)  # fmt: skip
def test_older_spellings_become_2020_12(old, new):
    schema, one = body_schema(old)
    assert schema == new
    assert one.outcome.status == "imported"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"], "const": "x"},
        {"type": "string", "format": "date-time", "pattern": "^[0-9]+$", "minLength": 1},
        {"type": "string", "format": "binary"},
        {"type": "integer", "default": 3, "multipleOf": 2, "exclusiveMaximum": 10},
        {"type": "string", "deprecated": True, "title": "T", "description": "D"},
        {"type": "string", "x-mask": True},
        {"type": "string", "x-mask": "(hidden)"},
        {"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 0}},
        {"contains": {"const": 1}, "minContains": 2, "uniqueItems": True},
        {"patternProperties": {"^x-": {"type": "string"}}, "propertyNames": {"maxLength": 9}},
        {"unevaluatedProperties": {"type": "string"}, "dependentRequired": {"a": ["b"]}},
    ],
)  # fmt: skip
def test_keywords_of_2020_12_are_kept(schema):
    converted, one = body_schema(schema, version="3.1.0")
    assert converted == schema
    assert one.outcome.status == "imported"


def test_annotations_without_effect_on_arguments_are_dropped():
    noise = {
        "discriminator": {"propertyName": "kind"},
        "xml": {"name": "a"},
        "externalDocs": {"url": "u"},
        "x-internal": True,
        "writeOnly": True,
        "$comment": "c",
        "$id": "https://example.com/x",
        "uniqueItems": True,
    }
    schema, one = body_schema({"type": "string", **noise})
    assert schema == {"type": "string"}
    assert one.outcome.status == "imported"


@pytest.mark.parametrize(
    ("broken", "repaired", "reason"),
    [
        ({"type": "strng"}, {}, "`type` 'strng' is unknown"),
        ({"type": ["string", "any"]}, {}, "is unknown"),
        ({"type": "String"}, {"type": "string"}, "is unknown"),
        ({"type": {}}, {}, "is unknown"),
        ({"type": []}, {}, "`type` is empty"),
        ({"enum": "a"}, {}, "`enum` is not a list"),
        ({"enum": []}, {}, "`enum` is not a list of values"),
        (
            {"type": "string", "enum": [1, True, "x", None]},
            {"type": "string", "enum": ["1", "true", "x", None]},
            "`enum` of a text lists numbers or booleans",
        ),
        ({"required": True}, {}, "`required` is not a list"),
        ({"required": ["a", 1]}, {"required": ["a"]}, "`required` has members"),
        ({"type": "array"}, {"type": "array", "items": {}}, "`items` is missing"),
        ({"properties": []}, {}, "/properties: is not an object of schemas"),
        ({"properties": {"a": None}}, {"properties": {"a": {}}}, "/properties/a: is not a schema"),
        ({"properties": {"a": "string"}}, {"properties": {"a": {}}}, "is not a schema"),
        ({"anyOf": {}}, {}, "/anyOf: is not a list of schemas"),
        ({"allOf": []}, {}, "/allOf: is not a list of schemas"),
        ({"oneOf": [{}, 1]}, {"anyOf": [{}, {}]}, "/oneOf/1: is not a schema"),
        ({"maximum": "ten"}, {}, "`maximum` is not a number"),
        ({"minLength": -1}, {}, "`minLength` is not a whole number"),
        ({"maxItems": 1.5}, {}, "`maxItems` is not a whole number"),
        ({"multipleOf": 0}, {}, "`multipleOf` is not above 0"),
        ({"pattern": "["}, {}, "`pattern` '[' cannot be compiled"),
        ({"pattern": r"^\p{L}+$"}, {}, "cannot be compiled"),  # ECMA, not Python
        ({"pattern": r"(?P<a>x)(?P=a)"}, {}, "cannot be compiled"),  # Python, not ECMA
        ({"pattern": 5}, {}, "`pattern` is not text"),
        ({"patternProperties": {"[": {}}}, {"patternProperties": {}}, "cannot be compiled"),
        ({"description": ["d"]}, {}, "`description` is not text"),
        ({"dependentRequired": []}, {}, "`dependentRequired` is not an object"),
        ({"$ref": "#/components/schemas/Nope"}, {}, "points at nothing; any value is accepted"),
        ({"$ref": "#anchor"}, {}, "points at nothing"),
        ({"$ref": 7}, {}, "$ref is not text"),
        ("string", {}, "is not a schema"),
        (None, {}, "is not a schema"),
    ],
)  # fmt: skip
def test_broken_schemas_are_repaired_and_reported(broken, repaired, reason):
    schema, one = body_schema(broken)
    assert schema == repaired
    assert reason in one.reason


def test_the_reason_names_the_place():
    _, one = body_schema({"properties": {"a": {"items": {"enum": 1}}}})
    assert one.reason == "body/items/properties/a/items: `enum` is not a list of values"


def test_references_become_defs_of_reachable_schemas():
    schemas = components(
        Pet={"properties": {"owner": {"$ref": "#/components/schemas/Owner"}}},
        Owner={"type": "string"},
        Unused={"type": "string"},
    )
    one = only(
        describe(
            {"parameters": [query("pet", {"$ref": "#/components/schemas/Pet"})]},
            components=schemas,
        )
    )
    assert one.properties == {"pet": {"$ref": "#/$defs/Pet"}}
    assert one.schema["$defs"] == {
        "Owner": {"type": "string"},
        "Pet": {"properties": {"owner": {"$ref": "#/$defs/Owner"}}},
    }


def test_cycles_are_kept():
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/components/schemas/Node"}, "value": {"type": "integer"}},
    }
    _, one = body_schema({"$ref": "#/components/schemas/Node"}, Node=node)
    assert one.outcome.status == "imported"
    assert one.accepts(body=[{"next": {"next": {"value": 1}}}])
    assert not one.accepts(body=[{"next": {"next": {"value": "x"}}}])


def test_a_reference_to_any_place_in_the_document_works():
    target = {"properties": {"a/b~c": {"type": "integer"}}}
    refs = [
        "#/components/schemas/T/properties/a~1b~0c",
        "#/components/schemas/T/properties/a%2Fb~0c".replace("%2F", "~1"),
        "#/components/schemas/T/properties/a%7E1b%7E0c",
    ]
    for ref in refs:
        schema, one = body_schema({"$ref": ref}, T=target)
        name = schema["$ref"].removeprefix("#/$defs/")
        assert one.schema["$defs"] == {name: {"type": "integer"}}
        assert name.startswith("a_b_c_")


def test_components_whose_names_are_no_names_stay_apart():
    one = only(
        describe(
            json_body(
                {
                    "type": "array",
                    "items": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/a b"},
                            {"$ref": "#/components/schemas/a(b"},
                        ]
                    },
                }
            ),
            components={"schemas": {"a b": {"type": "string"}, "a(b": {"type": "integer"}}},
        )
    )
    assert sorted(d["type"] for d in one.schema["$defs"].values()) == ["integer", "string"]
    assert one.accepts(body=[1, "a"])
    assert not one.accepts(body=[None])


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.0.3", {"$ref": "#/$defs/T", "description": "here"}),  # 3.0 ignores other siblings
        ("3.1.0", {"$ref": "#/$defs/T", "description": "here", "minLength": 2}),
    ],
)
def test_siblings_of_a_reference_are_kept_by_version(version, expected):
    beside = {"$ref": "#/components/schemas/T", "description": "here", "minLength": 2}
    schema, _ = body_schema(beside, version=version, T={"type": "string"})
    assert schema == expected


def test_a_nullable_reference():
    schema, _ = body_schema(
        {"$ref": "#/components/schemas/T", "nullable": True}, T={"type": "string"}
    )
    assert schema == {"anyOf": [{"$ref": "#/$defs/T"}, NULL]}


def test_read_only_properties_are_not_offered_nor_required():
    schemas = {
        "Id": {"type": "string", "readOnly": True},
        "Base": {
            "properties": {"id": {"type": "string", "readOnly": True}, "kind": {"type": "string"}},
            "required": ["id", "kind"],
        },
    }
    schema, one = body_schema(
        {
            "allOf": [
                {"$ref": "#/components/schemas/Base"},
                {
                    "properties": {
                        "etag": {"$ref": "#/components/schemas/Id"},
                        "made": {"allOf": [{"$ref": "#/components/schemas/Id"}]},
                        "name": {"type": "string"},
                    },
                    "required": ["id", "etag", "made", "name"],
                },
            ]
        },
        **schemas,
    )
    assert one.schema["$defs"]["Base"] == {
        "properties": {"kind": {"type": "string"}},
        "required": ["kind"],
    }
    assert schema["allOf"][1] == {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert one.accepts(body=[{"kind": "k", "name": "n"}])


def test_a_property_may_be_called_like_a_keyword():
    properties = {
        name: {"type": "string"} for name in ("$ref", "type", "nullable", "items", "readOnly")
    }
    schema, one = body_schema({"type": "object", "properties": properties})
    assert schema == {"type": "object", "properties": properties}
    assert one.outcome.status == "imported"


CAT = {
    "allOf": [
        {"$ref": "#/components/schemas/Pet"},
        {"properties": {"lives": {"type": "integer"}}, "required": ["lives"]},
    ]
}
DOG = {
    "allOf": [
        {"$ref": "#/components/schemas/Pet"},
        {"properties": {"barks": {"type": "boolean"}}, "required": ["barks"]},
    ]
}
PET = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
    "discriminator": {"propertyName": "kind"},
}


@pytest.mark.parametrize("start", ["Pet", "Cat"])
def test_a_base_class_and_its_children_refer_to_one_another(start):
    """Checking must end, children must have what their base has."""
    _, one = body_schema({"$ref": f"#/components/schemas/{start}"}, Pet=PET, Cat=CAT, Dog=DOG)
    assert one.outcome.status == "imported"
    assert one.accepts(body=[{"name": "Tom", "lives": 9}])
    assert not one.accepts(body=[{"lives": 9}])
    assert not one.accepts(body=[{"name": "Tom", "lives": "nine"}])
    assert not one.accepts(body=[{"name": "Tom"}])


@pytest.mark.parametrize(
    "schemas",
    [
        {"A": {"$ref": "#/components/schemas/A"}},
        {"A": {"allOf": [{"$ref": "#/components/schemas/A"}, {"type": "string"}]}},
        {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}},
        {
            "A": {"anyOf": [{"$ref": "#/components/schemas/B"}, {"type": "string"}]},
            "B": {"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "integer"}]},
        },
        {
            "A": {"allOf": [{"$ref": "#/components/schemas/B"}], "minLength": 1},
            "B": {"allOf": [{"$ref": "#/components/schemas/A"}], "maxLength": 9},
        },
        {"A": {"if": {"$ref": "#/components/schemas/A"}, "then": {"minLength": 1}}},
        {"A": {"nullable": True, "$ref": "#/components/schemas/A"}},
        {"A": {"dependentSchemas": {"a": {"$ref": "#/components/schemas/A"}}}},
    ],
)
def test_a_schema_that_applies_itself_to_the_same_value_is_cut(schemas):
    _, one = body_schema({"$ref": "#/components/schemas/A"}, version="3.1.0", **schemas)
    assert "applies the schema to itself" in one.reason
    assert one.accepts(body=["x"])


def nest_schema(levels: int) -> dict:
    schema: dict = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("keyword", ["properties", "items", "allOf", "not"])
def test_a_schema_nested_5000_deep_skips_its_operation_only(keyword):
    schema: dict = {}
    for _ in range(5000):
        schema = {keyword: {"properties": {"a": schema}, "allOf": [schema]}.get(keyword, schema)}
    description = describe(json_body(schema))
    description["paths"]["/fine"] = {"get": {}}
    result = read(description)
    assert [outcome.status for outcome in result.outcomes] == ["skipped", "imported"]
    assert "nested deeper than 64 levels" in result.outcomes[0].reason


def test_sixty_levels_are_fine():
    _, one = body_schema(nest_schema(60))
    assert one.outcome.status == "imported"


def test_a_chain_of_500_references_is_no_nesting():
    schemas = {f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}]} for n in range(500)}
    schemas["S500"] = {"type": "integer"}
    _, one = body_schema({"$ref": "#/components/schemas/S0"}, **schemas)
    assert len(one.schema["$defs"]) == 501


def test_a_tool_that_needs_thousands_of_schemas_is_skipped():
    schemas = {f"S{n}": {"items": {"$ref": f"#/components/schemas/S{n + 1}"}} for n in range(5000)}
    result = read(
        describe(json_body({"$ref": "#/components/schemas/S0"}), components={"schemas": schemas})
    )
    assert "more than 2,000 schemas" in result.outcomes[0].reason


@pytest.mark.parametrize("keyword", ["default", "example", "const", "enum"])
def test_values_nested_too_deep_are_dropped(keyword):
    value: list = []
    for _ in range(5000):
        value = [value]
    schema, _ = body_schema({keyword: value})
    assert schema == {}


def test_a_component_shared_by_many_is_converted_once():
    """Doubling 40 times: expanded, it would be 10^12 schemas."""
    schemas = {
        f"S{n}": {"properties": {key: {"$ref": f"#/components/schemas/S{n + 1}"} for key in "ab"}}
        for n in range(40)
    }
    schemas["S40"] = {"type": "string"}
    _, one = body_schema({"$ref": "#/components/schemas/S0"}, **schemas)
    assert len(one.schema["$defs"]) == 41


@pytest.mark.parametrize(
    ("quoted", "meant"),
    [
        ({"type": "int"}, {"type": "integer"}),
        ({"maximum": "10"}, {"maximum": 10}),
        ({"minimum": "1.5"}, {"minimum": 1.5}),
        ({"uniqueItems": "true"}, {"uniqueItems": True}),
        ({"additionalProperties": "false"}, {"additionalProperties": {"not": {}}}),
    ],
)
def test_obvious_misspellings_are_corrected_without_loss(quoted, meant):
    schema, one = body_schema({"description": "x", **quoted})
    assert schema == {"description": "x", **meant}
    assert one.outcome.status == "imported"


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$recursiveRef"])
def test_dynamic_references_are_noted(keyword):
    """A dynamic reference constrains nothing here, which the report says (mending 29)."""
    schema, tool = body_schema({"type": "object", "properties": {"next": {keyword: "#"}}}, "3.1.0")
    assert schema["properties"]["next"] == {}
    assert f"/items/properties/next: `{keyword}` is not followed" in tool.reason
    assert tool.outcome.status == "degraded"
