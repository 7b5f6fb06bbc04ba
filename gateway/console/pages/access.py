"""Pages of access: rules and their explanation, approvals, the audit log."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from config.access import Policy, Rule
from gateway.console.forms import read_json
from gateway.console.page_request import PageRequest, as_json, indent_json, segments_of
from gateway.console.pages.acts import buttons
from gateway.console.routes import PageRoute
from gateway.operations.csv_cells import csv_cell
from gateway.policy.engine import Subject, is_judged
from gateway.policy.rule_matches import matching_tools
from schemas.cel_expressions import InvalidExpression

FILTERS = ("principal", "subject", "decision", "outcome", "since", "until")
MINUTES = 1440  # of a grant
EXPORT_RECORDS = 10_000  # records of one export
COLUMNS = (
    *("recorded_ts", "principal", "front", "method", "subject", "source", "decision", "rule"),
    *("outcome", "latency_us", "request_bytes", "result_bytes", "request_id", "client"),
    *("connection", "owner"),
)


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


async def audit(visit: PageRequest) -> Response:
    filters = {name: visit.query.get(name, "").strip() for name in FILTERS}
    query = {**filters, "since": _time(filters["since"]), "until": _time(filters["until"])}
    answer = await visit.operations.run(
        "searchAudit", query={**query, "after": visit.query.get("after", "")}
    )
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    return visit.page(
        "audit.html",
        rows=answer.value["items"],
        next=answer.value.get("next", ""),
        given=filters,
        adds=buttons(visit, ("verifyAudit",), {}),
        mode=visit.parts.settings().audit.mode,
        recorded=is_recorded(visit),
    )


def is_recorded(visit: PageRequest) -> bool:
    """Whether the audit log has records of calls."""
    mode = visit.parts.settings().audit.mode
    return mode == "always" or (mode == "authenticated" and not visit.is_open)


async def export_records(visit: PageRequest) -> Response:
    """The records that match, the newest first, as CSV. Cells never begin a formula."""
    filters = {name: visit.query.get(name, "") for name in FILTERS}
    filters = {**filters, "since": _time(filters["since"]), "until": _time(filters["until"])}
    text, after, count = io.StringIO(), "", 0
    table = csv.writer(text)
    table.writerow(("chain_id", "sequence", *COLUMNS, "hash"))
    while count < EXPORT_RECORDS:
        answer = await visit.operations.run(
            "searchAudit", query={**filters, "after": after, "limit": 500}
        )
        if not answer.ok:
            return visit.problem_page(answer)
        for record in answer.value["items"]:
            cells = (record["entry"].get(name, "") for name in COLUMNS)
            table.writerow(
                [
                    csv_cell(cell)
                    for cell in (record["chain_id"], record["sequence"], *cells, record["hash"])
                ]
            )
            count += 1
        after = answer.value.get("next", "")
        if not after:
            break
    headers = {"content-disposition": 'attachment; filename="audit.csv"'}
    return Response(text.getvalue(), 200, headers, "text/csv")


def _time(text: str) -> str:
    """A time of a form, which has no zone, as UTC."""
    return f"{text}:00Z" if len(text) == len("2026-01-01T00:00") else text


ROUTES = (
    PageRoute("/policy", policy, ("GET", "POST")),
    PageRoute("/approvals", approvals),
    PageRoute("/approvals/deny", deny_calls, ("POST",)),
    PageRoute("/approvals/{approval}", decide_call, ("POST",)),
    PageRoute("/audit", audit),
    PageRoute("/audit/export", export_records),
)
