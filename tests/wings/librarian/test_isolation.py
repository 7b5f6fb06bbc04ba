"""L24: whatever is asked, by whomever, nothing comes from a collection without a grant.

TOOLGATE_LIBRARIAN_QUESTIONS, _TENANTS and _COLLECTIONS set the size of the world: `make test` has a
smaller one than the 10,000 questions in 50 tenants with 20 collections each.
"""

import json
import os
import random
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

import pytest

from gateway.context import Context
from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import PassageQuery, SymbolQuery
from tests.fixtures_database import HOST, Cluster
from tests.recycling import Recycling
from tests.wings.librarian.rig import Librarian, librarian_settings, share_librarian
from tests.wings.librarian.test_library import context

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(7200)]

QUESTIONS, TENANTS, COLLECTIONS = (
    int(os.environ.get(f"TOOLGATE_LIBRARIAN_{name}", default))
    for name, default in (("QUESTIONS", "500"), ("TENANTS", "3"), ("COLLECTIONS", "6"))
)
PEOPLE = ("ann", "bo", "cy")
KINDS = (
    "search", "files", "grep", "records", "symbols", "heirs", "references", "links", "neighbors",
    "chunks", "status", "read", "query",
)  # fmt: skip
TAG = re.compile(r"tag\d+x", re.IGNORECASE)


@dataclass(frozen=True)
class Shelved:
    """A collection, and the word that its documents alone have. All tenants have the same names."""

    tenant: str
    name: str
    tag: str
    readers: frozenset[str]


