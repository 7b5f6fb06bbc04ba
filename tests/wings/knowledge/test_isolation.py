"""Nobody finds what they may not read: random collections, grants and queries, and an oracle.

TOOLGATE_KNOWLEDGE_QUERIES, _TENANTS and _COLLECTIONS set the size; `make test` has a smaller world.
"""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

import anyio
import pytest

from gateway.context import Context, Identity, Principal, QueryOptions
from gateway.operations.operation import OperationInput
from gateway.operations.problems import ProblemDetails
from gateway.wings.knowledge.caller_access import READ, WRITE, KnowledgeReader, knowledge_reader
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import DocumentStore
from registry.database.postgres import Database
from schemas.errors import Forbidden
from schemas.mcp.revisions import JSON_RPC
from tests.fixtures_database import HOST
from tests.polling import until
from tests.wings.identities import OTHER
from tests.wings.knowledge.rig import KnowledgeCaller, KnowledgeRig, knowledge_settings, open_rig

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(7200)]

QUERIES, TENANTS, COLLECTIONS = (
    int(os.environ.get(f"TOOLGATE_KNOWLEDGE_{name}", default))
    for name, default in (("QUERIES", "150"), ("TENANTS", "3"), ("COLLECTIONS", "6"))
)
DOCUMENTS = 3
SUBJECTS, AGENTS = ("ann", "bo", "cy", None), ("clerk", "scout", None)
MODES = ("naive", "local", "global", "hybrid", "mix")
NAMES = ("Grey Heron", "Lake Constance", "Otto Reed", "Iron Bridge")  # join chunks of all
NO_ARCHIVE = "UEsDBA=="  # the first bytes of one
GRANTEES = ("*", "user:bo", "user:cy", "agent:clerk", "agent:scout", "scope:zoo", f"scope:{READ}")


@dataclass(frozen=True)
class Who:
    tenant: str
    subject: str | None
    agent: str | None
    zoo: bool

    @property
    def names(self) -> set[str]:
        """The grantees that it is."""
        if self.subject is None:
            return {"*"}
        found = {"*", f"user:{self.subject}", f"scope:{READ}", f"scope:{WRITE}"}
        return (
            found
            | ({f"agent:{self.agent}"} if self.agent else set())
            | ({"scope:zoo"} if self.zoo else set())
        )

    def on(self, rig: KnowledgeRig) -> KnowledgeCaller:
        scopes = ["zoo"] if self.zoo else []
        return rig.caller(self.subject, tenant=self.tenant, agent=self.agent, scopes=scopes)


@dataclass(frozen=True)
class Shelf:
    """A collection as the oracle knows it. Two tenants have the same names."""

    tenant: str
    name: str
    owner: str
    grants: Mapping[str, str]

    def may_be_read_by(self, who: Who) -> bool:
        granted = bool(self.grants.keys() & who.names)
        return self.tenant == who.tenant and (self.owner == who.subject or granted)


