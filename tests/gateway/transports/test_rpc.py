"""`POST /rpc` as a JSON-RPC client uses it."""

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.fixtures_gateway import Client, Recorder
from tests.gateway.shared import anyio_backend, client, service

__all__ = ["anyio_backend", "client", "service"]

pytestmark = pytest.mark.anyio


def request(method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "method": method, "id": id_}
    return body if params is None else {**body, "params": params}


async def test_a_tool_is_called_by_its_name_and_answers_with_its_data(
    client: Client, service: Recorder
) -> None:
    answer = await client.rpc(request("getPet", {"id": 7}))
    assert answer["result"]["heard"]["path"] == "/pets/7"
    assert answer["id"] == 1
    assert [r["method"] for r in service.requests] == ["GET"]


async def test_tools_call_answers_as_mcp_does(client: Client) -> None:
    answer = await client.rpc(request("tools/call", {"name": "getPet", "arguments": {"id": 7}}))
    assert answer["result"]["content"][0]["type"] == "text"
    assert answer["result"]["structuredContent"]["heard"]["path"] == "/pets/7"


async def test_tools_are_listed(client: Client) -> None:
    answer = await client.rpc(request("tools/list"))
    names = [tool["name"] for tool in answer["result"]["tools"]]
    assert names == ["createPet", "deletePet", "getPet", "listPets", "slow"]


async def test_a_batch_answers_in_order_and_each_member_fails_alone(client: Client) -> None:
    answers = await client.rpc(
        [
            request("getPet", {"id": 1}, "a"),
            {"jsonrpc": "2.0", "method": "getPet", "params": {"id": 2}},  # a notification
            request("getPet", {"id": "no number"}, 2),
            17,
            request("nobody/knows", None, 3),
            request("getPet", {"id": 3}, None),
        ]
    )
    assert [a["id"] for a in answers] == ["a", 2, None, 3, None]
    assert [a.get("error", {}).get("code") for a in answers] == [
        None, -32602, -32600, -32601, None,
    ]  # fmt: skip
    assert answers[-1]["result"]["heard"]["path"] == "/pets/3"


async def test_a_batch_of_notifications_says_nothing(client: Client, service: Recorder) -> None:
    status, answer, _ = await client.post(
        "/rpc", [{"jsonrpc": "2.0", "method": "getPet", "params": {"id": 2}}]
    )
    assert (status, answer) == (204, None)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'"text"', -32600),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "method": "x", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "getPet", "params": 5, "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "getPet", "params": [7], "id": 1}', -32602),
        (b'{"jsonrpc": "2.0", "result": 1, "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "initialize", "id": 1}', -32601),
        (b"[" * 5000, -32700),
    ],
)
async def test_a_bad_body_is_answered_with_the_code_of_the_specification(
    client: Client, body: bytes, code: int
) -> None:
    status, answer, headers = await client.post("/rpc", body)
    assert status == 200
    assert answer["error"]["code"] == code
    assert answer["error"]["data"]["requestId"] == headers["x-request-id"]


async def test_a_failing_tool_is_an_error_with_the_answer_of_the_service(client: Client) -> None:
    answer = await client.rpc(request("getPet", {"id": 404}))
    assert answer["error"]["code"] == 1500
    assert answer["error"]["message"] == "HTTP 404 Not Found"
    assert answer["error"]["data"]["status"] == 404
    assert answer["error"]["data"]["body"]["heard"]["path"] == "/pets/404"


async def test_wrong_arguments_never_reach_the_service(client: Client, service: Recorder) -> None:
    answer = await client.rpc(request("createPet", {"nmae": "Rex", "age": -1}))
    errors = {e["argument"]: e["message"] for e in answer["error"]["data"]["errors"]}
    assert errors["name"] == "is required"
    assert errors["nmae"] == "is not known; did you mean 'name'?"
    assert "minimum" in errors["age"]
    assert service.requests == []


@pytest.mark.parametrize("depth", [100, 500, 900])
async def test_deep_arguments_are_the_clients_mistake(
    client: Client, service: Recorder, depth: int
) -> None:
    deep = b'{"name":' * depth + b"1" + b"}" * depth
    body = b'{"jsonrpc":"2.0","id":1,"method":"createPet","params":' + deep + b"}"
    _, answer, _ = await client.post("/rpc", body)
    assert answer["error"]["code"] in {-32602, -32700}
    assert service.requests == []


async def test_a_batch_with_too_many_members_is_refused_unread(
    client: Client,
) -> None:
    _, answer, _ = await client.post("/rpc", b"[" + b"1," * 200_000 + b"1]")
    assert answer["error"]["code"] == -32600
    assert answer["error"]["data"]["limit"] == 1000


async def test_rpc_discover_describes_every_tool_as_a_method(client: Client) -> None:
    document = (await client.rpc(request("rpc.discover")))["result"]
    methods = {method["name"]: method for method in document["methods"]}
    assert document["openrpc"].startswith("1.")
    assert {"tools/list", "tools/call", "rpc.discover", "createPet"} <= methods.keys()
    assert [p["name"] for p in methods["createPet"]["params"]] == ["name", "age"]
    assert methods["createPet"]["params"][0]["required"] is True


