"""Requests that the client of a session may cancel while they run."""

import asyncio
import time

from gateway.context import Cancellation, Context, Session
from gateway.protocol.dispatcher import Answer, Dispatcher
from schemas.errors import InvalidRequest, Unavailable
from schemas.jsonrpc import Request, error_reply


async def run_cancellable(
    dispatcher: Dispatcher, context: Context, session: Session, request: Request
) -> Answer | None:
    """Dispatch such that the session can cancel it by its id, except `initialize`; None when it was
    cancelled."""
    id_, task = request.id, asyncio.current_task()
    if not isinstance(id_, str | int) or task is None or request.method == "initialize":
        return await dispatcher.dispatch(context, request)
    if id_ in session.running:
        fault = InvalidRequest(f"Request id {id_!r} is already running in this session")
        return error_reply(id_, fault, context.request_id)
    if len(session.running) >= session.calls_limit:
        busy = Unavailable(f"This session runs {len(session.running)} calls already; wait for one")
        return error_reply(id_, busy, context.request_id)
    session.running[id_] = task
    try:
        return await dispatcher.dispatch(context, request)
    except asyncio.CancelledError as cancelled:
        if not (cancelled.args and isinstance(cancelled.args[0], Cancellation)):
            raise
        task.uncancel()
        return None
    finally:
        del session.running[id_]
        session.last_used = time.monotonic()
