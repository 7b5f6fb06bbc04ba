"""The share of `make fuzz` that every run of the tests does, with a seed of its own."""

import logging
from pathlib import Path

import pytest

from tests.fixtures_database import Cluster
from tests.fuzz.cases import FRONTS, GATEWAYS, PATHS, make
from tests.fuzz.rig import targets
from tests.fuzz.run import Crashes, Run

SEED, CASES = 20260728, 2000


@pytest.mark.anyio
@pytest.mark.timeout(300)
async def test_no_front_answers_wrongly_to_random_requests(
    cluster: Cluster, tmp_path: Path, anyio_backend: str
) -> None:
    crashes, ours = Crashes(), logging.getLogger("toolgate")
    ours.addHandler(crashes)
    try:
        async with targets(cluster, tmp_path) as found:
            findings = await Run(SEED, iter(range(CASES)), found).all()
            events = [one for target in found.values() for one in target.complaints]
    finally:
        ours.removeHandler(crashes)
    assert not findings, "\n\n".join(map(str, findings))
    assert events == []
    assert crashes.records == []


def test_cases_are_reproducible() -> None:
    assert [make(7, number) for number in range(200)] == [make(7, number) for number in range(200)]
    assert make(7, 1) != make(8, 1)


def test_every_front_of_every_gateway_gets_its_share() -> None:
    cases = [make(1, number) for number in range(2000)]
    assert {(case.gateway, case.front) for case in cases} == {
        (gateway, front) for gateway in GATEWAYS for front in FRONTS
    }
    assert {case.target.partition(b"?")[0] for case in cases} == set(PATHS.values())
    assert sum(case.method == b"GET" for case in cases) > 100
    assert all(case.text is not None for case in cases if case.method == b"POST")


def test_placeholders_of_a_case_are_filled_in_by_the_gateway() -> None:
    case = next(case for case in (make(1, n) for n in range(1000)) if b"{stream}" in case.target)
    sent = case.request({"stream": b"abc", "valid": b"t"})
    assert b"session_id=abc HTTP/1.1\r\n" in sent
    assert sent.endswith(b"content-length: %d\r\n\r\n" % len(case.body) + case.body)
