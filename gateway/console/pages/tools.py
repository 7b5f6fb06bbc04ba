"""Tools: search by meaning, definition, costs, and trying one."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from msgspec import Raw
from starlette.responses import Response

from gateway.console.argument_form import ArgumentForm
from gateway.console.page_request import PageRequest, as_json
from gateway.console.rendering import indent_json, pretty
from gateway.console.routes import PageRoute
from gateway.console.texts import encode_json, visible
from gateway.console.visitor_operations import Trial
from gateway.methods.capabilities import capabilities
from gateway.policy.approval_gate import META_APPROVAL
from schemas.errors import InvalidRequest
from schemas.mcp.revisions import V2025_11_25
from schemas.tool import TextContent

FILTERS = ("source", "state", "tier", "protocol")
STATES = ("served", "held", "disabled")
PROTOCOLS = ("openapi", "graphql", "hybrid", "python", "mcp", "a2a", "function", "script")
LIMIT = 30
SHOWN_TEXT = 200_000  # characters of an answer
WORD = re.compile(r"\w{2,}")
TRIAL_ACTS = frozenset({"call", "preview", "task"})


@dataclass(frozen=True, slots=True)
class Example:
    """A call, as a program would make it."""

    name: str
    text: str


async def list_page(visit: PageRequest) -> Response:
    """The tools; with a query, those found by meaning and words."""
    query = visit.query.get("q", "").strip()
    filters = {name: visit.query.get(name, "") for name in FILTERS}
    if query:
        body = {name: filters[name] for name in ("source", "tier", "protocol") if filters[name]}
        answer = await visit.operations.run(
            "searchTools", body={"query": query, "limit": LIMIT, **body}
        )
    else:
        after = visit.query.get("after", "")
        answer = await visit.operations.run("listTools", query={**filters, "after": after})
    if not answer.ok:
        return visit.problem_page(answer)
    values = {
        "query": query,
        "given": filters,
        "rows": answer.value["hits" if query else "items"],
        "note": answer.value.get("note") if query else None,
        "next": answer.value.get("next", ""),
        "best": max((hit["score"] for hit in answer.value["hits"]), default=1) if query else 1,
        "sources": [
            source["name"] for source in await visit.operations.items("listSources", limit=500)
        ],
        "states": STATES,
        "protocols": PROTOCOLS,
        "tiers": visit.parts.settings().policy.tiers,
        "marked": lambda text: _mark_words(text, query),
    }
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    part = visit.is_part("results")
    return visit.page("tools_rows.html" if part else "tools.html", **values)


async def tool_page(visit: PageRequest) -> Response:
    """One tool: what it is, as clients see it, and what may be done with it."""
    answer = await visit.operations.run("getTool", {"tool": visit.path("tool")})
    if not answer.ok:
        return visit.problem_page(answer)
    listed = await visit.operations.run("showDefinitions", {"tool": visit.path("tool")})
    definitions = listed.value["items"] if listed.ok else ()
    texts: dict[str, list[str]] = {}  # profiles by the definition that their clients see
    for profile in definitions:
        if profile["definition"]:
            texts.setdefault(pretty(profile["definition"]), []).append(profile["profile"])
    return visit.page(
        "tool.html",
        tool=answer.value,
        etag=answer.etag,
        definitions=definitions,
        texts=texts,
        tab="definition",
    )


async def try_page(visit: PageRequest) -> Response:
    """Try a tool: a form of its arguments, or JSON; then the exact requests and the answers."""
    name = visit.path("tool")
    answer = await visit.operations.run("getTool", {"tool": name})
    if not answer.ok:
        return visit.problem_page(answer)
    tool = answer.value
    form = ArgumentForm(visit, tool["input_schema"])
    trial = None
    if form.act in TRIAL_ACTS and form.is_complete:
        is_sent = form.act != "preview"
        if is_sent and _asks(tool) and visit.posted_value("confirmed") != name:
            form.errors["#confirm"] = visit.texts("Type the name of the tool to call it.")
        elif form.act == "task":
            params = {"name": name, "arguments": form.value, "task": {}}
            begun = await visit.operations.send("tools/call", params)
            if task := (begun.result or {}).get("task"):
                return visit.to("tasks", task["taskId"])
            fault = begun.fault or InvalidRequest("The call ended without a task.")
            trial = Trial(request=begun.request, request_id=begun.request_id, fault=fault)
        else:
            trial = await visit.operations.try_tool(name, form.value, sends=is_sent)
    catalog = visit.parts.catalogs.of(visit.operations.tenant)
    return visit.page(
        "tool_try.html",
        tool=tool,
        tab="try",
        asks=_asks(tool),
        offers_tasks="tasks" in capabilities(catalog, V2025_11_25),
        **form.page_values(),
        trial=None if trial is None else _trial_values(trial),
        examples=() if trial is None else _examples(visit, trial),
    )


def _asks(tool: Mapping[str, Any]) -> bool:
    """Whether the tool may destroy something, as its hints say."""
    hints = tool["annotations"] or {}
    return hints.get("readOnlyHint") is not True and hints.get("destructiveHint") is True


def _trial_values(trial: Trial) -> dict[str, Any]:
    """A trial as the page shows it."""
    recording, result = trial.recording, trial.result
    values: dict[str, Any] = {
        "took_ms": trial.took_ms,
        "request_id": trial.request_id,
        "request": trial.request,
        "exchanges": [] if recording is None else recording.exchanges,
        "text": trial.note,
        "state": "preview",
    }
    if trial.fault is not None:
        return {**values, "state": "refused", "text": trial.fault.message}
    if result is None:
        return values
    others = [
        type(content).__name__ for content in result.content if not isinstance(content, TextContent)
    ]
    waits = bool(result.meta) and META_APPROVAL in (result.meta or {})
    raw = result.structured_content
    if isinstance(raw, Raw):
        text = indent_json(bytes(raw).decode())
    else:
        text = "\n".join([*result.texts, *(f"[{name}]" for name in others)])
    state = "waiting" if waits else "failed" if result.is_error else "done"
    excerpt, is_cut = text[:SHOWN_TEXT], len(text) > SHOWN_TEXT
    if recording is not None:
        excerpt = recording.mask(excerpt, is_cut=is_cut)
    return {**values, "state": state, "text": excerpt}


def _examples(visit: PageRequest, trial: Trial) -> Sequence[Example]:
    """The call as curl and as Python, at the JSON-RPC endpoint."""
    settings = visit.parts.settings()
    url = f"{visit.public_base}{settings.rpc.path}"
    body = {
        "jsonrpc": "2.0", "id": 1, "method": trial.request["params"]["name"],
        "params": trial.request["params"]["arguments"],
    }  # fmt: skip
    text = encode_json(body)
    key = settings.auth.mode != "none"
    quoted = text.replace("'", "'\\''")
    header = ' \\\n  -H "Authorization: Bearer $TOOLGATE_KEY"' if key else ""
    curl = f"curl -s {url} \\\n  -H 'Content-Type: application/json'{header} \\\n  -d '{quoted}'"
    headers = '{"Authorization": f"Bearer {os.environ[\'TOOLGATE_KEY\']}"}' if key else "{}"
    imports = "import os\n\nimport httpx" if key else "import httpx"
    call_text = f"    {url!r},\n    headers={headers},\n    json={_python(body)},\n"
    python = f"{imports}\n\nanswer = httpx.post(\n{call_text})\nprint(answer.json())"
    return Example("curl", curl), Example("Python", python)


def _python(value: Any) -> str:
    return repr(json.loads(json.dumps(value)))


def _mark_words(text: str, query: str) -> Markup:
    """The text with the words of the query marked: why words found it."""
    words = {word.lower() for word in WORD.findall(query)}
    pieces = re.split(r"(\w+)", visible(text))
    return Markup("").join(
        Markup("<mark>{}</mark>").format(piece) if _has(piece, words) else escape(piece)
        for piece in pieces
    )


def _has(piece: str, words: set[str]) -> bool:
    low = piece.lower()
    return any(low == word or (low.startswith(word) and len(word) > 3) for word in words)


ROUTES = (
    PageRoute("/tools", list_page),
    PageRoute("/tools/{tool}", tool_page),
    PageRoute("/tools/{tool}/try", try_page, ("GET", "POST")),
)
