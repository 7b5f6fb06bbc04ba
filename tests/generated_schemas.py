"""JSON Schemas of types, generated once for all gateways of the tests.

As a plugin of pytest, this module keeps the schemas that msgspec generates. A gateway with a wing,
or with the operations as tools, generates them in 20 to 80 ms of CPU when it starts.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

generate = msgspec.json.schema_components
schemas: dict[Any, bytes] = {}


def pytest_configure() -> None:
    msgspec.json.schema_components = generate_once  # type: ignore[assignment]


def generate_once(types: Iterable[Any], **options: Any) -> tuple[Any, dict[str, Any]]:
    """`schema_components`: a copy of its own for each caller."""
    types = tuple(types)
    # Equal unions may have another order, and equal texts may name other types.
    key = types, repr(types), repr(options)
    try:
        if key not in schemas:
            schemas[key] = msgspec.json.encode(generate(types, **options))
    except TypeError:  # a type without a hash, or a default that is no JSON
        return generate(types, **options)
    components, definitions = msgspec.json.decode(schemas[key])
    return tuple(components), definitions
