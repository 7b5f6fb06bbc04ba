"""Programs over tools: an editor to try one."""

from typing import Any

from msgspec import Raw
from starlette.responses import Response

from gateway.console.page_request import PageRequest
from gateway.console.rendering import indent_json
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import Trial
from registry.names.tool_names import CODE_TOOLS
from schemas.jsonrpc import decode_json, encode
from schemas.tool import TextContent

SHOWN_TEXT = 200_000  # characters of a result, and of its output
EXAMPLE = 'tools.search("which orders are open?")'


async def programs_page(visit: PageRequest) -> Response:
    """A program of the visitor, and its end, or the calls that wait for a decision."""
    if not visit.operations.may("code_run"):
        return visit.problem(404)
    run = visit.posted_value("run")
    code = visit.posted_value("code").replace("\r\n", "\n")
    languages = visit.parts.settings().code.languages
    language = visit.posted_value("language") or languages[0]
    writes = visit.posted_value("writes") == "yes" and visit.operations.may("code_run_writing")
    end: dict[str, Any] | None = None
    if run or code.strip():
        arguments = {"run": run} if run else {"code": code, "language": language}
        end = _end_of(await visit.operations.call(CODE_TOOLS[writes], arguments))
    return visit.page(
        "programs.html",
        code=code or (EXAMPLE if visit.request.method == "GET" else ""),
        written_in=languages,
        language=language,
        writes=writes,
        may_write=visit.operations.may("code_run_writing"),
        end=end,
    )


def _end_of(trial: Trial) -> dict[str, Any]:
    """The end of a run as the page shows it."""
    head = {"took_ms": trial.took_ms, "request_id": trial.request_id}
    result = trial.result
    if result is None or result.is_error or not isinstance(result.structured_content, Raw):
        texts = () if result is None else result.content
        text = "\n".join(part.text for part in texts if isinstance(part, TextContent))
        return {**head, "state": "refused", "error": trial.fault.message if trial.fault else text}
    end: dict[str, Any] = decode_json(bytes(result.structured_content))
    if "result" in end:
        end["result"] = indent_json(encode(end["result"]).decode())[:SHOWN_TEXT]
    return {**head, **end}


ROUTES = (PageRoute("/programs", programs_page, ("GET", "POST")),)
