"""Keywords of JSON Schema, 2020-12 and the drafts before it, by what they hold."""

from typing import Any

Json = dict[str, Any]

VALUE_KEYWORDS = frozenset(
    ("const", "default", "dependentRequired", "enum", "example", "examples")
)  # values, not schemas
MAP_KEYWORDS = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
)  # maps whose keys are names, not keywords
LIST_KEYWORDS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
MEMBER_KEYWORDS = ("additionalProperties", "unevaluatedProperties")  # of members without a name
ITEM_KEYWORDS = ("items", "additionalItems", "unevaluatedItems", "contains")
SINGLE_KEYWORDS = frozenset(
    (*MEMBER_KEYWORDS, *ITEM_KEYWORDS, "not", "if", "then", "else", "propertyNames")
) | {"contentSchema"}  # up to 2019-09, `items` may be a list
SCHEMA_KEYWORDS = SINGLE_KEYWORDS | LIST_KEYWORDS | MAP_KEYWORDS
DEFINITION_KEYWORDS = ("$defs", "definitions")
REFERENCE_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")
UNIONS = ("anyOf", "oneOf")
COMPOSITIONS = ("allOf", *UNIONS)
CONDITIONS = ("if", "then", "else")
