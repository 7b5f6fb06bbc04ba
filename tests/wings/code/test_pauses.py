"""Programs that wait for approvals, and go on with the answers that they have had."""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from gateway.audit.queries import AuditQuery, search
from gateway.wings.code.stored_runs import ProgramRun, StoredProgram, StoredRuns
from registry.access.approvals import Approvals, Grant
from registry.access.revocations import Revocation, Revocations
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.fixtures_gateway import running
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.polling import until
from tests.properties import seeds
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

WRITING = "run_code_writing"
OTHER = "00000000-0000-0000-0000-0000000000b2"
LISTING = {"jsonrpc": "2.0", "id": 1, "method": "code_list_runs"}
RULES = {"mails": Rule("approve", tools=("send_mail",))}


async def decide(
    shop: CodeShop, end: dict[str, Any], *, approve: bool = True, grants: Sequence[Grant] = ()
) -> None:
    gateway = shop.client.gateway
    approvals = Approvals(gateway.feed.pool, gateway.principal.tenant)
    [approval] = {call["approval"] for call in end["pending"]}
    assert await approvals.decide(approval, approve, "carol", grants=grants)


async def go_on(shop: CodeShop, end: dict[str, Any]) -> dict[str, Any]:
    answer = await shop.ask("", WRITING, run=end["run"])
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def with_rules(settings: Settings) -> Any:
    return replace(settings.policy, rules=RULES)


@pytest.fixture(scope="module")
def shop_options(shared_settings: Settings) -> dict[str, Any]:
    return {"policy": with_rules(shared_settings)}


@pytest.fixture
def shop(shop: CodeShop, shared_settings: Settings) -> CodeShop:
    """The gateway of all, without runs and approvals of the test before."""
    with psycopg.connect(shared_settings.database.url, autocommit=True) as connection:
        connection.execute("DELETE FROM code_run_t")
        connection.execute("DELETE FROM approval_t")
    return shop


async def test_an_approved_call_goes_on_with_recorded_answers(shop: CodeShop) -> None:
    code = """
first = tools.get_item(id=1)["count"]
tools.change_item(id=2, count=first + 1)
print("writing")
tools.send_mail(text=f"{first} left")
[first, tools.get_item(id=2)["count"]]
"""
    paused = await shop.run(code, WRITING)
    assert (paused["state"], paused["error"]) == ("paused", "")
    [pending] = paused["pending"]
    assert (pending["tool"], pending["arguments"]) == ("send_mail", {"text": "10 left"})
    assert [call["tool"] for call in paused["calls"]] == ["get-item", "change_item"]
    waiting = await go_on(shop, paused)
    assert (waiting["state"], waiting["run"]) == ("paused", paused["run"])
    assert await list_runs(shop) == [(paused["run"], WRITING, "paused", 2, 1)]
    shop.shop.stock[1] = 99  # the program does not read it again
    await decide(shop, waiting)
    end = await go_on(shop, waiting)
    assert (end["state"], end["result"], end["output"]) == ("completed", [10, 11], "writing\n")
    assert end["made"] == {"get-item": 2, "change_item": 1, "send_mail": 1}
    assert (shop.shop.mails, shop.shop.reads) == (["10 left"], 2)
    assert await go_on(shop, paused) == end  # its result is kept
    assert await list_runs(shop) == [(paused["run"], WRITING, "completed", 4, 0)]


async def list_runs(shop: CodeShop) -> list[tuple[Any, ...]]:
    _, answer, _ = await shop.client.post("/rpc", LISTING)
    names = ("run", "tool", "state", "calls", "pending")
    return [tuple(entry[name] for name in names) for entry in answer["result"]["runs"]]


async def test_a_rejected_call_is_denied(shop: CodeShop) -> None:
    code = "try:\n    tools.send_mail(text='a')\nexcept Denied as error:\n    result(str(error))"
    paused = await shop.run(code, WRITING)
    await decide(shop, paused, approve=False)
    end = await go_on(shop, paused)
    assert end["result"] == "A person has rejected this call."
    assert not shop.shop.mails


