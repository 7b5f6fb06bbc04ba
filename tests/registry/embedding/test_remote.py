"""Services that embed over HTTP, and what they may do wrong."""

import gzip
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest

from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.embedder_factory import make_embedder
from registry.embedding.remote import (
    ANSWER_BYTES,
    ANSWER_BYTES_PER_TEXT,
    QUERY_ATTEMPTS,
    WAIT_LONGEST_S,
    RemoteEmbedder,
)
from schemas.retry_after import retry_after_s
from tests.fixtures_servers import Serve, serving
from tests.registry.embedding.services import DIMENSION, Service, settings, vector
from tests.servers.raw import response, speaking
from tests.servers.rest import Flaky, Recorder, Silent

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"
DIALECTS = ("openai-compatible", "local-http")
dialects = pytest.mark.parametrize("provider", DIALECTS)


def embedder(provider: str, url: str, **changes: Any) -> RemoteEmbedder:
    chosen = settings(provider=provider, url=url, model="m", api_key=KEY, **changes)
    made = make_embedder(chosen)
    assert isinstance(made, RemoteEmbedder)
    return made


async def failure(remote: RemoteEmbedder, texts: int = 1, query: bool = False) -> EmbeddingFailed:
    """How it fails; its message has to keep the secrets."""
    try:
        with anyio.fail_after(60), pytest.raises(EmbeddingFailed) as caught:
            await remote.embed([f"text {index}" for index in range(texts)], query=query)
    finally:
        await remote.close()
    message = str(caught.value)
    assert not any(part in message for part in (KEY, "127.0.0.1", "http:", "text 0"))
    return caught.value


def answer_of(provider: str, vectors: list[Any]) -> bytes:
    """An answer in the provider's dialect; vectors may be nonsense."""
    items = [{"index": index, "embedding": one} for index, one in enumerate(vectors)]
    return msgspec.json.encode({"data": items} if provider == "openai-compatible" else vectors)


async def test_an_openai_compatible_service_is_asked_as_its_api_says(serve: Serve) -> None:
    service = Service("openai")
    remote = embedder("openai-compatible", f"{await serve(service)}/v1/")
    await remote.embed(["one", "two"])
    await remote.close()
    (seen,) = service.seen
    assert (seen.method, seen.target) == ("POST", "/v1/embeddings")
    assert seen.all("authorization") == [f"Bearer {KEY}"]
    assert seen.all("content-type") == ["application/json"]
    assert service.bodies == [
        {"model": "m", "input": ["one", "two"], "dimensions": 384, "encoding_format": "float"}
    ]


async def test_a_local_service_is_asked_at_its_whole_address(serve: Serve) -> None:
    service = Service("local")
    remote = embedder("local-http", f"{await serve(service)}/embed")
    await remote.embed(["one", "two"])
    await remote.close()
    assert service.seen[0].target == "/embed"
    assert service.bodies == [{"inputs": ["one", "two"]}]


async def test_without_a_key_none_is_sent(serve: Serve) -> None:
    service = Service("local")
    remote = make_embedder(settings(provider="local-http", url=await serve(service)))
    assert remote is not None
    await remote.embed(["one"])
    await remote.close()
    assert service.seen[0].all("authorization") == []


@dialects
async def test_remote_vectors_are_normalised(serve: Serve, provider: str) -> None:
    remote = embedder(provider, await serve(Service(provider.partition("-")[0])))
    found = await remote.embed(["one", "two"])
    await remote.close()
    expected = np.array([vector("one"), vector("two")])
    assert np.allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True))


async def test_texts_go_in_batches(serve: Serve) -> None:
    service = Service("local")
    remote = embedder("local-http", await serve(service), batch_size=4)
    await remote.embed([f"text {index}" for index in range(9)])
    await remote.close()
    assert [len(body["inputs"]) for body in service.bodies] == [4, 4, 1]


async def test_a_prefix_is_put_in_front_of_queries_alone(serve: Serve) -> None:
    service = Service("local")
    remote = embedder("local-http", await serve(service), query_prefix="find: ")
    await remote.embed(["one"])
    await remote.embed(["one"], query=True)
    await remote.close()
    assert [body["inputs"] for body in service.bodies] == [["one"], ["find: one"]]


async def test_vectors_are_ordered_by_their_index(serve: Serve) -> None:
    remote = embedder("openai-compatible", await serve(Service("openai", reverse=True)))
    found = await remote.embed(["one", "two"])
    await remote.close()
    assert (found @ np.array([vector("one"), vector("two")]).T).argmax(axis=1).tolist() == [0, 1]


async def test_a_service_without_indexes_answers_in_order(serve: Serve) -> None:
    items = [{"embedding": vector("one")}, {"embedding": vector("two")}]
    service = Recorder(body=msgspec.json.encode({"data": items}))
    remote = embedder("openai-compatible", await serve(service))
    found = await remote.embed(["one", "two"])
    await remote.close()
    assert np.allclose(found[0] * np.linalg.norm(vector("one")), vector("one"), atol=1e-4)


