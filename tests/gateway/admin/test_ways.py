"""Every operation does the same by REST, as a tool of MCP, as a method of /rpc, and by commands, in
their own process or at a running gateway: effect, errors and audit records.

Commands are run through click: `toolgate admin NAME` for every operation, and the words of those
that have some. Each operation is called by REST, by MCP or /rpc, and by one of its commands, drawn
at random, and by all ways before a release. Lists are compared at the end, while nothing changes.
"""

import json
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import click
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from config.access import SecretsSettings
from config.settings import Settings, Toolset
from config.sources import SchemeSettings
from gateway.app.operations import registry_operations
from gateway.cli.commands import GROUPS, STATUS, CommandRow
from gateway.cli.common.audited_commands import actor
from gateway.cli.common.operation_parameters import Member, members_of_call
from gateway.cli.local import LocalOperations, open_operations
from gateway.operations.operation import Operation
from registry.access.approvals import ApprovalRequest, Approvals
from registry.access.secrets import Keys
from registry.connections.accounts import Connections, NewConnection, Owner, Secret
from registry.database.postgres import borrow
from registry.login.logins_and_grants import add_login
from registry.login.people import Person, handle_of, note_login
from registry.login.registered_clients import Clients, StoredClient
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, Admin, bearer, open_admin
from tests.gateway.admin.inputs import CASES, Case, Json
from tests.gateway.admin.test_operation_tools import Tools
from tests.gateway.cli.processes import command
from tests.gateway.cli.test_running import OPENING
from tests.gateway.cli.test_skills import TAGGED
from tests.gateway.guards.signing import by_jwks
from tests.polling import until
from tests.properties import SHARE

pytestmark = pytest.mark.anyio

