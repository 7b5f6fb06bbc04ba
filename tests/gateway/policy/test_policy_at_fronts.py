"""Rules of who may do what, at every front: what lists have, what may be called, and that nobody
can tell a tool that is denied from one that there is not."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Policy, Rule
from config.settings import Settings, Toolset
from gateway.context import Principal
from registry.access.approvals import Approvals
from registry.access.policies import Policies
from registry.database.postgres import borrow
from registry.sources.tool_store import ToolStore
from schemas.tool import Tool
from tests.fixtures_gateway import META, MODERN, Client, running
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.gateway.policy import oracle
from tests.gateway.portal import legacy, service, with_rules

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
GOOD = {"id": 5}
CALLABLE = {  # with arguments that they take
    "listPets": {},
    "getPet": GOOD,
    "deletePet": GOOD,
    "createPet": {"name": "Rex"},
}
NOBODY = "noSuchTool"
SEEDS = range(8)
EXPRESSIONS = (
    *("", "", "has(arguments.id) && arguments.id > 100", "arguments.owner == principal.id"),
    *("'admin' in principal.roles", "tool.readOnly", "principal.claims.team == 'red'"),
)


class Caller:
    """Somebody with a token, at one gateway."""

    def __init__(self, client: Client, name: str, **claims: Any) -> None:
        self.claims = {"sub": name, "exp": FOREVER, "scope": "portal.r portal.w", **claims}
        self.client = client
        self.token = KEY.token(**self.claims)
        self.bearer = {"Authorization": f"Bearer {self.token}"}

    @property
    def principal(self) -> Principal:
        scopes = frozenset(self.claims["scope"].split())
        roles = frozenset(self.claims.get("roles", ()))
        tenant = self.client.gateway.principal.tenant
        return Principal(
            self.claims["sub"], tenant, scopes, self.claims, roles=roles, mark=self.token
        )

    async def modern(self, method: str, path: str = "/mcp", /, **params: Any) -> Any:
        sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **self.bearer}
        if "name" in params:
            sent["Mcp-Name"] = params["name"]
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        _, answer, _ = await self.client.post(path, body, sent)
        return answer

    async def session(self, method: str, revision: str = "2025-06-18", **params: Any) -> Any:
        about = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t"}}
        about["clientInfo"] = {"name": "test", "version": "1"}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
        _, _, headers = await self.client.post("/mcp", hello, self.bearer)
        sent = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, answer, _ = await self.client.post("/mcp", body, {**self.bearer, **sent})
        return answer

    async def rpc(self, body: Any, path: str = "/rpc") -> Any:
        _, answer, _ = await self.client.post(path, body, self.bearer)
        return answer

    async def list_tools(self, path: str = "/mcp") -> set[str]:
        answer = await self.modern("tools/list", path)
        return {one["name"] for one in answer["result"]["tools"]}

    async def call_own_tool(self, tool: str, **arguments: Any) -> Any:
        """What one of the gateway's own tools says."""
        answer = await self.modern("tools/call", name=tool, arguments=arguments)
        return answer["result"]


