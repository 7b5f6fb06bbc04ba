"""A client of the admin API, which checks what it sends and gets against the description."""

import io
import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
import anyio
from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest, MockResponse
from yarl import URL

from tests.gateway.guards.signing import FOREVER, signer

KEY = signer("ES256", kid="2026")
ROOT = "/admin/v1"
DEADLINE_S = 60  # a loaded machine is slow, not wrong
CONFIG = Config(
    extra_media_type_deserializers={"application/problem+json": json.loads},
    spec_validator_cls=None,  # takes two seconds; tests of the description itself validate it
)


def bearer(name: str = "root", scope: str = "admin", **claims: Any) -> dict[str, str]:
    claims = {"sub": name, "scope": scope, "exp": FOREVER, **claims}
    return {"Authorization": f"Bearer {sign_once(json.dumps(claims))}"}


@cache
def sign_once(claims: str) -> str:
    """The same token for the same claims: a client keeps its token, and a gateway knows it."""
    return KEY.token(**json.loads(claims))


def key_file(folder: Path, scope: str = "admin") -> Path:
    """A file with a token, for --key-file of commands."""
    file = folder / "ops.key"
    file.write_text(bearer(scope=scope)["Authorization"].removeprefix("Bearer ") + "\n")
    return file


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def tag(self) -> dict[str, str]:
        return {"If-Match": self.headers["etag"]}


@dataclass
class Admin:
    url: str  # of the gateway
    http: aiohttp.ClientSession
    api: OpenAPI
    called: set[str] = field(default_factory=set)  # ids of operations

    async def __call__(
        self, method: str, path: str, body: Any = None, scope: str = "admin", **headers: str
    ) -> Answer:
        """What comes has to be as described, and what is sent, too, where it is accepted."""
        sent = {**bearer(scope=scope), **headers}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        answer = await self.raw(method, path, data, sent)
        if method in {"GET", "POST", "PUT", "DELETE"}:
            self._check(method, path, data, sent, answer)
        return answer

    async def await_job(self, answer: Answer, **headers: str) -> Any:
        """The job that was answered with, once it has ended."""
        assert answer.status == 202, answer.body
        path = answer.headers["location"].removeprefix(ROOT)
        with anyio.fail_after(DEADLINE_S):
            while True:
                job = (await self("GET", path, **headers)).json
                if "ended" in job:
                    return job
                await anyio.sleep(0.02)

    async def raw(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> Answer:
        sent = None if data is None else io.BytesIO(data)
        url = URL(self.url + ROOT + path, encoded=True)
        async with self.http.request(method, url, data=sent, headers=headers) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, found, await response.read())

    def _check(
        self, method: str, path: str, data: bytes | None, sent: dict[str, str], answer: Answer
    ) -> None:
        bare, _, query = path.partition("?")
        pairs = [part.partition("=") for part in query.split("&") if part]
        request = MockRequest(
            self.url,
            method.lower(),
            ROOT + bare,
            args={name: unquote(value) for name, _, value in pairs},
            headers=sent,
            data=data,
            content_type=sent.get("Content-Type", ""),
        )
        media_type = answer.headers.get("content-type", "")
        response = MockResponse(answer.body, answer.status, answer.headers, media_type)
        if answer.status < 400:
            self.api.validate_request(request)
        self.api.validate_response(request, response)
        self.called.add(operation_of(self.api, method, bare))


def operation_of(api: OpenAPI, method: str, path: str) -> str:
    """The id of the operation that a request is one of."""
    for template, operations in api.spec.read_value()["paths"].items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", template.replace(".", "[.]"))
        if re.fullmatch(pattern, path) and method.lower() in operations:
            return str(operations[method.lower()]["operationId"])
    raise AssertionError(f"{method} {path} is not described")


async def open_admin(url: str, http: aiohttp.ClientSession) -> Admin:
    """A client of the gateway at `url`, which has read the description of its API."""
    async with http.get(f"{url}{ROOT}/openapi.json", headers=bearer(scope="")) as response:
        assert response.status == 200, await response.text()
        return Admin(url, http, parse_description(await response.read()))


@cache
def parse_description(description: bytes) -> OpenAPI:
    """A description of the API, read once for all gateways that give the same one."""
    return OpenAPI.from_dict(json.loads(description), config=CONFIG)
