"""How invocations are run: retries, limits, approvals, policy, revocations, shutdown, crashes."""

import json
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psycopg
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.access import Rule
from config.events import EventSkill, EventWebhook
from config.settings import Settings
from gateway.audit.queries import AuditQuery, search
from gateway.guards.api_keys import KeyTable
from gateway.wings.events.invocation_journal import Filter, Journal
from gateway.wings.events.sweeper import JournalSweeper
from registry.access.api_keys import ApiKeys
from registry.access.approvals import Approval, Approvals
from registry.database.postgres import borrow
from schemas.errors import ToolgateError
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Client, Recorder, running
from tests.fixtures_servers import serving
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.polling import until
from tests.wings.events.rig import (
    EVENT,
    ROOT,
    STRUCTURED,
    got,
    invoke_skill,
    wait_for_end,
    with_events,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def event_settings(settings: Settings) -> Settings:
    return with_events(settings)


def journal_of(client: Client) -> Journal:
    pool = client.gateway.feed.pool
    assert pool is not None
    return Journal(pool)


def with_rule(settings: Settings, effect: Any, **conditions: Any) -> Settings:
    rules = {"one": Rule(effect=effect, **conditions)}
    return replace(settings, policy=replace(settings.policy, rules=rules))


async def test_repeatable_calls_to_an_unreachable_service_are_retried(
    event_settings: Settings, service: Recorder
) -> None:
    """Repeatable calls to an unreachable service are retried (V10)."""
    sources = {"pets": replace(event_settings.sources["pets"], base_url="http://127.0.0.1:1")}
    breaker = replace(event_settings.breaker, enabled=False)
    settings = with_events(replace(event_settings, sources=sources, breaker=breaker), attempts=3)
    async with running(settings) as client:
        read = await wait_for_end(client, (await invoke_skill(client, "listPets"))["id"])
        assert (read["reason"], read["attempt"], len(read["attempts"])) == ("attempts", 3, 3)
        wrote = await invoke_skill(client, "createPet", {"name": "Rex"})
        over = await wait_for_end(client, wrote["id"])
        assert (over["reason"], over["attempt"]) == ("error", 1)
        always = await invoke_skill(client, "createPet", {"name": "Rex"}, retry="always")
        assert (await wait_for_end(client, always["id"]))["attempt"] == 3
        status, redriven, _ = await client.post("/events/v1/redrives", {"ids": [read["id"]]})
        assert (status, redriven) == (200, {"ids": [read["id"]]})
        again = await wait_for_end(client, read["id"])
        assert (again["redriven"], len(again["attempts"])) == (1, 6)
        assert (await client.post("/events/v1/redrives", {}))[0] == 422
    assert not service.requests


async def test_settings_change_while_invocations_run(
    event_settings: Settings, service: Recorder
) -> None:
    """Those that run go on, and those that wait are there (V15)."""
    async with running(event_settings) as client:
        waiting = await invoke_skill(client, "report")
        slow = await invoke_skill(client, "slow")
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        wrong = EventWebhook(url="http://127.0.0.1/", secret=f"whsec_{'A' * 43}=")
        with pytest.raises(ToolgateError, match=r"events\.webhooks\.crm"):
            await client.gateway.reconfigure(with_events(event_settings, webhooks={"crm": wrong}))
        more = {"report": EventSkill(), "letter": EventSkill()}
        changed = with_events(event_settings, skills=more, topics=("news",), attempts=2, max_hops=1)
        await client.gateway.reconfigure(changed)
        letter = await invoke_skill(client, "letter", replyTo="news")
        assert (letter["topic"], letter["maxAttempts"]) == ("news", 2)
        claim = {"skills": ["report", "letter"], "limit": 2}
        _, claimed, _ = await client.post("/events/v1/claims", claim)
        assert {one["id"] for one in claimed["items"]} == {waiting["id"], letter["id"]}
        service.release.set()
        assert (await wait_for_end(client, slow["id"]))["attempt"] == 1
    assert [one["path"] for one in service.requests] == ["/slow"]


async def busy(scope: Scope, _receive: Receive, send: Send) -> None:
    """A service that asks its callers to come again in an hour."""
    if scope["type"] == "http":
        headers = [(b"retry-after", b"3600"), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


async def test_retry_after_of_a_service_delays_the_next_attempt(event_settings: Settings) -> None:
    """Retry after of a service delays the next attempt (V09)."""
    async with serving(busy) as url:
        sources = {"pets": replace(event_settings.sources["pets"], base_url=url)}
        async with running(replace(event_settings, sources=sources)) as client:
            one = await invoke_skill(client, "listPets")

            async def attempted_row() -> Any:
                row = (await got(client, f"{ROOT}/{one['id']}"))[1]
                return row if row.get("attempts") and row["status"] == "PENDING" else None

            row = await until(attempted_row)
            wait = datetime.fromisoformat(row["due"]) - datetime.fromisoformat(one["created"])
            assert wait >= timedelta(hours=1)


async def test_the_position_in_a_trace_reaches_the_service(
    event_settings: Settings, service: Recorder
) -> None:
    traces = [f"00-{'a' * 32}-{'b' * 15}{number}-01" for number in range(4)]
    async with running(with_events(event_settings, topics=("agent-events",))) as client:
        body = {"skillName": "getPet", "arguments": {"id": 0}, "replyTo": "agent-events"}
        _, one, _ = await client.post(ROOT, body, {"traceparent": traces[0]})
        event = {**EVENT, "traceparent": traces[1]}
        _, two, _ = await client.post("/events/cloudevents", event, {"Content-Type": STRUCTURED})
        call = {"name": "getPet", "arguments": {"id": 2}}
        session = await client.session("2025-11-25")
        meta = {"_meta": {"traceparent": traces[2]}, "task": {}}
        await session.call("tools/call", {**call, **meta})
        _, three, _ = await client.post(ROOT, body, {"traceparent": "00-not-valid"})
        for made in (one, two, three):
            await wait_for_end(client, made["id"])
        heard = {item["headers"].get("traceparent") for item in await until(lambda: four(service))}
        assert heard == {*traces[:3], None}
        page = (await got(client, "/events/v1/topics/agent-events?waitS=30"))[1]
        assert page["items"][0]["traceparent"] == traces[0]


async def four(service: Recorder) -> Any:
    return service.requests if len(service.requests) == 4 else None


HEARD: list[tuple[str, str]] = []


async def hook(step: str, invocation: Any) -> None:
    HEARD.append((step, invocation["correlationId"]))
    if step == "before_dispatch" and '"id":9' in invocation["arguments"]:
        raise ValueError("not nine")


async def test_a_hook_is_called_for_each_step_and_may_refuse(
    event_settings: Settings, service: Recorder
) -> None:
    """A hook is called for each step and may refuse (V04)."""
    HEARD.clear()
    changed = replace(event_settings.events, hook=f"{__name__}:hook", attempts=2)
    away = {
        "away": replace(
            event_settings.sources["pets"], base_url="http://127.0.0.1:1", prefix="away_"
        )
    }
    settings = replace(event_settings, events=changed, sources={**event_settings.sources, **away})
    async with running(settings) as client:
        one = await invoke_skill(client, "away_listPets", correlationId="c1")
        assert (await wait_for_end(client, one["id"]))["reason"] == "attempts"
        for number, status in ((7, "ACKED"), (404, "FAILED"), (9, "FAILED")):
            one = await invoke_skill(client, "getPet", {"id": number}, correlationId=f"c{number}")
            assert (await wait_for_end(client, one["id"]))["status"] == status
        await until(lambda: has_heard(14))
    steps = {number: [s for s, c in HEARD if c == f"c{number}"] for number in (1, 7, 404, 9)}
    first = ["before_dispatch", "dispatched", "failed"]
    assert steps[1] == [*first, "before_dispatch", "dispatched", "dead"]
    assert steps[7] == ["before_dispatch", "dispatched", "acked"]
    assert steps[404] == ["before_dispatch", "dispatched", "dead"]
    assert steps[9] == ["before_dispatch", "dead"]
    assert len(service.requests) == 2


async def has_heard(count: int) -> bool:
    return len(HEARD) == count


async def test_an_approval_pauses_an_invocation(
    event_settings: Settings, service: Recorder
) -> None:
    settings = with_rule(event_settings, "approve", tools=("getPet",))
    async with running(settings) as client:
        one = await invoke_skill(client, "getPet", {"id": 7})
        other = await invoke_skill(client, "getPet", {"id": 8})
        pool = client.gateway.feed.pool
        assert pool is not None
        approvals = Approvals(pool, HOST)
        await until(lambda: two_of(approvals))
        for waiting in await approvals.waiting():
            await approvals.decide(waiting.id, '"id":7' in waiting.arguments, "carol")
        assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"
        refused = await wait_for_end(client, other["id"])
        assert (refused["reason"], refused["attempt"]) == ("rejected", 1)
    assert [one["path"] for one in service.requests] == ["/pets/7"]


@pytest.mark.parametrize("effect", ["approve", "deny"])
async def test_policy_judges_the_tool_called_by_an_invocation(
    event_settings: Settings, service: Recorder, effect: str
) -> None:
    """A rule for all tools that change something is not about accepting a call (mending 36)."""
    async with running(with_rule(event_settings, effect, when="!tool.readOnly")) as client:
        read = await invoke_skill(client, "getPet", {"id": 7})
        assert (await wait_for_end(client, read["id"]))["status"] == "ACKED"
        body = {"skillName": "createPet", "arguments": {"name": "Rex"}}
        status, answer, _ = await client.post(ROOT, body)
        if effect == "deny":
            assert (status, "Unknown tool: createPet" in answer["detail"]) == (422, True)
        else:
            assert status == 202
            waiting = await until(lambda: waiting_for(client))
            assert [(one.tool, json.loads(one.arguments)) for one in waiting] == [
                ("createPet", {"name": "Rex"})
            ]
        status, _, _ = await client.post(ROOT, {"skillName": "report", "arguments": {}})
        assert status == (404 if effect == "deny" else 403)  # no tool is judged in its place
    assert [one["path"] for one in service.requests] == ["/pets/7"]


@pytest.mark.parametrize(
    "rule", [{"tools": ("events_*",)}, {"sources": ("events",)}, {"tools": ("*", "events_invoke")}]
)
async def test_rules_about_invocations_themselves_hold(
    event_settings: Settings, service: Recorder, rule: dict[str, Any]
) -> None:
    """Those that name the tool or its source (mending 36)."""
    async with running(with_rule(event_settings, "deny", **rule)) as client:
        status, _, _ = await client.post(ROOT, {"skillName": "getPet", "arguments": {"id": 7}})
        assert status == 404
    assert service.requests == []


async def test_an_approval_lets_one_invocation_run_once(
    event_settings: Settings, service: Recorder
) -> None:
    """Of several that are equal, too (mending 36)."""
    async with running(with_rule(event_settings, "approve", when="!tool.readOnly")) as client:
        asked = [await invoke_skill(client, "createPet", {"name": "Rex"}) for _ in range(2)]
        [first] = await until(lambda: waiting_for(client))
        assert await approvals_of(client).decide(first.id, True, "carol") is not None

        async def one_has_run() -> bool:
            return len(service.requests) == 1

        await until(one_has_run)
        [second] = await until(lambda: waiting_for(client))
        assert second.id != first.id
        await approvals_of(client).decide(second.id, False, "carol")
        ends = [(await wait_for_end(client, one["id"]))["status"] for one in asked]
        assert sorted(ends) == ["ACKED", "FAILED"]
    assert len(service.requests) == 1


async def test_a_cancelled_invocation_leaves_no_approval_to_decide(
    event_settings: Settings, service: Recorder
) -> None:
    """One that is started again asks again."""
    async with running(with_rule(event_settings, "approve", tools=("getPet",))) as client:
        one = await invoke_skill(client, "getPet", {"id": 7})
        [first] = await until(lambda: waiting_for(client))

        async def is_paused() -> bool:
            async with borrow(approvals_of(client)._pool) as connection:
                rows = await connection.execute(
                    "SELECT FROM invocation_t WHERE status = 'PENDING' AND approval_id IS NOT NULL"
                )
                return await rows.fetchone() is not None

        await until(is_paused)
        async with client.http.delete(f"{client.url}{ROOT}/{one['id']}") as response:
            assert response.status == 200
        assert await waiting_for(client) == []
        status, _, _ = await client.post("/events/v1/redrives", {"ids": [one["id"]]})
        assert status == 200
        [second] = await until(lambda: waiting_for(client))
        assert second.id != first.id
        await approvals_of(client).decide(second.id, True, "carol")
        assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"
    assert len(service.requests) == 1


def approvals_of(client: Client) -> Approvals:
    pool = client.gateway.feed.pool
    assert pool is not None
    return Approvals(pool, HOST)


async def waiting_for(client: Client) -> list[Approval]:
    return await approvals_of(client).waiting()


async def two_of(approvals: Approvals) -> bool:
    return len(await approvals.waiting()) == 2


async def test_new_settings_neither_lose_nor_repeat_running_invocations(
    event_settings: Settings, service: Recorder
) -> None:
    async with running(event_settings) as client:
        one = await invoke_skill(client, "slow")
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        limits = replace(event_settings.limits, principal_calls=100_000)
        await client.gateway.reconfigure(replace(event_settings, limits=limits))
        later = await invoke_skill(client, "getPet", {"id": 7})
        service.release.set()
        for id_ in (one["id"], later["id"]):
            over = await wait_for_end(client, id_)
            assert (over["status"], over["attempt"]) == ("ACKED", 1)
    assert [one["path"] for one in service.requests] == ["/slow", "/pets/7"]


async def test_the_audit_log_has_the_acceptance_and_the_call(event_settings: Settings) -> None:
    audit = replace(event_settings.audit, mode="always", flush_s=0.05)
    async with running(replace(event_settings, audit=audit)) as client:
        await wait_for_end(client, (await invoke_skill(client, "getPet", {"id": 7}))["id"])
        pool = client.gateway.feed.pool
        assert pool is not None

        async def both() -> bool:
            page = await search(pool, HOST, AuditQuery())
            return {"events_invoke", "getPet"} <= {one.entry.subject for one in page.records}

        await until(both)


async def test_policy_is_checked_at_acceptance_and_at_run(
    event_settings: Settings, service: Recorder
) -> None:
    """Policy is checked at acceptance and at run (V23)."""
    stopped = with_events(event_settings, concurrency=0)
    async with running(stopped) as client:
        one = await invoke_skill(client, "getPet", {"id": 7})
    async with running(with_rule(event_settings, "deny", tools=("getPet",))) as client:
        over = await wait_for_end(client, one["id"])
        assert (over["status"], over["reason"]) == ("FAILED", "rejected")
        status, problem, _ = await client.post(
            ROOT, {"skillName": "getPet", "arguments": {"id": 1}}
        )
        assert (status, problem["detail"]) == (422, "Unknown tool: getPet")
    assert not service.requests


async def test_invocations_of_a_revoked_key_are_not_run(
    event_settings: Settings, service: Recorder, tmp_path: Path
) -> None:
    """Invocations of a revoked key are not run (V23)."""
    auth = by_jwks(tmp_path, [KEY.jwk()])
    settings = replace(
        with_events(event_settings, concurrency=0), auth=replace(auth, api_keys=True)
    )
    async with running(settings) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        keys = ApiKeys(pool, HOST)
        made = await keys.create("ci", "ada", ["events:invoke"])
        headers = {"Authorization": f"Bearer {made[1]}"}
        body = {"skillName": "getPet", "arguments": {"id": 7}}
        one = await until(lambda: invoke_known(client, body, headers))
        await keys.revoke(made[0].id)
    async with running(replace(settings, events=event_settings.events)) as client:
        row = await until(lambda: ended_row(client, one["id"]))
        assert (row.reason, "revoked" in row.error) == ("rejected", True)
        assert made[1] not in row.principal
    assert not service.requests


async def invoke_known(client: Client, body: Any, headers: dict[str, str]) -> Any:
    """The invocation, once the gateway knows the key."""
    status, one, _ = await client.post(ROOT, body, headers)
    return one if status == 202 else None


async def ended_row(client: Client, id_: str) -> Any:
    row = await journal_of(client).get(HOST, id_)
    return row if row is not None and row.has_ended else None


async def test_strangers_are_told_of_no_consent_to_deliver(
    event_settings: Settings, tmp_path: Path
) -> None:
    """The handshake of CloudEvents' webhooks is for callers who may deliver (mending 34)."""
    async with running(replace(event_settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        url, asked = client.url + "/events/cloudevents", {"WebHook-Request-Origin": "a.example"}
        async with client.http.options(url, headers=asked) as response:
            assert response.status == 401
            assert "WebHook-Allowed-Origin" not in response.headers
        known = {**asked, **bearer("ada", "events:invoke")}
        async with client.http.options(url, headers=known) as response:
            assert response.status == 200
            assert response.headers["WebHook-Allowed-Origin"] == "a.example"
        client.gateway.access.authenticator.keys = KeyTable(time.time)  # not loaded yet
        headers = {**asked, "X-API-Key": "tgk_a_b"}
        for method in ("OPTIONS", "POST"):
            async with client.http.request(method, url, headers=headers) as response:
                assert (response.status, response.headers["Retry-After"]) == (503, "1")


async def test_callers_see_their_own_and_need_scopes(
    event_settings: Settings, tmp_path: Path
) -> None:
    async with running(replace(event_settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        ada, eve = (bearer(name, "events:invoke events:read") for name in ("ada", "eve"))
        body = {"skillName": "getPet", "arguments": {"id": 7}, "correlationId": "c"}
        assert (await client.post(ROOT, body))[0] == 401
        assert (await client.post(ROOT, body, bearer("ada", "events:read")))[0] == 403
        status, one, _ = await client.post(ROOT, body, ada)
        assert status == 202
        path = f"{ROOT}/{one['id']}"
        await until(lambda: ended_row(client, one["id"]))
        for shown in (path, f"{path}/result"):
            assert (await got(client, shown, **ada))[0] == 200
        for hidden in (path, f"{path}/result", f"{ROOT}/c"):
            assert (await got(client, hidden, **eve))[0] == 404
        narrowed = {**ada, "X-Scope-Token": bearer("app", "events:invoke")["Authorization"]}
        assert (await got(client, f"{path}/result", **narrowed))[0] == 403
        status, refusal = await got(client, f"{ROOT}?everyone=true", **eve)
        assert (status, refusal["type"]) == (403, "problems/insufficient-scope")
        text = "Required scope: events:admin. Reading those of all callers takes it."
        assert refusal["detail"] == text
        assert (await got(client, "/events/v1/stats", **eve))[0] == 403
        root = bearer("root", "events:read events:admin")
        assert len((await got(client, f"{ROOT}?everyone=true", **root))[1]["items"]) == 1
        assert (await got(client, "/events/v1/stats", **root))[0] == 200


async def test_a_shutdown_drains_calls_and_releases_waiting_invocations(
    event_settings: Settings, service: Recorder
) -> None:
    """A shutdown drains calls and releases waiting invocations (V14)."""
    patient = with_events(event_settings, drain_s=30.0)
    async with running(patient) as client:
        one = await invoke_skill(client, "slow")
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        later = await invoke_skill(client, "report")
        service.release.set()
    async with running(with_events(event_settings, concurrency=0)) as client:
        assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"
        assert (await got(client, f"{ROOT}/{later['id']}"))[1]["status"] == "PENDING"


@pytest.mark.parametrize(("retry", "status"), [("always", "PENDING"), ("never", "FAILED")])
async def test_calls_cut_off_by_a_shutdown_are_retried_or_failed(
    event_settings: Settings, service: Recorder, retry: str, status: str
) -> None:
    """Calls cut off by a shutdown are retried or failed (V14)."""
    async with running(with_events(event_settings, drain_s=0.05)) as client:
        one = await invoke_skill(client, "slow", retry=retry)
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
    async with running(with_events(event_settings, concurrency=0)) as client:
        row = await journal_of(client).get(HOST, one["id"])
        assert row is not None
        assert (row.status, row.attempt) == (status, 0 if status == "PENDING" else 1)


async def test_interrupted_invocations_are_swept_at_the_next_start(
    event_settings: Settings, service: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Interrupted invocations are swept at the next start (V13)."""
    async with running(with_events(event_settings, concurrency=0, sweep_s=3600.0)) as client:
        journal = journal_of(client)
        read = await invoke_skill(client, "listPets")
        wrote = await invoke_skill(client, "createPet", {"name": "Rex"})
        assert len(await journal.claim(HOST, "crashed", limit=2, lease_s=-1)) == 2
    async with running(event_settings) as client:
        assert (await wait_for_end(client, read["id"]))["attempt"] == 2
        lost = await wait_for_end(client, wrote["id"])
        assert (lost["reason"], "unknown" in lost["error"]["message"]) == ("error", True)
        stats = (await got(client, "/events/v1/stats"))[1]
        assert stats["swept"] == {"waiting": 1, "failed": 1}
    assert "invocations_swept" in caplog.text
    assert [one["path"] for one in service.requests] == ["/pets"]


async def test_one_tenant_does_not_hold_up_another(event_settings: Settings) -> None:
    """The backlog of one takes its share of the places at most (V27)."""
    other = "00000000-0000-0000-0000-00000000000b"
    settings = with_events(event_settings, concurrency=4, tenant_running=3)
    async with running(settings) as client:
        backlog = [await invoke_skill(client, "slow") for _ in range(10)]
        journal = journal_of(client)
        await until(lambda: as_many(journal, HOST, 3))
        drafts = await journal.accept([_draft(other)])
        await until(lambda: as_many(journal, other, 0, "FAILED"))
        assert len(drafts) == 1
        for one in backlog:
            async with client.http.delete(f"{client.url}{ROOT}/{one['id']}"):
                pass
        for one in backlog:
            await wait_for_end(client, one["id"])


def _draft(host: str) -> Any:
    from tests.wings.events.drafts import draft

    caller = {"principal": {"id": "ada", "tenant": host}}
    return draft(host_id=host, skill_name="nowhere", principal=msgspec.json.encode(caller))


async def as_many(journal: Journal, host: str, count: int, status: str = "DISPATCHED") -> bool:
    rows = await journal.page(host, Filter(status=status), before=None, limit=100)
    return len(rows) == count if count else bool(rows)


async def test_chains_of_invocations_are_limited(event_settings: Settings) -> None:
    """Chains of invocations are limited (V26)."""
    async with running(with_events(event_settings, max_hops=2)) as client:
        cause: dict[str, Any] = {}
        for number in range(3):
            one = await invoke_skill(client, "report", correlationId=f"c{number}", **cause)
            assert one.get("hops", 0) == number
            cause = {"causedBy": f"c{number}"}
        body = {"skillName": "report", "causedBy": "c2"}
        status, problem, _ = await client.post(ROOT, body)
        assert (status, "events.max_hops" in problem["detail"]) == (422, True)
        cause = {"X-Correlation-Id": "c2"}
        status, problem, _ = await client.post(ROOT, {"skillName": "report"}, cause)
        assert (status, "events.max_hops" in problem["detail"]) == (422, True)
        event = {**EVENT, "data": {"skillName": "report"}}
        cause["Content-Type"] = STRUCTURED
        status, problem, _ = await client.post("/events/cloudevents", event, cause)
        assert (status, "events.max_hops" in problem["detail"]) == (422, True)


async def test_open_invocations_are_limited(event_settings: Settings) -> None:
    """Open invocations are limited (V27)."""
    async with running(with_events(event_settings, tenant_open=2)) as client:
        for _ in range(2):
            await invoke_skill(client, "report")
        status, problem, headers = await client.post(ROOT, {"skillName": "report"})
        assert (status, "events.tenant_open" in problem["detail"]) == (429, True)
        assert headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("setting", "most", "accepted"),
    [("principal_open", 2, 2), ("principal_open_bytes", 1000, 1), ("tenant_open_bytes", 1000, 1)],
)
async def test_open_invocations_have_quotas_of_numbers_and_bytes(
    event_settings: Settings, setting: str, most: int, accepted: int
) -> None:
    """Delayed calls fill no database: their bytes are limited, too (mending 6)."""
    async with running(with_events(event_settings, **{setting: most})) as client:
        body = {"skillName": "report", "arguments": {"text": "x" * 600}, "delayS": 3600}
        answers = [await client.post(ROOT, body) for _ in range(accepted + 1)]
        assert [status for status, *_ in answers] == [202] * accepted + [429]
        assert f"events.{setting}" in answers[-1][1]["detail"]


async def test_a_gateway_removes_the_oldest_results_of_a_full_history(
    event_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full history refuses no call; its own oldest entries make room (mending 6)."""
    monkeypatch.setattr("gateway.wings.events.dispatch.MOVE_S", -1.0)
    monkeypatch.setattr("gateway.wings.events.dispatch.TRIM_S", 0.0)
    monkeypatch.setattr("gateway.wings.events.dispatch.TRIM_COST", 0)
    limited = with_events(event_settings, principal_ended_bytes=1000)
    async with running(limited) as client:
        done = [await invoke_skill(client, "report") for _ in range(3)]
        for each in done:
            async with client.http.delete(f"{client.url}{ROOT}/{each['id']}") as response:
                assert response.status == 200

        async def statuses() -> list[int]:
            return [(await got(client, f"{ROOT}/{each['id']}"))[0] for each in done]

        async def newest_is_left() -> bool:
            return await statuses() == [404, 404, 200]

        await until(newest_is_left)
        await invoke_skill(client, "report")


async def test_a_measuring_that_fails_is_not_repeated_with_each_sweep(
    event_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the history is so long that measuring it runs into a timeout, it was measured again
    and again, without a pause (mending 6)."""
    calls: Counter[str] = Counter()
    sweep = JournalSweeper.sweep

    async def count_sweep(self: JournalSweeper) -> Any:
        calls["sweep"] += 1
        return await sweep(self)

    async def time_out(_self: JournalSweeper) -> None:
        calls["measure"] += 1
        raise psycopg.errors.QueryCanceled

    async def has_swept_often() -> bool:
        return calls["sweep"] > 5

    monkeypatch.setattr(JournalSweeper, "sweep", count_sweep)
    monkeypatch.setattr(JournalSweeper, "ended_usage", time_out)
    async with running(event_settings):
        await until(has_swept_often)
    assert calls["measure"] == 1
