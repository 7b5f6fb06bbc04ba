"""The hybrid service that is called: what its actions say comes from the caller, or is odd."""

from typing import Any

from gateway import hybrid

ITEM = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": ["integer", "string"]},
        "name": {"type": "string", "minLength": 2, "maxLength": 20, "pattern": "^[^/]*$"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "price": {"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 0},
        "parent": {"$ref": "#"},
    },
}


@hybrid.action("example.org/fuzz/echo/1.0.0")
async def echo(data: Any) -> Any:
    return data


@hybrid.action("example.org/fuzz/say/1.0.0")
async def say(data: Any) -> str:
    """Text of the caller's, which may be JSON, or nearly so."""
    return str(data.get("text", "OK")) if isinstance(data, dict) else "OK"


@hybrid.action("example.org/fuzz/void/1.0.0")
async def void(data: Any) -> None:
    return None


@hybrid.action("example.org/fuzz/store/1.0.0", schema=ITEM, side="command")
async def store(data: Any, call: hybrid.Call) -> Any:
    return {**data, "by": call.principal.id, "key": call.idempotency_key}


@hybrid.action("example.org/fuzz/find/1.0.0", schema=ITEM, side="query")
def find(data: Any) -> Any:
    """Runs in a thread."""
    return [data["id"], 2**53 + 1]


@hybrid.action("example.org/fuzz/secret/1.0.0", scope="fuzz.x fuzz.y")
async def secret(data: Any) -> str:
    return "OK"


@hybrid.action("example.org/fuzz/open/1.0.0", skip_auth=True)
async def open_to_all(data: Any) -> Any:
    return {"open": True}


@hybrid.action("example.org/fuzz/refuse/1.0.0")
async def refuse(data: Any) -> None:
    """Fails as a service does, with a body of the caller's choice."""
    body = data if isinstance(data, dict) else {"code": "ERR11637", "statusCode": 404}
    raise hybrid.Failure(404, body)


@hybrid.action("example.org/fuzz/complain/1.0.0")
async def complain(data: Any) -> None:
    raise hybrid.Failure(503, "not today")


@hybrid.action("subtract", positional=("minuend", "subtrahend"), schema={
    "type": "object",
    "required": ["minuend", "subtrahend"],
    "properties": {"minuend": {"type": "number"}, "subtrahend": {"type": "number"}},
})  # fmt: skip
async def subtract(data: Any) -> Any:
    return data["minuend"] - data["subtrahend"]


@hybrid.action("gather", rest="all")
async def gather(data: Any) -> Any:
    return data