@dataclass
class World:
    rig: KnowledgeRig
    draw: random.Random
    shelves: list[Shelf] = field(default_factory=list)
    tags: dict[str, Shelf] = field(default_factory=dict)  # words that are in one collection alone
    documents: list[str] = field(default_factory=list)

    async def fill(self) -> None:
        for number in range(TENANTS):
            tenant = HOST if number == 0 else str(uuid5(UUID(HOST), str(number)))
            await self.rig.run(
                "INSERT INTO host_t (host_id, name) VALUES (%(id)s::uuid, %(id)s::text)"
                " ON CONFLICT DO NOTHING",
                id=tenant,
            )
            for place in range(COLLECTIONS):
                await self.shelve(tenant, f"shelf-{place}")

    async def shelve(self, tenant: str, name: str) -> None:
        draw = self.draw
        chosen = draw.sample(GRANTEES, draw.choice((0, 0, 1, 2)))
        grants = {one: draw.choice(("read", "write", "admin")) for one in chosen}
        shelf = Shelf(tenant, name, draw.choice(("ann", "bo", "cy")), grants)
        owner = self.rig.caller(shelf.owner, tenant=tenant)
        await owner("put_collection", collection=name, grants=grants)
        for _ in range(DOCUMENTS):
            about, mentioned = draw.sample(NAMES, 2)
            tag = f"tag{len(self.tags)}"
            text = f"# {about}\n\nIt is near {mentioned}, as {tag} says."
            added = await owner.add(text, name, path=f"{tag}.md")
            self.documents.append(added.document)
            self.tags[tag] = shelf
        self.shelves.append(shelf)

    async def query(self, who: Who) -> None:
        draw = self.draw
        tag = draw.choice(list(self.tags))
        more: dict[str, Any] = {"mode": draw.choice(MODES)}
        if draw.random() < 0.4:
            shelves = draw.sample(range(COLLECTIONS), 2)
            more["collections"] = [f"shelf-{one}" for one in shelves]
        if draw.random() < 0.2:
            more["filter"] = {"documents": draw.sample(self.documents, 4)}
        text = draw.choice((f"what says {tag}?", f"{draw.choice(NAMES)} near the river"))
        found = await who.on(self.rig)("query", query=text, limit=50, **more)
        for one in found.evidence:
            shelf = self.tags[one.path.removesuffix(".md")]
            assert shelf.may_be_read_by(who), (who, shelf, more)
            assert shelf.name in more.get("collections", [shelf.name])
        own = self.tags[tag].may_be_read_by(who) and not more.keys() & {"filter", "collections"}
        if own and tag in text:
            assert f"{tag}.md" in [one.path for one in found.evidence]

    async def lists(self, who: Who) -> None:
        caller = who.on(self.rig)
        readable = {one.name for one in self.shelves if one.may_be_read_by(who)}
        assert {one.name for one in (await caller("collections")).items} == readable
        documents = (await caller("documents", limit=1000)).items
        assert {one.collection for one in documents} == readable
        assert len(documents) == DOCUMENTS * len(readable)

    def who(self) -> Who:
        draw, subject = self.draw, self.draw.choice(SUBJECTS)
        agent = draw.choice(AGENTS) if subject else None
        zoo = draw.random() < 0.3 and subject is not None
        return Who(draw.choice(self.shelves).tenant, subject, agent, zoo)


async def test_queries_find_only_readable_documents(rig: KnowledgeRig) -> None:
    """Queries find only readable documents (K19)."""
    world = World(rig, random.Random(20))
    await world.fill()
    for number in range(QUERIES):
        await world.query(world.who())
        if number % 10 == 0:
            await world.lists(world.who())


async def test_writes_and_deletes_require_their_access(rig: KnowledgeRig) -> None:
    """Writes and deletes require their access (K19)."""
    ann, bo = rig.caller("ann"), rig.caller("bo")
    added = await ann.add("The heron nests in reeds.")
    for access, writes, rules in (("", 0, 0), ("read", 0, 0), ("write", 1, 0), ("admin", 1, 1)):
        grants = {"user:bo": access} if access else {}
        await ann("put_collection", collection="notes", grants=grants)
        for allowed, call in (
            (writes, bo.add("Other words.", path=f"{access}.txt")),
            (0 if not rules else 1, bo("put_collection", collection="notes")),
        ):
            if allowed:
                await call
            else:
                with pytest.raises(ProblemDetails) as refused:
                    await call
                assert refused.value.status == 403
    await ann("put_collection", collection="notes", grants={})
    for call in (
        bo("delete", collection="notes", documents=[added.document]),
        bo("delete_collection", collection="notes"),
        bo("get_collection", collection="notes"),
    ):
        with pytest.raises(ProblemDetails) as refused:
            await call
        assert refused.value.status == 404  # it is not told that there is one
    assert await ann.find_texts("heron")


async def test_nothing_is_fetched_for_callers_without_write_access(rig: KnowledgeRig) -> None:
    await rig.caller("ann").add("The heron nests in reeds.")
    location = "http://127.0.0.1:1/x"  # which is refused when it is fetched
    for subject in ("bo", None):
        for call in (
            rig.caller(subject)("ingest", collection="notes", type="url", location=location),
            rig.caller(subject)("add_file", collection="notes", path="a.zip", data=NO_ARCHIVE),
        ):
            with pytest.raises(ProblemDetails) as refused:
                await call
            assert refused.value.status == 403


