"""`python -m benchmarks.simulation`: which part of a hundred gateways saturates first.

Discrete events, seeded: calls and searches arrive at a load balancer, which sends each to a gateway
with few of them; there they use a core, the shared state in Redis, the database, and an upstream
that is never the limit. Each part serves a number of jobs at a time, the others wait in line. The
rate is raised until a part is busy; then that part is doubled or sharded, and so on.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import click
from rich.console import Console
from rich.table import Table

SEED = 20261123
NODES, CORES = 100, 2
BUSY = 0.95  # of its time, from which a part counts as saturated
WARM_S, SIMULATED_S = 0.06, 0.2  # what happens before the first does not count
US = 1e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """Time that one step of a request takes of one part; `measured` names the source."""

    us: float
    measured: str


# Processor time, measured apart from the others on a shared two-core machine (AMD EPYC). What the
# database writes to disk, and what a network takes, is not in it.
COSTS: Mapping[str, Cost] = {
    "balancer": Cost(15, "README, nginx as reverse proxy: 67,836 answers/s of one core"),
    "call": Cost(157, "README, tools/call of a session: 6,381 answers/s of one core"),
    "guarded": Cost(66, "docs/performance.md: identity, policy, limits, audit take 0.42 of a call"),
    "limit": Cost(16.5, "server time of RedisCounter.hit, 20 clients, packaged Redis 6.2"),
    "append": Cost(13.5, "server time of RedisLog.append, 300 bytes, 20 clients"),
    "heard": Cost(0.33, "the same with 50 gateways that listen, of each of them"),
    "encode": Cost(10_000, "docs/performance.md, a search of 14 ms, less its statements"),
    "search": Cost(3_600, "make bench-scale, search_tools by words among 1,000 tools"),
    "audit row": Cost(3.5, "server time of COPY into audit_t, 1,000 rows at a time"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is bought. Every number is of servers, but for cores."""

    balancers: int = 2
    redis: int = 1  # masters; each has one thread
    database_cores: int = 16
    audit_databases: int = 0  # cores of a database for the audit log alone; 0: the registry's
    replica_cores: int = 0
    nodes: int = NODES


@dataclass(frozen=True, slots=True)
class Traffic:
    """Shares of requests."""

    searches: float = 0.02
    limited: float = 1.0  # calls that count against a shared limit
    streamed: float = 0.05  # calls whose answer is a stream that can be resumed
    audited: float = 1.0


@dataclass(slots=True)
class Part:
    """Servers of one kind, with one line for all of them."""

    name: str
    servers: int
    free: int = field(init=False)
    busy_s: float = 0.0
    line: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.free = self.servers


Step = tuple[str, float]


class Simulation:
    def __init__(self, plan: Plan, traffic: Traffic, rate: float) -> None:
        self._rng = random.Random(SEED)
        self._plan, self._traffic, self._rate = plan, traffic, rate
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.now = 0.0
        self.latencies: list[float] = []
        self.parts = {name: Part(name, servers) for name, servers in _servers(plan)}

    def run(self) -> None:
        self._arrive()
        while self._events:
            self.now, _, happen = heapq.heappop(self._events)
            if self.now > SIMULATED_S:
                return
            happen()

    def busy(self) -> dict[str, float]:
        return {
            name: part.busy_s / (part.servers * (SIMULATED_S - WARM_S))
            for name, part in self.parts.items()
        }

    def _arrive(self) -> None:
        self._at(self.now + self._rng.expovariate(self._rate), self._arrive)
        self._go_on(self.now, deque(self._steps()))

    def _go_on(self, began: float, steps: deque[Step]) -> None:
        if not steps:
            self.latencies.append(self.now - began)
            return
        name, mean_s = steps.popleft()
        self._serve(
            self.parts[name],
            self._rng.expovariate(1 / mean_s),
            lambda: self._go_on(began, steps),
        )

    def _serve(self, part: Part, for_s: float, then: Callable[[], None]) -> None:
        if not part.free:
            part.line.append((for_s, then))
            return
        part.free -= 1
        counted = min(self.now + for_s, SIMULATED_S) - max(self.now, WARM_S)
        part.busy_s += max(0.0, counted)

        def done() -> None:
            part.free += 1
            if part.line:
                self._serve(part, *part.line.popleft())
            then()

        self._at(self.now + for_s, done)

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, happen))

    def _steps(self) -> Iterator[Step]:
        """The parts that one request visits, and its mean time at each."""
        traffic, plan, chance = self._traffic, self._plan, self._rng.random
        yield "balancers", COSTS["balancer"].us * US
        if chance() < traffic.searches:
            yield "gateways", (COSTS["call"].us + COSTS["encode"].us) * US
            yield "replicas" if plan.replica_cores else "database", COSTS["search"].us * US
        else:
            guarded = COSTS["guarded"].us * traffic.audited
            yield "gateways", (COSTS["call"].us + guarded) * US
        if chance() < traffic.limited:
            yield f"redis {self._rng.randrange(plan.redis)}", COSTS["limit"].us * US
        if chance() < traffic.streamed:
            yield f"redis {self._rng.randrange(plan.redis)}", COSTS["append"].us * US
            # All gateways listen at the master that has the slot of the channel.
            yield "redis 0", COSTS["heard"].us * plan.nodes * US
        if chance() < traffic.audited:
            where = "audit database" if plan.audit_databases else "database"
            yield where, COSTS["audit row"].us * US