async def test_calls_made_together_wait_for_one_approval(shop: CodeShop) -> None:
    code = "len(tools.all([tools.send_mail(text=str(i)) for i in range(50)]))"
    paused = await shop.run(code, WRITING)
    assert len(paused["pending"]) == 50
    await decide(shop, paused)
    end = await go_on(shop, paused)
    assert (end["result"], sorted(shop.shop.mails, key=int)) == (
        50,
        [str(number) for number in range(50)],
    )


async def wait_for_end(shop: CodeShop, run: str) -> dict[str, Any]:
    """The result that was stored for a run, without asking for it."""

    async def read_end() -> dict[str, Any] | None:
        async with shop.client.gateway.feed.pool.connection() as connection:
            rows = await connection.execute(
                "SELECT state, result FROM code_run_t WHERE run_id = %s", [run]
            )
            [(state, result)] = await rows.fetchall()
        return json.loads(result) if state == "ended" else None

    end: dict[str, Any] = await until(read_end)
    return end


@pytest.mark.parametrize("approve", [True, False])
async def test_a_run_goes_on_by_itself_after_the_decision(shop: CodeShop, approve: bool) -> None:
    code = "try:\n    tools.send_mail(text='a')\nexcept Denied:\n    result('denied')"
    paused = await shop.run(code, WRITING)
    await decide(shop, paused, approve=approve)
    end = await wait_for_end(shop, paused["run"])
    assert (end["state"], shop.shop.mails) == ("completed", ["a"] if approve else [])
    assert await go_on(shop, paused) == end


async def test_new_runs_wait_behind_approved_runs(settings: Settings, tmp_path: Path) -> None:
    code = {"runs": 1, "poll_s": 0.05}
    async with code_shop(settings, tmp_path, code=code, policy=with_rules(settings)) as shop:
        paused = await shop.run("tools.send_mail(text='a')", WRITING)
        shop.shop.slow_s = 0.05

        async def read_without_end() -> None:
            while True:
                await shop.run("tools.get_item(id=1)")

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(read_without_end)
            await decide(shop, paused)
            await until(lambda: shop.shop.mails)
            group.cancel_scope.cancel()


async def test_runs_that_go_on_are_taken_up_by_tenants_in_turn(
    settings: Settings, tmp_path: Path
) -> None:
    """However many principals of one tenant have older ones."""
    program = StoredProgram("1", "python", writes=True, calls_limit=1, time_s=1.0)
    async with code_shop(settings, tmp_path, code={"poll_s": 600.0}) as shop:
        stored = StoredRuns(shop.client.gateway.feed.pool, keep_s=60, lease_s=60, most=1)
        of_tenants = [(HOST, "ann"), (HOST, "ann"), (HOST, "ann"), (HOST, "bob"), (OTHER, "eve")]
        for tenant, principal in of_tenants:
            run = ProgramRun(tenant, principal, str(uuid4()), program, b"{}", is_kept=False)
            await stored.begin(run)
            await stored.release(run)
        due = await stored.due(8, {}, of_tenant=8, of_owner=2)
        assert [len(await stored.all(*key, 9)) for key in sorted({*of_tenants})] == [3, 1, 1]
    assert [(tenant, principal) for tenant, _, principal in due] == [
        (HOST, "ann"), (OTHER, "eve"), (HOST, "bob"), (HOST, "ann"),
    ]  # fmt: skip


async def test_no_more_runs_are_claimed_than_there_are_places(
    settings: Settings, tmp_path: Path
) -> None:
    code = {"runs": 2, "runs_per_tenant": 1}
    program = "tools.send_mail(text='a')\ntools.get_item(id=1)"
    async with code_shop(settings, tmp_path, code=code, policy=with_rules(settings)) as shop:
        for _ in range(2):
            await shop.run(program, WRITING)
        shop.shop.hangs = True
        async with shop.client.gateway.feed.pool.connection() as connection:
            await connection.execute("UPDATE approval_t SET state = 'approved'")
            await connection.commit()
            with anyio.fail_after(20):
                await shop.shop.arrived.wait()
            rows = await connection.execute("SELECT state FROM code_run_t ORDER BY state")
            assert [state for (state,) in await rows.fetchall()] == ["running", "waiting"]


