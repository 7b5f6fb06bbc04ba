"""One copy of a model for all workers: the server, and the embedder that asks it."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import numpy as np
import pytest

from registry.embedding.bundled_model import BundledEmbedder
from registry.embedding.embedder import Embedder, EmbeddingFailed, Vectors
from registry.embedding.model_server import UNAVAILABLE, SharedModel, model_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def local() -> Embedder:
    return BundledEmbedder(8, 1)


class Broken:
    """Fails for every text, as a model that cannot be loaded."""

    model = "bundled/broken"
    dimension = 384

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        raise EmbeddingFailed(f"{len(texts)} texts, query {query}", retryable=query)

    async def close(self) -> None:
        pass


async def test_vectors_equal_vectors_of_the_local_model(local: Embedder, tmp_path: Path) -> None:
    socket = tmp_path / "model.sock"
    shared = SharedModel(BundledEmbedder(8, 1), str(socket))
    assert (shared.model, shared.dimension) == (local.model, local.dimension)
    async with model_server(socket, lambda label: local if label == local.model else None):
        for query in (False, True):
            texts = ["list the pets", "", "pay an invoice €"]
            found = await shared.embed(texts, query=query)
            np.testing.assert_allclose(found, await local.embed(texts, query=query), atol=1e-6)
        assert (await shared.embed([])).shape == (0, local.dimension)


async def test_a_failure_keeps_its_reason(tmp_path: Path) -> None:
    broken = Broken()
    shared = SharedModel(broken, str(tmp_path / "model.sock"))
    async with model_server(tmp_path / "model.sock", lambda _label: broken):
        with pytest.raises(EmbeddingFailed, match="2 texts, query True") as failure:
            await shared.embed(["a", "b"], query=True)
        assert failure.value.retryable
        with pytest.raises(EmbeddingFailed, match="1 texts, query False") as failure:
            await shared.embed(["a"])
        assert not failure.value.retryable


async def test_a_model_that_is_not_there_is_named(local: Embedder, tmp_path: Path) -> None:
    async with model_server(tmp_path / "model.sock", lambda _label: None):
        with pytest.raises(EmbeddingFailed, match=f"There is no model {local.model}"):
            await SharedModel(local, str(tmp_path / "model.sock")).embed(["a"])


async def test_without_its_server_the_model_is_away_and_may_come_back(
    local: Embedder, tmp_path: Path
) -> None:
    socket = tmp_path / "model.sock"
    shared = SharedModel(local, str(socket))
    with pytest.raises(EmbeddingFailed, match=UNAVAILABLE) as failure:
        await shared.embed(["a"])
    assert failure.value.retryable
    async with model_server(socket, lambda _label: local):
        assert (await shared.embed(["a"])).shape == (1, local.dimension)


async def test_a_message_that_is_no_request_ends_its_connection_alone(
    local: Embedder, tmp_path: Path
) -> None:
    socket = tmp_path / "model.sock"
    async with model_server(socket, lambda _: local):
        for message in (b"\x00\x00\x00\x01\xc1", b"\xff\xff\xff\xff"):
            async with await anyio.connect_unix(socket) as stream:
                await stream.send(message)
                with (
                    anyio.fail_after(30),
                    pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)),
                ):
                    await stream.receive()
        assert len(await SharedModel(local, str(socket)).embed(["cats"])) == 1
