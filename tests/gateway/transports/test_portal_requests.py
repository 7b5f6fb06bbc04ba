"""The portal paths: how a request may come, and what is no request."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from config.settings import Settings
from tests.gateway.portal import COMMAND, QUERY, RPC, Portal, legacy, portal, service
from tests.gateway.shared import anyio_backend
from tests.servers import rules

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared_portal(shared_settings: Settings) -> AsyncIterator[Portal]:
    async with portal(shared_settings) as to:
        yield to


@pytest.fixture
def open_portal(shared_portal: Portal) -> Portal:
    rules.state = rules.State()
    return shared_portal


DECODED = {
    "a%2Bb": "a+b",  # light-hybrid-4j decodes twice and makes a blank of it
    "a+b": "a b",
    "a%20b": "a b",
    "100%25": "100%",
    "%2525": "%25",
    "%C3%A9%F0%9F%98%80": "é😀",
    "a%26data%3Db": "a&data=b",
}


async def test_a_query_is_decoded_once(open_portal: Portal) -> None:
    begin = quote(f'{{"jsonrpc":"2.0","id":1,"method":"{service("echo")}","params":{{"text":"')
    end = quote('"}}')
    for text, data in DECODED.items():
        found = await open_portal.send("GET", f"{QUERY}?cmd={begin}{text}{end}", b"", {})
        assert found.brief == (200, (1, {"text": data}))


NO_REQUESTS = {
    "": "ERR11202 400",
    "?cmd=": "ERR11202 400",
    "?cmd=%20%20": "ERR11202 400",
    "?CMD={}": "ERR11202 400",
    "?cmd=%FF": "ERR10010 400",
    "?cmd=%ED%A0%80": "ERR10010 400",
    "?cmd=%7B%22a%22%3A%C3%7D": "ERR10010 400",
    "?cmd=%zz": "ERR10010 400",
    "?cmd={not+json": "ERR10010 400",
    "?cmd=5": "ERR10010 400",
    "?cmd=%22text%22": "ERR10010 400",
    "?cmd=null": "ERR10010 400",
    "?cmd={}": "ERR11200 400",
}


async def test_a_query_that_says_nothing_is_told_so(open_portal: Portal) -> None:
    for path in (QUERY, COMMAND):
        found = {
            query: (await open_portal.send("GET", path + query, b"", {})).brief
            for query in NO_REQUESTS
        }
        assert found == {query: (400, brief) for query, brief in NO_REQUESTS.items()}


@pytest.mark.parametrize("text", ["[", "[" * 5000, '[{"jsonrpc":"2.0","id":1', "[1,]", " [\xff"])
async def test_an_array_that_is_no_json_gets_one_error_of_json_rpc(
    open_portal: Portal, text: str
) -> None:
    for path in (QUERY, COMMAND):
        headers = {"content-type": "application/json"}
        posted = await open_portal.send("POST", path, text.encode("latin-1"), headers)
        assert posted.brief == (400, (None, -32700, "ERR10010"))
        got = await open_portal.send("GET", f"{path}?cmd={quote(text)}", b"", {})
        assert got.brief == posted.brief


@pytest.mark.parametrize("id_", [True, False, {}, [1]])
async def test_invalid_ids_are_not_sent_back(open_portal: Portal, id_: Any) -> None:
    mixed = {**legacy("echo"), "jsonrpc": "2.0", "method": "x", "id": id_}
    for path in (QUERY, COMMAND, RPC):
        for body in (mixed, [mixed]):
            answer = (await open_portal.post(path, body)).json
            [found] = answer if isinstance(answer, list) else [answer]
            assert (found["id"], found["error"]["code"]) == (None, -32600)


async def test_the_parts_of_a_payload_may_be_query_parameters(open_portal: Portal) -> None:
    cases: list[tuple[dict[str, str], Any]] = [
        ({}, {}),
        ({"hostId": "a+b", "ruleId": "é"}, {"hostId": "a+b", "ruleId": "é"}),
        ({"data": '{"x":1}'}, {"x": 1}),
        ({"data": '{"x":1}', "x": "2", "y": ""}, {"x": "2", "y": ""}),
    ]
    for more, data in cases:
        target = f"{QUERY}?{urlencode({**legacy('echo'), **more})}"
        assert (await open_portal.send("GET", target, b"", {})).brief == (200, data)


async def test_parts_that_make_no_payload_are_refused(open_portal: Portal) -> None:
    cases = [
        ({"data": "[1]"}, "ERR10010 400"),
        ({"data": "{"}, "ERR10010 400"),
        ({"data": '{"a":1,"a":2}'}, "ERR10010 400"),
        ({"version": ""}, "ERR11202 400"),
        ({"action": "nope"}, "ERR11200 400"),
    ]
    for more, brief in cases:
        target = f"{QUERY}?{urlencode({**legacy('echo'), **more})}"
        assert (await open_portal.send("GET", target, b"", {})).brief == (400, brief), more


async def test_a_page_of_another_site_cannot_make_a_browser_send_commands(
    open_portal: Portal,
) -> None:
    """A GET by an image or a link has no Origin, but says where it comes from."""
    for path, code in ((COMMAND, "ERR18403 403"), (QUERY, "ERR18403 403"), (RPC, None)):
        body = legacy("echo", data={})
        found = await open_portal.get(path, body, sec_fetch_site="cross-site")
        assert found.status == 403
        assert code is None or found.brief == (403, code)
        for site in ("same-origin", "same-site", "none", None):
            assert (await open_portal.get(path, body, sec_fetch_site=site)).status == 200
        known = {"sec_fetch_site": "cross-site", "origin": "http://localhost:3000"}
        assert (await open_portal.get(path, body, **known)).status == 200
        assert (await open_portal.post(path, body, origin="https://evil.example")).status == 403


async def test_other_methods_are_refused_in_the_words_of_light_hybrid_4j(
    open_portal: Portal,
) -> None:
    for method in ("PUT", "DELETE", "PATCH", "HEAD"):
        found = await open_portal.send(method, COMMAND, b"{}", {})
        assert (found.status, found.headers["allow"]) == (405, "GET, POST")
        if method != "HEAD":
            text = f"Request method {method} cannot be found in the path {COMMAND}."
            assert (found.json["code"], found.json["description"]) == ("ERR10008", text)


async def test_bodies_that_cannot_be_read_have_a_status_in_the_portal(open_portal: Portal) -> None:
    too_large = await open_portal.post(COMMAND, b" " * 5_000_000)
    assert too_large.brief == (413, "ERR18413 413")
    assert "server.body_limit_bytes" in too_large.json["description"]
    for blank in (b"", b" \r\n"):
        assert (await open_portal.post(COMMAND, blank)).brief == (400, "ERR11201 400")
        assert (await open_portal.post(RPC, blank)).json["error"]["code"] == -32700


async def test_the_portal_ignores_the_content_type(open_portal: Portal) -> None:
    body = legacy("echo", data="x")
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        assert (await open_portal.post(COMMAND, body, content_type=kind)).brief == (200, "x")
    assert (await open_portal.post(RPC, body, content_type="text/plain")).status == 415


@pytest.mark.parametrize(
    "parts",
    [
        {"version": "lightapi.net/rule/echo/0.1.0"},
        {"host": "lightapi.net/rule", "action": "echo", "version": "0.1.0"},
        {"host": "lightapi.net", "service": "rule", "action": "echo/0.1.0"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", [QUERY, RPC])
async def test_only_one_tuple_names_an_action(
    open_portal: Portal, path: str, parts: dict[str, str]
) -> None:
    found = await open_portal.post(path, parts)
    assert found.json.get("code", found.json.get("error", {}).get("code")) in ("ERR11200", -32601)
    assert rules.state.calls == []


async def test_a_cmd_beside_a_tuple_is_refused(open_portal: Portal) -> None:
    parts = "host=lightapi.net&service=rule&action=echo&version=0.1.0"
    for query in (f"?cmd=%7B%7D&{parts}", "?cmd=%7B%7D&action=x", "?cmd=%7B%7D&cmd=%7B%7D"):
        found = await open_portal.send("GET", QUERY + query, b"", {})
        assert found.brief == (400, "ERR10010 400")
