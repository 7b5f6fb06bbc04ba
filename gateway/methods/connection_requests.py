"""Requests to a caller to connect an account, in the words of their client (MCP, elicitation).

client                                      answer
2026-07-28 that can open addresses          input_required; the retry goes on, or waits
2025-11-25 that can open addresses          the error URLElicitationRequired (-32042)
any other of MCP                            an error result, whose text person and model can use
any other                                   the error, with the link in `data`

A client that accepts has opened the address, no more: the retry waits for the person.
"""

from msgspec import Raw

from gateway.context import Context
from gateway.methods.prompts import params_of
from gateway.methods.results_by_revision import call_result
from gateway.protocol.account_request_state import MOST, make_state
from gateway.protocol.client_features import ELICIT, RefusalReason, for_client
from gateway.protocol.revision_adapter import Members
from gateway.protocol.upstream_errors import URL_ELICITATION_REQUIRED
from schemas.errors import ConnectionRequired, RelayedFault
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import CallToolResult
from schemas.tool import TextContent, ToolResult

META_CONNECT = "toolgate/connect"  # in a result: where to connect, at which source, why
INPUT = "connect"


def is_declined(request: Request) -> bool:
    """Whether the person did not want to open the address."""
    answers = params_of(request).get("inputResponses")
    answer = answers.get(INPUT) if isinstance(answers, dict) else None
    return isinstance(answer, dict) and answer.get("action") in ("decline", "cancel")


async def ask_to_connect(
    fault: ConnectionRequired, context: Context, times: int
) -> CallToolResult | Members:
    """The answer to a call that needs an account. Raises RelayedFault where it is an
    error, and `fault` to clients that are none of MCP, and to parts of the gateway."""
    revision = context.revision
    if not revision.asks_people:
        raise fault
    elicitation = {"mode": "url", "url": fault.url, "message": fault.message}
    params = for_client(ELICIT, elicitation, revision, dict(context.capabilities))
    if not isinstance(params, RefusalReason):
        if revision.handshake:
            session = context.session
            if session is not None and (id_ := await fault.note_session(session.id)):
                params["elicitationId"] = id_
            data = {"elicitations": [params], META_CONNECT: fault.data}
            raise RelayedFault(URL_ELICITATION_REQUIRED, fault.message, data) from fault
        if times < MOST:
            return {
                "resultType": Raw(b'"input_required"'),
                "inputRequests": Raw(encode({INPUT: {"method": ELICIT, "params": params}})),
                "requestState": Raw(encode(make_state(times + 1, fault.retry_state))),
            }
    if not revision.mcp:
        raise fault
    content = (TextContent(fault.message),)
    meta = {META_CONNECT: fault.data}
    return call_result(ToolResult(content, is_error=True, meta=meta), context)
