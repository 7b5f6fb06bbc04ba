"""The prompts and resources of the "everything" server, by the suite's names."""

import json
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from tests.servers.everything_call import Call, elicit, text
from tests.servers.everything_tools import CHANGED, PNG, embed_text, image

RESOURCES = [
    types.Resource(
        uri="test://static-text",
        name="static-text",
        description="A text",
        mime_type="text/plain",
    ),
    types.Resource(
        uri="test://static-binary",
        name="static-binary",
        description="A picture",
        mime_type="image/png",
    ),
    types.Resource(
        uri="test://watched-resource",
        name="watched-resource",
        description="A text to subscribe to",
        mime_type="text/plain",
    ),
]
TEMPLATES = [
    types.ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="template",
        description="Data by id",
        mime_type="application/json",
    )
]
TEXTS = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "This is the content of the watched resource.",
}
CONTEXT = elicit(
    "What context should the prompt use?", {"context": {"type": "string"}}, ["context"]
)


def _prompt(name: str, description: str, *arguments: str) -> types.Prompt:
    taken = [types.PromptArgument(name=one, required=True) for one in arguments]
    return types.Prompt(name=name, description=description, arguments=taken)


PROMPTS = [
    _prompt("test_simple_prompt", "One sentence"),
    _prompt("test_prompt_with_arguments", "Repeats its arguments", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "Carries a resource", "resourceUri"),
    _prompt("test_prompt_with_image", "Carries an image"),
    _prompt("test_input_required_result_prompt", "Asks for a context first"),
]


def prompts(changes: int) -> list[types.Prompt]:
    """All of them, and one more when the list was changed."""
    return [*PROMPTS, *([_prompt(CHANGED, f"Changed {changes} times.")] if changes else [])]


async def prompt(call: Call) -> Any:
    """The messages of a prompt."""
    given = call.arguments
    match call.params.name:
        case "test_simple_prompt":
            said = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            arg1, arg2 = given["arg1"], given["arg2"]
            said = [text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]
        case "test_prompt_with_embedded_resource":
            content = "Embedded resource content for testing."
            resource = embed_text(given["resourceUri"], "text/plain", content)
            said = [resource, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            said = [image(), text("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            answers = await call.ask({"user_context": CONTEXT})
            said = [text(f"Context: {answers['user_context'].content}")]
        case name:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=one) for one in said]
    )


def read(uri: str, not_found: int) -> types.ReadResourceResult:
    """What stands at a URI; an error of code `not_found` where nothing does."""
    if uri in TEXTS:
        contents: Any = types.TextResourceContents(uri=uri, mime_type="text/plain", text=TEXTS[uri])
    elif uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif uri.startswith("test://template/") and uri.endswith("/data"):
        id_ = uri.removeprefix("test://template/").removesuffix("/data")
        data = {"id": id_, "templateTest": True, "data": f"Data for ID: {id_}"}
        contents = types.TextResourceContents(
            uri=uri, mime_type="application/json", text=json.dumps(data)
        )
    else:
        raise MCPError(not_found, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


def completions(value: str) -> types.CompleteResult:
    """Words that begin like `value`."""
    words = [
        word for word in ("paris", "park", "party", "test", "testing") if word.startswith(value)
    ]
    return types.CompleteResult(completion=types.Completion(values=words, total=len(words)))
