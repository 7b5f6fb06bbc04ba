"""The tools of the "everything" server: those that the official conformance suite calls by name."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

from tests.servers.everything_call import Call, text

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="
PAUSE_S = 0.05  # the suite wants to see messages arrive one after the other
CHANGED = "test_changed"  # name of what the lists gain when they are changed

Run = Callable[[Call], Awaitable[Any]]
TaskSupport = Literal["optional", "required"]
TOOLS: dict[str, "Tool"] = {}


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    run: Run | None = None
    task: TaskSupport | None = None  # whether its calls may, or have to, run as tasks
    first: Mapping[str, types.InputRequest] = field(default_factory=dict)  # asked before a task

    def definition(self) -> types.Tool:
        execution = types.ToolExecution(task_support=self.task) if self.task else None
        return types.Tool(
            name=self.name,
            description=self.description,
            input_schema=self.schema,
            execution=execution,
        )


def tool(
    name: str,
    schema: dict[str, Any] | None = None,
    task: TaskSupport | None = None,
    first: Mapping[str, types.InputRequest] | None = None,
) -> Callable[[Run], Run]:
    """Make a tool of a function, with its docstring; without a schema it takes no arguments."""

    def register(run: Run) -> Run:
        assert run.__doc__ is not None
        made = {"type": "object", "properties": {}} if schema is None else schema
        TOOLS[name] = Tool(name, run.__doc__, made, run, task, first or {})
        return run

    return register


def strings(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


def image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def embed_text(uri: str, mime_type: str, value: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=value)
    return types.EmbeddedResource(resource=contents)


@tool("test_simple_text")
async def simple_text(_call: Call) -> Any:
    """Says one sentence."""
    return text("This is a simple text response for testing.")


@tool("test_image_content")
async def image_content(_call: Call) -> Any:
    """Shows one red pixel."""
    return image()


@tool("test_audio_content")
async def audio_content(_call: Call) -> Any:
    """Plays two samples of silence."""
    return types.AudioContent(data=WAV, mime_type="audio/wav")


@tool("test_embedded_resource")
async def embedded_resource(_call: Call) -> Any:
    """Hands over a resource."""
    said = "This is an embedded resource content."
    return embed_text("test://embedded-resource", "text/plain", said)


@tool("test_multiple_content_types")
async def multiple_content_types(_call: Call) -> Any:
    """Answers with a text, an image and a resource."""
    data = '{"test":"data","value":123}'
    resource = embed_text("test://mixed-content-resource", "application/json", data)
    return [text("Multiple content types test:"), image(), resource]


@tool("test_error_handling")
async def error_handling(_call: Call) -> Any:
    """Always fails."""
    return error_result("This tool intentionally returns an error for testing")


@tool("test_tool_with_progress")
async def tool_with_progress(call: Call) -> Any:
    """Reports progress three times."""
    for done in (0, 50, 100):
        await call.context.session.report_progress(done, 100)
        await anyio.sleep(PAUSE_S)
    return text("Progress was reported.")


@tool("test_tool_with_logging")
async def tool_with_logging(call: Call) -> Any:
    """Logs three messages at level info."""
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log("info", said)
        await anyio.sleep(PAUSE_S)
    return text("Messages were logged.")


@tool("test_logging_tool")
async def logging_tool(call: Call) -> Any:
    """Logs one message at level info."""
    await call.log("info", "Logged by test_logging_tool")
    return text("A message was logged.")


@tool("test_reconnection")
async def reconnection(call: Call) -> Any:
    """Closes its stream before it answers, so that the client has to come back."""
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
        await anyio.sleep(2 * PAUSE_S)
    return text("The answer after the stream was closed.")


@tool("test_trigger_tool_change")
async def trigger_tool_change(call: Call) -> Any:
    """Adds a tool, or changes the one that it added."""
    call.audience.changes += 1
    await call.audience.tell(ToolsListChanged())
    return text("The list of tools has changed.")


@tool("test_trigger_prompt_change")
async def trigger_prompt_change(call: Call) -> Any:
    """Adds a prompt, or changes the one that it added."""
    call.audience.changes += 1
    await call.audience.tell(PromptsListChanged())
    return text("The list of prompts has changed.")


@tool("test_trigger_resource_update", strings("uri"))
async def trigger_resource_update(call: Call) -> Any:
    """Tells those who subscribed to a resource that it has changed."""
    uri = call.arguments["uri"]
    await call.audience.tell(ResourceUpdated(uri), call.audience.subscribers.get(uri, set()))
    return text("The resource has changed.")


@tool(
    "json_schema_2020_12_tool",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema_2020_12_tool(call: Call) -> Any:
    """Takes arguments whose schema needs JSON Schema 2020-12."""
    return text(f"Called with {sorted(call.arguments)}")


@tool(
    "test_x_mcp_header",
    {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "query": {"type": "string"},
        },
        "required": ["region"],
    },
)
async def x_mcp_header(call: Call) -> Any:
    """Takes an argument that clients repeat in a header."""
    return text(f"Region {call.arguments['region']}")


def error_result(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[text(message)], is_error=True)


def changed_tool(count: int) -> Tool:
    """The tool that the list gains when it is changed."""

    async def run(_: Call) -> Any:
        return text("I am new here.")

    return Tool(CHANGED, f"Changed {count} times.", run=run)