async def test_the_http_request_itself_can_be_refused(client: Client) -> None:
    async with client.http.put(client.url + "/rpc") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, POST"
    headers = {"Content-Type": "text/plain"}
    async with client.http.post(client.url + "/rpc", data=b"{}", headers=headers) as response:
        assert response.status == 415
    status, answer, _ = await client.post("/rpc", b" " * 5_000_000)
    assert status == 413
    assert "server.body_limit_bytes" in answer["error"]["message"]


async def test_a_toolset_is_not_narrowed_to_here(client: Client) -> None:
    for body in (request("tools/list"), [request("tools/list")]):
        status, answer, _ = await client.post("/rpc?scope=two", body)
        assert (status, answer["error"]["code"]) == (400, -32600)
        assert answer["error"]["message"].endswith("the tools of a toolset are at /mcp/two")
    asked = {"scope": "two", "cmd": json.dumps(request("tools/list"))}
    async with client.http.get(client.url + "/rpc", params=asked) as response:
        assert response.status == 400
    parts = {"host": "h", "service": "s", "action": "a", "version": "1", "scope": "two"}
    async with client.http.get(client.url + "/rpc", params=parts) as response:
        assert "toolset" not in await response.text()  # it belongs to the data of the payload


async def test_a_client_that_leaves_cancels_the_call_upstream(
    client: Client, service: Recorder
) -> None:

    leaving = asyncio.create_task(client.rpc(request("slow")))
    async with asyncio.timeout(30):
        await service.arrived.wait()
        leaving.cancel()
        await service.gone.wait()


async def test_an_unknown_path_is_refused_with_the_endpoints(client: Client) -> None:
    status, answer, headers = await client.post("/nothing", request("x"))
    assert (status, answer["error"]["code"]) == (404, -32600)
    assert answer["error"]["data"]["requestId"] == headers["x-request-id"]
    async with client.http.get(client.url + "/") as index:
        assert (await index.json())["endpoints"]["jsonrpc"] == "/rpc"


async def test_a_misspelled_method_is_refused_with_suggestions(client: Client) -> None:
    """A method that is no tool is refused with similar names (mending 43)."""
    _, answer, _ = await client.post("/rpc", request("getPett", {"id": 1}))
    assert answer["error"]["code"] == -32601
    assert answer["error"]["message"].startswith("Method not found: getPett; did you mean getPet")
    _, answer, _ = await client.post("/rpc", request("xyzzy"))
    assert answer["error"]["message"] == "Method not found: xyzzy"


async def test_a_bug_of_ours_has_a_request_id_and_shows_nothing_else(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_secret(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("gateway.transports.jsonrpc_http.read", raise_secret)
    status, answer, headers = await client.post("/rpc", request("x"))
    assert (status, answer["error"]["message"]) == (500, "Internal error")
    logged = [r for r in caplog.records if r.message == "unexpected_error"]
    assert logged[0].__dict__["request_id"] == headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "params", "names"),
    [
        ("getPet", {"id": "a secret"}, "id"),
        ("getPet", {"id": 1, "also": "a secret"}, "also"),
        ("call_tool", {"name": "getPet", "arguments": {"id": "a secret"}}, "id"),
        ("describe_tools", {"names": {"a secret": "a secret"}}, "names"),
    ],
)
async def test_refused_arguments_are_logged_by_their_names_alone(
    client: Client,
    caplog: pytest.LogCaptureFixture,
    method: str,
    params: dict[str, Any],
    names: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await client.rpc(request(method, params))
    assert answer["error"]["code"] == -32602
    [failed] = [vars(one) for one in caplog.records if one.message == "request_failed"]
    assert failed["reason"] == f"Invalid arguments: {names}"
    assert "a secret" not in str([vars(one) for one in caplog.records])


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
async def test_a_response_is_no_request_alone_and_in_a_batch(client: Client, answer: Any) -> None:
    response = {"jsonrpc": "2.0", "id": 1, **answer}  # JSON-RPC 2.0, sections 4 and 6
    alone = await client.rpc(response)
    both = await client.rpc([response, request("tools/list", id_=2)])
    [only] = await client.rpc([response])
    for found in (alone, both[0], only):
        assert (found["id"], found["error"]["code"]) == (None, -32600)
    assert (both[1]["id"], "result" in both[1]) == (2, True)


@pytest.mark.parametrize("method", ["tools/list", "listPets"])
async def test_null_params_are_none(client: Client, method: str) -> None:
    """A request with `params: null` is one without params (mending 19)."""
    answer = await client.rpc({"jsonrpc": "2.0", "id": 8, "method": method, "params": None})
    assert "result" in answer


async def test_null_for_an_optional_query_argument_is_not_sent(
    client: Client, service: Recorder
) -> None:
    """An optional argument without null in its schema may be null where it would not be in a body
    (mending 19)."""
    answer = await client.rpc(request("listPets", {"limit": None}))
    assert answer["result"]["heard"]["query"] == ""
    refused = await client.rpc(request("getPet", {"id": None}))
    assert refused["error"]["code"] == -32602
    refused = await client.rpc(request("createPet", {"name": "Rex", "age": None}))
    assert refused["error"]["code"] == -32602
    assert len(service.requests) == 1
