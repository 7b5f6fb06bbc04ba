"""Actions that do what the vectors need to see. parity.yaml describes all but one of them."""

from collections import Counter
from pathlib import Path
from typing import Any

from gateway import hybrid

HYBRID_SPEC = Path(__file__).with_name("parity.yaml")
BEYOND_DOUBLES = 2**53 + 1  # no double has this value

runs: Counter[str] = Counter()  # of append, by key


@hybrid.action("lightapi.net/parity/void/0.1.0")
async def void(_data: Any) -> None:
    return None


@hybrid.action("lightapi.net/parity/throws/0.1.0")
async def throws(_data: Any) -> None:
    raise RuntimeError("a bug, and none of the client's business")


@hybrid.action("lightapi.net/parity/echo/0.1.0")
async def echo(data: dict[str, Any]) -> dict[str, Any]:
    return data


@hybrid.action("lightapi.net/parity/noschema/0.1.0")
async def noschema(data: Any) -> dict[str, Any]:
    return {"received": data}


@hybrid.action("lightapi.net/parity/inline/0.1.0")
async def inline(_data: Any) -> str:
    return "OK"


@hybrid.action("lightapi.net/parity/public/0.1.0")
async def public(_data: Any) -> str:
    return "OK"


@hybrid.action("lightapi.net/parity/text/0.1.0")
async def text(_data: Any) -> str:
    return "no JSON, but a sentence"


@hybrid.action("lightapi.net/parity/json-text/0.1.0")
async def json_text(_data: Any) -> str:
    return '{"a":1}'


@hybrid.action("lightapi.net/parity/plain-failure/0.1.0")
async def plain_failure(_data: Any) -> None:
    raise hybrid.Failure(503, "The service is busy")


@hybrid.action("lightapi.net/parity/code-only/0.1.0")
async def code_only(_data: Any) -> None:
    raise hybrid.Failure(404, {"statusCode": 404, "code": "ERR11637", "severity": "ERROR"})


@hybrid.action("lightapi.net/parity/big/0.1.0")
async def big(_data: Any) -> dict[str, int]:
    return {"value": BEYOND_DOUBLES}


@hybrid.action("lightapi.net/parity/append/0.1.0", side="command")
async def append(data: dict[str, Any]) -> dict[str, int]:
    runs[data["key"]] += 1
    if data.get("fail"):
        status = hybrid.Status(400, "ERR10014", "GENERIC_EXCEPTION", "Generic Exception asked for.")
        raise hybrid.Failure(400, status)
    return {"appended": runs[data["key"]]}


@hybrid.action("lightapi.net/parity/count/0.1.0", side="query")
async def count(data: dict[str, Any]) -> dict[str, int]:
    return {"count": runs[data["key"]]}


@hybrid.action("lightapi.net/parity/undescribed/0.1.0")
async def answer_undescribed(_data: Any) -> str:
    return "this is never seen"
