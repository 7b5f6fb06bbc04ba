"""The hybrid service under test: one action with a schema that runs inside the gateway."""

from typing import Any

from benchmarks.item import find
from gateway import hybrid

ID = "example.org/catalogue/getItem/1.0.0"
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "fields": {"type": "string", "maxLength": 200},
    },
    "additionalProperties": False,
}


@hybrid.action(ID, schema=SCHEMA, side="query")
async def get_item(data: dict[str, Any]) -> dict[str, Any]:
    return find(data)