@dialects
@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([vector("a")], "1 vectors for 2 texts"),
        ([vector("a")] * 3, "3 vectors for 2 texts"),
        ([], "0 vectors for 2 texts"),
        ([[0.5] * 1536] * 2, "a vector of 1536 numbers where 384 were expected"),
        ([vector("a"), [0.5] * 383], "a vector of 383 numbers where 384 were expected"),
        ([vector("a"), [0] * 384], "a vector of zeros only"),
        ([vector("a"), ["0.5"] * 384], "something else than vectors: Expected `float`, got `str`"),
        ([vector("a"), [None] * 384], "something else than vectors: Expected `float`, got `null`"),
        ([vector("a"), "AAAA"], "something else than vectors: Expected `array`, got `str`"),
        ([vector("a"), None], "something else than vectors: Expected `array`, got `null`"),
    ],
    ids=[
        *("too few", "too many", "none", "too long", "too short", "zeros", "texts", "nulls"),
        *("base64", "null"),
    ],
)
async def test_vectors_that_cannot_be_used_are_named(
    serve: Serve, provider: str, vectors: list[Any], message: str
) -> None:
    service = Recorder(body=answer_of(provider, vectors))
    found = await failure(embedder(provider, await serve(service)), texts=2)
    assert message in str(found)
    assert not found.retryable


@dialects
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[[NaN]]", "JSON with NaN in it"),
        (b"[[1e400]]", "something else than vectors: Number out of range"),
        (b"", "what is no JSON"),
        (b"<html>busy</html>", "what is no JSON"),
        (b"\xff\xfe[[", "what is no JSON"),
        (b"[" * 100_000, "something else than vectors"),
        (b'{"more":' + b"[" * 100_000, "what is no JSON"),
        (b'"ok"', "something else than vectors"),
        (b'{"error": "sk-very-secret http://127.0.0.1"}', "something else than vectors"),
        (b"null", "something else than vectors"),
    ],
    ids=["nan", "1e400", "empty", "html", "utf-16", "deep", "deep beside", "text", "error", "null"],
)
async def test_an_answer_that_is_none_is_named(
    serve: Serve, provider: str, body: bytes, message: str
) -> None:
    if provider == "openai-compatible" and body[:2] == b"[[":
        body = b'{"data":[{"embedding":%b}]}' % body[1:-1]
    found = await failure(embedder(provider, await serve(Recorder(body=body))))
    assert message in str(found)
    assert not found.retryable


@pytest.mark.parametrize("indexes", [(0, 0), (1, 2), (0, None), (-1, 0)], ids=str)
async def test_indexes_that_name_no_text_are_refused(serve: Serve, indexes: Any) -> None:
    items = [{"index": index, "embedding": vector("a")} for index in indexes]
    service = Recorder(body=msgspec.json.encode({"data": items}))
    found = await failure(embedder("openai-compatible", await serve(service)), texts=2)
    assert "indexes that are not 0 to 1" in str(found)


@pytest.mark.parametrize(
    ("status", "message", "retryable"),
    [
        (400, "did not take the texts", False),
        (401, "check embedding.api_key", False),
        (403, "check embedding.api_key", False),
        (404, "check embedding.url and embedding.model", False),
        (413, "embedding.batch_size", False),
        (422, "embedding.dimension", False),
        (418, "did not take the texts", False),
        (201, "did not take the texts", False),
        (408, "busy or failing", True),
        (429, "busy or failing", True),
        (500, "busy or failing", True),
        (503, "busy or failing", True),
    ],
)
async def test_a_refusal_names_the_setting_or_is_retryable(
    serve: Serve, status: int, message: str, retryable: bool
) -> None:
    service = Recorder(status=status, body=f"{KEY} at http://127.0.0.1".encode())
    found = await failure(embedder("local-http", await serve(service)))
    assert message in str(found)
    assert f"(status {status})" in str(found)
    assert found.retryable is retryable
    assert len(service.seen) == 1  # texts are tried again by the queue


async def test_a_redirect_is_not_followed(serve: Serve) -> None:
    other = Recorder()
    headers = [("location", await serve(other))]
    found = await failure(
        embedder("local-http", await serve(Recorder(status=307, headers=headers)))
    )
    assert "redirects, which is not followed; set embedding.url" in str(found)
    assert not found.retryable
    assert other.seen == []


@pytest.mark.parametrize("statuses", [(503, 200), (429, 502, 200)], ids=str)
async def test_a_query_is_tried_again(serve: Serve, statuses: tuple[int, ...]) -> None:
    found = await failure(embedder("local-http", await serve(flaky := Flaky(statuses))), query=True)
    assert "something else than vectors" in str(found)  # which is what `Flaky` says with 200
    assert len(flaky.bodies) == len(statuses)