def _servers(plan: Plan) -> Iterator[tuple[str, int]]:
    yield "balancers", plan.balancers * CORES
    yield "gateways", plan.nodes * CORES
    for n in range(plan.redis):
        yield f"redis {n}", 1
    yield "database", plan.database_cores
    if plan.replica_cores:
        yield "replicas", plan.replica_cores
    if plan.audit_databases:
        yield "audit database", plan.audit_databases


@dataclass(frozen=True, slots=True)
class Saturation:
    rate: float  # requests a second
    part: str
    p50_ms: float  # at half that rate, without the upstream
    p99_ms: float


def saturation(plan: Plan, traffic: Traffic) -> Saturation:
    """The rate at which the first part is busy, to two percent, and that part."""
    low, high = 10_000.0, 10_000.0
    while (busiest := _busiest(plan, traffic, high))[1] < BUSY:
        low, high = high, high * 2
    while high / low > 1.02:
        middle = (low + high) / 2
        found = _busiest(plan, traffic, middle)
        low, high, busiest = (middle, high, busiest) if found[1] < BUSY else (low, middle, found)
    half = Simulation(plan, traffic, high / 2)
    half.run()
    waits = sorted(half.latencies)
    return Saturation(
        high,
        busiest[0].split()[0] if busiest[0].startswith("redis") else busiest[0],
        waits[len(waits) // 2] * 1e3,
        waits[len(waits) * 99 // 100] * 1e3,
    )


def _busiest(plan: Plan, traffic: Traffic, rate: float) -> tuple[str, float]:
    simulation = Simulation(plan, traffic, rate)
    simulation.run()
    return max(simulation.busy().items(), key=lambda part: part[1])


def grown(plan: Plan, part: str) -> tuple[Plan, str]:
    """What is done about a saturated part."""
    match part:
        case "balancers":
            return replace(plan, balancers=plan.balancers * 2), "twice the load balancers"
        case "redis":
            return replace(plan, redis=plan.redis * 2), f"a cluster of {plan.redis * 2} masters"
        case "database" if not plan.replica_cores:
            return replace(plan, replica_cores=32), "searches on replicas (32 cores)"
        case "database" if not plan.audit_databases:
            return replace(plan, audit_databases=16), "the audit log on a server of its own"
        case "replicas":
            return replace(plan, replica_cores=plan.replica_cores * 2), "twice the replicas"
        case "audit database":
            more = plan.audit_databases * 2
            return replace(plan, audit_databases=more), "the audit log distributed by tenant"
        case _:
            return replace(plan, nodes=plan.nodes * 2), "twice the gateways"


@click.command()
@click.option(
    "--searches", default=Traffic().searches, show_default=True, help="Share of searches."
)
@click.option("--steps", default=5, show_default=True, help="How often the busy part grows.")
def main(searches: float, steps: int) -> None:
    """Print the part that saturates first, at how many requests a second, and the next ones."""
    costs = Table("part of a request", "µs", "measured", title="Costs")
    for name, cost in COSTS.items():
        costs.add_row(name, f"{cost.us:,g}", cost.measured)
    table = Table("requests/s", "saturated", "p50, p99 at half, ms", "then", title="Saturation")
    plan, traffic = Plan(), Traffic(searches=searches)
    for _ in range(steps):
        busiest = saturation(plan, traffic)
        plan, then = grown(plan, busiest.part)
        waits = f"{busiest.p50_ms:.1f}, {busiest.p99_ms:.1f}"
        table.add_row(f"{busiest.rate:,.0f}", busiest.part, waits, then)
    console = Console(width=120)
    console.print(costs)
    console.print(table)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.simulation")
