"""Calls that wait for an approval, and approvals that are used up."""

from dataclasses import replace

import anyio
import pytest

from registry.access.approvals import (
    ApprovalRefused,
    ApprovalRequest,
    Approvals,
    Grant,
    HeldProgram,
    NotPending,
    RunCall,
    TooManyWaiting,
    Use,
)
from registry.database.postgres import Database, borrow
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

TOOL = "00000000-0000-0000-0000-00000000000a"
CALL = ApprovalRequest("ada", TOOL, "pay", "bank", "d" * 64, "large-sums", "ask first")


@pytest.fixture
def approvals(database: Database) -> Approvals:
    return Approvals(database.pool, HOST)


async def request_approval(approvals: Approvals, call: ApprovalRequest = CALL) -> str:
    return (await approvals.request(call, '{"amount":5}', 900, 3))[0]


async def expire_approvals(database: Database) -> None:
    async with borrow(database.pool) as connection:
        await connection.execute("UPDATE approval_t SET expire_ts = now() - interval '1 second'")


async def test_the_same_call_waits_once(approvals: Approvals) -> None:
    id_ = await request_approval(approvals)
    assert await request_approval(approvals) == id_
    (one,) = await approvals.waiting()
    assert (one.id, one.principal, one.tool, one.state) == (id_, "ada", "pay", "waiting")
    assert (one.arguments, one.rule, one.reason) == ('{"amount":5}', "large-sums", "ask first")
    assert await approvals.get(id_) == one
    assert await approvals.get("no id") is None


async def test_a_shared_request_outlives_its_first_withdrawal(approvals: Approvals) -> None:
    """Of the runs of an agent, tasks and clients that wait for the same call."""
    id_ = await request_approval(approvals)
    for _ in range(2):
        assert await request_approval(approvals) == id_
    await approvals.withdraw([id_])
    assert await approvals.get(id_)
    await approvals.withdraw([id_, id_])  # of one run that made the call twice
    assert await approvals.get(id_) is None
    await approvals.withdraw([])


async def test_an_approval_is_good_for_one_call_of_one_caller(approvals: Approvals) -> None:
    assert await approvals.use(CALL) is None
    id_ = await request_approval(approvals)
    assert await approvals.use(CALL) is None
    decided = await approvals.decide(id_, True, "bob")
    assert decided is not None
    assert (decided.state, decided.decided_by) == ("approved", "bob")
    assert await approvals.use(replace(CALL, principal="eve")) is None
    assert await approvals.use(replace(CALL, digest="e" * 64)) is None
    assert await approvals.use(CALL) == Use(id_)
    assert await approvals.use(CALL) is None
    await approvals.give_back(Use(id_))
    assert await approvals.use(CALL) == Use(id_)


MADE = replace(CALL, principal="key:robot", makers=frozenset({"ada", "key:first"}))


@pytest.mark.parametrize(
    ("by", "makers"),
    [
        ("key:robot", []),  # the caller
        ("ada", []),  # who made the caller's key
        ("key:first", ["ada"]),  # with a key of their own
        ("key:other", ["ada"]),  # with another key of theirs
        ("key:third", ["key:robot"]),  # with one that the caller made
    ],
)
async def test_the_maker_of_a_key_agrees_to_none_of_its_calls(
    approvals: Approvals, by: str, makers: list[str]
) -> None:
    id_ = await request_approval(approvals, MADE)
    remedy = "ask another principal" if by == MADE.principal else "a key that somebody else made"
    with pytest.raises(ApprovalRefused, match=remedy):
        await approvals.decide(id_, True, by, makers)
    assert [(one.id, one.makers) for one in await approvals.waiting()] == [
        (id_, ["ada", "key:first"])
    ]
    assert (await approvals.decide(id_, True, "bob", ["eve"])).state == "approved"
    assert await approvals.use(MADE) == Use(id_)


async def test_an_approval_does_not_cover_a_key_made_by_somebody_else(
    approvals: Approvals,
) -> None:
    theirs = replace(MADE, makers=frozenset({"bob"}))
    id_ = await request_approval(approvals, MADE)
    assert await request_approval(approvals, theirs) != id_
    await approvals.decide(id_, True, "bob")
    assert await approvals.use(theirs) is None
    assert await approvals.use(MADE) == Use(id_)


async def test_concurrent_calls_use_an_approval_once(approvals: Approvals) -> None:
    await approvals.decide(await request_approval(approvals), True, "bob")
    used: list[str | None] = []

    async def use() -> None:
        used.append(await approvals.use(CALL))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use)
    assert len([one for one in used if one is not None]) == 1


