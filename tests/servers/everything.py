"""A server with everything that the official conformance suite asks for, in both eras.

`python -m tests.servers.everything` serves it at `/mcp` and prints the URL. Built with the official
Python SDK; `--era` makes it one that speaks only the revisions with `initialize` (handshake), or
only 2026-07-28 (stateless).
"""

import asyncio
import logging
import socket
import warnings
from contextlib import AbstractAsyncContextManager
from typing import Any

import click
import mcp_types as types
import uvicorn
from mcp.server.context import CallNext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.types import ASGIApp

from tests.servers import everything_jobs, everything_questions  # noqa: F401 - register tools
from tests.servers.everything_call import Audience, Call, Context, InputNeeded, session_key
from tests.servers.everything_items import RESOURCES, TEMPLATES, completions, prompt, prompts, read
from tests.servers.everything_tasks import EXTENSION, Tasks, declaration_error, declares_tasks
from tests.servers.everything_tools import CHANGED, TOOLS, Tool, changed_tool, error_result
from tests.servers.everything_wire import ERAS, Era, Events, OneEra

RETRY_MS = 200


class Everything(Server[Any]):
    """The SDK's server, which also promises to tell of changes to clients of `initialize`, and
    may have tasks."""

    tasks: Tasks | None = None

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(True, True, True))

    def get_capabilities(self, *args: Any, **named: Any) -> types.ServerCapabilities:
        can = super().get_capabilities(*args, **named)
        if self.tasks is None:
            return can
        if named.get("protocol_version") in MODERN_PROTOCOL_VERSIONS:
            return can.model_copy(update={"extensions": {EXTENSION: {}}})
        calls = types.TasksToolsCapability(call=types.TasksCallCapability())
        requests = types.ServerTasksRequestsCapability(tools=calls)
        tasks = types.ServerTasksCapability(cancel=types.TasksCancelCapability(), requests=requests)
        return can.model_copy(update={"tasks": tasks})


class Handlers:
    """One method for each method of the protocol."""

    def __init__(self, *, tasks: bool) -> None:
        self.audience = Audience()
        self.tasks = Tasks(self.audience) if tasks else None

    @property
    def tools(self) -> dict[str, Tool]:
        more = {CHANGED: changed_tool(self.audience.changes)} if self.audience.changes else {}
        known = {**TOOLS, **more}
        if self.tasks is not None:
            return known
        return {name: one for name, one in known.items() if one.task is None}

    async def list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[one.definition() for one in self.tools.values()])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> Any:
        if params.name not in self.tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        tool = self.tools[params.name]
        call = Call(context, params, self.audience)
        assert tool.run is not None
        try:
            if tool.task is not None and self.tasks is not None and call.stateless:
                if declares_tasks(context):
                    return await self.tasks.begin(tool, call)
                if tool.task == "required":
                    raise declaration_error()
            elif tool.task == "required":
                raise MCPError(types.METHOD_NOT_FOUND, "This tool runs as a task only")
            result = await tool.run(call)
        except InputNeeded as needed:
            return needed.result
        except KeyError as missing:
            return error_result(f"The argument {missing} is missing")
        except MCPError as refused:
            if call.stateless or tool.task is not None:
                raise
            return error_result(f"The client refused: {refused.message}")
        if isinstance(result, types.CallToolResult):
            return result
        return types.CallToolResult(content=result if isinstance(result, list) else [result])

    async def list_prompts(self, _context: Context, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=prompts(self.audience.changes))

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> Any:
        try:
            return await prompt(Call(context, params, self.audience))
        except InputNeeded as needed:
            return needed.result
        except KeyError as missing:
            raise MCPError(types.INVALID_PARAMS, f"The argument {missing} is missing") from None

    async def list_resources(self, _context: Context, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=RESOURCES)

    async def list_templates(
        self, _context: Context, _params: Any
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return read(str(params.uri), types.INVALID_PARAMS if modern else -32002)

    async def subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        key = session_key(context)
        if key is not None:
            self.audience.subscribers.setdefault(str(params.uri), set()).add(key)
        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self.audience.subscribers.get(str(params.uri), set()).discard(session_key(context) or "")
        return types.EmptyResult()

    async def set_level(
        self, context: Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        key = session_key(context)
        if key is not None:
            self.audience.levels[key] = params.level
        return types.EmptyResult()

    async def complete(
        self, _context: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        return completions(params.argument.value)

    async def noticing(self, context: Context, call_next: CallNext) -> Any:
        """Middleware that makes the audience know every session."""
        self.audience.notice(context)
        return await call_next(context)


def server(*, tasks: bool = True) -> Server[Any]:
    handlers = Handlers(tasks=tasks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)  # deprecated is not removed
        made = Everything(
            "everything",
            version="1.0.0",
            instructions="Call what you like.",
            on_list_tools=handlers.list_tools,
            on_call_tool=handlers.call_tool,
            on_list_prompts=handlers.list_prompts,
            on_get_prompt=handlers.get_prompt,
            on_list_resources=handlers.list_resources,
            on_list_resource_templates=handlers.list_templates,
            on_read_resource=handlers.read_resource,
            on_subscribe_resource=handlers.subscribe,
            on_unsubscribe_resource=handlers.unsubscribe,
            on_set_logging_level=handlers.set_level,
            on_completion=handlers.complete,
            on_subscriptions_listen=ListenHandler(handlers.audience.bus),
        )
    made.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=None)
    )
    made.middleware.append(handlers.noticing)
    if handlers.tasks is not None:
        made.tasks = handlers.tasks
        handlers.tasks.serve(made)
    return made


def everything(
    era: Era = "both", *, tasks: bool = True
) -> tuple[ASGIApp, AbstractAsyncContextManager[Any]]:
    """The app, and what has to be entered while it serves."""
    made = server(tasks=tasks)
    app: Starlette = made.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
    lifespan = app.router.lifespan_context(app)
    return (app if era == "both" else OneEra(app, era)), lifespan


async def _serve(port: int, era: Era) -> None:
    app, lifespan = everything(era)
    listener = socket.create_server(("127.0.0.1", port))
    # httptools leaves spaces at the end of a header's value, which the SDK then takes for its own
    config = uvicorn.Config(
        app, http="h11", lifespan="off", log_level="warning", timeout_graceful_shutdown=1
    )
    async with lifespan:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


@click.command()
@click.option("--port", default=0, help="0 takes a free one.")
@click.option("--era", type=click.Choice(ERAS), default="both", show_default=True)
def main(port: int, era: Era) -> None:
    """Serve everything at /mcp of a loopback port."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # what clients do wrong is the point here
    asyncio.run(_serve(port, era))


if __name__ == "__main__":
    main(prog_name="python -m tests.servers.everything")
