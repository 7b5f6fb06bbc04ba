"""Embedding models behind HTTP.

Messages never contain a service's response, address or key: all may hold secrets.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import UnionType

import aiohttp
import anyio

from config.settings import EmbeddingSettings
from registry.documents.fetch import read_at_most
from registry.embedding import service_formats
from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.embedding.service_formats import Rows, Wire
from registry.embedding.target_models import label, nameless
from registry.embedding.texts import readable
from registry.embedding.vectors import normalise
from schemas.retry_after import retry_after_s

QUERY_ATTEMPTS = 3  # failed texts are retried by the caller
QUERY_PAUSE_S = 0.2  # before the second attempt; it doubles
WAIT_LONGEST_S = 3600.0  # upper bound of a service's Retry-After
ANSWER_BYTES = 65_536  # limit of an answer, plus for each text:
ANSWER_BYTES_PER_TEXT = 204_800  # 8,192 numbers of 25 characters
_READ = 8192  # characters of a text that are sent
_IDLE_S = 4.0  # below the servers' idle timeouts, so that none closes under a request
_HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "User-Agent": "toolgate",
}

_BUSY = frozenset({408, 425, 429})
_KEY = "refused the key; check embedding.api_key"
_ADDRESS = "has nothing there; check embedding.url and embedding.model"
_TEXTS = (
    "did not take the texts; it has to take embedding.batch_size of them, and its model to give "
    "embedding.dimension numbers"
)


def openai_compatible(settings: EmbeddingSettings) -> "RemoteEmbedder":
    """Embedder of an OpenAI-compatible service. Raises EmbeddingFailed if the settings name no
    address or no model."""
    if not settings.url:
        raise _unset("url", "the address in front of /embeddings")
    if not settings.model:
        raise _unset("model", "the name of a model")
    dialect = service_formats.openai(settings.model, settings.dimension)
    url = f"{settings.url.rstrip('/')}/embeddings"
    return RemoteEmbedder(settings, label(settings.provider, settings.model), url, dialect)


def local_http(settings: EmbeddingSettings) -> "RemoteEmbedder":
    """Embedder of a local HTTP service. It has one model, whose name in the settings distinguishes
    it from others.

    Raises EmbeddingFailed if the settings name no address.
    """
    if not settings.url:
        raise _unset("url", "the address of the service")
    named = label(settings.provider, settings.model)
    model = named if settings.model else nameless(settings.provider, settings.url)
    return RemoteEmbedder(settings, model, settings.url, service_formats.LOCAL)


class RemoteEmbedder:
    """`Embedder` over HTTP. Redirects are not followed: they would receive texts and key."""

    def __init__(self, settings: EmbeddingSettings, model: str, url: str, dialect: Wire) -> None:
        self.model = model
        self.dimension = settings.dimension
        self._settings = settings
        self._url = url
        self._wire = dialect
        self._headers = _HEADERS | _authorization(settings.api_key)
        self._http: aiohttp.ClientSession | None = None

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Embed over HTTP. `timeout_s` is for one call of the service; for all calls and retries of
        a query."""
        prefix = self._settings.query_prefix if query else ""
        inputs = [prefix + readable(text, _READ) for text in texts]
        size = self._settings.batch_size
        batches = [inputs[at : at + size] for at in range(0, len(inputs), size)]
        rows: Rows = []
        if query:
            with _in_time(self._settings.timeout_s):
                for batch in batches:
                    rows += await self._attempts(batch)
        else:
            for batch in batches:
                with _in_time(self._settings.timeout_s):
                    rows += await self._post(batch)
        return normalise(rows, len(texts), self.dimension)

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _attempts(self, texts: Sequence[str]) -> Rows:
        pause_s = QUERY_PAUSE_S
        for _ in range(QUERY_ATTEMPTS - 1):
            try:
                return await self._post(texts)
            except EmbeddingFailed as error:
                wait_s = max(pause_s, error.retry_after_s or 0.0)
                if not error.retryable or wait_s >= _left_s():
                    raise
            await anyio.sleep(wait_s)
            pause_s *= 2
        return await self._post(texts)

    async def _post(self, texts: Sequence[str]) -> Rows:
        limit = ANSWER_BYTES + ANSWER_BYTES_PER_TEXT * len(texts)
        try:
            async with self._session().post(
                self._url, data=io.BytesIO(self._wire.body(texts)), allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise _refusal(response)
                answer = await _read(response, limit)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(error) from error
        return self._wire.rows(answer)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._settings.connections, keepalive_timeout=_IDLE_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),  # the caller holds the deadline
            )
        return self._http


@contextmanager
def _in_time(timeout_s: float) -> Iterator[None]:
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as error:
        raise EmbeddingFailed(
            f"The embedding service did not answer within {timeout_s:g} s"
            " (setting embedding.timeout_s).",
            retryable=True,
        ) from error


def _left_s() -> float:
    return anyio.current_effective_deadline() - anyio.current_time()


async def _read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    answer = await read_at_most(response, limit_bytes)
    if answer is None:
        text = f"The embedding service answered more than {limit_bytes:,} bytes."
        raise EmbeddingFailed(text, retryable=False)
    return answer


def _refusal(response: aiohttp.ClientResponse) -> EmbeddingFailed:
    status = response.status
    if status in _BUSY or status >= 500:
        wait_s = retry_after_s(response.headers.get("Retry-After", ""), WAIT_LONGEST_S)
        problem = f"is busy or failing (status {status})"
        return EmbeddingFailed(
            f"The embedding service {problem}.", retryable=True, retry_after_s=wait_s
        )
    problem = _REFUSALS.get(status, "did not take the texts")
    if 300 <= status < 400:
        problem = "redirects, which is not followed; set embedding.url to where it is now"
    return EmbeddingFailed(f"The embedding service {problem} (status {status}).", retryable=False)


_REFUSALS = {
    401: _KEY,
    403: _KEY,
    404: _ADDRESS,
    405: _ADDRESS,
    400: _TEXTS,
    413: _TEXTS,
    422: _TEXTS,
}


def _unreachable(error: Exception) -> EmbeddingFailed:
    """The cause in our own words: messages of the libraries contain addresses."""
    for kind, problem, retryable in _CAUSES:
        if isinstance(error, kind):
            return EmbeddingFailed(f"The embedding service {problem}.", retryable=retryable)
    return EmbeddingFailed("The embedding service could not be reached.", retryable=True)


_CAUSES: tuple[tuple[type[Exception] | UnionType, str, bool], ...] = (
    (aiohttp.InvalidURL, "has no usable address; check embedding.url", False),
    (aiohttp.ClientConnectorDNSError, "could not be reached: its host name does not resolve", True),
    (aiohttp.ClientSSLError, "could not be reached: TLS failed", True),
    (
        aiohttp.ClientConnectorError,
        "could not be reached: the connection was refused or timed out",
        True,
    ),
    (
        aiohttp.ClientPayloadError | aiohttp.ClientConnectionError,
        "closed the connection before its answer was complete",
        True,
    ),
    (aiohttp.ClientResponseError | ValueError, "did not answer over HTTP", False),
)


def _authorization(api_key: str) -> dict[str, str]:
    key = api_key.strip()  # of a file, it often ends in a line break
    if not (key.isascii() and key.isprintable()):
        raise EmbeddingFailed(
            "embedding.api_key holds characters that no HTTP header may.", retryable=False
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


def _unset(key: str, value: str) -> EmbeddingFailed:
    return EmbeddingFailed(
        f"embedding.{key} is empty: this provider needs {value} there.", retryable=False
    )
