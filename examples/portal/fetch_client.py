"""The portal's `fetchClient` without a page: what a browser sends, and what it makes of answers.

    .venv/bin/python examples/portal/fetch_client.py [URL]

Reads are GETs with the legacy payload in `cmd`. Writes are POSTs; a legacy payload in one becomes
JSON-RPC 2.0 on the way. Needs the package `aiohttp`.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

GATEWAY = "http://127.0.0.1:8765"
UNESCAPED = "-_.!~*'()"  # of encodeURIComponent
TUPLE = ("host", "service", "action", "version")


class FetchError(Exception):
    """What a page catches; `thrown` is a JSON-RPC error, a Status, or the status line's text."""

    def __init__(self, thrown: Any) -> None:
        super().__init__(describe(thrown))
        self.thrown = thrown


class FetchClient:
    def __init__(self, http: aiohttp.ClientSession, base_url: str = GATEWAY) -> None:
        """`http` has the cookies, and the token in its headers if one is needed."""
        self._http = http
        self._base_url = base_url

    async def query(self, command: Mapping[str, Any]) -> Any:
        """Read, by GET, with the legacy payload as it is."""
        return await self.fetch(f"/portal/query?cmd={quote(stringify(command), safe=UNESCAPED)}")

    async def post(self, path: str, body: Any, headers: Mapping[str, str] = {}) -> dict[str, Any]:
        """Like `apiPost`: {"data": ...} or {"error": ...}, never an exception of the service's."""
        try:
            return {"data": await self.fetch(path, "POST", body, headers)}
        except FetchError as error:
            return {"error": error.thrown}

    async def command(self, payload: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """Write; `Idempotency_Key="..."` makes it safe to repeat."""
        return await self.post(
            "/portal/command", payload, {name.replace("_", "-"): headers[name] for name in headers}
        )

    async def fetch(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] = {},
    ) -> Any:
        """What the service said. Raises FetchError."""
        url = URL(path if path.startswith("http") else self._base_url + path, encoded=True)
        body = converted(body)
        data = None if body is None else body if isinstance(body, str) else stringify(body)
        sent = {"Content-Type": "application/json", **self._csrf(url), **headers}
        async with self._http.request(method, url, data=data, headers=sent) as response:
            if not response.ok:
                raise FetchError(thrown(await response.read(), response.reason, is_rpc(body)))
            if response.status == 204:
                return {}
            answer = json.loads(await response.read())  # nothing, or bare text, is an error here
        if not is_rpc(body) or not is_rpc(answer):
            return answer
        if "error" in answer:
            raise FetchError(answer["error"])
        return answer.get("result")

    def _csrf(self, url: URL) -> dict[str, str]:
        cookie = self._http.cookie_jar.filter_cookies(url).get("csrf")
        return {} if cookie is None else {"X-CSRF-TOKEN": cookie.value}


def converted(body: Any) -> Any:
    """A legacy payload as JSON-RPC, without what concerns the page only (title, success, path);
    anything else, batches too, as it is."""
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return body
    if not isinstance(body, dict) or is_rpc(body) or body.get("rest"):
        return body
    if not all(body.get(name) for name in TUPLE):
        return body
    return {
        "jsonrpc": "2.0",
        "method": "/".join(body[name] for name in TUPLE),
        "params": body.get("data") or {},
        "id": str(uuid.uuid4()),
    }


def is_rpc(value: Any) -> bool:
    return isinstance(value, dict) and value.get("jsonrpc") == "2.0"


def thrown(body: bytes, reason: str | None, rpc: bool) -> Any:
    """What a page catches of an HTTP error."""
    try:
        answer = json.loads(body)
    except ValueError:
        return reason
    return answer["error"] if rpc and is_rpc(answer) and "error" in answer else answer


def describe(error: Any) -> str:
    """What a page shows of an error, wherever it says so."""
    if not isinstance(error, dict):
        return str(error)
    data = error.get("data")
    places = (data.get("description") if isinstance(data, dict) else None,
              error.get("description"), error.get("message"), error.get("error"))  # fmt: skip
    return next((place for place in places if isinstance(place, str) and place), "Unknown error")


def stringify(value: Any) -> str:
    """JSON.stringify."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def rule(action: str, data: Any = None, **page: Any) -> dict[str, Any]:
    """A command as the portal's forms have it; `page` is what the page wants to know later."""
    return {"host": "lightapi.net", "service": "rule", "action": action, "version": "0.1.0",
            **({} if data is None else {"data": data}), **page}  # fmt: skip


CORS = {
    "hostId": "1234567", "ruleId": "cors", "ruleName": "Allow our origins", "ruleVersion": "1.0.0",
    "ruleType": "request-header", "ruleOwner": "ann", "common": "N", "conditions": [{"n": "100%+"}],
}  # fmt: skip


async def main(base_url: str = GATEWAY) -> None:
    key = {name: CORS[name] for name in ("hostId", "ruleId")}
    async with aiohttp.ClientSession() as http:
        client = FetchClient(http, base_url)
        form = rule("createRule", CORS, title="Create Rule", success="/app/success")
        once = str(uuid.uuid4())
        for word in ("create", "create again"):  # the second one is only answered
            show(word, await client.command(form, Idempotency_Key=once))
        show("no owner", await client.command(rule("createRule", key)))
        page = key | {"offset": 0, "limit": 10, "filters": '[{"id":"ruleName","value":"allow"}]'}
        show("list", await client.query(rule("getRule", page)))
        show("labels", await client.query(rule("getRuleLabel", key)))
        show("review", await client.command(rule("reviewRule", key)))
        show("delete", await client.command(rule("deleteRule", key)))
        try:
            await client.query(rule("getFreshRule", key))
        except FetchError as error:
            show("read", {"error": error.thrown})


def show(word: str, answer: Any) -> None:
    if isinstance(answer, dict) and "error" in answer:
        answer = f"failed: {describe(answer['error'])}"
    print(f"{word:14} {answer if isinstance(answer, str) else stringify(answer)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
