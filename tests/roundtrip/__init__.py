"""Whether arguments arrive as they were sent: `python -m tests.roundtrip --help`.

For each operation of a description, arguments are made from the tool's input schema, sent through
the mapping to a server that keeps what it got, and read back there by others' code: openapi-core's
style deserialisers, werkzeug, qs-codec and the standard library. What a parameter is like is taken
from the description itself, never from the binding; only which argument feeds which parameter is.
"""
