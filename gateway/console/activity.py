"""The last day on the overview: steps of a new gateway, what needs attention, calls.

All of it is what operations answer to the visitor; a part that the visitor may not read, or that is
off, is neither asked for nor shown.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from config.mcp_clients import client_values, read_clients
from gateway.console.page_request import PageRequest
from gateway.console.visitor_operations import OperationAnswer
from gateway.wings.interface import Subject, pressing_concerns
from schemas.jsonrpc import encode
from schemas.tool import Tool

ITEMS = 5  # of each kind of thing that needs attention
READ = 200  # entries of a list that are looked through
ENDING = timedelta(days=14)  # before its end a key is named
FIRST_CLIENT = "claude-code"

REASONS: Mapping[str, str] = {
    "401": "The key or token was not accepted.",
    "403": "The caller lacks a scope or a right.",
    "tool_error": "The result is an error: of the service, or of its arguments.",
    "1500": "The service answered with an error, or not at all.",
    "crashed": "The gateway failed; its log has the reason.",
    "1429": "Too many calls: a limit was reached.",
    "1502": "The service does not answer.",
    "1503": "The gateway was overloaded or starting.",
    "-32602": "Invalid arguments, or no such tool.",
    "-32603": "The gateway failed; its log has the reason.",
}
"""Outcomes of calls in words."""

CONCERNS: Mapping[Subject, str] = {
    "approvals": "approval",
    "schedules": "schedule failed",
    "jobs": "job failed",
    "sources": "source down",
    "budgets": "budget",
    "connections": "connection",
    "certificates": "certificate",
}
"""Kinds of concerns, as a badge has them."""

DENIED, OTHER = "Denied by a rule.", "Error {code}."


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a new gateway."""

    title: str
    text: str
    snippet: str
    done: bool
    url: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class AttentionItem:
    kind: str
    tone: str  # of its badge
    name: str
    url: str
    at: str = ""
    since: str = ""  # word before the time
    text: str = ""


@dataclass(frozen=True, slots=True)
class FailedCall:
    tool: str
    reason: str
    rule: str
    principal: str
    at: str


async def activity(visit: PageRequest, status: Mapping[str, Any], down: Sequence[str]) -> Any:
    """Values of the part of the page that does not ask again by itself."""
    answer = OperationAnswer(403, {})
    if visit.operations.may("sumCalls"):
        answer = await visit.operations.run("sumCalls")
    sums = answer.value["sums"] if answer.ok else None
    failures = answer.value["failures"] if answer.ok else ()
    return {
        "steps": _steps(visit, status, sums),
        "attention": [item async for item in _attention(visit, status, down, sums)],
        "sums": sums,
        "failures": [_failed_call(visit, record["entry"]) for record in failures],
        "down": frozenset(down),
    }


def _steps(
    visit: PageRequest, status: Mapping[str, Any], sums: Mapping[str, Any] | None
) -> list[Step]:
    """The three steps; none once all are done, or as far as the visitor can know."""
    texts, settings = visit.texts, visit.parts.settings()
    values = client_values(settings, "toolgate", None)
    tool = _first_tool(visit)
    wings = visit.parts.offers.keys()  # pages of the console call their tools
    called = any(row["source"] not in wings for row in (sums or {}).get("sources", ()))
    connected = called or bool(status["sessions"])
    if (called or sums is None) if tool is not None else (wings and status["sessions"]):
        return []
    may_import = visit.operations.may("importSource")
    client = read_clients()[FIRST_CLIENT]
    with_key = settings.auth.mode == "keys"
    rpc = values["url"].removesuffix(settings.mcp.path) + settings.rpc.path
    call = {"jsonrpc": "2.0", "id": 1, "method": tool.name if tool else "listPets", "params": {}}
    headers = ["-H 'Content-Type: application/json'", *(["-H 'X-API-Key: KEY'"] * with_key)]
    return [
        Step(
            texts("Add a source"),
            texts("A source is a service whose operations are tools: an API or an MCP server."),
            "toolgate import openapi https://api.example.com/openapi.json --name example",
            tool is not None,
            visit.url("sources", "new") if may_import else "",
            texts("Import a source"),
        ),
        Step(
            texts("Connect a client"),
            texts("Programs that speak MCP find the tools at this address."),
            client.text(values, with_key).rstrip(),
            connected,
            visit.url("connect"),
            texts("Other clients"),
        ),
        Step(
            texts("Call a tool"),
            texts("By the client, by this request, or on the page of a tool."),
            f"curl -s {rpc} {' '.join(headers)} \\\n  -d '{encode(call).decode()}'",
            called,
            visit.url("tools", tool.name, "try") if tool else "",
            texts("Try it"),
        ),
    ]


