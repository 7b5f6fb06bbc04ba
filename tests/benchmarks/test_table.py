"""The arithmetic of the benchmarks: ratios, verdicts, what is printed, what wrk's output means."""

import io

import msgspec
import pytest
from rich.console import Console

from benchmarks import calls, wrk
from benchmarks.description import describe
from benchmarks.generator import Poisson, Saturating, Tally, summarise
from benchmarks.load import CONNECTIONS
from benchmarks.request import Answer, HttpRequest, Unavailable, expect
from benchmarks.table import (
    Row,
    Target,
    broken,
    cells,
    markdown,
    missed,
    missing,
    ratio,
    render,
    verdict,
)

FLOOR, PEER, BELOW = Target("floor", 0.65), Target("peer", 7.0), Target("value", 3.0)
AT_LEAST = Target("least", 60.0)


def test_ratio_is_the_median_of_rounds_so_one_bad_round_does_not_count() -> None:
    assert ratio([50, 5, 60], [100, 100, 100]) == 0.5


def test_ratio_pairs_each_round_with_its_own_floor() -> None:
    assert ratio([80, 40, 20], [100, 50, 25]) == 0.8


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], []), ([1.0], [0.0])])
def test_ratio_is_absent_without_a_floor(ours: list[float], theirs: list[float]) -> None:
    assert ratio(ours, theirs) is None


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row("call", 600, "calls/s", 0.65, 0.6, 7.0, (FLOOR, PEER)), "reached"),
        (Row("call", 600, "calls/s", 0.61, 0.6, 7.5, (FLOOR, PEER)), "NOT reached: 0.61 x"),
        (Row("call", 600, "calls/s", 0.4, 0.6, 5.0, (FLOOR, PEER)), "NOT reached: 0.40 x, 5.00 x"),
        (Row("call", 600, "calls/s", 0.7, 0.6, 8.0, (FLOOR,), errors=3), "NOT reached: 3 errors"),
        (Row("p99 added", 2.99, "ms", targets=(BELOW,)), "reached"),
        (Row("p99 added", 3.0, "ms", targets=(BELOW,)), "NOT reached: 3.00 ms"),
        (Row("found", 60.0, "%", targets=(AT_LEAST,)), "reached"),
        (Row("found", 59.9, "%", targets=(AT_LEAST,)), "NOT reached: 59.9 %"),
        (Row("floor", 600, "calls/s"), ""),
    ],
)
def test_verdict_names_every_figure_that_falls_short(row: Row, expected: str) -> None:
    assert verdict(row) == expected


def test_the_table_for_the_readme_has_the_spread_of_the_ratios() -> None:
    raced = Row("call", 7300, "calls/s", 1.18, 1.16, x_floor_rounds=(1.26, 1.12, 1.18))
    *_, only = markdown([raced, Row("p99 added", 2.0, "ms")]).split("\n")
    assert only == "| call | 7,300 calls/s | 1.18 | 1.12 to 1.26 | 1.16 |"


def test_a_target_without_a_figure_is_missed() -> None:
    row = Row("call", 600, "calls/s", x_floor=0.9, targets=(FLOOR, PEER))
    assert missed(row) == ["no figure for >= 7 x FastMCP"]


def test_a_group_that_could_not_run_counts_as_missed() -> None:
    assert verdict(broken("calls", "the gateway did not start")) == "NOT reached: no figure"


def test_a_row_that_could_not_be_measured_says_why() -> None:
    row = missing("peer", "calls/s", "not available: no network")
    assert cells(row) == ("peer", "-", "", "", "", "", "not available: no network")


def test_cells_carry_units_ratios_targets_and_verdict() -> None:
    row = Row(
        "/rpc", 5432.1, "calls/s", 0.701, 0.72, 12.34, (FLOOR, PEER), note="used 80% of its core"
    )
    assert cells(row) == (
        "/rpc",
        "5,432 calls/s",
        "0.70 x",
        "0.72 x",
        "12.3 x",
        ">= 0.65 x floor, >= 7 x FastMCP",
        "reached; used 80% of its core",
    )


def test_the_table_prints_every_row() -> None:
    rows = [Row("floor", 100, "calls/s"), missing("ceiling", "calls/s", "no nginx")]
    screen = Console(file=io.StringIO(), width=120, record=True)
    screen.print(render(rows, "title", "two cores"))
    printed = screen.export_text()
    assert all(word in printed for word in ("title", "floor", "ceiling", "no nginx", "two cores"))


def test_rows_survive_json() -> None:
    row = Row("call", 600, "calls/s", 0.65, 0.6, 7.0, (FLOOR, PEER), rounds=(1.0, 2.0))
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row


