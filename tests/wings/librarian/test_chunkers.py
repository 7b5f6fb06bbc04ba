"""L11: chunkers in WebAssembly that misbehave cost the gateway neither time nor memory."""

import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.wings.documents.reading.process_pool import ReadingWorkers
from gateway.wings.documents.reading.reading_limits import DEFAULT_LIMITS
from gateway.wings.documents.reading.wasm_limits import WasmLimits
from tests.wings.documents.gaps import gaps
from tests.wings.knowledge.test_chunkers import BOOKS, ENDLESS, EXAMPLE, module

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc"),
]

MISBEHAVING = {
    "endless loop": ENDLESS,
    "memory bomb": "(loop (drop (memory.grow (i32.const 16))) (br 0)) (i64.const 0)",
    "filled memory": "(drop (memory.grow (i32.const 900))) (loop (memory.fill (i32.const 0) "
    "(i32.const 7) (i32.const 58720256)) (br 0)) (i64.const 0)",
    "trap": "unreachable",
    "recursion": "(call $self (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
}
GROWTH = 16 << 20  # bytes that a process may take for other reasons


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def workers() -> AsyncIterator[ReadingWorkers]:
    """With the limits of the settings; a process that reads well is there already."""
    found = ReadingWorkers(1, DEFAULT_LIMITS, WasmLimits())
    await found.read("b.rec", BOOKS.encode(), chunker=EXAMPLE.read_bytes())
    yield found
    await found.close()


def memory() -> int:
    pages = Path(f"/proc/{os.getpid()}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("chunk", MISBEHAVING.values(), ids=MISBEHAVING)
async def test_misbehaving_chunkers_fall_back_to_plain_text(
    workers: ReadingWorkers, chunk: str
) -> None:
    """Misbehaving chunkers fall back to plain text (L11)."""
    before, began = memory(), time.monotonic()
    found = await workers.read("b.rec", BOOKS.encode(), chunker=module(chunk))
    assert time.monotonic() - began < 10, "the goal is 1 s, and a loaded machine takes more"
    assert found.note.startswith("it was cut as plain text")
    assert not gaps(found.chunks, len(BOOKS.encode()) - 1)
    assert memory() - before < GROWTH
    again = await workers.read("b.rec", BOOKS.encode(), chunker=EXAMPLE.read_bytes())
    assert [one.kind for one in again.chunks] == ["record", "record"]
