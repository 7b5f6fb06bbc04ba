"""`toolgate top` and `toolgate health`, of running gateways."""

import math
from pathlib import Path

import pytest

from gateway.cli.common import output
from gateway.cli.running.top import CallRate, Scrape, rates
from tests.fixtures_gateway import Client
from tests.gateway.cli.processes import command

pytestmark = pytest.mark.anyio

NOBODY = "http://127.0.0.1:9"


def scrape(at: float, ok: float, failed: float, *, slow: float = 0) -> Scrape:
    total = ok + failed
    return Scrape(
        at,
        {("ping", "ok"): ok, ("ping", "-32602"): failed},
        {("ping", 0.01): total - slow, ("ping", 0.5): total, ("ping", math.inf): total},
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (scrape(0, 10, 0), scrape(2, 110, 2), CallRate("ping", 51, 0.01, 1)),
        (scrape(0, 10, 0), scrape(2, 110, 0, slow=6), CallRate("ping", 50, 0.5, 0)),
        (scrape(0, 10, 0), scrape(2, 10, 0), CallRate("ping", 0, None, 0)),
        (scrape(0, 1000, 9), scrape(2, 20, 0), CallRate("ping", 10, 0.01, 0)),
    ],
    ids=["usual", "slow ones", "idle", "restarted"],
)
def test_rates_are_differences(before: Scrape, after: Scrape, expected: CallRate) -> None:
    assert rates(before, after) == [expected]


async def test_gateway_without_requests_is_told_in_a_sentence(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.err, "_force_terminal", True)
    code, out, err = await command("top", "--url", client.url, "--once", "--interval", "0.1")
    assert (code, out) == (0, ""), err
    assert "No request has come since the start of the gateway." in err


async def test_commands_read_a_running_gateway(client: Client, folder: Path) -> None:
    await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    code, out, err = await command(
        *("top", "--target", client.url, "--target", client.url, "--once", "--interval", "0.1")
    )
    assert code == 0, err
    assert out.split()[0] == "tools/list"
    code, _, err = await command("top", "--target", client.url, "--once", "--by", "tool")
    assert (code, "metrics.tools" in err) == (1, True)
    code, out, err = await command("health", "--url", client.url)
    assert (code, out.strip()) == (0, "ok"), err
    client.gateway.drain()
    code, _, err = await command("health", "--url", client.url)
    assert (code, "is not ready: draining" in err) == (1, True)


async def test_a_gateway_that_is_away_is_said_so(folder: Path) -> None:
    for words in (("top", "--target", NOBODY, "--once"), ("health", "--url", NOBODY)):
        code, _, err = await command(*words)
        assert code == 1
        assert "no gateway answers" in err