@dataclass
class World:
    library: Librarian
    draw: random.Random
    shelves: list[Shelved] = field(default_factory=list)
    told: set[str] = field(default_factory=set)  # by models
    cached: int = 0  # of their answers

    async def fill(self) -> None:
        for number in range(TENANTS):
            tenant = str(uuid5(UUID(HOST), str(number)))
            await self.library.rig.run(
                "INSERT INTO host_t (host_id, name) VALUES (%(id)s::uuid, %(id)s::text)"
                " ON CONFLICT DO NOTHING",
                id=tenant,
            )
            for place in range(COLLECTIONS):
                await self.shelve(tenant, f"birds{place}")

    async def shelve(self, tenant: str, name: str) -> None:
        draw, tag = self.draw, f"tag{len(self.shelves)}x"
        owner, granted = draw.choice(PEOPLE), [one for one in PEOPLE if draw.random() < 0.3]
        everyone = draw.random() < 0.15
        grants = {f"user:{one}": "read" for one in granted} | ({"*": "read"} if everyone else {})
        caller = self.library.rig.caller(owner, tenant=tenant)
        await caller("put_collection", collection=name, kind="code", grants=grants)
        for path, text in (
            (f"{tag}.py", "class Heron(Bird):\n    def wade(self):\n        Heron().wade()\n"),
            (f"{tag}.json", '{"nest": 1}'),
            (f"{tag}.md", f"# Grey Stork\n\nThe Grey Stork met Otto {tag.capitalize()} once.\n"),
        ):
            await caller.add(text, collection=name, path=path)
        readers = frozenset((*PEOPLE, "dee") if everyone else {owner, *granted})
        self.shelves.append(Shelved(tenant, name, tag, readers))

    async def ask(self, kind: str) -> None:
        draw, tenant = self.draw, self.draw.choice(self.shelves).tenant
        person = draw.choice((*PEOPLE, "dee"))
        own = [one for one in self.shelves if one.tenant == tenant]
        asked = draw.choice((own, draw.sample(own, min(2, len(own)))))
        names = None if asked is own else [one.name for one in asked]
        wanted = {one.tag for one in asked if person in one.readers}
        who = context(person, tenant=tenant)
        if kind == "query":
            found = await self.answer_tags(person, tenant, names)
            assert found <= wanted, (kind, person, names)
            self.told |= found
        elif kind == "read":
            await self.read(who, asked, wanted)
        elif kind in ("chunks", "status"):
            assert await self.list_tags(kind, who, asked) == wanted, (kind, person, names)
        else:
            assert await self.tags(kind, who, names) == wanted, (kind, person, names)

    async def tags(self, kind: str, who: Context, names: list[str] | None) -> set[str]:
        """The words of collections that are in what answers a question."""
        library, many = self.library.rig.parts.library, 1000
        found: dict[str, Any] = {
            "search": lambda: library.search(
                who, PassageQuery(text="heron wade", collections=names, limit=many)
            ),
            "files": lambda: library.files(who, names),
            "grep": lambda: library.grep(who, names, "wade|Stork", limit=many),
            "records": lambda: library.records(who, names, "nest"),
            "symbols": lambda: library.symbols(who, SymbolQuery(name="wade", collections=names)),
            "heirs": lambda: library.symbols(who, SymbolQuery(inherits="Bird", collections=names)),
            "references": lambda: library.references(who, names, "Heron.wade"),
            "links": lambda: library.links(who, names),
            "neighbors": lambda: library.neighbors(who, names, "Grey Stork", limit=many),
        }
        return tags_of(await found[kind]())

    async def list_tags(self, kind: str, who: Context, asked: Iterable[Shelved]) -> set[str]:
        library = self.library.rig.parts.library
        if kind == "status":
            readable = {one.name for one in await library.status(who, [one.name for one in asked])}
            return {one.tag for one in asked if one.name in readable}
        chunks = [await library.chunks(who, one.name) for one in asked]
        return tags_of(chunks)

    async def read(self, who: Context, asked: Iterable[Shelved], wanted: set[str]) -> None:
        library = self.library.rig.parts.library
        for one in asked:
            if one.tag in wanted:
                assert "wade" in (await library.read(who, one.name, f"{one.tag}.py")).text
            else:
                with pytest.raises(ProblemDetails, match="no document"):
                    await library.read(who, one.name, f"{one.tag}.py")

    async def answer_tags(self, person: str, tenant: str, names: list[str] | None) -> set[str]:
        """What is in the answer of a model, or was shown to it, for a question that all ask."""
        settings = librarian_settings(model="scripted")
        caller = self.library.caller(settings, person, tenant=tenant)
        shown = len(self.library.prompts)
        try:
            answer = await caller("query", question="What did the Grey Stork do?",
                                  collections=names or ())  # fmt: skip
        except ProblemDetails as problem:
            if problem.status != 404:  # as where there are no such collections
                raise
            return tags_of(self.library.prompts[shown:])
        self.cached += answer.spent.cached if answer.spent else 0
        return tags_of([answer, self.library.prompts[shown:]])


def tags_of(found: Any) -> set[str]:
    return {one.lower() for one in TAG.findall(repr(found))}


def answer_model(told: str, prompt: str) -> str:
    """Findings with the lines that are shown, and an answer with all of them."""
    if "from these findings" in told:
        numbers = [int(one) for one in re.findall(r"^\[?(\d+)", prompt, re.MULTILINE)]
        return json.dumps({"sentences": [{"text": prompt[-2000:], "findings": numbers}]})
    lines = [one for one in prompt.splitlines() if TAG.search(one)]
    return json.dumps({"findings": [{"claim": one, "quote": one} for one in lines[:3]]})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def library(cluster: Cluster, with_documents: Recycling) -> AsyncIterator[Librarian]:
    async with share_librarian(cluster, with_documents, {}) as found:
        yield found


async def test_random_questions_cite_only_readable_documents(library: Librarian) -> None:
    """Random questions cite only readable documents (L24)."""
    world = World(library, random.Random(2024))
    await world.fill()
    await library.script(answer_model)
    for number in range(QUESTIONS):
        await world.ask(KINDS[number % len(KINDS)])
    assert world.told
    assert world.cached  # answers were shared, where that is allowed
