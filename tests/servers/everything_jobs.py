"""Tools of the "everything" server whose calls may run as tasks."""

from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from tests.servers.everything_call import Call, elicit, text
from tests.servers.everything_questions import NAME, field_text
from tests.servers.everything_tools import PAUSE_S, embed_text, error_result, strings, tool

CONFIRM = elicit("Shall it be deleted?", {"confirm": {"type": "boolean"}}, ["confirm"])
COLOR = elicit("What is your favorite color?", {"name": {"type": "string"}}, ["name"])
SECONDS = {
    "type": "object",
    "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}},
    "required": ["seconds"],
}


@tool("greet", strings("name"))
async def greet(call: Call) -> Any:
    """Greets at once."""
    return text(f"Hello, {call.arguments['name']}!")


@tool("slow_compute", SECONDS, task="optional")
async def slow_compute(call: Call) -> Any:
    """Takes as many seconds as it is told to."""
    await anyio.sleep(call.arguments["seconds"])
    return text(f"Computed {call.arguments.get('label', 'something')}.")


@tool("failing_job", task="required")
async def failing_job(_call: Call) -> Any:
    """Always fails."""
    await anyio.sleep(PAUSE_S)
    return error_result("This job intentionally fails")


@tool("protocol_error_job", task="optional")
async def protocol_error_job(_call: Call) -> Any:
    """Ends with an error of the protocol."""
    await anyio.sleep(PAUSE_S)
    raise MCPError(types.INTERNAL_ERROR, "This job intentionally breaks", {"step": 1})


@tool("confirm_delete", strings("filename"), task="optional")
async def confirm_delete(call: Call) -> Any:
    """Asks the user before it deletes."""
    answers = await call.ask({"confirm": CONFIRM})
    confirmed = (answers["confirm"].content or {}).get("confirm")
    return text(f"{call.arguments['filename']} was {'deleted' if confirmed else 'kept'}.")


@tool("multi_input", task="optional")
async def multi_input(call: Call) -> Any:
    """Asks the user for two things at once."""
    answers = await call.ask({"name": NAME, "color": COLOR})
    return text(", ".join(field_text(answers[key], "name") for key in ("name", "color")))


@tool("linking_job", task="optional")
async def linking_job(_call: Call) -> Any:
    """Hands over a resource."""
    return embed_text("test://static-text", "text/plain", "A resource of a job.")


@tool("test_tool_with_task", task="required", first={"user_name": NAME})
async def tool_with_task(call: Call) -> Any:
    """Asks for a name, and then greets in its own time."""
    answers = await call.ask({"user_name": NAME})
    await anyio.sleep(PAUSE_S)
    return text(f"Hello, {field_text(answers['user_name'], 'name')}!")