PUBLIC_URL = "http://127.0.0.1:8000"
DONE = "Done."  # of a method that gives nothing
MESSAGES = ("mcp", "rpc")
COMMANDS = ("remote", "local", "words", "spoken")
WAYS = ("rest", *MESSAGES, *COMMANDS)
HERE = frozenset({"local", "words"})  # commands that run in their own process
VOLATILE = frozenset({
    *("id", "created", "expires", "updated", "started", "ended", "since", "key_id", "makers"),
    *("decided_by", "principal", "override_user", "override_time", "secret", "result", "job"),
    *("took", "took_ms", "p50_ms", "p95_ms", "records", "heads", "gone", "done", "total"),
    *("attempt", "person", "login", "invitation", "invited", "first", "last", "began", "used"),
    *("client_id", "created_by", "updated_by", "requester"),
})  # fmt: skip
"""Members that another caller or another moment has otherwise."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)|[0-9a-f]{32,64}")


@dataclass(frozen=True)
class Outcome:
    value: Any = None
    errors: tuple[str, ...] = ()  # texts; (): it was done

    @property
    def text(self) -> str:
        return " ".join(self.errors)


Call = Callable[[str, Json], Awaitable[Outcome]]


@dataclass(frozen=True)
class CommandLine:
    """Runs `toolgate` in this process, with the settings of the gateway."""

    settings_file: Path
    key_file: Path

    @classmethod
    def of(cls, settings: Settings, folder: Path) -> "CommandLine":
        audit, pets = settings.audit, settings.sources["pets"]
        members = {
            "audit": {"mode": "always", "spool_dir": audit.spool_dir},
            "database": {"url": settings.database.url},
            "embedding": {"provider": "disabled"},
            "auth": {"mode": "jwt"},
            "imports": {"private_networks": True},
            "login": {"enabled": True, "users": True},
            "server": {"public_url": PUBLIC_URL},
            "secrets": {"key": f"${{file:{folder / 'secret'}}}"},
            "sources": {"pets": {"openapi": pets.openapi, "base_url": pets.base_url}},
            "toolsets": {"some": {"include": ["get*"]}},
        }
        (folder / "secret").write_text(settings.secrets.key)
        file = folder / "toolgate.yaml"
        file.write_text(json.dumps(members))
        return cls(file, folder / "bearer")

    def at_gateway(self, url: str, who: Mapping[str, str]) -> tuple[str, ...]:
        self.key_file.write_text(who["Authorization"].removeprefix("Bearer "))
        return ("--url", url, "--key-file", str(self.key_file))

    async def __call__(self, *args: str) -> tuple[int, str, str]:
        return await command("-c", str(self.settings_file), *args)


def command_of(operation: Operation, arguments: Json) -> tuple[str, str, CommandRow] | None:
    """Group, word and row of the command that makes a call with these arguments."""
    for name, group in [*GROUPS.items(), ("", STATUS)]:
        for word, row in group.rows.items():
            if not isinstance(row, CommandRow) or row.operation != operation.id:
                continue
            members = members_of_call(operation)
            if all(
                arguments.get(member, None if members[member].required else value) is value
                for member, value in row.members.items()
            ):
                return name, word, row
    return None


def words_of(operation: Operation, arguments: Json) -> tuple[list[str], list[str]] | None:
    """Options and arguments of a call as a command; None: it has none, or texts cannot say the
    arguments."""
    command = command_of(operation, arguments)
    if command is None:
        return None
    group, word, row = command
    members, rest = members_of_call(operation), dict(arguments)
    if operation.match == "required" and rest.keys().isdisjoint({"if_match", "if_none_match"}):
        return None  # commands always give a condition
    placed = [str(rest.pop(name)) for name in operation.names]
    args = [*([group] if group else []), word]
    for name, option in (("if_match", "--if-match"), ("if_none_match", "")):
        value = rest.pop(name, None)
        args += [option, value] if value is not None and option else []
    rest = {name: value for name, value in rest.items() if name not in row.members}
    if row.body:
        return args, [*placed, json.dumps(rest.get("body", rest))]
    said = members_said(row, members, rest)
    if said is None:
        return None
    asks = ["--yes"] if row.asks(operation) else []
    return [*args, *said[0], *asks], [*placed, *said[1]]


def members_said(
    row: CommandRow, members: Mapping[str, Member], values: Json
) -> tuple[list[str], list[str]] | None:
    """Options and arguments for members; None: texts cannot say them."""
    args: list[str] = []
    placed: list[str] = []
    for name, value in values.items():
        member = members.get(name)
        singles = value if isinstance(value, list) else [value]
        if member is None or (member.type is click.STRING and not all_texts(singles)):
            return None
        if not singles:  # no text, or an empty one
            if name in row.arguments:
                return None
            singles = [""]
        if member.is_flag:
            if value is not member.default:
                args.append(option_name(row, member))
        elif name in row.arguments:
            placed += map(text_of, singles)
        else:
            for single in singles:
                args += [option_name(row, member), text_of(single)]
    return args, placed


def all_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def option_name(row: CommandRow, member: Member) -> str:
    turned = "no-" if member.is_flag and member.default is True else ""
    return f"--{row.options.get(member.name) or turned + member.word}"


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class House:
    """A gateway, and all ways to its operations. The caller has the name of the way."""

    def __init__(
        self, client: Client, api: Admin, local: LocalOperations, command_line: CommandLine
    ) -> None:
        self.client = client
        self.api = api
        self.local = local
        self.command_line = command_line
        admin = client.gateway.admin
        assert admin is not None
        self.operations: Mapping[str, Operation] = admin.operations.by_id
        self.ways: Mapping[str, Call] = {
            "rest": self.by_rest, "mcp": self.by_mcp, "rpc": self.by_rpc,
            "remote": self.by_remote, "local": self.by_local,
            "words": self.by_words, "spoken": self.by_spoken,
        }  # fmt: skip

    def who(self, way: str) -> dict[str, str]:
        return bearer(way, roles=["operator"])

    async def by_rest(self, id_: str, arguments: Json, way: str = "rest") -> Outcome:
        operation = self.operations[id_]
        body, headers, query = dict(arguments), self.who(way), []
        path = operation.path
        for name in operation.names:
            path = path.replace(f"{{{name}}}", quote(str(body.pop(name)), safe=""))
        for field in operation.query.__struct_fields__:
            if field in body:
                given = body.pop(field)
                query.append(f"{field}={given if isinstance(given, str) else json.dumps(given)}")
        for name, header in (("if_match", "If-Match"), ("if_none_match", "If-None-Match")):
            if name in body:
                headers[header] = body.pop(name)
        sent = body.get("body", body)
        data = None
        if operation.body is not None and (sent or not operation.optional_body):
            data, headers["Content-Type"] = json.dumps(sent).encode(), "application/json"
        url = f"{path}?{'&'.join(query)}" if query else path
        answer = await self.api.raw(operation.method, url, data, headers)
        value: Any = answer.json if answer.body else None
        if answer.status >= 400:
            return Outcome(errors=texts(value))
        return await self.await_outcome(id_, value) if answer.status == 202 else Outcome(value)

    async def by_mcp(self, id_: str, arguments: Json) -> Outcome:
        tools = Tools(self.client, who=self.who("mcp"))
        return await self.of_result(id_, await tools.call(id_, **arguments))

    async def by_rpc(self, id_: str, arguments: Json) -> Outcome:
        body = {"jsonrpc": "2.0", "id": 1, "method": id_, "params": arguments}
        _, answer, _ = await self.client.post("/rpc/admin", body, self.who("rpc"))
        if "error" in answer:
            return Outcome(errors=(json.dumps(answer["error"], ensure_ascii=False),))
        value = None if answer["result"] == DONE else answer["result"]
        if isinstance(value, dict) and ("isError" in value or "content" in value):
            return await self.of_result(id_, value)
        return await self.await_outcome(id_, value)

    async def of_result(self, id_: str, result: Json) -> Outcome:
        if "error" in result or result.get("isError"):
            return Outcome(errors=(json.dumps(result, ensure_ascii=False),))
        return await self.await_outcome(id_, result.get("structuredContent"))

    async def by_remote(self, id_: str, arguments: Json) -> Outcome:
        """`toolgate admin`, at the running gateway."""
        where = self.command_line.at_gateway(self.client.url, self.who("remote"))
        return await self.by_admin(id_, arguments, *where)

    async def by_local(self, id_: str, arguments: Json) -> Outcome:
        """`toolgate admin`, over the registry."""
        return await self.by_admin(id_, arguments)

    async def by_admin(self, id_: str, arguments: Json, *where: str) -> Outcome:
        args = ("admin", id_, "--args", json.dumps(arguments), *where)
        return self.of_command(id_, await self.command_line(*args))

    async def by_words(self, id_: str, arguments: Json) -> Outcome:
        """The command of the operation, over the registry."""
        return await self.by_word(id_, arguments)

    async def by_spoken(self, id_: str, arguments: Json) -> Outcome:
        """The command of the operation, at the running gateway."""
        where = self.command_line.at_gateway(self.client.url, self.who("spoken"))
        return await self.by_word(id_, arguments, *where)

    async def by_word(self, id_: str, arguments: Json, *where: str) -> Outcome:
        words = words_of(self.operations[id_], arguments)
        assert words is not None
        options, placed = words
        args = (*options, "--json", *where, "--", *placed)
        outcome = self.of_command(id_, await self.command_line(*args))
        chosen = command_of(self.operations[id_], arguments)
        is_each = chosen is not None and chosen[2].each and isinstance(outcome.value, list)
        return Outcome(outcome.value[0]) if is_each else outcome

    def of_command(self, id_: str, ran: tuple[int, str, str]) -> Outcome:
        code, out, err = ran
        value = json.loads(out) if out.strip() else None
        if id_ not in {"getJob", "cancelJob"} and isinstance(value, dict) and "operation" in value:
            value = value.get("result")  # of a job
        return Outcome(value) if code == 0 else Outcome(errors=(err,))

    async def await_outcome(self, id_: str, value: Any) -> Outcome:
        """The outcome of a job, where one was begun."""
        if id_ in {"getJob", "cancelJob"} or not (
            isinstance(value, dict) and {"job", "operation"} <= value.keys()
        ):
            return Outcome(value)
        path = f"/jobs/{value['job']}"

        async def ended_job() -> Any:
            job = (await self.api.raw("GET", path, None, self.who("poller"))).json
            return job if "ended" in job else None

        job = await until(ended_job)
        problem = job.get("problem")
        return Outcome(job.get("result"), () if problem is None else texts(problem))

    async def prepare(self, id_: str, way: str, case: Case) -> Json:
        """Make what the case is about, and give the ids that it has."""
        ids: Json = {}
        for before, arguments in case.before:
            outcome = await self.by_rest(before, insert_names(arguments, id_, way, {}))
            assert not outcome.errors, (id_, before, outcome.text)
            if before == "createKey":
                ids["KEY"] = outcome.value["key"]["id"]
            if before == "revokeTokens":
                ids["REVOCATION"] = outcome.value["id"]
        if case.prepare == "approval":
            ids["ID"] = await self.approval()
        if case.prepare == "job":
            # not verifyAudit, which reads the records of all calls before
            operation = self.operations["backfillEmbeddings"]
            body = await self.api.raw("POST", operation.path, None, self.who("rest"))
            ids["ID"] = body.json["job"]
            await self.await_outcome(operation.id, body.json)
        if case.prepare == "session":
            await self.client.post("/mcp", OPENING, bearer("visitor"))
            listed = await self.by_rest("listSessions", {"principal": "visitor"})
            ids["ID"] = listed.value["items"][0]["id"]
        if case.prepare == "client":
            ids["ID"] = await self.registered_client()
        if case.prepare in {"person", "login", "connection"}:
            ids["ID"] = await self.person(case.prepare)
        return ids

    async def registered_client(self) -> str:
        pool = self.client.gateway.feed.database.pool  # type: ignore[union-attr]
        id_ = f"client-{uuid4().hex}"
        document = {"client_name": "Test", "redirect_uris": ["http://127.0.0.1/callback"]}
        assert await Clients(pool, HOST).add(StoredClient(id_, "registered", document), 100, 60)
        listed = await self.by_rest("listClients", {"limit": 100})
        ids: dict[str, str] = {entry["client_id"]: entry["id"] for entry in listed.value["items"]}
        return ids[id_]

    async def person(self, wanted: str) -> str:
        """A person with a login and a connection: the id of what is wanted of them."""
        pool = self.client.gateway.feed.database.pool  # type: ignore[union-attr]
        person = Person(HOST, f"corp:{uuid4().hex}", "corp", "Ann")
        login = uuid4()
        async with borrow(pool) as connection, connection.transaction():
            await note_login(connection, HOST, person)
            await add_login(
                connection, HOST, login=login, tenant=HOST, principal=person.principal,
                provider="corp", person=to_builtins(person), upstream=None, lasts_s=900,
            )  # fmt: skip
        owner = Owner(HOST, person.principal, "pets")
        secret = Secret(SchemeSettings(value="a-planted-secret"))
        keys = Keys.of(self.client.gateway.settings.secrets)
        new = NewConnection("key", "api_key", secret)
        id_ = await Connections(pool, HOST, keys).put(owner, new, 10)
        ids = {"person": handle_of(person.principal), "login": str(login), "connection": str(id_)}
        return ids[wanted]

    async def approval(self) -> str:
        tool, digest = str(uuid4()), uuid4().hex * 2
        call = ApprovalRequest("ada", tool, "pay", "bank", digest, "sums", "large")
        pool = self.client.gateway.feed.database.pool  # type: ignore[union-attr]
        id_, _ = await Approvals(pool, HOST).request(call, "{}", 900, 500)
        return id_


def texts(problem: Json) -> tuple[str, ...]:
    """What a problem says: its errors, or itself."""
    return tuple(error["detail"] for error in problem.get("errors", ())) or (problem["detail"],)


def insert_names(value: Any, id_: str, way: str, ids: Json) -> Any:
    text = json.dumps(value)
    for mark, id_of in ids.items():
        text = text.replace(f'"{mark}"', json.dumps(id_of))
    return json.loads(text.replace("NAME", f"{id_.lower()}-{way}"))


def strip_volatile(value: Any, way: str) -> Any:
    """A response without what is another one each time."""
    if isinstance(value, dict):
        kept = {name: member for name, member in value.items() if name not in VOLATILE}
        return {name: strip_volatile(member, way) for name, member in kept.items()}
    if isinstance(value, list):
        return [strip_volatile(member, way) for member in value]
    return TIME.sub("*", value).replace(f"-{way}", "-way") if isinstance(value, str) else value


@pytest.fixture
def whole(settings: Settings, tmp_path: Path) -> Settings:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "audit"), flush_s=0.05)
    return replace(
        settings,
        admin=replace(settings.admin, requests=0, tools=True),
        audit=audit,
        auth=by_jwks(tmp_path, [KEY.jwk()]),
        imports=replace(settings.imports, private_networks=True),
        login=replace(settings.login, enabled=True, users=True),
        secrets=SecretsSettings(key="A" * 43 + "=", old_keys=()),
        server=replace(settings.server, public_url=PUBLIC_URL),
        toolsets={"some": Toolset(include=("get*",))},
    )


@pytest.mark.timeout(600)  # some fifteen hundred requests
async def test_every_operation_does_the_same_by_every_way(whole: Settings, tmp_path: Path) -> None:
    """Effect, error text and audit record of every operation are those of the one row."""
    async with running(whole) as client, open_operations(whole) as local:
        command_line = CommandLine.of(whole, tmp_path)
        house = House(client, await open_admin(client.url, client.http), local, command_line)
        assert set(CASES) == set(house.operations), "each operation has a row of inputs"
        tagged = {"kind": "openapi", "name": "tagged", "document": TAGGED}
        base = "---\nname: base\ndescription: The base.\n---\nDo it.\n"
        for id_, arguments in (
            ("importSource", {"body": {**tagged, "base_url": "https://s.example"}}),
            ("importSkills", {"skills": [{"document": base}]}),
        ):
            assert not (await house.by_rest(id_, arguments)).errors
        of_registry = {row.id for row in registry_operations(local._parts())}
        faults: list[str] = []
        drawn: dict[str, list[str]] = {}
        for id_, case in CASES.items():
            drawn[id_] = draw_ways(house.operations[id_], case, of_registry)
            faults += await differences(house, id_, case, drawn[id_], of_registry)
        assert not faults, "\n".join(faults)
        await check_audit(house, drawn, of_registry)
        for id_, arguments in LISTED.items():
            ways = draw_ways(house.operations[id_], Case(arguments, None), of_registry)
            faults += await compare_list(house, id_, ways)
        assert not faults, "\n".join(faults)


def offers(way: str, operation: Operation, arguments: Json, of_registry: set[str]) -> bool:
    """Whether a way has the operation at all, and can say the arguments."""
    if way in HERE and operation.id not in of_registry:
        return False
    if way in {"words", "spoken"}:
        return words_of(operation, arguments) is not None
    return way not in {"mcp", "rpc"} or not operation.no_tool


def draw_ways(operation: Operation, case: Case, of_registry: set[str]) -> list[str]:
    """The ways that an operation is tried by: REST, MCP or /rpc, and one of its commands."""
    arguments = case.valid or case.invalid or {}
    ways = [way for way in WAYS if offers(way, operation, arguments, of_registry)]
    if SHARE >= 1:
        return ways
    groups = [[way for way in ways if way in group] for group in (MESSAGES, COMMANDS)]
    return ["rest", *(random.choice(group) for group in groups if group)]


def plain(text: str) -> str:
    """A text on one line, without the escapes of JSON."""
    return " ".join(text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\").split())


async def differences(
    house: House, id_: str, case: Case, ways: Sequence[str], of_registry: set[str]
) -> list[str]:
    operation, faults = house.operations[id_], list[str]()
    done: dict[str, str] = {}
    refused: dict[str, Outcome] = {}
    for way in ways:
        ids = await house.prepare(id_, way, case)
        call = house.ways[way]
        if case.invalid is not None and offers(way, operation, case.invalid, of_registry):
            refused[way] = await call(id_, insert_names(case.invalid, id_, way, ids))
        if case.valid is not None:
            outcome = await call(id_, insert_names(case.valid, id_, way, ids))
            if outcome.errors and id_ != "restartGateway":
                faults.append(f"{id_} by {way}: {outcome.text[:300]}")
            done[way] = json.dumps(strip_volatile(entries_of(outcome.value), way), sort_keys=True)
    if len(set(done.values())) > 1 and id_ not in UNEQUAL:
        faults.append(f"{id_}: {json.dumps({way: text[:400] for way, text in done.items()})}")
    for way, outcome in refused.items():
        said = [plain(text.replace("-rest", f"-{way}")) for text in refused["rest"].errors]
        if not outcome.errors:
            faults.append(f"{id_} by {way}: the invalid input was taken")
        elif "limit" not in (case.invalid or {}) and not all(
            text in outcome.text.replace('\\"', '"').replace("\\\\", "\\") for text in said
        ):
            faults.append(f"{id_} by {way}: {outcome.text[:300]} lacks {said}")
    return faults


UNEQUAL = frozenset({
    *("describe", "explain", "getEmbeddings", "getStatus", "listAgents", "listApprovals"),
    *("listKeys", "listRevocations", "listRules", "listSecrets", "listSkills", "listSources"),
    *("removeEndedJobs", "backfillEmbeddings", "listConnections", "listLogins", "listPeople"),
    *("listErasures", "listClients", "listUsers", "listToolsets", "exportToolsets"),
})  # fmt: skip
"""Their answers have what the ways before have made. They are compared at the end."""
LISTED: Mapping[str, Json] = {
    **{id_: {"limit": 100} for id_ in (
        "listAgents", "listApprovals", "listKeys", "listRevocations", "listRules", "listSecrets",
        "listSkills", "listSources", "listTools", "listToolsets", "listJobs", "listSessions",
        "listConnections", "listLogins", "listPeople", "listUsers", "listClients",
    )},
    **{id_: CASES[id_].valid or {} for id_ in ("describe", "explain", "getEmbeddings")},
}  # fmt: skip


async def compare_list(house: House, id_: str, ways: Sequence[str]) -> list[str]:
    """Differences of a list between the ways, while nothing changes."""
    answers: dict[str, str] = {}
    for way in ways:
        arguments = LISTED[id_]
        if way in {"words", "spoken"}:  # all pages
            arguments = {name: value for name, value in arguments.items() if name != "limit"}
        outcome = await house.ways[way](id_, arguments)
        assert not outcome.errors, (id_, way, outcome.text)
        entries = without_moments(entries_of(outcome.value))
        answers[way] = json.dumps(entries, sort_keys=True)
    if len(set(answers.values())) == 1:
        return []
    return [f"{id_}: {json.dumps({way: text[:600] for way, text in answers.items()})}"]


def entries_of(value: Any) -> Any:
    """The entries of a page, which is what a command prints of it."""
    return value["items"] if isinstance(value, dict) and "items" in value else value


def without_moments(value: Any) -> Any:
    """A response without members that change by themselves."""
    if isinstance(value, dict):
        return {
            name: without_moments(member)
            for name, member in value.items()
            if name not in {"last_used", "took_ms", "updated"}
        }
    return [without_moments(member) for member in value] if isinstance(value, list) else value


async def check_audit(
    house: House, drawn: Mapping[str, Sequence[str]], of_registry: set[str]
) -> None:
    """Each way has left a record of each change, and of each refusal, under the same operation."""

    async def lacking_records(way: str) -> Mapping[str, set[bool]]:
        principal = actor() if way in HERE else way
        lacking = {id_: outcomes_of(id_, way) for id_, ways in drawn.items() if way in ways}
        for item in await house.local.items("searchAudit", {"principal": principal}):
            record = item["entry"]
            name = record.get("subject") if way in {"mcp", "rpc"} else record.get("method")
            lacking.get(name, set()).discard(record.get("outcome") == "ok")
        return {id_: outcomes for id_, outcomes in lacking.items() if outcomes}

    def outcomes_of(id_: str, way: str) -> set[bool]:
        operation, case = house.operations[id_], CASES[id_]
        if operation.effect == "read":
            return set()
        if id_ == "restartGateway":  # nothing starts the gateway of a test again
            return {False}
        invalid = case.invalid
        can_fail = invalid is not None and offers(way, operation, invalid, of_registry)
        return ({True} if case.valid is not None else set()) | ({False} if can_fail else set())

    for way in WAYS:

        async def is_complete(way: str = way) -> bool:
            return not await lacking_records(way)

        with suppress(TimeoutError):
            await until(is_complete)
        assert not await lacking_records(way), way
