"""Keywords of JSON Schema, of all its drafts, by what they hold."""

VALUES = frozenset(("const", "default", "enum", "example", "examples"))  # hold no schemas
BY_NAME = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
)  # hold schemas by names, which are no keywords
