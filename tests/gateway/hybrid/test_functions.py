"""Functions of the settings: what they take, how they are loaded, what becomes of a call."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from gateway.context import Context, Identity, Principal
from gateway.hybrid.functions import load_function, load_functions
from gateway.upstreams.function import FunctionUpstream
from gateway.upstreams.python import ActionLimits, PythonUpstream
from schemas.binding import FunctionBinding
from schemas.errors import InvalidParams, ToolgateError
from schemas.mcp.revisions import V2026_07_28
from schemas.tool import Annotations, TextContent, Tool, ToolResult
from tests.gateway.upstreams.python_calls import Keys

pytestmark = pytest.mark.anyio

SOURCE = '''
import asyncio
from dataclasses import dataclass
from typing import Annotated, Literal
from msgspec import Meta
from gateway.hybrid import Call, Failure
from schemas.tool import TextContent, ToolResult

@dataclass
class Box:
    width: int
    kind: Literal["flat", "deep"] = "flat"

def area(box: Box, times: Annotated[int, Meta(ge=1, description="How often")] = 1) -> dict:
    """The area of a box.

    In square metres."""
    return {"area": box.width**2 * times}

async def greet(name: str, call: Call) -> str:
    await asyncio.sleep(0)
    return f"{name}, {call.principal.id} {call.service}"

def untyped(a, b=[1]):
    return [a, b]

def whole():
    return ToolResult((TextContent("whole"),), is_error=True)

def crash():
    raise ValueError("secret")

def fail():
    raise Failure(404, "no such box")

def strange(a: "Nobody"): ...
def spread(*many): ...
def odd(a: asyncio.Event): return str(a)
def slow():
    import time
    time.sleep(1)
constant = 5
'''


@pytest.fixture(autouse=True)
def functions_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "made_functions.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("made_functions", None)


async def call(
    which: str, timeout_s: float = 60, schema: bytes = b"{}", **arguments: Any
) -> ToolResult:
    functions = load_functions({"f": f"made_functions:{which}"})
    python = PythonUpstream({}, Keys().once, ActionLimits(lambda _: timeout_s, threads=2, calls=2))
    upstream = FunctionUpstream(functions, python, lambda _: timeout_s)
    tool = Tool(
        "id", "box", None, "", Raw(schema), None, Annotations(), FunctionBinding("f"), "", "digest"
    )
    context = Context(Identity(Principal("ada", "tenant")), V2026_07_28, "r-1")
    return await upstream.call(tool, None, arguments, context)


def text(result: ToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def test_annotations_are_the_input_schema() -> None:
    function = load_function("made_functions:area")
    assert function.description == "The area of a box.\n\nIn square metres."
    assert function.schema == {
        "type": "object",
        "properties": {
            "box": {"$ref": "#/$defs/Box"},
            "times": {"type": "integer", "minimum": 1, "description": "How often", "default": 1},
        },
        "required": ["box"],
        "additionalProperties": False,
        "$defs": {
            "Box": {
                "title": "Box",
                "type": "object",
                "properties": {
                    "width": {"type": "integer"},
                    "kind": {"enum": ["deep", "flat"], "default": "flat"},
                },
                "required": ["width"],
            }
        },
    }
    assert load_function("made_functions:greet").schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert load_function("made_functions:odd").schema is None


async def test_arguments_are_converted_to_the_annotations() -> None:
    assert text(await call("area", box={"width": 3}, times=2)) == '{"area":18}'
    assert text(await call("greet", name="Rex")) == "Rex, ada box"
    assert text(await call("untyped", a={"x": 1})) == '[{"x":1},[1]]'
    assert text(await call("odd", a=5)) == "5"
    with pytest.raises(InvalidParams, match=r"\$\.box\.width"):
        await call("area", box={"width": "x"})


@pytest.mark.parametrize("which", ["area", "odd", "untyped"])
async def test_a_function_that_does_not_fit_is_the_fault_of_the_tool(which: str) -> None:
    missing = await call(which)
    needed = "box" if which == "area" else "a"
    assert missing.is_error
    assert text(missing) == f"box cannot be called: its function needs {needed}"
    arguments = {needed: {"width": 3}, "often": 2}
    schema = b'{"properties": {"often": {}}}'
    beyond = await call(which, schema=schema, **arguments)
    assert beyond.is_error
    assert text(beyond) == "box cannot be called: its function does not take often"


async def test_results_and_exceptions_of_functions_become_tool_results() -> None:
    assert await call("whole") == ToolResult((TextContent("whole"),), is_error=True)
    crashed = await call("crash")
    assert (crashed.is_error, text(crashed)) == (
        True,
        "box failed; the reason is in the log of the gateway",
    )
    failed = await call("fail")
    assert (failed.is_error, text(failed)) == (True, "HTTP 404: no such box")
    late = await call("slow", timeout_s=0.05)
    assert (late.is_error, "did not answer within" in text(late)) == (True, True)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("made_functions:nobody", "the module made_functions has no function nobody"),
        ("made_functions:constant", "is not a function: constant"),
        ("made_functions:strange", "its signature cannot be read: name 'Nobody'"),
        ("made_functions:spread", "arguments come by name, and *many takes none"),
        ("nowhere_at_all:f", "there is no module nowhere_at_all; looked for in"),
    ],
    ids=["missing", "constant", "annotation", "spread", "module"],
)
def test_load_errors_name_the_setting(target: str, told: str) -> None:
    with pytest.raises(ToolgateError) as failed:
        load_functions({"good": "made_functions:area", "bad": target})
    assert str(failed.value).startswith("functions.bad: ")
    assert told in str(failed.value)


def test_loaded_functions_are_reused() -> None:
    first = load_functions({"f": "made_functions:area"})
    again = load_functions({"f": "made_functions:area", "g": "made_functions:greet"}, first)
    assert again["f"] is first["f"]
    assert load_functions({"f": "made_functions:greet"}, first)["f"] is not first["f"]
