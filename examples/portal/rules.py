"""A hybrid service in Python: rules, kept in memory. Commands change them, queries read them.

`spec.yaml` beside this file is the one of light-hybrid-4j and says what each action accepts and who
may call it, so a function is marked with its id and its side, no more:

    sources:
      rules: {python: rules.py}

Every function here is `async` and waits for nothing, so that no two of them run at a time; one that
is not `async` would run in a thread, and the store would need a lock.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from gateway import hybrid

HYBRID_SPEC = Path(__file__).with_name("spec.yaml")

Rule = dict[str, Any]
RULES: dict[tuple[str, str], Rule] = {}  # by hostId and ruleId


@hybrid.action("lightapi.net/rule/createRule/0.1.0", side="command")
async def create_rule(data: Rule, call: hybrid.Call) -> Rule:
    """Add a rule. With an Idempotency-Key it is safe to ask for again."""
    if key_of(data) in RULES:
        raise failure(400, "ERR11650", "RULE_EXISTS", f"There is a rule {data['ruleId']} already.")
    return store(data | {"updateUser": call.principal.id}, version=1)


@hybrid.action("lightapi.net/rule/updateRule/0.1.0", side="command")
async def update_rule(data: Rule, call: hybrid.Call) -> Rule:
    """Replace a rule."""
    version = found(data)["aggregateVersion"] + 1
    return store(data | {"updateUser": call.principal.id}, version)


@hybrid.action("lightapi.net/rule/deleteRule/0.1.0", side="command")
async def delete_rule(data: Rule) -> str:
    """Remove a rule."""
    del RULES[key_of(found(data))]
    return "OK"


@hybrid.action("lightapi.net/rule/reviewRule/0.1.0", side="command")
async def review_rule(data: Rule) -> None:
    """Note that somebody has looked at a rule; there is nothing to say about that."""
    found(data)["reviewed"] = True


@hybrid.action("lightapi.net/rule/getRule/0.1.0", side="query")
async def get_rule(data: Rule) -> dict[str, Any]:
    """List the rules of a host, filtered and sorted as the portal's tables ask for it."""
    filters, sorting = columns(data, "filters"), columns(data, "sorting")
    rules = [rule for rule in of_host(data) if all(matches(rule, one) for one in filters)]
    for column in reversed(sorting):
        rules.sort(key=partial(cell, name=column["id"]), reverse=bool(column.get("desc")))
    first = data["offset"]
    return {"total": len(rules), "rules": rules[first : first + data["limit"]]}


@hybrid.action("lightapi.net/rule/getFreshRule/0.1.0", side="query")
async def get_fresh_rule(data: Rule) -> Rule:
    """Show one rule, as it is now."""
    return found(data)


@hybrid.action("lightapi.net/rule/getRuleLabel/0.1.0", side="query")
async def get_rule_label(data: Rule) -> list[dict[str, str]]:
    """List the rules of a host for a select box."""
    return [{"id": rule["ruleId"], "label": rule["ruleName"]} for rule in of_host(data)]


@hybrid.action("lightapi.net/rule/getRuleCount/0.1.0", side="query")
async def get_rule_count(_data: None) -> dict[str, int]:
    """Count the rules of all hosts; anybody may ask."""
    return {"rules": len(RULES), "hosts": len({host for host, _ in RULES})}


def key_of(data: Rule) -> tuple[str, str]:
    return data["hostId"], data["ruleId"]


def store(data: Rule, version: int) -> Rule:
    """Keep the rule; what a command answers is what it was given, and the new version."""
    RULES[key_of(data)] = data | {"aggregateVersion": version}
    return data | {"newAggregateVersion": version}


def found(data: Rule) -> Rule:
    rule = RULES.get(key_of(data))
    if rule is None:
        text = f"Object rule not found for key {data['ruleId']}."
        raise failure(404, "ERR11637", "OBJECT_NOT_FOUND", text)
    return rule


def of_host(data: Rule) -> list[Rule]:
    return [rule for (host, _), rule in sorted(RULES.items()) if host == data["hostId"]]


def columns(data: Rule, name: str) -> list[dict[str, Any]]:
    """The columns that `name` lists: JSON in text, because the portal sends it so."""
    try:
        listed = json.loads(data.get(name) or "[]")
        return [column | {"id": str(column["id"])} for column in listed]
    except (ValueError, TypeError, KeyError) as error:
        text = f'{name} must be a JSON array such as [{{"id": "ruleName"}}], in text.'
        raise failure(400, "ERR11651", "BAD_TABLE_OPTION", text) from error


def matches(rule: Rule, column: dict[str, Any]) -> bool:
    return str(column.get("value", "")).lower() in cell(rule, column["id"]).lower()


def cell(rule: Rule, name: str) -> str:
    return str(rule.get(name, ""))


def failure(status: int, code: str, message: str, description: str) -> hybrid.Failure:
    """A Status of light-4j, and the HTTP status that it comes with."""
    return hybrid.Failure(
        status,
        {
            "statusCode": status,
            "code": code,
            "message": message,
            "description": description,
            "severity": "ERROR",
        },
    )