async def test_a_run_ends_when_the_credential_of_its_caller_is_revoked(
    settings: Settings, tmp_path: Path
) -> None:
    key = signer("ES256", kid="2026")
    token = {"Authorization": f"Bearer {key.token(sub='zoe', exp=FOREVER, scope='code:write')}"}
    own = replace(settings, auth=by_jwks(tmp_path, [key.jwk()]), policy=with_rules(settings))
    call = {"code": "tools.send_mail(text='a')\ntools.get_item(id=1)"}
    body = {"jsonrpc": "2.0", "id": 1, "method": WRITING, "params": call}
    code = {"poll_s": 0.05, "lease_s": 1.0}
    async with code_shop(own, tmp_path, code=code) as shop:
        _, answer, _ = await shop.client.post("/rpc", body, token)
        shop.shop.hangs = True
        await decide(shop, answer["result"])
        with anyio.fail_after(20):
            await shop.shop.arrived.wait()
            now = datetime.now(UTC)
            later = now + timedelta(hours=1)
            revoked = Revocation(None, "zoe", issued_before=now, expires=later)
            await Revocations(shop.client.gateway.feed.pool, HOST).add(revoked)
            await shop.shop.gone.wait()
        end = await wait_for_end(shop, answer["result"]["run"])
    assert end["error"] == "the run was cancelled"


async def test_a_call_that_nobody_decides_on_is_denied(settings: Settings, tmp_path: Path) -> None:
    policy = replace(with_rules(settings), approval_s=0.2)
    async with code_shop(settings, tmp_path, policy=policy) as shop:
        paused = await shop.run("tools.send_mail(text='a')", WRITING)
        end = await wait_for_end(shop, paused["run"])
        assert "Nobody has decided" in end["error"]
        assert not shop.shop.mails


async def test_a_program_that_was_changed_before_the_decision_is_refused(shop: CodeShop) -> None:
    paused = await shop.run("tools.send_mail(text='a')", WRITING)
    async with shop.client.gateway.feed.pool.connection() as connection:
        rows = await connection.execute("SELECT record FROM code_run_t")
        [(record,)] = await rows.fetchall()
        changed = bytes(record).replace(b"text='a'", b"text='b'")
        assert changed != record
        await connection.execute("UPDATE code_run_t SET record = %s", [changed])
    await decide(shop, paused)
    end = await go_on(shop, paused)
    assert (end["state"], shop.shop.mails) == ("failed", [])
    assert "not the one that people have decided on" in end["error"]


async def test_a_tool_that_was_changed_before_the_decision_is_asked_for_again(
    shop: CodeShop,
) -> None:
    paused = await shop.run("tools.send_mail(text='a')", WRITING)
    async with shop.client.gateway.feed.pool.connection() as connection:
        await connection.execute("UPDATE approval_call_t SET definition = 'older'")
    await decide(shop, paused)
    again = await go_on(shop, paused)
    assert (again["state"], again["run"], shop.shop.mails) == ("paused", paused["run"], [])
    await decide(shop, again)
    assert (await go_on(shop, again))["state"] == "completed"
    assert shop.shop.mails == ["a"]


