"""The model that comes with the product."""

import shutil
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import numpy as np
import psutil
import pytest

from registry.embedding.bundled_model import FOLDER, BundledEmbedder, _Model
from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.model_threads import Lanes, _batches

pytestmark = pytest.mark.anyio

TOOLS = (
    "github issues: list issues for repo. Lists the open issues of a repository. state, labels",
    "stripe: create refund. Gives a customer back the money of a charge. charge, amount",
    "weather: get forecast. Temperature and rain of the next days in a city. city, days",
)
QUERIES = (
    "which bugs are still open",
    "return the payment to the buyer",
    "will I need an umbrella",
)


def embed(lanes: Lanes, *, query: bool = False) -> Callable[..., Awaitable[object]]:
    return partial(lanes.embed, dimension=384, batch=1, query=query)


async def test_texts_of_similar_meaning_lie_near() -> None:
    bundled = BundledEmbedder(batch_size=8, threads=1)
    tools, queries = await bundled.embed(TOOLS), await bundled.embed(QUERIES, query=True)
    assert (queries @ tools.T).argmax(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("query", "most"), [(False, 64), (True, 128)], ids=["text", "query"])
async def test_a_text_is_read_up_to_64_tokens_a_query_up_to_128(query: bool, most: int) -> None:
    bundled = BundledEmbedder(batch_size=8, threads=1)
    read = most - 2  # a text is put between two tokens
    full, more, less = [
        (await bundled.embed(["pay " * read + end], query=query))[0]
        for end in ("", "for a whale " * 9000, "whale")
    ]
    assert np.array_equal(full, more)
    assert np.array_equal(full, less)
    one_less = await bundled.embed(["pay " * (read - 1) + "whale"], query=query)
    assert full @ one_less[0] < 0.999


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
async def test_the_size_of_batches_changes_nothing(batch_size: int) -> None:
    texts = [f"{'word ' * (index % 9)} {index}" for index in range(20)]
    found = await BundledEmbedder(batch_size, threads=1).embed(texts)
    expected = await BundledEmbedder(batch_size=8, threads=1).embed(texts)
    assert np.array_equal(found, expected)


async def test_the_vector_of_a_text_does_not_depend_on_its_neighbours() -> None:
    """Two databases that got the same texts in another order answer alike."""
    texts = [*QUERIES, "x", "", "pay for a whale " * 40, '{"a": 1}', "\u652f\u4ed8"]
    bundled = BundledEmbedder(batch_size=8, threads=2)
    together = await bundled.embed(texts)
    backwards = (await bundled.embed(texts[::-1]))[::-1]
    alone = np.vstack([await bundled.embed([text]) for text in texts])
    assert np.array_equal(together, backwards)
    assert np.array_equal(together, alone)


async def test_other_threads_run_while_texts_are_tokenised() -> None:
    """The tokenizer once held the interpreter's lock, so that calls waited for it at each step."""
    model, begun, ended = _Model(FOLDER), threading.Event(), threading.Event()
    interval, threads = sys.getswitchinterval(), psutil.Process().num_threads()
    assert len(model.tokens(["one text", "two"], 64)) == 2
    assert psutil.Process().num_threads() <= threads, "it starts none of its own"

    def tokenise() -> None:
        begun.set()
        model.tokens(["pay for a whale " * 100_000], 10**6)
        ended.set()

    sys.setswitchinterval(100)  # the lock is handed over by those alone who release it
    try:
        thread = threading.Thread(target=tokenise)
        thread.start()
        begun.wait(60)
        assert not ended.is_set()
        thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert ended.is_set()


async def test_a_query_does_not_wait_for_a_batch_of_texts() -> None:
    lanes, begun, queried = Lanes(threads=2), anyio.Event(), threading.Event()

    def texts(batch: list[str]) -> np.ndarray:
        anyio.from_thread.run_sync(begun.set)
        assert queried.wait(60)
        return np.ones((len(batch), 384))

    def query(batch: list[str]) -> np.ndarray:
        return np.ones((len(batch), 384))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(embed(lanes), texts, ["text"] * 3)
            await begun.wait()
            try:
                await embed(lanes, query=True)(query, ["query"])
            finally:
                queried.set()


async def test_two_sentences_of_a_query_are_encoded_apart_and_concurrently() -> None:
    bundled = BundledEmbedder(batch_size=8, threads=1)
    both = await bundled.embed(QUERIES[:2], query=True)
    alone = [await bundled.embed([text], query=True) for text in QUERIES[:2]]
    assert np.array_equal(both, np.vstack(alone))


async def test_callers_with_texts_take_turns() -> None:
    """Two that shared the threads would end together, and leave them idle while they store."""
    lanes, order = Lanes(threads=2), []

    def of(name: str) -> Callable[[list[str]], np.ndarray]:
        def encode(batch: list[str]) -> np.ndarray:
            order.append(name)
            return np.ones((len(batch), 384))

        return encode

    async with anyio.create_task_group() as group:
        for name in "ab":
            group.start_soon(embed(lanes), of(name), ["text"] * 20)
    assert order == ["a"] * 20 + ["b"] * 20


def copy_model(folder: Path, **files: bytes | None) -> Path:
    """A copy of the model with other contents of some files; None: without it."""
    shutil.copytree(FOLDER, folder)
    for name, content in files.items():
        path = next(folder.glob(f"{name}.*"))
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model", None),
        ("model", b""),
        ("model", b"\x08\x07 no model"),
        ("tokenizer", None),
        ("tokenizer", b"{"),
    ],
    ids=["no model", "empty model", "other model", "no tokenizer", "half a tokenizer"],
)
async def test_a_broken_installation_is_reported_on_use(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    bundled = BundledEmbedder(8, 1, copy_model(tmp_path / "model", **{name: content}))
    for _ in range(2):
        with pytest.raises(EmbeddingFailed, match="embedding model cannot be loaded") as caught:
            await bundled.embed(["text"])
        assert not caught.value.retryable


@pytest.mark.parametrize("content", [None, b"{", b"{}"], ids=["none", "half", "empty"])
def test_a_model_without_provenance_is_refused(tmp_path: Path, content: bytes | None) -> None:
    folder = copy_model(tmp_path / "model", provenance=content)
    with pytest.raises(EmbeddingFailed, match="embedding model cannot be loaded"):
        BundledEmbedder(8, 1, folder)


@pytest.mark.parametrize(
    ("lengths", "most", "batches"),
    [
        ([], 8, []),
        ([10] * 5, 2, [[0, 1], [2, 3], [4]]),
        ([900, 10, 60, 800, 71], 8, [[1, 2], [4], [3, 0]]),
    ],
)
def test_texts_of_like_length_go_together(
    lengths: list[int], most: int, batches: list[list[int]]
) -> None:
    assert list(_batches(lengths, most)) == batches


@pytest.mark.parametrize("number", [np.nan, np.inf, 0.0], ids=str)
async def test_vectors_that_cannot_be_compared_never_come_out(number: float) -> None:
    def encode(texts: list[str]) -> np.ndarray:
        return np.full((len(texts), 384), number, np.float32)

    with pytest.raises(EmbeddingFailed, match="The embedding model gave"):
        await embed(Lanes(threads=2))(encode, ["text"])
