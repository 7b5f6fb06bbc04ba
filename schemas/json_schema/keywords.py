"""Keywords of JSON Schema, 2020-12 and the drafts before it, by what they hold."""

VALUE_KEYWORDS = frozenset(
    ("const", "default", "enum", "example", "examples")
)  # values, not schemas
MAP_KEYWORDS = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
)  # maps whose keys are names, not keywords