async def test_deleting_stops_when_the_access_ends(
    rig: KnowledgeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting stops when the access ends (K14)."""
    ann, documents = rig.caller("ann"), rig.parts.documents
    await ann.add("The heron nests in reeds.")
    await ann("put_collection", collection="notes", grants={"user:bo": "admin"})

    async def delete(*given: Any) -> int:
        await ann("put_collection", collection="notes", grants={"user:bo": "read"})
        return await DocumentStore.delete(documents, *given)

    monkeypatch.setattr(documents, "delete", delete)
    with anyio.fail_after(30), pytest.raises(ProblemDetails) as refused:
        await rig.caller("bo")("delete_collection", collection="notes")
    assert refused.value.status == 403
    assert await ann.find_texts("heron")


async def test_collections_of_an_owner_are_counted_sequentially(database: Database) -> None:
    """While one is being created, another one waits; else each would count without the other."""
    async with open_rig(database, knowledge_settings(collections=1)) as rig:
        refused: list[int] = []

        async def create() -> None:
            try:
                await rig.caller()("put_collection", collection="second")
            except ProblemDetails as problem:
                refused.append(problem.status)

        async def waits() -> bool:
            return bool(await rig.rows("SELECT FROM pg_locks WHERE locktype = 'advisory'"
                " AND NOT granted AND database = (SELECT oid FROM pg_database"
                " WHERE datname = current_database())"))  # fmt: skip

        ann = KnowledgeReader(HOST, "ann", ("*", "user:ann"))
        async with anyio.create_task_group() as tasks, database.pool.connection() as connection:
            await rig.parts.collections.ensure_in(connection, ann, NewCollection("first"), "write")
            tasks.start_soon(create)
            await until(waits)
        assert refused == [429]


async def test_grants_are_told_to_administrators_alone(rig: KnowledgeRig) -> None:
    ann = rig.caller("ann")
    await ann("put_collection", collection="notes", grants={"user:bo": "read", "user:cy": "admin"})
    for name, told in (("ann", 2), ("cy", 2), ("bo", 0)):
        view = await rig.caller(name)("get_collection", collection="notes")
        assert len(view.grants) == told


async def test_collections_of_an_organisation_are_shared_by_its_agents(rig: KnowledgeRig) -> None:
    """Of all agents, or of those that are granted access; who said it is metadata (K23)."""
    clerk = rig.caller("ann", agent="clerk")
    for name, grants in (("shared", {"*": "read"}), ("scouts", {"agent:scout": "write"})):
        await clerk("put_collection", collection=name, grants=grants)
        origin = {"agent_id": "clerk", "user_id": "ann"}
        await clerk.add(f"The heron of {name}.", name, path="heron.md", metadata=origin)
    scout, other = rig.caller("bo", agent="scout"), rig.caller("cy", agent="other")
    foreign = rig.caller("bo", tenant=OTHER, agent="scout")
    assert sorted(await scout.find_texts("heron")) == [
        "The heron of scouts.",
        "The heron of shared.",
    ]
    assert await other.find_texts("heron") == ["The heron of shared."]
    assert await foreign.find_texts("heron") == []
    added = {"agent_id": "scout", "user_id": "bo"}
    await scout.add("The heron of bo.", "scouts", path="bo.md", metadata=added)
    for who, texts in (("scout", ["The heron of bo."]), ("none", [])):
        found = await clerk.find_texts("heron", filter={"metadata": {"agent_id": who}})
        assert found == texts
    with pytest.raises(ProblemDetails, match="403"):
        await other.add("The heron of cy.", "shared")


async def test_anonymous_callers_read_public_collections_and_own_nothing(rig: KnowledgeRig) -> None:
    ann, nobody = rig.caller("ann"), rig.caller(None)
    await ann.add("The heron nests in reeds.")
    assert await nobody.find_texts("heron") == []
    await ann("put_collection", collection="notes", grants={"*": "read"})
    assert len(await nobody.find_texts("heron")) == 1
    with pytest.raises(ProblemDetails, match="403"):
        await nobody.add("Words", "mine")


async def test_no_caller_with_a_token_names_its_agent_itself() -> None:
    principal = Principal("eve", HOST, frozenset({READ}), claims={"agent": "scout"})
    for verified, claim, agents in (
        (True, "agent", {"agent:scout"}),
        (True, "", set()),
        (False, "agent", set()),
    ):
        options = QueryOptions(agent="clerk")
        refusal = None if verified else Forbidden("no token")
        identity = Identity(principal, verified=verified, refusal=refusal)
        context = Context(identity, JSON_RPC, "1", options=options)
        asked = OperationInput(principal, {}, query=None, body=None, context=context)
        found = knowledge_reader(asked, claim).grantees
        assert {one for one in found if one.startswith("agent:")} == agents
