"""Tools of the "everything" server that ask the client something before they can answer."""

from typing import Any

from mcp_types import ListRootsRequest

from tests.servers.everything_call import Call, elicit, sample, text
from tests.servers.everything_tools import strings, tool

NAME = elicit("What is your name?", {"name": {"type": "string"}}, ["name"])
CONFIRM = elicit("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
STEP_1 = elicit("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
STEP_2 = elicit("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])


USER = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
PLAIN = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": PLAIN},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": PLAIN, "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


def field_text(answer: Any, field: str) -> str:
    """What the user wrote into a field of a form; nothing when the form was declined."""
    return str((answer.content or {}).get(field, ""))


@tool("test_sampling", strings("prompt"))
async def sampling(call: Call) -> Any:
    """Has the client's model answer a prompt."""
    answers = await call.ask({"sample": sample(call.arguments["prompt"])})
    return text(f"LLM response: {answers['sample'].content.text}")


async def _form(call: Call, message: str, properties: dict[str, Any], *required: str) -> Any:
    answers = await call.ask({"form": elicit(message, properties, list(required))})
    answer = answers["form"]
    return text(f"User response: action={answer.action}, content={answer.content}")


@tool("test_elicitation", strings("message"))
async def elicitation(call: Call) -> Any:
    """Asks the user for a name and an address."""
    return await _form(call, call.arguments["message"], USER, "username", "email")


@tool("test_elicitation_sep1034_defaults")
async def elicitation_sep1034_defaults(call: Call) -> Any:
    """Asks the user, with a default for every primitive type."""
    return await _form(call, "Please review the defaults", DEFAULTS)


@tool("test_elicitation_sep1330_enums")
async def elicitation_sep1330_enums(call: Call) -> Any:
    """Asks the user to choose, in each of the five ways that there are."""
    return await _form(call, "Please choose", ENUMS)


@tool("test_streaming_elicitation")
async def streaming_elicitation(call: Call) -> Any:
    """Asks the user whether to go on."""
    return await _form(call, "Shall I go on?", {"go": {"type": "boolean"}}, "go")


@tool("test_missing_capability")
async def missing_capability(call: Call) -> Any:
    """Needs the client's model."""
    answers = await call.ask({"sample": sample("Say something.")})
    return text(answers["sample"].content.text)


@tool("test_input_required_result_elicitation")
async def input_required_result_elicitation(call: Call) -> Any:
    """Greets the user by name."""
    answers = await call.ask({"user_name": NAME})
    return text(f"Hello, {field_text(answers['user_name'], 'name')}!")


@tool("test_input_required_result_sampling")
async def input_required_result_sampling(call: Call) -> Any:
    """Has the client's model answer a question."""
    answers = await call.ask({"capital_question": sample("What is the capital of France?")})
    return text(answers["capital_question"].content.text)


@tool("test_input_required_result_list_roots")
async def input_required_result_list_roots(call: Call) -> Any:
    """Lists the client's roots."""
    answers = await call.ask({"client_roots": ListRootsRequest()})
    return text(", ".join(str(root.uri) for root in answers["client_roots"].roots))


@tool("test_input_required_result_request_state")
async def input_required_result_request_state(call: Call) -> Any:
    """Asks for a confirmation, and keeps a state meanwhile."""
    answers = await call.ask({"confirm": CONFIRM}, stateful=True)
    return text(f"state-ok, {field_text(answers['confirm'], 'ok')}")


@tool("test_input_required_result_tampered_state")
async def input_required_result_tampered_state(call: Call) -> Any:
    """Asks for a confirmation, and trusts no state but its own."""
    await call.ask({"confirm": CONFIRM}, stateful=True)
    return text("The state is what it was.")


@tool("test_input_required_result_multiple_inputs")
async def input_required_result_multiple_inputs(call: Call) -> Any:
    """Asks the user, the client's model and the client, all at once."""
    questions = {
        "user_name": NAME,
        "greeting": sample("Generate a greeting", max_tokens=50),
        "client_roots": ListRootsRequest(),
    }
    answers = await call.ask(questions, stateful=True)
    roots = len(answers["client_roots"].roots)
    return text(
        f"{answers['greeting'].content.text} {field_text(answers['user_name'], 'name')} ({roots})"
    )


@tool("test_input_required_result_multi_round")
async def input_required_result_multi_round(call: Call) -> Any:
    """Asks the user for one thing after the other."""
    first = await call.ask({"step1": STEP_1}, stateful=True)
    second = await call.ask({"step2": STEP_2})
    name, color = field_text(first["step1"], "name"), field_text(second["step2"], "color")
    return text(f"{name} likes {color}.")


@tool("test_input_required_result_capabilities")
async def input_required_result_capabilities(call: Call) -> Any:
    """Asks whatever the client has declared that it can answer."""
    questions = {"name": NAME, "greeting": sample("Generate a greeting")}
    able = {key: one for key, one in questions.items() if call.can(type(one))}
    answers = await call.ask(able)
    return text(f"Answered: {sorted(answers)}")
