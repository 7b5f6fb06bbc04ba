"""L24: whatever is asked, by whomever, nothing comes from a collection without a grant."""

import random
from collections.abc import AsyncIterator

import pytest

from gateway.context import Context
from gateway.operations.operation import ProblemDetails
from gateway.wings.library import Library, PassageQuery, SymbolQuery
from tests.fixtures_database import HOST, Cluster
from tests.recycling import Recycling
from tests.wings.knowledge.rig import OTHER, KnowledgeRig
from tests.wings.librarian.rig import shared_documents
from tests.wings.librarian.test_library import context

pytestmark = pytest.mark.anyio

PEOPLE, COLLECTIONS, QUESTIONS = ("ann", "bo", "cy"), 4, 40
CODE = "class Heron(Bird):\n    def wade(self):\n        return Heron().wade()\n"
Owned = dict[str, frozenset[str]]  # who may read a collection, by its name


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def rig(cluster: Cluster, with_documents: Recycling) -> AsyncIterator[KnowledgeRig]:
    async with shared_documents(cluster, with_documents) as rig:
        yield rig


async def filled(rig: KnowledgeRig, tenant: str, chance: random.Random) -> Owned:
    """Collections of the same names in each tenant, with random owners and grants."""
    readers: Owned = {}
    for number in range(COLLECTIONS):
        name, owner = f"birds{number}", chance.choice(PEOPLE)
        granted = [one for one in PEOPLE if chance.random() < 0.3]
        everyone = chance.random() < 0.15
        grants = {f"user:{one}": "read" for one in granted} | ({"*": "read"} if everyone else {})
        caller = rig.caller(owner, tenant=tenant)
        await caller("put_collection", collection=name, kind="code", grants=grants)
        for type_, text in (("py", CODE), ("json", '{"nest": 1}')):
            await caller.add(text, collection=name, path=f"{tenant[-1]}{number}.{type_}")
        readers[name] = frozenset(PEOPLE if everyone else {owner, *granted})
    return readers


async def seen(
    library: Library, who: Context, names: list[str] | None, question: str
) -> set[tuple[str, str]]:
    """Collections and paths of all that answers a question."""
    found = {
        "search": lambda: library.search(who, PassageQuery(text="heron wade", collections=names)),
        "files": lambda: library.files(who, names, path="*.py"),
        "grep": lambda: library.grep(who, names, "wade"),
        "records": lambda: library.records(who, names, "nest"),
        "symbols": lambda: library.symbols(who, SymbolQuery(name="wade", collections=names)),
        "heirs": lambda: library.symbols(who, SymbolQuery(inherits="Bird", collections=names)),
        "references": lambda: library.references(who, names, "Heron.wade"),
    }
    places = [(one.collection, one.path) for one in await found[question]()]
    return {(name, path.replace(".json", ".py")) for name, path in places}


async def test_l24_random_questions_find_nothing_of_others(rig: KnowledgeRig) -> None:
    chance = random.Random(2024)
    tenants = {one: await filled(rig, one, chance) for one in (HOST, OTHER)}
    library = rig.parts.library
    questions = ("search", "files", "grep", "records", "symbols", "heirs", "references")
    for number in range(QUESTIONS):
        tenant, person = chance.choice((HOST, OTHER)), chance.choice((*PEOPLE, "dee"))
        readers, who = tenants[tenant], context(person, tenant=tenant)
        names = chance.choice((None, chance.sample(sorted(readers), 2)))
        public = {name for name, allowed in readers.items() if allowed >= set(PEOPLE)}
        may = {name for name, allowed in readers.items() if person in allowed}
        if person == "dee":
            may = {one.name for one in await library.collections(who)}
            assert may <= public
        wanted = {
            (one, f"{tenant[-1]}{one[-1]}.py") for one in may if names is None or one in names
        }
        question = questions[number % len(questions)]
        assert await seen(library, who, names, question) == wanted, (number, question)
        hidden = sorted(readers.keys() - may)
        if hidden:
            with pytest.raises(ProblemDetails, match="no document"):
                await library.read(who, hidden[0], f"{tenant[-1]}{hidden[0][-1]}.py")
