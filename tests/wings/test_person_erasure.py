"""An erasure of a person over all wings, with two people and two tenants."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace

from config.access import Rule, SecretsSettings
from config.models import Strategy
from config.settings import DatabaseSettings, Settings
from gateway.audit.database_writer import store
from gateway.audit.erasure import AuditEraser
from gateway.audit.records import AuditEntry, Chain
from gateway.audit.verification import verify
from gateway.state.idempotency import IdempotencyKeys, KeyScope, StillRunning
from registry.access.erasures import ErasureStore
from registry.database.person_rows import ErasedPerson, HeldRows
from registry.database.postgres import Database, Pool
from tests.fixtures_database import HOST, Cluster, lend_database
from tests.fixtures_gateway import Client, running
from tests.gateway.admin import client as admin
from tests.gateway.admin.client import KEY
from tests.gateway.guards.signing import by_jwks
from tests.recycling import Recycling
from tests.wings.identities import OTHER, add_tenants
from tests.wings.test_toy import got

pytestmark = pytest.mark.anyio

ANN, BOB = "corp:ann-7f3e", "corp:bob-51c9"
PATH = "/admin/v1/erasures"
bearer = partial(admin.bearer, host=HOST)
WINGS = ("memory", "agent", "events", "knowledge", "librarian", "code", "a2a", "notifications")
NOW = datetime.now(UTC)
LATER = NOW + timedelta(days=9)
KEPT = {"revocation_t"}
"""Tables in which the name may stand after an erasure: docs/how-to/erase-a-person.md."""

Row = Mapping[str, Any]


def held_rows(tenant: str, person: str) -> list[tuple[str, Row]]:
    """Rows of a person in the tables of all parts."""
    run, call, approval, collection, shared, conversation, task = (str(uuid4()) for _ in range(7))
    caller = json.dumps({"principal": {"id": person, "tenant": tenant}})
    text, data = f"A secret of {person}.", f"A secret of {person}.".encode()
    digest = uuid4().bytes * 2
    mail = f"{person.removeprefix('corp:')}@a.example"
    owned = {"host_id": tenant, "owner": person}
    of_login = {"host_id": HOST, "tenant_id": tenant, "principal": person}
    called = {"host_id": tenant, "principal": person}
    invocation = {
        "host_id": tenant, "topic": "t", "skill_name": "s", "request_hash": digest,
        "arguments": json.dumps(text), "principal_id": person, "principal": caller,
        "repeatable": True, "max_attempts": 1, "idempotency_key": text,
    }  # fmt: skip
    ended = {**invocation, "invocation_id": call, "correlation_id": call, "seq": 9, "due_ts": NOW,
             "status": "ACKED", "result": json.dumps(text), "finished_ts": NOW,
             "created_ts": NOW, "changed_ts": NOW, "attempt": 0, "redriven": 0, "fence": 0,
             "priority": 5, "hops": 0, "blocked": False, "on_failure": "skip", "queue": "",
             "cancelling": False}  # fmt: skip
    approved = {
        **called, "makers": [person], "tool_id": run, "tool": "pay", "source": "bank",
        "digest": "d" * 64, "arguments": text, "rule": "r", "expire_ts": LATER,
    }  # fmt: skip
    return [
        ("api_key_t", {**called, "key_id": uuid4().hex[:12], "name": person,
                       "secret_digest": digest}),
        ("api_key_t", {**called, "principal": "key:ci", "key_id": uuid4().hex[:12],
                       "name": f"ci {tenant} {uuid4()}", "makers": [person],
                       "secret_digest": digest}),
        ("approval_t", {**approved, "approval_id": approval, "state": "used",
                        "program": json.dumps(text)}),
        ("approval_t", {**approved, "state": "waiting"}),
        ("approval_t", {**approved, "principal": "key:ci", "makers": ["key:x"], "arguments": "{}",
                        "state": "approved", "decide_user": person}),
        ("approval_call_t", {"host_id": tenant, "approval_id": approval, "place": 0, "tool_id": run,
                             "tool": "pay", "source": "bank", "definition": "d", "arguments": text,
                             "number": 1, "digest": "d" * 64}),
        ("command_idempotency_t", {"host_id": tenant, "principal_id": person, "service_id": "x",
                                   "idempotency_key": "k", "request_hash": digest, "state": "done",
                                   "response": data, "expires_ts": LATER}),
        ("job_t", {"host_id": tenant, "operation": "x", "principal_id": person, "principal": caller,
                   "request": json.dumps(text), "result": json.dumps(text), "state": "succeeded",
                   "ended_ts": NOW}),
        ("toolset_t", {"host_id": tenant, "name": person[9:], "definition": "{}",
                       "create_principal": person, "update_principal": "ops"}),
        ("console_session_t", {"host_id": HOST, "digest": digest, "caller": caller,
                               "expires_ts": LATER}),
        ("login_person_t", {**of_login, "provider": "corp", "name": text, "roles": [],
                            "email": mail}),
        ("login_consent_t", {**of_login, "client_id": "c", "redirect": "r", "resource": "r",
                             "scopes": []}),
        ("connection_t", {**of_login, "connection_id": str(uuid4()), "source": "bank",
                          "scheme": "key", "kind": "api_key", "sealed": b"x"}),
        ("agent_conversation_t", {**owned, "conversation_id": conversation, "title": text}),
        ("agent_run_t", {**owned, "run_id": run, "conversation_id": conversation, "turn": 1,
                         "caller": caller, "content": text, "strategy": "s", "streams": False,
                         "state": "completed"}),
        ("agent_step_t", {"host_id": tenant, "run_id": run, "number": 1, "kind": "k",
                          "data": data}),
        ("agent_usage_t", {**owned, "day": NOW.date(), "tokens": 1, "money": 1, "seconds": 1,
                           "calls": 1}),
        ("cost_t", {"host_id": tenant, "day": NOW.date(), "kind": "answers", "caller": person,
                    "toolset": "", "model": "", "currency": "", "requests": 1, "tokens_in": 0,
                    "tokens_out": 1, "money_micros": 0}),
        ("code_run_t", {**called, "run_id": run, "record": data, "state": "ended",
                        "expires_ts": LATER}),
        ("code_shape_t", {**called, "tool_id": "t", "digest": "d", "shape": data}),
        ("a2a_task_t", {**owned, "task_id": task, "agent": "a", "context_id": "c",
                        "message_key": digest, "caller": caller, "work": "ended", "state": "done",
                        "task": data, "status_ts": NOW}),
        ("invocation_t", {**invocation, "invocation_id": run, "correlation_id": run,
                          "due_ts": LATER}),
        ("invocation_done_t", ended),
        ("librarian_run_t", {**owned, "run_id": run, "question": text, "collections": [],
                             "request": data}),
        ("librarian_question_t", {**called, "operation": "o", "request_id": "r", "question": text,
                                  "collections": [], "model": "", "shown": b"[]"}),
        ("knowledge_collection_t", {"host_id": tenant, "collection_id": collection,
                                    "name": f"notes of {person}", "kind": "docs",
                                    "owner": f"user:{person}", "on_same_source": "version"}),
        ("knowledge_collection_t", {"host_id": tenant, "collection_id": shared,
                                    "name": f"team {shared}", "kind": "docs",
                                    "owner": f"user:{person}", "on_same_source": "version"}),
        ("knowledge_grant_t", {"host_id": tenant, "collection_id": shared, "grantee": "scope:team",
                               "access": "admin"}),
        ("knowledge_grant_t", {"host_id": tenant, "collection_id": shared,
                               "grantee": f"user:{person}", "access": "read"}),
        ("knowledge_alias_t", {"host_id": tenant, "collection_id": shared, "alias": "a",
                               "norm": "b", "confidence": 1, "owner": f"user:{person}"}),
        ("librarian_source_t", {"host_id": tenant, "source_id": str(uuid4()), "collection": "c",
                                "collection_id": shared, "type": "url", "location": text, "ref": "",
                                "filter": [], "folder": "", "caller": caller, "interval_s": 0,
                                "webhook": False}),
        ("notification_target_t", {"host_id": tenant, "name": "mine" + person[5:8], "kind": "mail",
                                   "subjects": [], "place": "mail", "recipients": [mail]}),
        ("notification_target_t", {"host_id": tenant, "name": "team" + person[5:8], "kind": "mail",
                                   "subjects": [], "place": "mail",
                                   "recipients": [person, mail, "ops@a.example"]}),
        ("notification_incident_t", {"host_id": tenant, "subject": "budgets", "path": "agent",
                                     "key": f"agent {person}", "title": f"{person} has used 80%",
                                     "detail": ""}),
    ]  # fmt: skip


async def fill(pool: Pool, tenant: str, person: str) -> None:
    async with pool.connection() as connection:
        for table, row in held_rows(tenant, person):
            columns, places = ", ".join(row), ", ".join(["%s"] * len(row))
            statement = f"INSERT INTO {table} ({columns}) VALUES ({places})"
            await connection.execute(statement.encode(), [*row.values()])
        for table in ("usage_request_t (host_id, request_id, caller, query, called)",):
            await connection.execute(
                f"INSERT INTO {table} VALUES (%s, %s, md5(%s), %s, '{{}}')".encode(),
                [tenant, uuid4(), person, f"What does {person} like?"],
            )


async def write_audit(pool: Pool, key: bytes) -> None:
    """A chain with records of both people at both tenants, and of an operator who names Ann."""
    chain = Chain(HOST, node="n", started=NOW, key=key)
    own = [
        AuditEntry(
            tenant, NOW, principal=person, mark=f"sub {person}", session="s", subject="pay",
            method="tools/call", source="bank", arguments=f'{{"to":"{person}"}}', digest="d" * 64,
            request_id=uuid4().hex, client="192.0.2.1", outcome="ok",
        )
        for tenant in (HOST, OTHER) for person in (ANN, BOB)
    ]  # fmt: skip
    by_others = AuditEntry(
        HOST, NOW, principal="ops", method="revokeToken", subject=ANN, owner=ANN, request_id="r",
        outcome="ok",
    )  # fmt: skip
    last = replace(own[1], recorded_ts=NOW)
    await store(pool, key, chain.header, chain.link([*own, by_others, last]))


async def text_of_rows(pool: Pool) -> dict[str, list[str]]:
    """All rows of all tables as texts, as information_schema lists them."""
    async with pool.connection() as connection:
        tables = await connection.execute(
            "SELECT DISTINCT table_name FROM information_schema.columns"
            " JOIN information_schema.tables USING (table_schema, table_name)"
            " WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1"
        )
        rows: dict[str, list[str]] = {}
        for (table,) in await tables.fetchall():
            texts = await connection.execute(f"SELECT row::text FROM {table} AS row".encode())
            rows[table] = sorted(text for (text,) in await texts.fetchall())
    return rows


def naming(rows: Mapping[str, list[str]], *names: str) -> dict[str, list[str]]:
    """The rows that have one of the names, as text or as bytes."""
    wanted = [*names, *(name.encode().hex() for name in names)]
    found = {
        table: [text for text in texts if any(name in text for name in wanted)]
        for table, texts in rows.items()
    }
    return {table: texts for table, texts in found.items() if texts}


@pytest.fixture
def database_settings(cluster: Cluster, with_wings: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_wings)


@pytest.fixture
async def client(settings: Settings, tmp_path: Path) -> AsyncIterator[Client]:
    on = {name: replace(getattr(settings, name), enabled=True) for name in WINGS}
    settings = replace(
        settings,
        **on,
        auth=by_jwks(tmp_path, [KEY.jwk()], tenant_claim="host"),
        audit=replace(settings.audit, mode="always", flush_s=0.05, key="k" * 32),
        login=replace(settings.login, enabled=True, users=True),
        models=replace(
            settings.models,
            strategies={"openai_compatible": Strategy(url="http://127.0.0.1:9/v1")},
        ),
        policy=replace(settings.policy, rules={"ann": Rule("allow", principals=(ANN,))}),
        secrets=SecretsSettings(key="A" * 43 + "=", old_keys=()),
        server=replace(settings.server, public_url="https://gw.example"),
    )
    async with running(settings) as client:
        await client.gateway.wait_for_wings()
        yield client


def pool_of(client: Client) -> Pool:
    pool = client.gateway.feed.pool
    assert pool is not None
    return pool


async def erase(client: Client, **body: Any) -> tuple[int, Any]:
    who = bearer("privacy", scope="admin:erasures:write")
    status, answer, _ = await client.post(PATH, body, who)
    return status, answer


async def test_an_erasure_reaches_every_place_and_nobody_else(client: Client) -> None:
    pool, key = pool_of(client), b"k" * 32
    await add_tenants(client.gateway.feed.database)  # type: ignore[arg-type]
    for tenant in (HOST, OTHER):
        for person in (ANN, BOB):
            await fill(pool, tenant, person)
    await write_audit(pool, key)
    ann, bob = (bearer(who, scope="memory:read memory:write") for who in (ANN, BOB))
    for who, text in ((ann, "Ann likes tea"), (bob, "Bob likes milk")):
        body = {"content": text, "scope": "user"}
        assert (await client.post("/memory/v1/memories", body, who))[0] == 201

    before = await text_of_rows(pool)
    status, counted = await erase(client, person=ANN, dry_run=True)
    assert (status, "id" in counted) == (200, False)
    assert naming(await text_of_rows(pool), ANN) == naming(before, ANN)

    status, report = await erase(client, person=ANN, confirm=ANN)
    assert status == 200, report
    places = {entry["place"]: entry["rows"] for entry in report["places"]}
    dry = {entry["place"]: entry["rows"] for entry in counted["places"]}
    assert set(dry) <= set(places)
    assert places["memories"] == dry["memories"] == 1
    assert report["ended"]

    after = await text_of_rows(pool)
    mine = naming(after, ANN, ANN.removeprefix("corp:"))
    others = {table: [text for text in texts if OTHER not in text] for table, texts in mine.items()}
    assert {table for table, texts in others.items() if texts} <= KEPT, others
    assert naming({t: [x for x in r if OTHER in x] for t, r in after.items()}, ANN) == naming(
        {t: [x for x in r if OTHER in x] for t, r in before.items()}, ANN
    )
    assert naming(after, BOB) == naming(before, BOB)

    checked = await verify(pool, HOST, key)
    assert (checked.problems, checked.erased) == ([], places["audit records"])
    assert any("bank" in text for text in report["ask"])
    assert not any("chat model" in text for text in report["ask"])  # the strategy has no key


async def test_an_erasure_needs_its_scope_and_the_name_twice(client: Client) -> None:
    reader = bearer("ops", scope="admin:read")
    assert (await client.post(PATH, {"person": ANN, "confirm": ANN}, reader))[0] == 403
    for confirm in ("", BOB):
        status, problem = await erase(client, person=ANN, confirm=confirm)
        assert (status, problem["errors"][0]["pointer"]) == (422, "/confirm")
    status, problem = await erase(client, person="privacy", confirm="privacy")
    assert (status, problem["errors"][0]["pointer"]) == (422, "/person")
    assert (await got(client, PATH, **reader))[1]["items"] == []


async def test_paths_of_settings_are_reported_to_their_own_tenant_alone(client: Client) -> None:
    await add_tenants(client.gateway.feed.database)  # type: ignore[arg-type]
    places = {}
    for tenant in (HOST, OTHER):
        who = bearer("privacy", scope="admin:erasures:write", host=tenant)
        _, report, _ = await client.post(PATH, {"person": ANN, "dry_run": True}, who)
        kept = [entry["place"] for entry in report["kept"]]
        places[tenant] = [place for place in kept if place.startswith("settings")]
    assert places == {HOST: ["settings: policy.rules.ann.principals"], OTHER: ["settings"]}


async def test_a_second_erasure_is_refused_while_an_erasure_runs(client: Client) -> None:
    async with ErasureStore(pool_of(client), OTHER).turn():
        status, problem = await erase(client, person=ANN, confirm=ANN)
        assert (status, "is running" in problem["detail"]) == (409, True)
    assert (await erase(client, person=ANN, confirm=ANN))[0] == 200


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("corp:ann", True), ("ann-marie", True), ("x@ann.example", True), ("Ann", True),
        ("ann.search", True), ("planning", True), ("ann%", False), ("user:ann", False),
        ("Ask ann.", False), ('{"to":"ann"}', False), ("/keys/ann/roles", False),
    ],
)  # fmt: skip
async def test_longer_ids_do_not_match(database: Database, text: str, *, stays: bool) -> None:
    assert await matches(database, "ann", text) is not stays


@pytest.mark.parametrize("person", ['a"b\\c', "a_b%", "(.*", "[[:<:]]", "e\u0301", "***", " "])
async def test_an_id_of_any_characters_matches_itself_alone(
    database: Database, person: str
) -> None:
    in_json = json.dumps({"to": person}, ensure_ascii=False)
    assert await matches(database, person, f"Ask ({person})")
    assert await matches(database, person, in_json)
    assert not await matches(database, person, "b axbc")


async def matches(database: Database, person: str, text: str) -> bool:
    async with database.connect() as connection:
        values = {**ErasedPerson(HOST, person, "erased-1").values, "text": text}
        row = await (await connection.execute("SELECT %(text)s ~ %(word)s", values)).fetchone()
    return row == (True,)


async def test_stored_answers_that_name_the_person_are_blanked(client: Client) -> None:
    pool = pool_of(client)
    keys = IdempotencyKeys(lambda: pool, 60)
    own, named, unnamed = (KeyScope(HOST, who, "x", "k") for who in (ANN, "ops", "ci"))
    for scope, answer in ((own, b"{}"), (named, f'"{ANN}"'.encode()), (unnamed, b'"corp:ann-7f"')):
        await keys.claim(scope, b"request")
        await keys.record(scope, answer)
    assert (await erase(client, person=ANN, confirm=ANN))[0] == 200
    assert await keys.claim(own, b"request") is None
    assert await keys.claim(unnamed, b"request") == b'"corp:ann-7f"'
    with pytest.raises(StillRunning):
        await keys.claim(named, b"request")


async def test_calls_of_a_decided_approval_are_blanked_after_an_interruption(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(client)
    await fill(pool, HOST, ANN)
    with monkeypatch.context() as patch:
        patch.setattr(HeldRows, "erase_person", fail_of("calls in approvals"))
        assert "ended" not in (await erase(client, person=ANN, confirm=ANN))[1]
    assert (await erase(client, person=ANN, confirm=ANN))[1]["ended"]
    assert naming({"": (await text_of_rows(pool))["approval_call_t"]}, ANN) == {}


async def test_an_interrupted_erasure_is_continued(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pseudonym is the same, so that the records of one person stay those of one."""
    pool, key = pool_of(client), b"k" * 32
    await write_audit(pool, key)
    with monkeypatch.context() as patch:
        patch.setattr(AuditEraser, "erase_person", fail)
        _, first = await erase(client, person=ANN, confirm=ANN)
    assert "ended" not in first
    _, second = await erase(client, person=ANN, confirm=ANN)
    assert (second["id"], second["pseudonym"]) == (first["id"], first["pseudonym"])
    assert second["ended"]
    _, again = await erase(client, person=ANN, confirm=ANN)
    assert {entry["place"] for entry in again.get("places", ())} <= {"requests of erasures"}

    assert (await verify(pool, HOST, key)).problems == []
    async with pool.connection() as connection:
        await connection.execute(
            "UPDATE audit_t SET outcome = 'denied' WHERE principal = %s", [second["pseudonym"]]
        )
    report = await verify(pool, HOST, key)
    assert [problem.kind for problem in report.problems] == ["changed"]


def fail_of(place: str) -> Callable[[HeldRows, ErasedPerson], Awaitable[int]]:
    """An erasure that fails at a place."""
    erase_person = HeldRows.erase_person

    async def erase(rows: HeldRows, person: ErasedPerson) -> int:
        return await (fail() if rows.place == place else erase_person(rows, person))

    return erase


async def fail(*_: object) -> int:
    raise psycopg.OperationalError("the server went away")
