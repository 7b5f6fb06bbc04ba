"""`python -m tests.fuzz.access`: random callers at every front of a gateway with authentication,
rules, limits and audit on; exit 1 when anybody sees or does what is not theirs.

An oracle decides again, in plain Python: who is known, what they may see, what becomes of their
calls. Whether a call was made is asked of the service.
"""

import asyncio
import json
import logging
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import Any

import click
from msgspec.structs import replace

from config.access import Policy
from config.settings import Settings
from config.sources import SourceSettings
from gateway.context import Principal
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from schemas.tool import Tool
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import META, MODERN, Client, Recorder, pets, running, wordless
from tests.fixtures_servers import serving
from tests.fuzz.callers import AUDIENCE, KEY, OTHER, OWN, SECRET, Caller, Case, callers, make
from tests.fuzz.rig import database
from tests.fuzz.run import ALIKE, Crashes
from tests.gateway.guards.signing import by_jwks
from tests.gateway.policy import oracle
from tests.gateway.policy.test_policy_at_fronts import apply, draw_policy

ROUND = 1_000_000  # seeds are smaller, to be typed again
RULES_CHANGE = 20  # cases under the same rules
QUERY = {"query": "pets, and the key of the vault", "limit": 20}
DENIED = ("Unknown tool", "Method not found", "there is no tool")
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "fuzz", "version": "1"},
}


@dataclass
class Rig:
    """The gateway, its service, and those who call."""

    client: Client
    service: Recorder
    callers: Sequence[Caller]
    tools: Mapping[str, Mapping[str, Tool]]  # by tenant, as the database has them
    policy: Policy = field(default_factory=oracle.usual)

    def visible(self, principal: Principal) -> set[str]:
        return {
            name
            for name, tool in self.tools[principal.tenant].items()
            if oracle.expect_outcome(self.policy, principal, None, tool, None).visible
        }

    def hidden_tools(self, principal: Principal) -> set[str]:
        return {name for one in self.tools.values() for name in one} - self.visible(principal)

    async def ask(self, case: Case) -> tuple[int, Any]:
        """Status and answer of a case, by its front."""
        params = {"name": case.name, "arguments": case.arguments}
        path, headers = "/rpc", dict(case.caller.headers)
        body = rpc(case.method, {} if case.method != "tools/call" else params)
        if case.method in OWN:
            about = {"names": [case.name]} if case.method == "describe_tools" else QUERY
            body = rpc("tools/call", {"name": case.method, "arguments": about})
        elif case.front == "call_tool" and case.method == "tools/call":
            body = rpc(case.method, {"name": "call_tool", "arguments": params})
        if case.front in ("modern", "call_tool"):
            path, inner = "/mcp", {**body["params"], "_meta": META}
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": body["method"]}
            headers |= {"Mcp-Name": inner["name"]} if "name" in inner else {}
            body = {**body, "params": inner}
        elif case.front == "session":
            path = "/mcp"
            headers |= {"MCP-Protocol-Version": "2025-06-18", "Mcp-Session-Id": case.caller.session}
        elif case.front == "portal":
            path = "/portal/query"
        elif case.method == "tools/call" and case.front == "rpc":
            body = rpc(case.name, case.arguments)
        sent = [body] if case.front == "batch" else body
        status, answer, _ = await self.client.post(path, sent, headers)
        return status, answer

    def complaints(self, case: Case, status: int, answer: Any, calls: int) -> list[str]:
        """What is wrong with an answer, after which the service had been called so often."""
        text, principal = json.dumps(answer), case.caller.principal
        found = [f"status {status}"] if status >= 500 else []
        if principal is None:
            found += ["a stranger was answered"] if '"result"' in text else []
            return found + (["a stranger's call was made"] if calls else [])
        words = set(re.findall(r"\w+", text.replace(json.dumps(case.name)[1:-1], "")))
        leaked = sorted(words & self.hidden_tools(principal))
        found += [f"named {leaked}"] if leaked else []
        if case.method == "tools/list" and case.front != "portal":
            [one] = answer if isinstance(answer, list) else [answer]
            listed = {tool["name"] for tool in one["result"]["tools"]}
            wrong = listed ^ self.visible(principal)
            found += [f"listed {sorted(wrong)} wrongly"] if wrong else []
        if case.method != "tools/call":
            return found + (["a call was made"] if calls else [])
        wanted = self.effect(case, principal)
        if effect_of(text) != wanted:
            found.append(f"{effect_of(text)} instead of {wanted}")
        if calls != (wanted == "allow"):
            found.append(f"{calls} calls were made, it should be {wanted}")
        return found

    def effect(self, case: Case, principal: Principal) -> str:
        tool = self.tools[principal.tenant].get(case.name)
        if tool is None or case.name not in self.visible(principal) or case.front == "portal":
            return "deny"  # the portal has actions and no tools
        return oracle.expect_outcome(self.policy, principal, None, tool, case.arguments).effect