async def test_denied_and_expired_approvals_are_unusable(
    database: Database, approvals: Approvals
) -> None:
    id_ = await request_approval(approvals)
    assert (await approvals.decide(id_, False, "bob")).state == "denied"
    assert await approvals.use(CALL) is None
    assert await approvals.decide(id_, True, "bob") is None
    id_ = await request_approval(approvals)
    await approvals.decide(id_, True, "bob")
    await expire_approvals(database)
    assert await approvals.use(CALL) is None
    id_ = await request_approval(approvals)
    await expire_approvals(database)
    assert await approvals.decide(id_, True, "bob") is None
    assert await approvals.waiting() == []


async def test_nobody_agrees_to_calls_of_their_own(approvals: Approvals) -> None:
    id_ = await request_approval(approvals)
    with pytest.raises(ApprovalRefused):
        await approvals.decide(id_, True, "ada")
    assert [one.id for one in await approvals.waiting()] == [id_]
    assert (await approvals.decide(id_, False, "ada")).state == "denied"


async def test_a_caller_has_few_waiting(database: Database, approvals: Approvals) -> None:
    for number in range(3):
        await request_approval(approvals, replace(CALL, digest=str(number) * 64))
    with pytest.raises(TooManyWaiting):
        await request_approval(approvals)
    await request_approval(approvals, replace(CALL, principal="bob"))
    await expire_approvals(database)
    assert await request_approval(approvals)


RUN = "00000000-0000-0000-0000-0000000000bb"
CODE = b"c" * 32
PAY = replace(CALL, definition="v1")


async def approve_run(approvals: Approvals, *grants: Grant) -> str:
    """The approval of the calls 3 and 4 of a run."""
    program = HeldProgram(RUN, CODE, "run_code_writing", b'{"code":"pay()","calls":[]}')
    calls = {3: (PAY, '{"amount":5}'), 4: (replace(PAY, digest="e" * 64), '{"amount":6}')}
    id_, _ = await approvals.request_together(program, calls, 900, 3)
    assert await approvals.decide(id_, True, "bob", grants=grants)
    return id_


async def test_an_approval_of_a_program_is_good_for_its_calls_in_this_run(
    approvals: Approvals,
) -> None:
    id_ = await approve_run(approvals)
    call = RunCall(RUN, CODE, 3)
    assert await approvals.use_in_run(PAY, call) == Use(id_, 0)
    assert await approvals.use_in_run(PAY, call) == Use(id_, 0)  # as its repetition by its key
    assert await approvals.use(PAY) is None
    for other in (
        replace(call, number=4),
        replace(call, number=5),
        replace(call, run=TOOL),
        replace(call, code_digest=b"d" * 32),
    ):
        assert await approvals.use_in_run(PAY, other) is None
    for changed in (replace(PAY, definition="v2"), replace(PAY, principal="eve")):
        assert await approvals.use_in_run(changed, call) is None


async def test_a_grant_is_good_for_so_many_calls_of_a_tool_in_this_run(
    approvals: Approvals, database: Database
) -> None:
    id_ = await approve_run(approvals, Grant("pay", 2))
    other = replace(PAY, digest="f" * 64)
    calls = [RunCall(RUN, CODE, number) for number in (7, 8, 9)]
    for changed in (replace(other, definition="v2"), replace(other, tool_id=RUN)):
        assert await approvals.use_in_run(changed, calls[0]) is None
    for changed_call in (replace(calls[0], code_digest=b"d" * 32), replace(calls[0], run=TOOL)):
        assert await approvals.use_in_run(other, changed_call) is None
    uses = [await approvals.use_in_run(other, call) for call in calls]
    assert uses == [Use(id_, 2, granted=True)] * 2 + [None]
    await approvals.give_back(Use(id_, 2, granted=True))
    async with borrow(database.pool) as connection:
        await connection.execute("UPDATE approval_call_t SET expire_ts = now() WHERE place = 2")
    assert await approvals.use_in_run(other, calls[0]) is None


async def test_nothing_is_granted_that_does_not_wait(approvals: Approvals) -> None:
    with pytest.raises(NotPending, match="refund"):
        await approve_run(approvals, Grant("refund", 2))
    [waiting] = await approvals.waiting()
    assert (waiting.state, waiting.run, waiting.arguments) == (
        "waiting", RUN, '{"calls": {"pay": 2}}',
    )  # fmt: skip
