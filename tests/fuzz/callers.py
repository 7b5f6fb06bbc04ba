"""Who calls, what they ask by which front: the cases of `tests.fuzz.access`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from gateway.context import Principal
from tests.gateway.guards.signing import FOREVER, signer

KEY, EVE = signer("ES256", kid="access"), signer("ES256", "eve", kid="access")
OTHER = "01964b05-0000-7000-8000-0000000000b0"
AUDIENCE = "https://gateway.example.com"
SECRET = "getVaultKey"
NAMES = ("listPets", "getPet", "deletePet", "createPet", SECRET, "getVaultKeys", "getpet", "x")
OWN = ("search_tools", "describe_tools")  # tools of the gateway's own
FRONTS = ("modern", "session", "rpc", "batch", "call_tool", "portal")
METHODS = (*("tools/call",) * 6, "tools/list", "rpc.discover", *OWN)
IDS = (5, 100, 101, 404)


@dataclass
class Caller:
    """Somebody who calls, or tries to."""

    token: str
    principal: Principal | None  # None: nobody knows them
    session: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass
class Case:
    """What somebody is about to ask."""

    number: int
    caller: Caller
    front: str
    method: str
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        who = self.caller.principal.key if self.caller.principal else "a stranger"
        return f"{who} by {self.front}: {self.method} {self.name} {json.dumps(self.arguments)}"


def callers(tenant: str) -> list[Caller]:
    def make_caller(name: str, of: str, **claims: Any) -> Caller:
        said = {"sub": name, "exp": FOREVER, "aud": AUDIENCE, "tenant": of, **claims}
        token = KEY.token(**said)
        roles = frozenset(claims.get("roles", ()))
        scopes = frozenset(claims.get("scope", "").split())
        host_id = tenant if of == "a" else OTHER
        return Caller(token, Principal(name, host_id, scopes, said, roles=roles, mark=token))

    good: dict[str, Any] = {
        "exp": FOREVER,
        "aud": AUDIENCE,
        "tenant": "a",
        "roles": ["admin", "finance"],
    }
    nobody = [
        *("", "x", "a.b.c", EVE.token(**good), KEY.token(**{**good, "exp": 1})),
        *(KEY.token(**{**good, "aud": "https://elsewhere.example.com"}),),
        *(KEY.token(**{**good, "tenant": "c"}), KEY.token(**{**good, "tenant": None})),
        *(KEY.token(**{**good, "nbf": FOREVER - 1}), KEY.token(**good)[:-2]),
    ]
    return [
        make_caller("ada", "a", roles=["admin"], team="red", scope="portal.r portal.w"),
        make_caller("ada", "b", roles=["finance"]),
        make_caller("bob", "a", roles=["finance"], team="blue"),
        make_caller("eve", "b", roles=["admin"], team="red"),
        make_caller("mallory", "a"),
        *(Caller(token, None) for token in nobody),
    ]


def make(seed: int, number: int, callers: Sequence[Caller]) -> Case:
    """The same for the same seed and number."""
    random = Random(f"{seed}/{number}")
    known = [one for one in callers if one.principal]
    caller = random.choice(known if random.random() < 0.8 else callers)
    name = random.choice(NAMES)
    takes = {"getPet": "id", "deletePet": "id", SECRET: "id", "createPet": "name"}.get(name)
    value: Any = "Rex" if takes == "name" else random.choice(IDS)
    arguments = {takes: value} if takes else {}
    method = random.choice(METHODS)
    return Case(number, caller, random.choice(FRONTS), method, name, arguments)
