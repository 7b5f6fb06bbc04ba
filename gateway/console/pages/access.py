"""Pages of access: rules and their explanation, approvals."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from config.access import Policy, Rule
from gateway.console.forms import read_json
from gateway.console.page_request import PageRequest, as_json, segments_of
from gateway.console.pages.operation_buttons import buttons
from gateway.console.rendering import indent_json
from gateway.console.routes import PageRoute
from gateway.policy.engine import Subject, is_judged
from gateway.policy.rule_matches import matching_tools
from schemas.cel_expressions import InvalidExpression

MINUTES = 1440  # of a grant


async def policy(visit: PageRequest) -> Response:
    """The rules, what each of them matches, and the explanation of one call."""
    answer = await visit.operations.run("listRules", query={"after": visit.query.get("after", "")})
    if not answer.ok:
        return visit.problem_page(answer)
    tools, settings = (
        visit.parts.catalogs.of(visit.operations.tenant).tools,
        visit.parts.settings().policy,
    )
    subjects = [Subject.of(tool) for tool in tools if is_judged(tool)]
    rows = [
        {
            **item,
            "matches": _count_matches(item["rule"], subjects, settings),
            "about": _about(item["rule"]),
        }
        for item in answer.value["items"]
    ]
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    question = {name: visit.posted_value(name) for name in ("tool", "principal", "roles", "scopes")}
    explained, problem = await _explain(visit, question)
    return visit.page(
        "policy.html",
        rows=rows,
        total=len(subjects),
        next=answer.value.get("next", ""),
        default=visit.parts.settings().policy.default,
        hidden="" if visit.operations.is_operator else visit.parts.settings().admin.operator_role,
        adds=buttons(visit, ("putRule",), {}),
        acts=lambda name: buttons(visit, ("putRule", "deleteRule"), {"rule": name}),
        asked=question,
        arguments=visit.posted_value("arguments"),
        explained=explained,
        problem=problem,
    )


async def _explain(visit: PageRequest, question: Mapping[str, str]) -> tuple[Any, str]:
    """The explanation of a call that was asked for, or what is wrong with the question."""
    if visit.request.method != "POST":
        return None, ""
    body: dict[str, Any] = {
        "tool": question["tool"],
        "principal": question["principal"] or "anonymous",
        "roles": question["roles"].split(),
        "scopes": question["scopes"].split(),
    }
    if visit.posted_value("arguments").strip():
        reading = read_json(visit.posted_value("arguments"))
        if reading.errors:
            return None, next(iter(reading.errors.values()))
        body["arguments"] = reading.value
    answer = await visit.operations.run("explain", body=body)
    return (answer.value, "") if answer.ok else (None, answer.problem)


def _count_matches(
    rule: Mapping[str, Any], subjects: Sequence[Subject], policy: Policy
) -> int | None:
    """How many served tools the rule may be about; None for a rule that cannot be evaluated."""
    try:
        return len(matching_tools(msgspec.convert(rule, Rule), subjects, policy))
    except InvalidExpression:  # a stored rule of another release
        return None


def _about(rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The conditions of a rule."""
    left_out = ("effect", "reason")
    return [
        (name, " ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in rule.items()
        if name not in left_out and value not in (None, "", [], ())
    ]


async def approvals(visit: PageRequest) -> Response:
    answer = await visit.operations.run(
        "listApprovals", query={"after": visit.query.get("after", "")}
    )
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    rows = [await _with_program(visit, item) for item in answer.value["items"]]
    return visit.page(
        "approvals.html",
        rows=[{**row, "pretty": indent_json(row["arguments"])} for row in rows],
        next=answer.value.get("next", ""),
        may=visit.operations.may("decide"),
        problem="",
        decided=visit.query.get("decided", ""),
    )


async def _with_program(visit: PageRequest, approval: Mapping[str, Any]) -> Mapping[str, Any]:
    """An approval of calls of a program with these, and the program."""
    if not approval["run"] or not visit.operations.may("getApproval"):
        return approval
    answer = await visit.operations.run("getApproval", {"approval": approval["id"]})
    return answer.value if answer.ok else approval  # it was decided meanwhile


async def decide_call(visit: PageRequest) -> Response:
    """Approve or deny a call, or those of a program."""
    approve = visit.posted_value("decision") == "approve"
    names = {"approval": visit.path("approval")}
    body: dict[str, Any] = {"approve": approve}
    if approve and (calls := visit.posted_value("calls")).isdecimal() and int(calls):
        body["grants"] = [{"tool": visit.posted_value("tool"), "calls": int(calls)}]
        if (minutes := visit.posted_value("minutes")).isdecimal():
            until = datetime.now(UTC) + timedelta(minutes=min(int(minutes), MINUTES))
            body["grants"][0]["until"] = until.isoformat()
    answer = await visit.operations.run("decide", names, body=body)
    if not answer.ok:
        return visit.problem_page(answer)
    place = segments_of(visit.posted_value("next"))
    outcome = "" if place else "approved" if approve else "denied"
    return visit.to(*(place or ("approvals",)), decided=outcome)


async def deny_calls(visit: PageRequest) -> Response:
    """Deny all selected calls, also if one is decided already. Each is approved by itself."""
    refused = None
    for approval in visit.form.get("approval", ()):
        answer = await visit.operations.run(
            "decide", {"approval": approval}, body={"approve": False}
        )
        refused = refused or (None if answer.ok else answer)
    if refused is not None:
        return visit.problem_page(refused)
    return visit.to("approvals", decided="denied" if "approval" in visit.form else "")


ROUTES = (
    PageRoute("/policy", policy, ("GET", "POST")),
    PageRoute("/approvals", approvals),
    PageRoute("/approvals/deny", deny_calls, ("POST",)),
    PageRoute("/approvals/{approval}", decide_call, ("POST",)),
)
