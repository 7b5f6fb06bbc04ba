"""Client of a running gateway's REST APIs, for commands: operations are called by name.

The gateway's OpenAPI description says where an operation is and where its arguments go: in the
path, the query, the headers, or the body.
"""

import functools
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import IO, Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click
from msgspec import Struct

from config.settings import Settings
from gateway.cli.common.failure import FAILED, USAGE, CommandFailure, fail
from gateway.cli.common.lazy import import_later
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import one_line
from gateway.cli.common.tls import trusting
from gateway.cli.common.tool_arguments import json_or_text
from gateway.cli.running.stored_logins import token_for
from gateway.operations.problems import BODY_MISTAKEN, PARAMETER_MISTAKEN
from schemas.errors import ParseError
from schemas.json_schema.references import find, reference_of
from schemas.jsonrpc import decode_json, encode
from schemas.similar_names import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
Json = dict[str, Any]

EXPECTED_URL = "expected the address of a gateway without a path, such as http://127.0.0.1:8765"
UNSPECIFIC = frozenset({BODY_MISTAKEN, PARAMETER_MISTAKEN})  # where errors follow
NO_TEXTS: Mapping[str, str] = {}
KEY_BYTES = 65536
LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses of servers that listen there
REFUSED_FILES = frozenset({413, 422})
# aiohttp takes a quarter of the start of a command, and most commands work in the registry
send_request = import_later("gateway.cli.running.http_requests:send_request")
_SCOPE = re.compile(r"^Required scope: (\S+)\.(?: |$)")
AS_JOB, RESPOND_ASYNC = "as_job", {"Prefer": "respond-async"}  # RFC 7240


def gateway_options(*, key_required: bool, local: bool = False) -> Callable[[F], F]:
    """Add `--url` and `--key-file`; `local`: without both the command works in the registry."""
    default = "none, the registry" if local else "server.host and server.port"
    url = click.option("--url", metavar="URL", help=f"URL of a gateway [default: {default}].")
    key = click.option(
        "--key-file", metavar="FILE", type=click.File("r"), required=key_required,
        help="File with an API key or a bearer token; - reads standard input.",
    )  # fmt: skip
    return lambda command: url(key(command))


def gateway_option(command: F) -> F:
    """Add `--url`, `--key-file` and `--config`; pass the `RunningGateway` with its admin API as the
    first argument."""

    @functools.wraps(command)
    def call_with_gateway(
        settings: Settings, url: str | None, key_file: IO[str] | None, **kwargs: Any
    ) -> Any:
        if url is None:
            check_credentials(settings, key_file)
        gateway = running_gateway(settings, settings.admin.path, url=url, key_file=key_file)
        return command(gateway, **kwargs)

    options = gateway_options(key_required=False)
    return options(settings_option(call_with_gateway))  # type: ignore[return-value]  # as settings_option


def check_credentials(settings: Settings, key_file: IO[str] | None) -> None:
    """Fail where the gateway of these settings has no admin API, or asks for a key."""
    if settings.auth.mode == "none":
        fail(
            "while auth.mode is none, everybody is let in and there is no admin API to ask. "
            "`toolgate top` shows the calls of the gateway and `toolgate doctor` its state; the "
            "console (console.enabled) has sessions and jobs. Or set auth.mode: keys, and make a "
            "key: toolgate keys create ops --scope admin:read > ops.key",
            USAGE,
        )
    if key_file is None:
        fail(
            "expected --key-file FILE, a file with an API key: "
            "toolgate keys create ops --scope admin:read > ops.key",
            USAGE,
        )


class OperationRow(Struct, frozen=True):
    """An operation, as the OpenAPI description has it."""

    name: str
    method: str
    path: str  # such as /sessions/{session}
    summary: str
    scope: str
    parameters: Mapping[str, tuple[str, str]]  # argument -> "path", "query" or "header"; its name
    body: Literal["none", "optional", "required"]

    @classmethod
    def of(cls, method: str, path: str, row: Json) -> "OperationRow":
        names = [(parameter["in"], parameter["name"]) for parameter in row["parameters"]]
        parameters = {_argument(place, name): (place, name) for place, name in names}
        scopes = row["security"][0]["token"]
        body = row.get("requestBody")
        return cls(
            row["operationId"],
            method.upper(),
            path,
            row["summary"],
            "".join(scopes[:1]),
            parameters,
            "none" if body is None else "required" if body["required"] else "optional",
        )


