"""A gateway with a hybrid service in Python, and its clients: legacy and JSON-RPC, GET and POST."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace
from yarl import URL

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import Client, running
from tests.gateway.guards.signing import FOREVER, Signer, by_key, signer
from tests.servers import rules

QUERY, COMMAND, RPC = "/portal/query", "/portal/command", "/rpc"
UNKNOWN, INVALID, NOBODY = "ERR11200", "ERR11004", "ERR10002"
HOUR_AGO = 1_700_000_000
DATA = {"hostId": "h", "ruleId": "r"}


def service(name: str) -> str:
    return rules.RULE.format(name)


def legacy(action: str, **members: Any) -> dict[str, Any]:
    """A legacy payload; `data=...` is its data."""
    names = {"host": "lightapi.net", "service": "rule", "action": action, "version": "0.1.0"}
    return {**names, **members}


def rpc(action: str, id_: Any = 1, **members: Any) -> dict[str, Any]:
    """A request of JSON-RPC for an action of the service, or for a plain method."""
    method = action if "/" in action or action in {"subtract", "sum"} else service(action)
    return {"jsonrpc": "2.0", "method": method, "id": id_, **members}


def silent(action: str, **members: Any) -> dict[str, Any]:
    return {key: value for key, value in rpc(action, **members).items() if key != "id"}


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def brief(self) -> tuple[int, Any]:
        """The status, and what tells the answers apart: nothing, text, the result, or the codes of
        the error and of its Status."""
        if not self.body:
            return self.status, None
        if not self.kind.startswith("application/json"):
            return self.status, self.body.decode()
        return self.status, simplify_answer(self.json)


def simplify_answer(value: Any) -> Any:
    match value:
        case {"error": {"code": code, **error}, "id": id_}:
            return id_, code, (error.get("data") or {}).get("code")
        case {"result": result, "id": id_}:
            return id_, result
        case {"statusCode": status, "code": code}:
            return f"{code} {status}"
        case list():
            return [simplify_answer(one) for one in value]
    return value


@dataclass(frozen=True)
class Portal:
    client: Client
    token: str | None = None  # sent unless a request says otherwise

    async def post(self, path: str, body: Any, **headers: str | None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, {"content_type": "application/json", **headers})

    async def get(self, path: str, body: Any, **headers: str | None) -> Answer:
        text = body if isinstance(body, str) else json.dumps(body)
        return await self.send("GET", f"{path}?cmd={quote(text, safe='')}", b"", headers)

    async def send(
        self, method: str, target: str, body: bytes, headers: dict[str, str | None]
    ) -> Answer:
        """`headers` with `_` for `-`; one that is None is not sent."""
        known = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        sent = {
            name.replace("_", "-"): value
            for name, value in {**known, **headers}.items()
            if value is not None
        }
        url = URL(self.client.url + target, encoded=True)
        skipped = ("Content-Type",)
        async with self.client.http.request(
            method, url, data=io.BytesIO(body), headers=sent, skip_auto_headers=skipped
        ) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, await response.read(), found)


def es() -> Signer:
    return signer("ES256")


def token(**claims: Any) -> str:
    return es().token(**{"exp": FOREVER, "scope": "portal.r portal.w", **claims})


def with_rules(settings: Settings, **portal: Any) -> Settings:
    """`settings` with the service, and with these changes of `portal`."""
    sources = {**settings.sources, "rules": SourceSettings(python="tests.servers.rules")}
    return replace(settings, sources=sources, portal=replace(settings.portal, **portal))


def with_tokens(settings: Settings, folder: Path, **auth: Any) -> Settings:
    return replace(settings, auth=by_key(folder, es().pem, **auth))


@asynccontextmanager
async def portal(settings: Settings, **changes: Any) -> AsyncIterator[Portal]:
    """A gateway with the service; every request carries a good token where one is wanted."""
    rules.state = rules.State()
    async with running(with_rules(settings, **changes)) as client:
        try:
            yield Portal(client, token() if settings.auth.mode == "jwt" else None)
        finally:
            rules.state.release.set()
