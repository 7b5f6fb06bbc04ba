"""What a function in Python returned, or raised, as a result."""

import asyncio
from typing import Any

import pytest
from msgspec import UNSET, Raw, Struct

from gateway import hybrid
from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.hybrid.python_services import Failure, Handler
from gateway.interfaces import RepeatableCommand
from gateway.upstreams.python import tool_result
from schemas.binding import PythonBinding
from schemas.errors import InternalError
from schemas.hybrid import Status
from schemas.mcp.revisions import PORTAL
from schemas.tool import TextContent, ToolResult
from tests.gateway.upstreams.python_calls import ADA, ID, Keys, call_arguments, tool, upstream_of

pytestmark = pytest.mark.anyio


class Rule(Struct):
    name: str


async def call(function: Any, arguments: Any = None, keys: Keys | None = None, **said: Any) -> Any:
    """The result of `function`; `said` is for its binding, or the letter (`idempotency_key`)."""
    key = said.pop("idempotency_key", None)

    async def run(data: Any, of: hybrid.Call) -> Any:
        return function(data, of)

    upstream = upstream_of(Handler(run, takes_call=True, is_async=True), (keys or Keys()).once)
    call_headers = CallHeaders(idempotency_key=key, correlation_id="c-1")
    context = Context(Identity(ADA, verified=True), PORTAL, "r-1", headers=call_headers)
    return await upstream.call(tool(PythonBinding(ID, **said)), None, arguments, context)


@pytest.mark.parametrize(
    ("value", "text", "structure"),
    [
        ("OK", "OK", UNSET),
        ("", "", UNSET),
        ("{not json", "{not json", UNSET),
        ('{"a": 1.0}', '{"a": 1.0}', Raw(b'{"a": 1.0}')),
        ("[" * 5000, "[" * 5000, UNSET),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}', UNSET),  # readers differ on what it says
        ("5", "5", Raw(b"5")),
        ({"a": [1, None]}, '{"a":[1,null]}', Raw(b'{"a":[1,null]}')),
        (2**53 + 1, "9007199254740993", Raw(b"9007199254740993")),
        ([], "[]", Raw(b"[]")),
        (False, "false", Raw(b"false")),
        (Rule("x"), '{"name":"x"}', Raw(b'{"name":"x"}')),
        (Raw(b'{"a": 1}'), '{"a": 1}', Raw(b'{"a": 1}')),
    ],
    ids=lambda value: str(value)[:20],
)
def test_return_values_become_tool_results(value: Any, text: str, structure: Any) -> None:
    result = tool_result(value)
    assert result.content == (TextContent(text),)
    assert result.structured_content == structure
    assert not result.is_error


def test_nothing_is_nothing() -> None:
    assert tool_result(None) == ToolResult(())