def _first_tool(visit: PageRequest) -> Tool | None:
    """A tool of a source, rather one that reads and needs no arguments."""
    tools = visit.parts.catalogs.of(visit.operations.tenant).tools
    upstream_tools = [tool for tool in islice(tools, READ) if not _is_of_gateway(tool)]
    simple = (
        tool
        for tool in upstream_tools
        if tool.annotations.read_only_hint and b'"required"' not in bytes(tool.input_schema)
    )
    return next(simple, upstream_tools[0] if upstream_tools else None)


def _is_of_gateway(tool: Tool) -> bool:
    """Whether the tool is no source's: the gateway's own, or a wing's."""
    return tool.binding.facts.own or tool.binding.facts.typed


async def _attention(
    visit: PageRequest,
    status: Mapping[str, Any],
    down: Sequence[str],
    sums: Mapping[str, Any] | None,
) -> AsyncIterator[AttentionItem]:
    texts = visit.texts
    last = {row["source"]: row["last_ok"] for row in (sums or {}).get("sources", ())}
    for name in down[:ITEMS]:
        at = last.get(name) or ""
        text = "" if at else texts("No call has succeeded in the last day.")
        url = visit.url("sources", name)
        yield AttentionItem(texts("source down"), "bad", name, url, at, texts("last success"), text)
    for name in [name for name, state in status["sources"].items() if state == "failed"][:ITEMS]:
        text = texts("The log of the gateway has the reason.")
        yield AttentionItem(texts("import failed"), "bad", name, visit.url("sources"), text=text)
    for item in await visit.operations.items("listApprovals", limit=ITEMS):
        yield AttentionItem(
            texts("approval"), "warn", item["tool"], visit.url("approvals"), item["created"],
            texts("waits since"), item["reason"],
        )  # fmt: skip
    for job in await visit.operations.items("listJobs", state="failed", limit=ITEMS):
        yield AttentionItem(
            texts("job failed"), "bad", job["operation"], visit.url("jobs", job["job"]),
            job.get("ended") or job["created"], texts("at"), _problem_text(job),
        )  # fmt: skip
    if visit.operations.is_operator:
        async for item in _concerns_of_wings(visit):
            yield item
    for item in await visit.operations.items("listConnections", limit=READ):
        if item["state"] != "ok":
            yield AttentionItem(
                texts("connection"), "warn", f"{item['source']} · {item['principal']}",
                visit.url("connections", item["id"]), item["used"] or item["created"],
                texts("last used"), item["failure"],
            )  # fmt: skip
    soon = (datetime.now(UTC) + ENDING).isoformat()
    for key in await visit.operations.items("listKeys", limit=READ):
        now = datetime.now(UTC).isoformat()
        if not key["revoked"] and key["expires"] and now < key["expires"] < soon:
            yield AttentionItem(
                texts("key ends"), "warn", key["name"], visit.url("keys", key["id"]), key["expires"]
            )


async def _concerns_of_wings(visit: PageRequest) -> AsyncIterator[AttentionItem]:
    """Schedules whose last call failed, and budgets that are nearly used."""
    share = visit.parts.settings().notifications.budget_share
    for offer in visit.parts.offers.values():
        concerns = await offer.concerns(visit.operations.tenant) if offer.concerns else ()
        for item in pressing_concerns(concerns, share)[:ITEMS]:
            yield AttentionItem(
                visit.texts(CONCERNS[item.subject]),
                "warn",
                visit.texts(item.title.text, **item.title.values),
                visit.url(*item.path.split("/")),
                text=visit.texts(item.detail.text, **item.detail.values),
            )


def _problem_text(job: Mapping[str, Any]) -> str:
    problem = job.get("problem") or {}
    return str(problem.get("detail", "")) if isinstance(problem, Mapping) else str(problem)


def _failed_call(visit: PageRequest, entry: Mapping[str, Any]) -> FailedCall:
    outcome = entry.get("outcome", "")
    is_denied = entry.get("decision") == "deny" and bool(entry.get("rule"))
    text = DENIED if is_denied else REASONS.get(outcome, OTHER)
    return FailedCall(
        tool=entry.get("subject", ""),
        reason=visit.texts(text, code=outcome) if text is OTHER else visit.texts(text),
        rule=entry.get("rule", "") if is_denied else "",
        principal=entry.get("principal", ""),
        at=entry["recorded_ts"],
    )
