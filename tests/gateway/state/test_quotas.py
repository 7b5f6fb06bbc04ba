"""Quotas of what is stored, over a counted table that the test plays."""

import anyio
import pytest

from gateway.state.quotas import COUNT_S, Quota, QuotaExcess, Usage, UsageQuotas

pytestmark = pytest.mark.anyio

QUOTAS = (
    Quota("x.owner", "number", 2, shared=False),
    Quota("x.owner_bytes", "bytes", 100, shared=False),
    Quota("x.tenant", "number", 3, shared=True),
    Quota("x.tenant_bytes", "bytes", 150, shared=True),
)


class Table:
    """Rows of one tenant by owner, and how often they were counted."""

    def __init__(self) -> None:
        self.rows: dict[str, Usage] = {}
        self.counts = 0
        self.now = 0.0
        self.quotas = UsageQuotas(lambda: self.now)

    async def count(self) -> dict[str, Usage]:
        self.counts += 1
        return self.rows

    async def take(self, owner: str, added: Usage) -> str:
        """The setting of the quota that is passed, or ""."""
        excess = await self.quotas.take("t", owner, added, quotas=QUOTAS, count=self.count)
        return "" if excess is None else excess.quota.setting


async def test_an_owner_and_its_tenant_have_numbers_and_bytes() -> None:
    """What is stored is bounded for a principal and for a tenant (mending 6)."""
    table = Table()
    assert await table.take("ann", Usage(1, 101)) == "x.owner_bytes"
    assert [await table.take("ann", Usage(1, 10)) for _ in range(3)] == ["", "", "x.owner"]
    assert await table.take("bo", Usage(1, 100)) == ""
    assert await table.take("bo", Usage(1, 0)) == "x.tenant"
    assert await table.take("cy", Usage(0, 31)) == "x.tenant_bytes"
    assert await table.take("ann", Usage(0, -5)) == "", "what becomes less is never refused"
    assert table.counts == 1, "a count serves all that comes within a second"


async def test_a_burst_waits_for_the_first_count() -> None:
    """Nobody is judged by a count that has not ended, as after a start (mending 10)."""
    table, answers = Table(), list[str]()
    counted = anyio.Event()

    async def count() -> dict[str, Usage]:
        table.counts += 1
        await counted.wait()
        return {"ann": Usage(1, 10)}

    async def take() -> None:
        added = Usage(1, 1)
        excess = await table.quotas.take("t", "ann", added, quotas=QUOTAS, count=count)
        answers.append("" if excess is None else excess.quota.setting)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            counted.set()
    assert (sorted(answers), table.counts) == (["", *["x.owner"] * 3], 1)


async def test_a_first_count_that_fails_is_made_again() -> None:
    table = Table()
    table.rows = {"ann": Usage(2, 10)}

    async def fail() -> dict[str, Usage]:
        raise OSError("no connection")

    with pytest.raises(OSError, match="no connection"):
        await table.quotas.take("t", "ann", Usage(1, 1), quotas=QUOTAS, count=fail)
    assert await table.take("ann", Usage(1, 1)) == "x.owner"


async def test_deleted_usage_is_free_again_after_a_second() -> None:
    table = Table()
    table.rows = {"ann": Usage(2, 20)}
    assert await table.take("ann", Usage(1, 1)) == "x.owner"
    table.rows = {"ann": Usage(1, 10)}
    assert await table.take("ann", Usage(1, 1)) == "x.owner"
    table.now += COUNT_S
    assert await table.take("ann", Usage(1, 1)) == ""


async def test_the_largest_share_of_each_quota_is_told() -> None:
    table = Table()
    table.rows = {"ann": Usage(1, 90), "bo": Usage(1, 15)}
    await table.take("ann", Usage())
    assert table.quotas.shares == {
        "x.owner": 0.5,
        "x.owner_bytes": 0.9,
        "x.tenant": pytest.approx(2 / 3),
        "x.tenant_bytes": 0.7,
    }


def test_a_refusal_names_the_owner_and_the_usage() -> None:
    excess = QuotaExcess(QUOTAS[3], 149)
    assert excess.sentence("owner", "texts") == (
        "the tenant has 149 bytes of texts, expected at most 150"
    )
    assert QuotaExcess(QUOTAS[0], 2).sentence("owner", "texts") == (
        "the owner has 2 texts, expected at most 2"
    )
