"""JSON Schema: the keywords that hold subschemas, references, copies with changes, conjunctions,
costs, and checks of values. Pure."""
