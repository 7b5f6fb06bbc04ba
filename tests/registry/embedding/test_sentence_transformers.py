"""Models of another library, which need not be installed."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.embedder_factory import embedder_for, make_embedder
from registry.embedding.sentence_transformers import INSTALL
from tests.registry.embedding.services import settings
from tests.registry.embedding.test_embedder_factory import library_model

pytestmark = pytest.mark.anyio

PROVIDER = "sentence-transformers"


async def test_a_library_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # as if it were not installed
    made = make_embedder(settings(provider=PROVIDER, model="acme/model"))
    assert made is not None
    assert made.model == "sentence-transformers/acme/model"
    with pytest.raises(EmbeddingFailed) as caught:
        await made.embed(["text"])
    assert INSTALL in str(caught.value)
    assert not caught.value.retryable


async def test_a_directory_without_a_model_is_told(tmp_path: Path) -> None:
    library_model()
    made = make_embedder(settings(provider=PROVIDER, model=str(tmp_path)))
    assert made is not None
    with pytest.raises(EmbeddingFailed, match="cannot be loaded"):
        await made.embed(["text"])


async def test_vectors_equal_vectors_of_the_library_with_prefix(tmp_path: Path) -> None:
    folder = library_model()
    made = make_embedder(settings(provider=PROVIDER, model=folder, query_prefix="find: "))
    assert made is not None
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(folder).encode(["pets", "find: pets"])
    found = np.concatenate([await made.embed(["pets"]), await made.embed(["pets"], query=True)])
    assert np.allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-4)


async def test_a_model_of_another_dimension_is_refused(tmp_path: Path) -> None:
    made = make_embedder(settings(provider=PROVIDER, model=library_model(), dimension=128))
    assert made is not None
    with pytest.raises(EmbeddingFailed, match="384 numbers where 128 were expected"):
        await made.embed(["text"])


def test_a_copy_of_a_directory_is_the_same_model(tmp_path: Path) -> None:
    folder = Path(library_model())
    shutil.copytree(folder, tmp_path / folder.name)
    here, there = (
        make_embedder(settings(provider=PROVIDER, model=str(one)))
        for one in (folder, tmp_path / folder.name)
    )
    assert here is not None
    assert there is not None
    assert here.model == there.model
    assert embedder_for(settings(), here.model) is None
