"""JSON Schema keywords of all drafts, grouped by what their values hold."""

VALUES = frozenset(("const", "default", "enum", "example", "examples"))  # values, not schemas
BY_NAME = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
)  # maps whose keys are names, not keywords