@pytest.mark.parametrize(
    ("failure", "text", "structure"),
    [
        (
            Failure(400, {"statusCode": 401, "code": "ERR10001", "message": "AUTH_TOKEN_EXPIRED"}),
            "HTTP 400 ERR10001 AUTH_TOKEN_EXPIRED",
            b'{"status":400,"body":{"statusCode":401,"code":"ERR10001","message":"AUTH_TOKEN_EXPIRED"}}',
        ),
        (
            Failure(404, Status(404, "ERR11637", "OBJECT_NOT_FOUND", 'No "x"')),
            'HTTP 404 ERR11637 OBJECT_NOT_FOUND: No "x"',
            (
                b'{"status":404,"body":{"statusCode":404,"code":"ERR11637",'
                b'"message":"OBJECT_NOT_FOUND","description":"No \\"x\\"","severity":"ERROR"}}'
            ),
        ),
        (Failure(503, "Try later"), "HTTP 503: Try later", b'{"status":503,"body":"Try later"}'),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_a_failure_is_an_error_that_a_model_can_read(
    failure: Failure, text: str, structure: bytes
) -> None:
    def fails(*_: Any) -> None:
        raise failure

    expected = ToolResult((TextContent(text),), Raw(structure), is_error=True)
    assert await call(fails) == expected
    assert await call(fails, idempotency_key="k") == expected


async def test_actions_get_data_and_call() -> None:
    def list_arguments(data: Any, of: hybrid.Call) -> Any:
        return [data, of.principal.id, of.request_id, of.service, of.correlation_id]

    result = await call(list_arguments, {"x": 1})
    assert result.structured_content == Raw(f'[{{"x":1}},"ada","r-1","{ID}","c-1"]'.encode())
    whole = await call(list_arguments, {"data": [5]}, argument="data")
    assert bytes(whole.structured_content).startswith(b"[[5],")


async def test_a_command_with_a_key_is_done_by_the_keeper_of_keys() -> None:
    keys = Keys()
    await call(lambda *_: 1, {"b": 1, "a": {"d": 1, "c": 2}}, keys, idempotency_key="k")
    assert keys.commands == [RepeatableCommand(ADA, ID, "k", b'{"a":{"c":2,"d":1},"b":1}')]
    await call(lambda *_: 1, None, keys, idempotency_key="k", side="command")
    assert keys.commands[1].body == b"null"


async def test_nothing_else_is() -> None:
    keys = Keys()
    await call(lambda *_: 1, {}, keys)
    await call(lambda *_: 1, {}, keys, idempotency_key="k", side="query")
    assert keys.commands == []


async def test_a_crash_is_a_bug_but_with_a_key_a_result(caplog: pytest.LogCaptureFixture) -> None:
    def crashes(*_: Any) -> None:
        raise RuntimeError("secret")

    with pytest.raises(InternalError):
        await call(crashes)
    result = await call(crashes, idempotency_key="k")
    assert result.is_error
    assert b"ERR10010" in bytes(result.structured_content)
    assert "secret" not in str(result)
    assert [record.message for record in caplog.records] == ["action_crashed"] * 2


async def test_unserializable_results_are_crashes() -> None:
    with pytest.raises(InternalError):
        await call(lambda *_: object())
    assert (await call(lambda *_: object(), idempotency_key="k")).is_error


@pytest.mark.parametrize(("source", "id_"), [("rules", "a/b/c/1"), ("others", ID)])
async def test_a_service_that_runs_elsewhere_only_says_so(source: str, id_: str) -> None:
    upstream = upstream_of(Handler(print, takes_call=False, is_async=False))
    context = Context(Identity(ADA), PORTAL, "r-1")
    result = await upstream.call(tool(PythonBinding(id_), source), None, {}, context)
    assert result.is_error
    assert "is not loaded in this process" in result.content[0].text


async def test_a_timeout_of_its_own_is_a_bug_of_the_action() -> None:
    async def gives_up(_data: Any) -> None:
        raise TimeoutError

    upstream = upstream_of(Handler(gives_up, takes_call=False, is_async=True))
    with pytest.raises(InternalError):
        await upstream.call(*call_arguments(side="query"))


@pytest.mark.parametrize("error", [RecursionError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("side", ["query", "command"])
@pytest.mark.parametrize("is_async", [True, False])
async def test_any_exception_of_an_action_is_a_bug(
    is_async: bool, side: str, error: type[BaseException]
) -> None:
    def raises(_data: Any) -> None:
        raise error

    async def raises_async(_data: Any) -> None:
        raise error

    keys = Keys()
    upstream = upstream_of(
        Handler(raises_async if is_async else raises, False, is_async), keys.once
    )
    with pytest.raises(InternalError):
        await upstream.call(*call_arguments(side=side))
    if side == "command":
        crashed = await upstream.call(*call_arguments("k", side=side))
        assert b"ERR10010" in bytes(crashed.structured_content)
        assert keys.kept == [crashed]


async def test_unverified_callers_share_no_keys_with_their_namesake() -> None:
    keys = Keys()
    upstream = upstream_of(Handler(lambda _data: 1, False, False), keys.once)
    context = Context(Identity(ADA), PORTAL, "r-1", headers=CallHeaders(idempotency_key="k"))
    await upstream.call(tool(PythonBinding(ID)), None, {}, context)
    assert keys.commands[0].principal == Principal("", "tenant")