def test_wrk_summary_is_read_from_the_last_line() -> None:
    output = (
        b"Running 2s test\nRequests/sec: 5.00\n\n"
        b'{"requests":10,"seconds":2.0,"errors":1,"bytes":300.5,"p50_ms":1.5,"p99_ms":4.0,"max_ms":9.0}\n'
    )
    report = wrk.parse(output)
    assert (report.per_s, report.errors, report.p99_ms) == (5.0, 1, 4.0)


def test_wrk_script_escapes_lua_syntax() -> None:
    assert wrk.quote(b'a"\\\n') == '"\\097\\034\\092\\010"'


def test_percentiles_of_our_own_generator_are_milliseconds() -> None:
    tally = Tally([n / 1000 for n in range(100, 0, -1)], errors=2)
    report = summarise(tally, 4.0, received=10_200)
    assert (report.requests, report.errors, report.per_s, report.bytes) == (100, 2, 25.0, 100.0)
    assert (report.p50_ms, report.p99_ms, report.max_ms) == pytest.approx((51.0, 100.0, 100.0))


def test_poisson_gives_every_due_moment_once_at_the_mean_rate() -> None:
    pace = Poisson(rate=1000.0, until=10.0, due=0.0)
    moments = []
    while (due := pace.take(now=10.0)) is not None:
        moments.append(due)
    assert moments == sorted(set(moments))
    assert len(moments) == pytest.approx(10_000, rel=0.05)
    assert pace.wait(now=10.0) is None


def test_poisson_waits_for_the_next_moment_and_makes_up_for_missed_moments() -> None:
    pace = Poisson(rate=10.0, until=10.0, due=1.0)
    assert pace.take(now=0.5) is None
    assert pace.wait(now=0.5) == 0.5
    assert pace.take(now=7.0) == 1.0
    assert pace.wait(now=9.9) == 0.0


def test_saturating_always_has_a_request_due_until_the_end() -> None:
    pace = Saturating(until=2.0)
    assert [pace.take(1.0), pace.take(1.5), pace.take(2.0)] == [1.0, 1.5, None]
    assert pace.wait(2.5) is None


def test_a_request_on_the_wire_has_its_length_and_headers() -> None:
    request = HttpRequest(8080, "/rpc", bodies=(b"{}", b"[1]"), headers={"accept": "*/*"})
    head = b"POST /rpc HTTP/1.1\r\nhost: 127.0.0.1:8080\r\naccept: */*\r\ncontent-length: "
    assert request.encode() == [head + b"2\r\n\r\n{}", head + b"3\r\n\r\n[1]"]


def test_requests_that_run_at_one_time_differ_in_their_ids() -> None:
    ids = [msgspec.json.decode(body)["id"] for body in calls.messages("tools/list", {})]
    assert len(set(ids)) == len(ids) > CONNECTIONS


def test_a_wrong_answer_under_load_ends_the_warm_up() -> None:
    output = b'Running\n\nwrong: {"error":1}\n\nwrong: {"error":2}\n{"requests":1}\n'
    with pytest.raises(Unavailable, match='"error":1'):
        wrk.parse(output)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, {}, b"needle"),
        Answer(200, {}, b"nothing here"),
        Answer(200, {}, b'{"result":{"content":"needle","isError":true}}'),
    ],
)
def test_an_unexpected_answer_is_never_measured(answer: Answer) -> None:
    with pytest.raises(Unavailable):
        expect(answer, b"needle")


def test_a_batch_with_a_failed_member_is_never_measured() -> None:
    members = [{"id": n, "result": {}} for n in range(calls.BATCH - 1)] + [{"id": 0, "error": {}}]
    with pytest.raises(Unavailable, match="49 of 50"):
        calls.check_batch(msgspec.json.encode(members))


def test_a_stateless_request_mirrors_its_envelope_in_the_headers() -> None:
    request = calls.stateless(1, "tools/call", calls.call("getItem"))
    sent = msgspec.json.decode(request.bodies[0])
    assert request.headers["mcp-method"] == sent["method"] == "tools/call"
    assert request.headers["mcp-name"] == sent["params"]["name"] == "getItem"
    assert request.headers["mcp-protocol-version"] == "2026-07-28"


@pytest.mark.parametrize("operations", [1, 100, 1000])
def test_a_generated_description_has_as_many_operations_as_asked(operations: int) -> None:
    document = msgspec.json.decode(describe(operations, "http://127.0.0.1:1"))
    verbs = [verb for item in document["paths"].values() for verb in item.values()]
    assert len({verb["operationId"] for verb in verbs}) == operations
    assert verbs[0]["operationId"] == "getItem"