class GatewayAnswer(Struct, frozen=True):
    value: Any  # None: an empty body
    is_job: bool  # `value` is a job, which runs
    etag: str
    problem: str = ""  # of a file; "": there is none
    created: bool = False  # the entry is new


class MissingOperation(CommandFailure):
    """The gateway has no operation of a name: a part of it is off, or it is older."""


class OperationRefused(CommandFailure):
    """An operation answered with a problem."""

    def __init__(self, problem: Any, status: int, place: str = "", hint: str = "") -> None:
        """`problem`: the problem document. `place`: of the gateway; "": this process."""
        self._where = f"{place}: {status} " if place else ""
        self._problem = problem if isinstance(problem, dict) else {}
        self._hint = hint
        self.status = status
        mistaken = status in {400, 422} and self._problem.get("errors")
        super().__init__(self.text(_mistake), USAGE if mistaken else FAILED)

    def text(self, write: Callable[[str, str], str]) -> str:
        """The text of the problem. `write`: makes one of the place of an error, such as /scopes/0,
        and its detail."""
        text = _problem(self._problem, self.status, write)
        return (
            f"{self._where}{text.removesuffix('.')}. {self._hint}"
            if self._hint
            else (self._where + text)
        )


class OperationClient(ABC):
    """Calls operations by name: of a running gateway, or in this process."""

    @abstractmethod
    async def call(
        self, name: str, members: Mapping[str, Any], texts: Mapping[str, str] = NO_TEXTS
    ) -> GatewayAnswer:
        """Call the operation `name`. `texts`: arguments that stay text in paths, queries and
        headers, and are JSON or text in a body. Raises CommandFailure."""

    @abstractmethod
    async def time(self) -> datetime:
        """The time of the clock behind the operations, after the last answer."""

    @abstractmethod
    async def summaries(self) -> Sequence[tuple[str, str, str]]:
        """Name, scope and summary of each operation."""

    async def items(
        self, name: str, members: Mapping[str, Any], limit: int | None = None
    ) -> list[Json]:
        """The first `limit` entries of a list, or those of all its pages."""
        items: list[Json] = []
        async for page in self.pages(
            name, members if limit is None else {**members, "limit": limit}
        ):
            items += page
            if limit is not None and len(items) >= limit:
                break
        return items[:limit]

    async def pages(self, name: str, members: Mapping[str, Any]) -> AsyncIterator[list[Json]]:
        """The entries of a list, page by page."""
        after: Json = {}
        while True:
            page = (await self.call(name, {**members, **after})).value
            yield page["items"]
            if not page.get("next"):
                return
            after["after"] = page["next"]


