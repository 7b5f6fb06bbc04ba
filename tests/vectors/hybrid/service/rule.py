"""The rule service that most vectors call. rule.yaml describes it."""

from pathlib import Path
from typing import Any

from gateway import hybrid

HYBRID_SPEC = Path(__file__).with_name("rule.yaml")


@hybrid.action("lightapi.net/rule/createRule/0.1.0")
async def create_rule(_data: dict[str, Any]) -> str:
    return "OK"


@hybrid.action("lightapi.net/rule/updateRule/0.1.0")
async def update_rule(_data: dict[str, Any]) -> None:
    status = {
        "statusCode": 401,
        "code": "ERR10001",
        "message": "AUTH_TOKEN_EXPIRED",
        "description": "Jwt token in authorization header expired",
        "severity": "ERROR",
    }
    raise hybrid.Failure(400, status)  # two different statuses, as its Java original has them


@hybrid.action("lightapi.net/rule/deleteRule/0.1.0")
async def delete_rule(_data: dict[str, Any]) -> str:
    return "OK"