async def test_granted_calls_of_a_run_need_no_further_approval(
    settings: Settings, tmp_path: Path, database: Database
) -> None:
    """As many as were granted, each with a record that names the approval."""
    code = "for i in range(4):\n    tools.send_mail(text=str(i))"
    audit = replace(settings.audit, mode="always")
    policy = with_rules(settings)
    async with code_shop(settings, tmp_path, policy=policy, audit=audit) as shop:
        paused = await shop.run(code, WRITING)
        await decide(shop, paused, grants=[Grant("send_mail", 2)])
        again = await go_on(shop, paused)
        assert [call["arguments"] for call in again["pending"]] == [{"text": "3"}]
        assert shop.shop.mails == ["0", "1", "2"]
        other = await shop.run(code, WRITING)
        assert other["state"] == "paused"
    page = await search(database.pool, HOST, AuditQuery())
    rules = [r.entry.rule for r in page.records if r.entry.subject == "send_mail"]
    approval = paused["pending"][0]["approval"]
    assert rules.count(f"mails (granted by {approval})") == 2


async def test_a_paused_run_is_of_its_caller_and_its_tool(shop: CodeShop) -> None:
    paused = await shop.run("tools.send_mail(text='a')", WRITING)
    for run in ("x", "00000000-0000-4000-8000-000000000000"):
        assert "no run" in str(await shop.ask("", WRITING, run=run))
    assert "no run" in str(await shop.ask("", "run_code", run=paused["run"]))
    runs = shop.client.gateway.feed.pool
    async with runs.connection() as connection:
        await connection.execute("UPDATE code_run_t SET principal = 'somebody'")
    assert "no run" in str(await shop.ask("", WRITING, run=paused["run"]))


async def test_a_process_whose_lease_is_over_makes_no_call(
    settings: Settings, tmp_path: Path
) -> None:
    """Another one has the run then, whose result its caller gets."""
    code = "tools.send_mail(text='a')\ntools.send_mail(text='b')"
    result = b'{"state": "completed", "result": "elsewhere"}'
    async with code_shop(settings, tmp_path) as shop:

        def take_over(_when: int) -> None:
            with psycopg.connect(settings.database.url) as connection:
                connection.execute(
                    "UPDATE code_run_t SET fence = fence + 1, state = 'ended', result = %s",
                    [result],
                )

        shop.shop.watch = take_over
        assert (await shop.run(code, WRITING))["result"] == "elsewhere"
        assert shop.shop.mails == ["a"]


async def test_a_run_that_waits_is_cancelled(shop: CodeShop) -> None:
    paused = await shop.run("tools.send_mail(text='a')", WRITING)
    ended = await shop.ask("", WRITING, run=paused["run"], cancel=True)
    assert ended["result"]["error"] == "the run was cancelled"
    gateway = shop.client.gateway
    assert not await Approvals(gateway.feed.pool, gateway.principal.tenant).waiting()
    assert (await go_on(shop, paused))["state"] == "failed"