@dataclass(slots=True)
class RunningGateway(OperationClient):
    """A running gateway, reached over HTTP. Failures end the command with the gateway's error."""

    url: str
    root: str  # path of the API
    key: str | None
    tls: ssl.SSLContext | bool = True
    needs: Sequence[str] = ()  # settings without which the gateway lacks the operations
    _rows: dict[str, OperationRow] = field(default_factory=dict)
    _date: str = ""  # header of the last answer

    async def operations(self) -> Mapping[str, OperationRow]:
        """The operations of the API by name."""
        if not self._rows:
            paths = (await self.description()).get("paths")
            if not isinstance(paths, dict):
                fail(f"{self.url} answers, but not as a gateway: {EXPECTED_URL}")
            rows = [
                OperationRow.of(method, path, row)
                for path, methods in paths.items()
                for method, row in methods.items()
            ]
            self._rows.update((row.name, row) for row in rows)
        return self._rows

    async def description(self) -> Json:
        """The OpenAPI description of the API, or what is served instead of it."""
        try:
            value = (await self._send("GET", "/openapi.json")).value
        except OperationRefused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            part = self.root.split("/")[1]
            off = f"is {part}.enabled true in the settings of the gateway?"
            reason = EXPECTED_URL if urlsplit(self.url).path or part == "admin" else off
            fail(f"{self.url} has nothing at {self.root}: {reason}")
        return value if isinstance(value, dict) else {}

    async def input_schema(self, name: str) -> Json:
        """JSON Schema of the arguments of an operation: of its path, its query and its body."""
        row = await self._row(name)
        description = await self.description()
        operation = description["paths"][row.path][row.method.lower()]
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        schema = body.get("schema", {})
        if (reference := reference_of(schema)) is not None:
            schema = find(description, reference)
        placed = [each for each in operation["parameters"] if each["in"] in ("path", "query")]
        properties = {each["name"]: each["schema"] for each in placed}
        required = [each["name"] for each in placed if each.get("required")]
        return {
            "properties": {**properties, **schema.get("properties", {})},
            "required": [*required, *schema.get("required", ())],
            "components": description.get("components", {}),
        }

    async def call(
        self, name: str, members: Mapping[str, Any], texts: Mapping[str, str] = NO_TEXTS
    ) -> GatewayAnswer:
        return await self._send(*_request(await self._row(name), members, texts))

    async def _row(self, name: str) -> OperationRow:
        """The operation `name`. Raises MissingOperation."""
        rows = await self.operations()
        if name not in rows:
            if self.needs:
                needs = f"{' and '.join(self.needs)}: true, in the settings of the gateway"
                hint = f"it needs {needs}, or a newer release"
                raise MissingOperation(f"{self.url} has no operation {name!r}; {hint}", USAGE)
            group = self.root.split("/")[1]
            lists = "toolgate admin" if group == "admin" else f"toolgate {group} operations"
            hint = did_you_mean(name, rows) or f"`{lists}` lists the operations."
            raise MissingOperation(f"{self.url} has no operation {name!r}. {hint}", USAGE)
        return rows[name]

    async def time(self) -> datetime:
        date = parsedate_tz(self._date)
        return datetime.now(UTC) if date is None else datetime.fromtimestamp(mktime_tz(date), UTC)

    async def summaries(self) -> Sequence[tuple[str, str, str]]:
        rows = (await self.operations()).values()
        return [(row.name, row.scope or "-", row.summary) for row in rows]

    async def rpc(self, path: str, method: str, params: Any) -> Any:
        """The result of a JSON-RPC method at the gateway's `path`, which is not below the API."""
        body = encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        plain = RunningGateway(self.url, "", self.key, self.tls)
        answer = (await plain._send("POST", path, body=body)).value
        if "error" in answer:
            fail(f"{self.url}: {method}: {one_line(str(answer['error'].get('message')))}")
        return answer["result"]

    async def put(self, path: str, data: bytes) -> GatewayAnswer:
        """Send a file to the gateway's `path`, which is not below the API. What the gateway says of
        the file itself does not end the command."""
        plain = RunningGateway(self.url, "", self.key, self.tls)
        binary = {"Content-Type": "application/octet-stream"}
        return await plain._send("PUT", path, binary, data, bears=REFUSED_FILES)

    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        bears: Collection[int] = (),
    ) -> GatewayAnswer:
        key = await token_for(self.url) if self.key is None else self.key
        authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
        content = {} if body is None else {"Content-Type": "application/json"}
        data, status, answered = await send_request(
            method,
            f"{self.url}{self.root}{path}",
            {**authorization, **content, **(headers or {})},
            body,
            gateway=self.url,
            tls=self.tls,
        )
        self._date = answered.get("Date", "")
        try:
            value = decode_json(data) if data else None
        except ParseError:
            fail(f"{self.url} answers {status} without JSON: is it a gateway?")
        if status in bears:
            problem = OperationRefused(value, status).message
            return GatewayAnswer(value, is_job=False, etag="", problem=problem)
        if status >= 300:
            raise OperationRefused(value, status, self.url, self._access_hint(value, status, key))
        # other operations, as events_invoke, accept with 202 as well
        is_job = status == HTTPStatus.ACCEPTED and isinstance(value, dict) and "job" in value
        created = status == HTTPStatus.CREATED
        return GatewayAnswer(value, is_job, answered.get("ETag", ""), created=created)

    def _access_hint(self, problem: Any, status: int, key: str | None) -> str:
        """The next command, where a key or a scope is missing. `key`: what the request was made
        with."""
        if status == HTTPStatus.UNAUTHORIZED:
            command, login = "toolgate keys create NAME > FILE", f"toolgate login {self.url}"
            if key is None:
                return f"Add --key-file FILE, or log in: {login}; to make a key: {command}"
            if self.key is None:
                return f"Has your login there ended? {login}"
            valid = "Is the key of this gateway, and valid? `toolgate keys list`"
            return f"{valid}; a new one: {command}"
        scope = _SCOPE.search(str(problem.get("detail"))) if isinstance(problem, dict) else None
        if status == HTTPStatus.FORBIDDEN and scope:
            return f"A key with it: toolgate keys create NAME --scope {scope[1]} > FILE"
        return ""


