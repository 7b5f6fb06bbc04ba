"""A text that is cut, and what goes on from there."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gateway.context import Context, Identity, Principal
from gateway.interfaces import Counter, Verdict
from gateway.methods.result_processing import NOTHING_ASKED, AnswerProcessing, ReservedArguments
from gateway.state.memory import MemoryLog
from gateway.state.stored_answers import StoredAnswers
from schemas.binding import McpBinding, OpenAPIBinding
from schemas.errors import Unavailable
from schemas.mcp.revisions import JSON_RPC, V2025_11_25, Revision
from schemas.tool import Annotations, TextContent, Tool, ToolResult
from tests.gateway.keeping import ROOMY, answering

pytestmark = pytest.mark.anyio

TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('é€😀\n ,{}[]"\\'), max_size=400
)


def context(who: str = "ann", revision: Revision = V2025_11_25) -> Context:
    return Context(Identity(Principal(who, "t")), revision, "r-1")


def tool(binding: Any = None, schema: bytes = b'{"properties": {}}') -> Tool:
    binding = binding or OpenAPIBinding("GET", "/")
    return Tool("id", "t", None, "", Raw(schema), None, Annotations(), binding, "s", "digest")


def handle_in(result: ToolResult) -> str | None:
    if result.meta is UNSET or "toolgate/continue" not in result.meta:
        return None
    return str(result.meta["toolgate/continue"]["arguments"]["_continue"])


def text_of(result: ToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def parts(fits: AnswerProcessing, result: ToolResult) -> list[str]:
    result = await fits.fit(result, "t", "id", context())
    found = [text_of(result)]
    while handle := handle_in(result):
        result = await fits.continue_answer(handle, "t", "id", context())
        found.append(text_of(result))
    return found


@given(text=TEXT, tokens=st.integers(1, 20))
@settings(deadline=None)  # a loaded machine is slow, not wrong
async def test_the_parts_of_any_text_are_the_whole(text: str, tokens: int) -> None:
    found = await parts(answering(tokens=tokens), ToolResult((TextContent(text),)))
    assert "".join(found) == text
    assert all(len(part) <= tokens * 4 for part in found)


@given(value=st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=5))
@settings(deadline=None)
async def test_the_parts_of_any_json_are_the_whole(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    result = ToolResult((TextContent(text),), Raw(text.encode()))
    assert json.loads("".join(await parts(answering(tokens=5), result))) == value


async def test_a_handle_is_useless_to_other_callers() -> None:
    fits = answering(tokens=5)
    cut = await fits.fit(ToolResult((TextContent("word " * 100),)), "t", "id", context())
    handle = handle_in(cut)
    assert handle is not None
    assert (await fits.continue_answer(handle, "t", "id", context("bob"))).is_error
    assert (await fits.continue_answer(handle, "t", "another", context())).is_error
    assert not (await fits.continue_answer(handle, "t", "id", context())).is_error


async def test_a_place_inside_a_character_is_none() -> None:
    fits = answering(tokens=5)
    cut = await fits.fit(ToolResult((TextContent("é" * 100),)), "t", "id", context())
    handle = (handle_in(cut) or "").partition(".")[0]
    assert (await fits.continue_answer(f"{handle}.1", "t", "id", context())).is_error
    assert not (await fits.continue_answer(f"{handle}.2", "t", "id", context())).is_error


async def test_plain_json_rpc_gets_all_of_the_rest() -> None:
    fits, text = answering(tokens=5), "word " * 100
    cut = await fits.fit(ToolResult((TextContent(text),)), "t", "id", context())
    there = context(revision=JSON_RPC)
    rest = await fits.continue_answer(handle_in(cut) or "", "t", "id", there)
    assert text_of(cut) + text_of(rest) == text


class Away(Counter):
    """One whose store does not answer: a real one cannot be told to fail between two calls."""

    async def hit(self, key: str, limit: int, window_s: float) -> Verdict:
        raise Unavailable("The state cannot be reached")


async def test_an_unstorable_answer_is_cut_with_a_notice() -> None:
    fits = answering(StoredAnswers(MemoryLog(100, 900, 10_000), Away(), ROOMY), tokens=5)
    cut = await fits.fit(ToolResult((TextContent("word " * 100),)), "t", "id", context())
    assert handle_in(cut) is None
    [_, notice] = cut.content
    assert isinstance(notice, TextContent)
    assert "could not be kept: The state cannot be reached" in notice.text


def test_reserved_arguments_are_taken_out() -> None:
    asked, rest = answering().split_arguments(tool(), {"a": 1, "_fields": "x.y", "_continue": "h"})
    assert (asked, rest) == (ReservedArguments((("x", "y"),), "h"), {"a": 1})


def test_a_tool_keeps_arguments_of_its_own() -> None:
    own = tool(schema=b'{"properties": {"_fields": {}}}')
    arguments = {"_fields": 7, "_continue": "h"}
    assert answering().split_arguments(own, arguments) == (
        ReservedArguments((), "h"),
        {"_fields": 7},
    )


def test_tools_of_mcp_servers_get_unchanged_arguments() -> None:
    arguments = {"_fields": 7}
    assert answering().split_arguments(tool(McpBinding("x")), arguments) == (
        NOTHING_ASKED,
        arguments,
    )
