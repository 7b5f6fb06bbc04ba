"""Nobody reads what belongs to others (M26): random worlds, and an oracle that knows who may read.

TOOLGATE_MEMORY_SEARCHES sets the number of searches; `make test` makes fewer.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest

from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.caller_owners import WRITE_ORG
from tests.fixtures_database import HOST
from tests.wings.identities import OTHER
from tests.wings.memory.rig import Caller, Rig, memory_settings, open_rig

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]

SEARCHES = int(os.environ.get("TOOLGATE_MEMORY_SEARCHES", "120"))
OF_WORLD, MEMORIES = 40, 48
TENANTS, SUBJECTS, AGENTS = (HOST, OTHER), ("ann", "bo", None), ("clerk", "scout", None)
SESSIONS = ("s" * 22, "t" * 22, None)
TOPICS = ("tea", "trains", "gardens")


@dataclass(frozen=True)
class Who:
    """A caller of an operation."""

    tenant: str
    subject: str | None
    agent: str | None
    session: str | None

    @classmethod
    def draw_who(cls, draw: random.Random) -> "Who":
        tenant, subject, agent, session = map(draw.choice, (TENANTS, SUBJECTS, AGENTS, SESSIONS))
        return cls(tenant, subject, agent if subject else None, session)  # tokens name agents

    def owner(self, scope: str) -> Any:
        """What the owner of a scope is to this caller; None: it has none."""
        return {
            "session": self.session and (self.subject, self.session),
            "user": self.subject,
            "agent": self.agent,
            "org": "*",
        }[scope]

    def on(self, rig: Rig) -> Caller:
        scopes = [WRITE_ORG]
        return rig.caller(self.subject, tenant=self.tenant, agent=self.agent, scopes=scopes)

    @property
    def session_arguments(self) -> dict[str, str]:
        return {} if self.session is None else {"session": self.session}


@dataclass(frozen=True)
class Known:
    """A memory as the oracle knows it."""

    id: str
    content: str
    scope: str
    tenant: str
    owner: Any
    audience: Sequence[str]
    kind: str
    is_over: bool  # it has expired

    def may_be_read_by(self, who: Who) -> bool:
        is_of_audience = not self.audience or who.agent in self.audience
        own = (who.tenant, who.owner(self.scope)) == (self.tenant, self.owner)
        return own and is_of_audience and not self.is_over


@dataclass
class World:
    rig: Rig
    draw: random.Random
    memories: list[Known] = field(default_factory=list)

    async def fill(self) -> None:
        for _ in range(MEMORIES):
            who = Who.draw_who(self.draw)
            scope = self.draw.choice([one for one in ("session", "user", "agent", "org")
                                      if who.owner(one) is not None])  # fmt: skip
            await self.add(who, scope)

    async def add(self, who: Who, scope: str) -> None:
        draw = self.draw
        content = f"{draw.choice(TOPICS)} and {draw.choice(TOPICS)} {uuid4()}"
        audience = draw.choice(([], [], ["clerk"], ["scout", "clerk"]))
        kind = draw.choice(("fact", "preference"))
        more = {"audience": audience, "kind": kind, **who.session_arguments}
        anonymous = scope == "org" and who.subject is None  # they do not write there
        writer = replace(who, subject="ann") if anonymous else who
        id_ = await writer.on(self.rig).add(content, scope, **more)
        is_over = draw.random() < 0.1
        if is_over:
            await self.rig.run(
                "UPDATE memory_t SET expires_ts = now() - interval '1 s'"
                " WHERE memory_id = %(id)s::uuid",
                id=id_,
            )
        self.memories.append(
            Known(id_, content, scope, who.tenant, who.owner(scope), audience, kind, is_over)
        )

    def readable(self, who: Who) -> dict[str, Known]:
        return {one.id: one for one in self.memories if one.may_be_read_by(who)}

    async def check_search(self, who: Who) -> None:
        caller, draw = who.on(self.rig), self.draw
        topic = draw.choice((*TOPICS, ""))
        scopes = draw.choice(([], ["user"], ["org", "agent"], ["session"]))
        kinds = draw.choice(([], ["fact"]))
        found = await caller("search", query=topic, scopes=scopes, kinds=kinds, limit=100,
                             tokens=1_000_000, **who.session_arguments)  # fmt: skip
        asked_for = [
            one
            for one in self.readable(who).values()
            if (not scopes or one.scope in scopes) and (not kinds or one.kind in kinds)
        ]
        matching = {one.id for one in asked_for if topic in one.content}
        expected = matching or {one.id for one in asked_for}  # nothing matches: all are listed
        shown = {one.id for one in found.items} | {
            id_ for one in found.items for id_ in one.duplicates
        }
        assert found.omitted == 0
        assert shown == expected, (who, topic, scopes, kinds)

    async def check_all(self, who: Who) -> None:
        """Lists, counts, exports and contexts have what may be read, and no more."""
        caller, own = who.on(self.rig), self.readable(who)
        listed = await caller("list", limit=100, **who.session_arguments)
        assert {one.id for one in listed.items} == own.keys(), who
        if who.session is None:  # counts are those of the transport's session
            counts = (await caller("stats")).memories
            assert sum(counts.values()) == len(own)
        context = await caller("context", query="tea", tokens=100_000, **who.session_arguments)
        shown = [one for one in self.memories if one.content in context.text]
        assert {one.id for one in shown} <= own.keys()

    async def check_ids(self, who: Who) -> None:
        """An id of others is answered like a random one, whatever is asked of it."""
        caller, own = who.on(self.rig), self.readable(who)
        foreign = [one.id for one in self.memories if one.id not in own]
        for id_ in (self.draw.choice(foreign), str(uuid4())):
            for name, more in (
                ("get", who.session_arguments),
                ("history", who.session_arguments),
                ("update", {**who.session_arguments, "version": 1, "content": "mine now"}),
            ):
                with pytest.raises(ProblemDetails) as problem:
                    await caller(name, memory=id_, **more)
                assert problem.value.detail == f"There is no memory '{id_}'."
            gone = await caller("forget", ids=[id_], **who.session_arguments)
            assert (gone.memories, gone.rows) == (0, 0)
            if who.subject is not None:
                with pytest.raises(ProblemDetails, match="There is no memory"):
                    await caller("add", scope="user", content=f"new {uuid4()}", replaces=id_)

    async def check_repeat(self, who: Who) -> None:
        """Adding what others have is new: neither its id nor its being there is told."""
        caller, own = who.on(self.rig), self.readable(who)
        foreign = [
            one
            for one in self.memories
            if one.id not in own and not one.is_over and one.owner[0] != who.subject
        ]  # what is forgotten takes its copies in the sessions of the same user along
        copied = self.draw.choice(foreign)
        if who.subject is None or copied.owner == who.subject:
            return
        added = (await caller("add", scope="user", content=copied.content)).items[0]
        assert added.created
        assert added.id != copied.id
        assert {one.id for one in added.similar} <= own.keys()
        await caller("forget", ids=[added.id])


async def test_random_searches_agree_with_an_access_oracle(database: Any) -> None:
    """Random searches agree with an access oracle (M26)."""
    seed = random.Random(int(os.environ.get("TOOLGATE_MEMORY_SEED", "17")))
    for world in range(-(-SEARCHES // OF_WORLD)):
        async with open_rig(database, memory_settings(writes_per_minute=100_000)) as rig:
            await rig.run("TRUNCATE memory_t, memory_word_t, memory_owner_t")
            here = World(rig, random.Random(seed.random()))
            await here.fill()
            for number in range(OF_WORLD):
                who = Who.draw_who(here.draw)
                await here.check_search(who)
                if number % 10 == world % 10:
                    await here.check_all(who)
                    await here.check_ids(who)
                    await here.check_repeat(who)
