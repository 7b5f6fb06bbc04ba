"""The methods in the examples of the JSON-RPC 2.0 specification, section 7."""

from typing import Any

from gateway import hybrid

OPERANDS = {
    "type": "object",
    "required": ["minuend", "subtrahend"],
    "properties": {"minuend": {"type": "number"}, "subtrahend": {"type": "number"}},
}
NUMBERS = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "number"}}},
}


@hybrid.action("subtract", schema=OPERANDS, positional=("minuend", "subtrahend"))
async def subtract(data: dict[str, float]) -> float:
    return data["minuend"] - data["subtrahend"]


@hybrid.action("sum", schema=NUMBERS, rest="numbers")
async def add(data: dict[str, list[float]]) -> float:
    return sum(data["numbers"])


@hybrid.action("update", schema=NUMBERS, rest="numbers")
async def update(_data: Any) -> None:
    return None


@hybrid.action("notify_hello", schema=NUMBERS, rest="numbers")
async def notify_hello(_data: Any) -> None:
    return None


@hybrid.action("get_data")
async def get_data(_data: Any) -> list[Any]:
    return ["hello", 5]
