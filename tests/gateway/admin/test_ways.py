"""Every operation does the same by REST, as a tool of MCP, as a method of /rpc, and by commands, in
their own process or at a running gateway: effect, errors and audit records."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from config.access import SecretsSettings
from config.settings import Settings, Toolset
from gateway.app.operations import registry_operations
from gateway.cli.common.acts import actor
from gateway.cli.common.failure import CommandFailure
from gateway.cli.local import LocalOperations, open_operations
from gateway.cli.running.client import RunningGateway
from gateway.operations.operation import Operation
from registry.access.approvals import ApprovalRequest, Approvals
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, ROOT, Admin, bearer, described
from tests.gateway.admin.inputs import CASES, Case, Json
from tests.gateway.admin.test_operation_tools import Tools
from tests.gateway.cli.test_running import OPENING
from tests.gateway.cli.test_skills import TAGGED
from tests.gateway.guards.signing import by_jwks
from tests.polling import until

pytestmark = pytest.mark.anyio

DONE = "Done."  # of a method that gives nothing
WAYS = ("rest", "mcp", "rpc", "remote", "local")
VOLATILE = frozenset({
    *("id", "created", "expires", "updated", "started", "ended", "since", "key_id", "makers"),
    *("decided_by", "principal", "override_user", "override_time", "secret", "result", "job"),
    *("took", "took_ms", "p50_ms", "p95_ms", "records", "heads", "gone", "done", "total"),
    "attempt",
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


class House:
    """A gateway, and all ways to its operations. The caller has the name of the way."""

    def __init__(self, client: Client, api: Admin, local: LocalOperations) -> None:
        self.client = client
        self.api = api
        self.local = local
        admin = client.gateway.admin
        assert admin is not None
        self.operations: Mapping[str, Operation] = admin.operations.by_id
        self.ways: Mapping[str, Call] = {
            "rest": self.by_rest, "mcp": self.by_mcp, "rpc": self.by_rpc,
            "remote": self.by_remote, "local": self.by_local,
        }  # fmt: skip

    def who(self, way: str) -> dict[str, str]:
        return bearer(way, roles=["operator"])

    async def by_rest(self, id_: str, arguments: Json, way: str = "rest") -> Outcome:
        operation = self.operations[id_]
        body, headers, query = dict(arguments), self.who(way), []
        path = operation.path
        for name in operation.names:
            path = path.replace(f"{{{name}}}", str(body.pop(name)))
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
        return await self.ended(id_, value) if answer.status == 202 else Outcome(value)

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
        return await self.ended(id_, value)

    async def of_result(self, id_: str, result: Json) -> Outcome:
        if "error" in result or result.get("isError"):
            return Outcome(errors=(json.dumps(result, ensure_ascii=False),))
        return await self.ended(id_, result.get("structuredContent"))

    async def by_remote(self, id_: str, arguments: Json) -> Outcome:
        token = self.who("remote")["Authorization"].removeprefix("Bearer ")
        gateway = RunningGateway(self.client.url, ROOT, token)
        try:
            return await self.ended(id_, (await gateway.call(id_, arguments)).value)
        except CommandFailure as failure:
            return Outcome(errors=(failure.message,))

    async def by_local(self, id_: str, arguments: Json) -> Outcome:
        try:
            return Outcome((await self.local.call(id_, arguments)).value)
        except CommandFailure as failure:
            return Outcome(errors=(failure.message,))

    async def ended(self, id_: str, value: Any) -> Outcome:
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
            outcome = await self.by_rest(before, named(arguments, id_, way, {}))
            assert not outcome.errors, (id_, before, outcome.text)
            if before == "createKey":
                ids["KEY"] = outcome.value["key"]["id"]
            if before == "revokeTokens":
                ids["REVOCATION"] = outcome.value["id"]
        if case.prepare == "approval":
            ids["ID"] = await self.approval()
        if case.prepare == "job":
            body = await self.api.raw("POST", "/audit/verification", None, self.who("rest"))
            ids["ID"] = body.json["job"]
            await self.ended("verifyAudit", body.json)
        if case.prepare == "session":
            await self.client.post("/mcp", OPENING, bearer("visitor"))
            listed = await self.by_rest("listSessions", {"principal": "visitor"})
            ids["ID"] = listed.value["items"][0]["id"]
        return ids

    async def approval(self) -> str:
        tool, digest = str(uuid4()), uuid4().hex * 2
        call = ApprovalRequest("ada", tool, "pay", "bank", digest, "sums", "large")
        pool = self.client.gateway.feed.database.pool  # type: ignore[union-attr]
        id_, _ = await Approvals(pool, HOST).request(call, "{}", 900, 500)
        return id_


def texts(problem: Json) -> tuple[str, ...]:
    """What a problem says: its errors, or itself."""
    return tuple(error["detail"] for error in problem.get("errors", ())) or (problem["detail"],)


def named(value: Any, id_: str, way: str, ids: Json) -> Any:
    text = json.dumps(value)
    for mark, id_of in ids.items():
        text = text.replace(f'"{mark}"', json.dumps(id_of))
    return json.loads(text.replace("NAME", f"{id_.lower()}-{way}"))


def settled(value: Any, way: str) -> Any:
    """A response without what is another one each time."""
    if isinstance(value, dict):
        kept = {name: member for name, member in value.items() if name not in VOLATILE}
        return {name: settled(member, way) for name, member in kept.items()}
    if isinstance(value, list):
        return [settled(member, way) for member in value]
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
        jobs=replace(settings.jobs, poll_s=0.05),
        secrets=SecretsSettings(key="A" * 43 + "=", old_keys=()),
        toolsets={"some": Toolset(include=("get*",))},
    )


@pytest.mark.timeout(600)  # some fifteen hundred requests
async def test_every_operation_does_the_same_by_every_way(whole: Settings) -> None:
    """Effect, error text and audit record of every operation are those of the one row."""
    async with running(whole) as client, open_operations(whole) as local:
        house = House(client, await described(client.url, client.http), local)
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
        for id_, case in CASES.items():
            faults += await differences(house, id_, case, of_registry)
        assert not faults, "\n".join(faults)
        await audited(house, of_registry)


def offers(way: str, operation: Operation, of_registry: set[str]) -> bool:
    """Whether a way has the operation at all."""
    if way == "local":
        return operation.id in of_registry
    return way not in {"mcp", "rpc"} or not operation.no_tool


def plain(text: str) -> str:
    """A text on one line, without the escapes of JSON."""
    return " ".join(text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\").split())


async def differences(house: House, id_: str, case: Case, of_registry: set[str]) -> list[str]:
    operation, faults = house.operations[id_], list[str]()
    done: dict[str, str] = {}
    refused: dict[str, Outcome] = {}
    for way in WAYS:
        if (way in {"mcp", "rpc"} and operation.no_tool) or (
            way == "local" and id_ not in of_registry
        ):
            continue
        ids = await house.prepare(id_, way, case)
        call = house.ways[way]
        if case.invalid is not None:
            refused[way] = await call(id_, named(case.invalid, id_, way, ids))
        if case.valid is not None:
            outcome = await call(id_, named(case.valid, id_, way, ids))
            if outcome.errors and id_ != "restartGateway":
                faults.append(f"{id_} by {way}: {outcome.text[:300]}")
            done[way] = json.dumps(settled(outcome.value, way), sort_keys=True)
    if len(set(done.values())) > 1 and id_ not in UNEQUAL:
        faults.append(f"{id_}: {json.dumps({way: text[:400] for way, text in done.items()})}")
    for way, outcome in refused.items():
        said = [plain(text.replace("-rest", f"-{way}")) for text in refused["rest"].errors]
        if not outcome.errors:
            faults.append(f"{id_} by {way}: the invalid input was taken")
        elif not all(
            text in outcome.text.replace('\\"', '"').replace("\\\\", "\\") for text in said
        ):
            faults.append(f"{id_} by {way}: {outcome.text[:300]} lacks {said}")
    return faults


UNEQUAL = frozenset({
    *("describe", "explain", "getEmbeddings", "getStatus", "listAgents", "listApprovals"),
    *("listKeys", "listRevocations", "listRules", "listSecrets", "listSkills", "listSources"),
    *("removeEndedJobs", "backfillEmbeddings", "evaluateSearch", "explainSearch"),
})  # fmt: skip
"""Their answers have what the ways before have made, or why a process has no vectors."""


async def audited(house: House, of_registry: set[str]) -> None:
    """Each way has left a record of each change, and of each refusal, under the same operation."""

    async def records(way: str) -> dict[str | None, set[bool]]:
        principal = actor() if way == "local" else way
        found: dict[str | None, set[bool]] = {}
        for entry in await house.local.items("searchAudit", {"principal": principal}):
            record = entry["entry"]
            name = record.get("subject") if way in {"mcp", "rpc"} else record.get("method")
            found.setdefault(name, set()).add(record.get("outcome") == "ok")
        return found

    for way in WAYS:
        expected = {
            id_
            for id_, operation in house.operations.items()
            if operation.effect != "read" and offers(way, operation, of_registry)
        }

        async def complete(way: str = way, expected: set[str] = expected) -> bool:
            return expected <= (await records(way)).keys()

        await until(complete)
        found = await records(way)
        for id_ in expected - {"approveTool", "restartGateway"}:  # without a valid input here
            outcomes = {True} if CASES[id_].invalid is None else {True, False}
            assert outcomes <= found[id_], (way, id_, found[id_])