def request(method: str, params: Any, id_: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


@pytest.fixture
async def client(settings: Settings, tmp_path: Path) -> AsyncIterator[Client]:
    auth = by_jwks(tmp_path, [KEY.jwk()])
    toolsets = {"front": Toolset(include=("*Pet",))}
    few = replace(with_rules(settings), auth=auth, toolsets=toolsets)
    async with running(few) as client:
        yield client


def apply(client: Client, policy: Policy) -> None:
    """Have a gateway decide by these rules, as if its settings had them."""
    gateway = client.gateway
    gateway.access.policy_view.reconfigure(policy, gateway.settings.limits.json_depth)


def draw_policy(seed: int) -> Policy:
    """Some rules, the same for the same seed."""
    random = Random(seed)

    def few(*values: Any) -> tuple[Any, ...]:
        return tuple(random.sample(values, min(len(values), random.choice((0, 0, 1, 2)))))

    rules = {
        f"r{number}": Rule(
            effect=random.choice(("allow", "deny", "approve")),
            tools=few("*Pet", "*Pets", "get*", "*ule*"),
            sources=few("pets", "rules"),
            toolsets=few("front"),
            destructive=random.choice((None, None, True, False)),
            roles=few("admin", "finance"),
            principals=few("ada"),
            when=random.choice(EXPRESSIONS),
        )
        for number in range(random.randint(1, 5))
    }
    default = random.choice(("allow", "deny"))
    return replace(oracle.usual(), rules=rules, default=default)


def effect_of(answer: Any) -> str:
    """What became of a call: the gateway's own words tell."""
    text = json.dumps(answer)
    if "Unknown tool" in text or "Method not found" in text or "there is no tool" in text:
        return "deny"
    return "approve" if "needs an approval" in text else "allow"


def without(name: str, answer: Any) -> str:
    """An answer, but for the name that it is about, names that are near it, and the id of the
    request."""
    told = json.dumps(answer).replace(name, "?")
    return re.sub(r'"requestId": "[^"]*"|; did you mean [^"?]*\?', "", told)


async def test_all_fronts_decide_as_the_rules_say(client: Client) -> None:
    for seed in SEEDS:
        await check_fronts(client, draw_policy(seed), seed)


async def check_fronts(client: Client, policy: Policy, seed: int) -> None:
    apply(client, policy)
    catalog = client.gateway.catalogs.of(client.gateway.principal.tenant)
    tools = {one.name: one for one in catalog.tools}
    for caller in (
        Caller(client, "ada", roles=["admin"], team="red"),
        Caller(client, "bob", roles=["finance"]),
    ):
        await check_sight(caller, policy, tools)
        for name, arguments in CALLABLE.items():
            wanted = oracle.expect_outcome(policy, caller.principal, None, tools[name], arguments)
            answers = await every_call(caller, name, arguments)
            found = {front: effect_of(one) for front, one in answers.items()}
            assert found == dict.fromkeys(answers, wanted.effect), (seed, name)
            if wanted.effect == "deny":
                unknown = await every_call(caller, NOBODY, arguments)
                for front, one in answers.items():
                    if front != "call_tool":  # it says which names are near
                        assert without(name, one) == without(NOBODY, unknown[front]), front


async def check_sight(caller: Caller, policy: Policy, tools: dict[str, Tool]) -> None:
    for path, toolset in (("/mcp", None), ("/mcp/front", "front")):
        wanted = {
            name
            for name, one in tools.items()
            if oracle.expect_outcome(policy, caller.principal, toolset, one, None).visible
            and (toolset is None or name.endswith("Pet"))
        }
        assert await caller.list_tools(path) == wanted
        if toolset is None:
            everywhere = wanted
    methods = (await caller.rpc(request("rpc.discover", {})))["result"]["methods"]
    assert {one["name"] for one in methods} - {"tools/list", "tools/call", "rpc.discover"} == (
        everywhere
    )
    found = await caller.call_own_tool(
        "search_tools", query="pet pets rule one list add remove", limit=20
    )
    assert {one["name"] for one in found["structuredContent"]["tools"]} <= everywhere
    for name in tools:
        told = await caller.call_own_tool("describe_tools", names=[name])
        assert told.get("isError", False) == (name not in everywhere)
    on_portal = await caller.rpc(request("tools/list", {}), "/portal/query")
    seen = {tool.binding.service for name in everywhere if (tool := tools[name]).source == "rules"}
    assert {one["name"] for one in on_portal["result"]["tools"]} == seen


async def every_call(caller: Caller, name: str, arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    batch = await caller.rpc([request(name, arguments, 1), request("tools/call", params, 2)])
    by_id = {one["id"]: one for one in batch}
    return {
        "modern": await caller.modern("tools/call", **params),
        "session": await caller.session("tools/call", **params),
        "rpc": by_id[1],
        "batch": by_id[2],
        "call_tool": await caller.call_own_tool("call_tool", **params),
    }


def apply_rules(client: Client, default: str = "allow", **rules: Rule) -> None:
    apply(client, replace(oracle.usual(), default=default, rules=rules, approvals=2))


async def test_denied_actions_look_like_missing_actions(client: Client) -> None:
    apply_rules(client, one=Rule("deny", tools=("*[eE]cho*",)))
    caller = Caller(client, "ada")
    for path in ("/portal/query", "/portal/command", "/rpc"):
        for body in (
            lambda action: request(service(action), {}),
            lambda action: legacy(action, data={}),
            lambda action: [request(service(action), {})],
        ):
            denied, unknown = [await caller.rpc(body(one), path) for one in ("echo", "nosuch")]
            assert without("echo", denied) == without("nosuch", unknown)
        assert "result" in await caller.rpc(request(service("public"), {}), "/portal/query")


async def test_a_bad_token_is_reported_before_an_unknown_action(
    client: Client,
) -> None:
    apply_rules(client, "deny", one=Rule("allow", principals=("ada",)))
    stranger = Caller(client, "ada", exp=1_700_000_000)
    answers = [
        await stranger.rpc(request(service(one), {}), "/portal/query") for one in ("echo", "nosuch")
    ]
    told = {one.get("error", one).get("code") for one in answers}
    assert len(told) == 1
    assert "ERR100" in json.dumps(answers[0])


async def test_rules_of_the_database_count_at_once(client: Client) -> None:
    caller, pool = Caller(client, "ada"), client.gateway.feed.pool
    policies = Policies(pool, client.gateway.principal.tenant)
    call = request("getPet", GOOD)
    assert "getPet" in await caller.list_tools()
    assert "result" in await caller.rpc(call)
    changed = anyio.Event()
    client.gateway.events.rules_changed.subscribe(lambda _tenant: changed.set())
    await policies.put("no-pets", Rule("deny", tools=("getPet",)))
    with anyio.fail_after(30):
        await changed.wait()
    assert "getPet" not in await caller.list_tools()
    assert "error" in await caller.rpc(call)
    changed = anyio.Event()
    await policies.delete("no-pets")
    with anyio.fail_after(30):
        await changed.wait()
    assert "getPet" in await caller.list_tools()
    assert "result" in await caller.rpc(call)


async def test_tiers_limit_only_tools_with_a_tier(client: Client) -> None:
    policy = replace(oracle.usual(), default_clearance="internal", clearances={"hr": "restricted"})
    apply(client, policy)
    gateway = client.gateway
    async with borrow(gateway.feed.pool) as connection:
        await connection.execute(
            "UPDATE tool_t SET sensitivity_tier = 'restricted' WHERE name = 'getPet'"
        )
    await gateway.catalogs.reload(ToolStore(gateway.feed.pool), gateway.principal.tenant)
    assert "getPet" not in await Caller(client, "ada").list_tools()
    assert "getPet" in await Caller(client, "ada", roles=["hr"]).list_tools()


async def waiting(client: Client) -> tuple[Approvals, list[str]]:
    approvals = Approvals(client.gateway.feed.pool, client.gateway.principal.tenant)
    return approvals, [one.id for one in await approvals.waiting()]


async def test_a_call_that_somebody_agreed_to_goes_through_once(client: Client) -> None:
    apply_rules(client, one=Rule("approve", tools=("deletePet",)))
    ada, bob = Caller(client, "ada"), Caller(client, "bob")
    call = {"name": "deletePet", "arguments": {"id": 7}}
    asked = await ada.modern("tools/call", **call)
    told = asked["result"]["_meta"]["toolgate/approval"]
    assert asked["result"]["isError"] is True
    assert told["approval"] in asked["result"]["content"][0]["text"]
    older = await ada.session("tools/call", **call)  # 2025-06-18: errors are no results
    assert (older["error"]["code"], older["error"]["data"]["approval"]) == (1428, told["approval"])
    plain = await ada.rpc(request("deletePet", {"id": 7}))
    assert (plain["error"]["code"], plain["error"]["data"]["approval"]) == (1428, told["approval"])
    approvals, ids = await waiting(client)
    assert ids == [told["approval"]]
    assert (await approvals.decide(ids[0], True, "carol")).state == "approved"
    assert "needs an approval" in json.dumps(await bob.modern("tools/call", **call))
    other = {"name": "deletePet", "arguments": {"id": 8}}
    assert "needs an approval" in json.dumps(await ada.modern("tools/call", **other))
    answers = []
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(keep, answers, ada.modern("tools/call", **call))
    went = [one for one in answers if not one["result"].get("isError")]
    assert len(went) == 1
    assert len(answers) == 3


async def keep(answers: list[Any], work: Any) -> None:
    answers.append(await work)


async def test_one_caller_has_few_calls_waiting(client: Client) -> None:
    apply_rules(client, one=Rule("approve", tools=("getPet",)))
    for guard in client.gateway.access.policy_guards:
        guard._approving._policy = replace(oracle.usual(), approvals=2)
    ada = Caller(client, "ada")
    for id_ in (1, 2, 1, 2):
        await ada.modern("tools/call", name="getPet", arguments={"id": id_})
    assert len((await waiting(client))[1]) == 2
    answer = await ada.rpc(request("getPet", {"id": 3}))
    assert answer["error"]["code"] == 1429
    bob = await Caller(client, "bob").rpc(request("getPet", {"id": 3}))
    assert bob["error"]["code"] == 1428
