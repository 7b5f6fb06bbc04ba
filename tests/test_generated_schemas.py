"""Schemas of types that are generated once for all tests."""

import msgspec

from gateway.operations.job_declarations import JobView
from tests import generated_schemas


def test_kept_schemas_equal_generated_schemas_and_are_copies() -> None:
    types = [JobView, int | str]
    options = {"ref_template": "#/$defs/{name}"}
    for _ in range(2):
        components, definitions = msgspec.json.schema_components(types, **options)
        assert (components, definitions) == generated_schemas.generate(types, **options)
        definitions["JobView"].clear()


def test_equal_unions_keep_their_own_order() -> None:
    schemas = [msgspec.json.schema_components([union])[0][0] for union in (int | str, str | int)]
    assert [[each["type"] for each in schema["anyOf"]] for schema in schemas] == [
        ["integer", "string"],
        ["string", "integer"],
    ]