async def test_a_run_cancelled_before_its_pause_asks_nobody(
    shop: CodeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node has withdrawn what the run asked for until then."""
    wait = StoredRuns.wait

    async def cancel_and_wait(runs: StoredRuns, run: ProgramRun, *given: Any) -> None:
        await runs.cancel(run.tenant, run.id)
        await wait(runs, run, *given)

    monkeypatch.setattr(StoredRuns, "wait", cancel_and_wait)
    paused = await shop.run("tools.send_mail(text='a')", WRITING)
    ended = await go_on(shop, paused)
    assert (ended["state"], ended["error"]) == ("failed", "the run was cancelled")
    gateway = shop.client.gateway
    assert not await Approvals(gateway.feed.pool, gateway.principal.tenant).waiting()


async def test_a_run_cancelled_within_its_pause_asks_nobody(
    shop: CodeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node cancels the run between its request for an approval and its pause."""

    async def cancel_and_wait(runs: StoredRuns, run: ProgramRun, *_: Any) -> None:
        await runs.cancel(run.tenant, run.id)
        await anyio.sleep_forever()  # until the process of the run has noticed

    monkeypatch.setattr(StoredRuns, "wait", cancel_and_wait)
    with anyio.fail_after(60):
        ended = await shop.run("tools.send_mail(text='a')", WRITING)
    assert (ended["state"], ended["error"]) == ("failed", "the run was cancelled")
    gateway = shop.client.gateway
    assert not await Approvals(gateway.feed.pool, gateway.principal.tenant).waiting()


async def test_a_run_whose_time_is_over_goes(shop: CodeShop) -> None:
    paused = await shop.run("tools.send_mail(text='a')", WRITING)
    pool = shop.client.gateway.feed.pool
    async with pool.connection() as connection:
        await connection.execute("UPDATE code_run_t SET expires_ts = now() - interval '1 s'")
    assert "no run" in str(await shop.ask("", WRITING, run=paused["run"]))
    await StoredRuns(pool, keep_s=1, lease_s=1, most=1).prune()
    assert await _count(pool) == 0


async def _count(pool: Any) -> int:
    async with pool.connection() as connection:
        rows = await connection.execute("SELECT count(*) FROM code_run_t")
        return int((await rows.fetchone())[0])


async def test_few_runs_wait_for_each_principal(settings: Settings, tmp_path: Path) -> None:
    code = {"paused_runs": 1}
    async with code_shop(settings, tmp_path, code=code, policy=with_rules(settings)) as shop:
        first = await shop.run("tools.send_mail(text='a')", WRITING)
        refused = await shop.run("tools.send_mail(text='b')", WRITING)
        assert (first["state"], refused["state"]) == ("paused", "failed")
        assert "code.paused_runs" in refused["error"]


async def test_a_run_with_large_answers_does_not_pause(settings: Settings, tmp_path: Path) -> None:
    code = {"journal_bytes": 1}
    async with code_shop(settings, tmp_path, code=code, policy=with_rules(settings)) as shop:
        end = await shop.run("tools.get_item(id=1)\ntools.send_mail(text='a')", WRITING)
        assert "ApprovalNeeded [send_mail]" in end["error"]


def draw_program(random: Random, texts: Sequence[str]) -> str:
    """A program that sends each of the texts once, between reads, alone or together."""
    lines, left, sent = ["sent = []"], list(texts), 0
    while sent < len(left):
        count = random.randint(1, 3)
        batch, sent = left[sent : sent + count], sent + count
        reads = f"tools.get_item(id={random.randint(0, 12)}), " * random.randint(0, 2)
        mails = ", ".join(f"tools.send_mail(text={text!r})" for text in batch)
        match random.randrange(3):
            case 0:
                lines.append(
                    f"sent += [type(v).__name__ for v in tools.all([{reads}{mails}], errors=True)]"
                )
            case 1:
                gathered = f"await asyncio.gather({reads}{mails}, return_exceptions=True)"
                lines.append(f"sent += [type(v).__name__ for v in {gathered}]")
            case _:
                lines += [
                    f"try:\n    {call}\nexcept ToolError as error:\n    sent.append(str(error))"
                    for call in f"{reads}{mails}".split(", ")
                ]
    return "\n".join([*lines, "sent"])


@pytest.mark.parametrize("seed", seeds(24))
async def test_each_approved_write_is_made_once_at_any_gateway(
    seed: int, settings: Settings, tmp_path: Path
) -> None:
    random = Random(seed)
    texts = [f"m{number}" for number in range(random.randint(1, 6))]
    policy = replace(with_rules(settings), approvals=100)
    approved = set()
    async with AsyncExitStack() as stack:
        shop = await stack.enter_async_context(code_shop(settings, tmp_path, policy=policy))
        client = await stack.enter_async_context(running(shop.client.gateway.settings))
        await client.gateway.wait_for_wings()
        gateways = [shop, CodeShop(shop.shop, client)]
        end = await shop.run(draw_program(random, texts), WRITING)
        while end["state"] == "paused":
            approve = random.random() < 0.7
            if approve:
                approved |= {call["arguments"]["text"] for call in end["pending"]}
            await decide(shop, end, approve=approve)
            end = await go_on(random.choice(gateways), end)
        assert end["state"] == "completed", end
        assert sorted(shop.shop.mails) == sorted(approved)