def running_gateway(
    settings: Settings,
    root: str,
    *,
    url: str | None,
    key_file: IO[str] | None,
    needs: Sequence[str] = (),
) -> RunningGateway:
    """The gateway at `url`, or that of these settings on this machine; with the key of the file.
    Without one its calls are of the user's login there (`toolgate login`), if there is one.
    `needs`: the settings without which a gateway lacks the operations."""
    server, tls = settings.server, None
    if url is None:
        host, scheme = LOCAL.get(server.host, server.host), "http"
        if server.tls.cert:
            scheme, tls = "https", trusting(server.tls)
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port}"
    try:
        valid = urlsplit(url).scheme in {"http", "https"} and urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        fail(f"--url: expected a URL such as http://localhost:8765, not {url!r}", USAGE)
    url = url.rstrip("/")
    key = None if key_file is None else read_key(key_file)
    return RunningGateway(url, root, key, True if tls is None else tls, needs)


def read_key(file: IO[str]) -> str:
    key = file.read(KEY_BYTES).strip()
    if not key or not key.isascii() or not key.isprintable():
        problem = "is no API key" if key else "is empty"
        name = getattr(file, "name", "standard input")
        fail(f"--key-file: {name} {problem}; expected a key or a bearer token on one line", USAGE)
    return key


def _argument(place: str, name: str) -> str:
    """The argument of a parameter: `if_match` of the header If-Match."""
    return name.lower().replace("-", "_") if place == "header" else name


def _request(
    row: OperationRow, members: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[str, str, dict[str, str], bytes | None]:
    """Method, path, headers and body of a call."""
    path, query, headers, body = row.path, dict[str, str](), dict[str, str](), dict[str, Any]()
    for name, value in {**members, **texts}.items():
        place, key = row.parameters.get(name, ("body", name))
        if place == "path":
            path = path.replace(f"{{{key}}}", quote(_text(value), safe=""))
        elif place == "query":
            query[key] = _text(value)
        elif place == "header":
            headers[key] = _text(value)
        elif name == AS_JOB and "prefer" in row.parameters:
            headers |= RESPOND_ASYNC if _text(value) == "true" else {}
        else:
            body[name] = json_or_text(texts[name]) if name in texts else value
    if missing := [key for place, key in row.parameters.values() if f"{{{key}}}" in path]:
        fail(f"{row.name}: expected {', '.join(f'{name}=...' for name in missing)}", USAGE)
    if body and row.body == "none":
        fail(f"{row.name} takes no argument {', '.join(body)}", USAGE)
    target = f"{path}?{urlencode(query)}" if query else path
    content = encode(body["body"] if body.keys() == {"body"} else body)
    return row.method, target, headers, content if body or row.body == "required" else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _problem(problem: Json, status: int, write: Callable[[str, str], str]) -> str:
    """The text of a problem document (RFC 9457), with the places of the errors."""
    detail = str(problem.get("detail", HTTPStatus(status).phrase))
    mistakes = []
    for error in problem.get("errors", ()):
        text = str(error["detail"])
        place = error.get("pointer") or error.get("parameter") or error.get("header") or ""
        mistakes.append(write(place, text))
        if detail.endswith(f": {text}"):  # the detail quotes it for readers of the detail alone
            detail = f"{detail.removesuffix(f': {text}')}."
    named = [] if mistakes and detail in UNSPECIFIC else [detail]
    return one_line(" ".join([*named, "; ".join(mistakes)]))


def _mistake(place: str, detail: str) -> str:
    """An error; a member of the body is named without the "/" of its pointer."""
    name = place[1:] if place.rfind("/") == 0 else place
    return f"{name}: {detail}" if name else detail