async def test_a_query_is_not_tried_again_for_ever(serve: Serve) -> None:
    found = await failure(
        embedder("local-http", await serve(service := Recorder(status=503))), query=True
    )
    assert found.retryable
    assert len(service.seen) == QUERY_ATTEMPTS


async def test_a_query_that_is_refused_is_not_tried_again(serve: Serve) -> None:
    service = Recorder(status=401)
    await failure(embedder("local-http", await serve(service)), query=True)
    assert len(service.seen) == 1


async def test_a_query_does_not_wait_beyond_its_timeout(serve: Serve) -> None:
    service = Recorder(status=429, headers=[("retry-after", "3000")])
    found = await failure(embedder("local-http", await serve(service), timeout_s=30), query=True)
    assert found.retry_after_s == 3000
    assert len(service.seen) == 1


@pytest.mark.parametrize("query", [False, True], ids=["text", "query"])
async def test_a_service_that_does_not_answer_is_left(serve: Serve, query: bool) -> None:
    service = Silent()
    found = await failure(embedder("local-http", await serve(service), timeout_s=0.3), query=query)
    assert "within 0.3 s (setting embedding.timeout_s)" in str(found)
    assert found.retryable


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((b"",), "closed the connection before its answer was complete"),
        ((response(b"[[1", length=100),), "closed the connection before its answer was complete"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n\r\n",), "did not answer over HTTP"),
    ],
    ids=["at once", "midway", "no http"],
)
async def test_a_service_that_hangs_up_is_named(answers: tuple[bytes, ...], message: str) -> None:
    async with speaking(*answers) as (url, _):
        found = await failure(embedder("local-http", url))
    assert message in str(found)


async def test_a_query_survives_a_service_that_hung_up_once() -> None:
    good = response(msgspec.json.encode([vector("a")]), headers=b"Content-Type: text/plain\r\n")
    async with speaking(b"", good) as (url, script):
        remote = embedder("local-http", url)
        assert (await remote.embed(["a"], query=True)).shape == (1, DIMENSION)
        await remote.close()
        assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("url", "message", "retryable"),
    [
        ("http://127.0.0.1:1", "refused or timed out", True),
        ("http://nowhere.invalid", "does not resolve", True),
        ("http://127.0.0.1:99999", "no usable address", False),
    ],
    ids=["refused", "unknown host", "port"],
)
async def test_a_service_that_is_not_there_is_told_without_its_address(
    url: str, message: str, retryable: bool
) -> None:
    found = await failure(embedder("local-http", url))
    assert message in str(found)
    assert found.retryable is retryable


async def test_tls_where_there_is_none_fails_clearly(serve: Serve) -> None:
    url = (await serve(Recorder())).replace("http:", "https:")
    assert "TLS failed" in str(await failure(embedder("local-http", url)))


def plain(size: int) -> Recorder:
    return Recorder(body=b" " * size)


def packed_blanks(size: int) -> Recorder:
    return Recorder(body=gzip.compress(b" " * size), headers=[("content-encoding", "gzip")])


@pytest.mark.parametrize("made", [plain, packed_blanks])
async def test_an_answer_is_read_up_to_a_limit(
    serve: Serve, made: Callable[[int], Recorder]
) -> None:
    limit = ANSWER_BYTES + 2 * ANSWER_BYTES_PER_TEXT
    for size, message in ((limit, "no JSON"), (limit + 1, f"more than {limit:,} bytes")):
        found = await failure(embedder("local-http", await serve(made(size))), texts=2)
        assert message in str(found)
        assert not found.retryable


async def test_a_cancelled_caller_does_not_affect_later_callers() -> None:
    async with serving(Service("local")) as url:
        remote = embedder("local-http", url)
        with anyio.move_on_after(0):  # cancelled where it waits
            await remote.embed(["one"])
        assert (await remote.embed(["two"])).shape == (1, DIMENSION)
        await remote.close()


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("0", 0),
        ("-5", 0),
        ("12", 12),
        ("1e9", WAIT_LONGEST_S),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 -0000", 0),
        (f"Thu, 01 Jan 1970 00:00:00 +{'9' * 20}", None),
    ],
)
def test_retry_after_is_a_number_of_seconds(header: str, wait_s: float | None) -> None:
    assert retry_after_s(header, WAIT_LONGEST_S) == wait_s


def test_retry_after_may_be_a_date() -> None:
    at = datetime.now(UTC) + timedelta(seconds=600)
    wait_s = retry_after_s(format_datetime(at, usegmt=True), WAIT_LONGEST_S)
    assert wait_s is not None
    assert math.isclose(wait_s, 600, abs_tol=60)
