"""The portal path of the gateway: both dialects, batches, and the cost per member of a batch.

Its upstream is an in-process Python action, so that only the gateway is measured.
"""

import statistics
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import quote

import msgspec

from benchmarks import calls, rivals
from benchmarks.load import Subject
from benchmarks.processes import Child
from benchmarks.race import Entry, Track, compete
from benchmarks.report import Report
from benchmarks.request import HttpRequest, expect
from benchmarks.rig import Rig
from benchmarks.service import ID
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import portal
from schemas.jsonrpc import Request, decode_plain

PATH = "/portal/query"
TARGETS = (Target("value", 50.0),)
MEMBER = f"a member of a batch of {calls.BATCH}, CPU time"
TIMES = 20_000
REPEATS = 5  # the best counts: whatever makes the others slower is not the scan


def measure_portal(rig: Rig) -> list[Row]:
    with rivals.floor(rig) as bare, portal(rig) as child:
        base = Entry("floor: bare Starlette + json", partial(_floor, bare))
        echo = Entry(
            "floor: Starlette echo of the batch", partial(_echo, bare), unit="requests/s", stretch=2
        )
        batch = Entry(f"{PATH}, batch of {calls.BATCH}", partial(_batch, child), calls.BATCH, 2)
        heat = compete(rig, base, [*_single(child), echo, batch])
    member = _member_row(heat.track(echo), heat.track(batch))
    return [*heat.rows(), member, _scan_row()]


def _single(child: Child) -> list[Entry]:
    requests = {
        f"POST {PATH}, legacy": legacy_post(child.port),
        f"GET {PATH}?cmd=, legacy": legacy_get(child.port),
        f"POST {PATH}, JSON-RPC": calls.rpc(child.port, ID, calls.ARGUMENTS, PATH),
    }
    return [
        Entry(name, partial(calls.checked, child, request)) for name, request in requests.items()
    ]


def _floor(bare: Child) -> Subject:
    return calls.checked(bare, calls.rpc(bare.port, ID, calls.ARGUMENTS, "/answer"))


def _echo(bare: Child) -> Subject:
    request = calls.rpc_batch(bare.port, ID, calls.ARGUMENTS, "/echo")
    expect(request.send(), ID.encode())
    return Subject(bare, request, ID.encode())


def _batch(child: Child) -> Subject:
    request = calls.rpc_batch(child.port, ID, calls.ARGUMENTS, PATH)
    calls.check_batch(request.send().body)
    return calls.checked(child, request)


def legacy_post(port: int) -> HttpRequest:
    return HttpRequest(port, PATH, bodies=(msgspec.json.encode(payload()),))


def legacy_get(port: int) -> HttpRequest:
    """As the portal's pages send it."""
    command = quote(msgspec.json.encode(payload()), safe="")
    return HttpRequest(port, f"{PATH}?cmd={command}", "GET")


def payload() -> dict[str, object]:
    """The same call as the legacy dialect has it."""
    host, service, action, version = ID.split("/")
    named = {"host": host, "service": service, "action": action, "version": version}
    return {**named, "data": calls.ARGUMENTS}


def member_cost(echo: Sequence[Report], batch: Sequence[Report]) -> tuple[float, ...]:
    """Microseconds of CPU for each member, round by round: what a batch takes and an echo of its
    body does not."""
    pairs = [
        (plain.per_cpu_s, batched.per_cpu_s)
        for plain, batched in zip(echo, batch, strict=True)
        if plain.per_cpu_s and batched.per_cpu_s
    ]
    return tuple((1 / theirs - 1 / ours) * 1e6 / calls.BATCH for ours, theirs in pairs)


def _member_row(echo: Track | None, batch: Track | None) -> Row:
    costs = member_cost(echo.reports, batch.reports) if echo and batch else ()
    if not costs:
        return missing(MEMBER, "us", "the batch or its floor could not be measured", TARGETS)
    return Row(
        MEMBER,
        statistics.median(costs),
        "us",
        targets=TARGETS,
        note=f"rounds from {min(costs):.1f} to {max(costs):.1f} us",
        rounds=costs,
    )


def _scan_row() -> Row:
    """The scan alone: reading a request as the gateway does, less decoding it."""
    body = calls.messages(ID, calls.ARGUMENTS)[0]
    decode = msgspec.json.Decoder(Request).decode
    checked_us, plain_us = (
        _best(partial(decode_plain, body, calls.BATCH)),
        _best(partial(decode, body)),
    )
    note = f"decoding it takes {plain_us:.2f} us; in this process"
    return Row(f"duplicate-key scan of {len(body)} bytes", checked_us - plain_us, "us", note=note)


def _best(function: Callable[[], object]) -> float:
    """Microseconds for one call."""
    return min(timeit.repeat(function, number=TIMES, repeat=REPEATS)) / TIMES * 1e6