def effect_of(text: str) -> str:
    if any(words in text for words in (*DENIED, "ERR11200", "-32601")):
        return "deny"
    waits = ("1428", "1429", "an approval", "wait for approval")
    return "approve" if any(words in text for words in waits) else "allow"


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def settings_of(common: Settings, folder: Path, url: str) -> Settings:
    (folder / "pets.json").write_text(json.dumps(pets()))
    tenants = {"a": common.tenant.host_id, "b": OTHER}
    auth = by_jwks(folder, [KEY.jwk()], audience=AUDIENCE, tenant_claim="tenant", tenants=tenants)
    source = SourceSettings(openapi=str(folder / "pets.json"), base_url=url, exclude=("slow",))
    limits = replace(common.limits, principal_calls=10**9, tenant_calls=10**9)
    audit = replace(common.audit, mode="always", spool_dir=str(folder / "audit"))
    return replace(common, sources={"pets": source}, auth=auth, limits=limits, audit=audit)


@asynccontextmanager
async def rig(common: Settings, folder: Path) -> AsyncIterator[Rig]:
    """`common` has the database."""
    service = Recorder()
    async with serving(service) as url, running(settings_of(common, folder, url)) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        described = pets()["paths"]["/pets/{id}"]
        get = {**described["get"], "operationId": SECRET, "summary": "A key of the vault"}
        paths = {"/vault/{id}": {**described, "get": get}}
        (folder / "vault.json").write_text(json.dumps({**pets(), "paths": paths}))
        store, spec = ToolStore(pool), ImportSpec("vault", str(folder / "vault.json"), base_url=url)
        await Sources(store, OTHER, common.imports).import_(spec)
        await client.gateway.catalogs.reload(store, OTHER)
        found = callers(common.tenant.host_id)
        for one in found:
            body = rpc("initialize", INITIALIZE)
            _, _, headers = await client.post("/mcp", body, one.headers)
            one.session = headers.get("mcp-session-id", "none")
        found[-1].session = found[0].session  # stolen
        tenants = (common.tenant.host_id, OTHER)
        tools = {one: {tool.name: tool for tool in await store.tools(one)} for one in tenants}
        yield Rig(client, service, found, tools)


async def run(
    rig: Rig, seed: int, numbers: Sequence[int], until: Callable[[], bool] = lambda: False
) -> list[str]:
    """What was wrong, in words; `until` ends it before all were asked."""
    found: list[str] = []
    for number in numbers:
        if until() or len(found) > ALIKE:
            break
        rules = number // RULES_CHANGE
        if number % RULES_CHANGE == 0 or number == numbers[0]:
            rig.policy = draw_policy(seed * ROUND + rules)
            apply(rig.client, rig.policy)
        case = make(seed, number, rig.callers)
        rig.service.requests.clear()
        status, answer = await rig.ask(case)
        wrong = rig.complaints(case, status, answer, len(rig.service.requests))
        if wrong:
            again = f"python -m tests.fuzz.access --seed {seed} --case {number}"
            said = json.dumps(answer)[:1500]
            found.append(f"{case}\n  {'; '.join(wrong)}\n  again: {again}\n  {status} {said}")
    return found


@click.command()
@click.option("--seconds", type=click.IntRange(1), default=60, show_default=True)
@click.option("--seed", type=int, help="The same seed gives the same cases; random when absent.")
@click.option("--case", "numbers", type=int, multiple=True, help="Only this one; repeatable.")
def main(seconds: int, seed: int | None, numbers: tuple[int, ...]) -> None:
    """Have random callers list and call tools at every front, under random rules."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the database is stopped then, too
    seed = SystemRandom().randrange(ROUND) if seed is None else seed
    click.echo(f"access: seed {seed}")
    told = asyncio.run(_fuzz(seed, seconds, numbers))
    for one in told:
        click.echo(f"\n{one}", err=True)
    click.echo("wrong answers: see above" if told else "nothing wrong")
    sys.exit(1 if told else 0)


async def _fuzz(seed: int, seconds: int, numbers: Sequence[int]) -> list[str]:
    crashes = Crashes()
    logging.getLogger("toolgate").addHandler(crashes)
    with database() as cluster, tempfile.TemporaryDirectory(prefix="toolgate-fuzz-") as name:
        async with rig(_with_database(cluster), Path(name)) as ready:
            ends, asked = time.monotonic() + seconds, count()
            chosen = numbers or range(10**9)

            def late() -> bool:
                next(asked)
                return not numbers and time.monotonic() > ends

            found = await run(ready, seed, chosen, late)
    click.echo(f"{next(asked):,} requests")
    return [*found, *crashes.records]


def _with_database(cluster: Cluster) -> Settings:
    cluster.execute("CREATE DATABASE fuzz_access STRATEGY file_copy")
    settings = replace(cluster.settings, url=cluster.url("fuzz_access"))
    return replace(wordless(), database=settings)


if __name__ == "__main__":
    main(prog_name="python -m tests.fuzz.access")
