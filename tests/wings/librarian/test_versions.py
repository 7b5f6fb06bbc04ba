"""L29: a new version of a document is seen as a whole, or not at all."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest

from gateway.wings.document_library import Library, PassageQuery, SymbolQuery
from tests.wings.knowledge.rig import KnowledgeRig
from tests.wings.librarian.test_library import context

pytestmark = pytest.mark.anyio

VERSIONS, PARTS = 6, 20
NUMBER = re.compile(r"version_(\d+)")


def text_of(version: int) -> str:
    """Each of its parts says which version it is of."""
    return "\n\n".join(
        f"class Heron{part}(Bird):\n    def version_{version}(self, deep={part}):\n        "
        f"return Heron{part}(deep).wade_{part}_version_{version}()\n\n    def "
        f"wade_{part}_version_{version}(self):\n" + f"        wades({part})\n" * 60
        for part in range(PARTS)
    )


def questions(library: Library) -> Mapping[str, Callable[[], Awaitable[Any]]]:
    who, names = context(), ["code"]
    return {
        "search": lambda: library.search(who, PassageQuery(text="heron wades", limit=100)),
        "read": lambda: library.read(who, "code", "heron.py"),
        "grep": lambda: library.grep(who, names, r"version_\d+"),
        "chunks": lambda: library.chunks(who, "code"),
        "symbols": lambda: library.symbols(who, SymbolQuery(inherits="Bird", kind="method")),
        "links": lambda: library.links(who, names),
    }


@pytest.mark.parametrize("question", questions(Any))  # type: ignore[arg-type]
async def test_each_answer_quotes_one_version(rig: KnowledgeRig, question: str) -> None:
    """Each answer quotes one version (L29)."""
    ann = rig.caller()
    await ann("put_collection", collection="code", kind="code")
    await ann.add(text_of(0), collection="code", path="heron.py")
    ask, seen = questions(rig.parts.library)[question], list[int]()
    written = anyio.Event()

    async def read() -> None:
        while not written.is_set():
            versions = set(NUMBER.findall(repr(await ask())))
            assert len(versions) == 1, (versions, len(seen))
            seen.append(int(versions.pop()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for version in range(1, VERSIONS):
            await ann.add(text_of(version), collection="code", path="heron.py")
        written.set()
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
