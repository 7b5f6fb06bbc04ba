"""A client of the librarian: fills collections and asks them, at a running gateway.

async with Librarian("http://127.0.0.1:8765", key) as librarian:
    source = GitSource("https://github.com/pallets/flask", branch="main", filter="src/**/*.py")
    await librarian.ingest(source=source, collection="flask")
    response = await librarian.query(collection="flask", question="Where are sessions signed?")
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote

import aiohttp

from schemas.errors import ToolgateError

ROOT, FILES = "/librarian/v1", "/knowledge/files"
POLL_S = 0.5
TIMEOUT_S = 600.0
AS_JOB = {"Prefer": "respond-async"}  # RFC 7240


class LibrarianError(ToolgateError):
    """A refusal of the gateway, or a source that could not be read."""


@dataclass(frozen=True, slots=True)
class GitSource:
    url: str
    branch: str = ""  # "": the default branch
    filter: str | None = None  # a pattern of .gitignore

    @property
    def place(self) -> Mapping[str, Any]:
        return {"type": "git", "location": self.url, "ref": self.branch, **_filter(self.filter)}


@dataclass(frozen=True, slots=True)
class UrlSource:
    url: str

    @property
    def place(self) -> Mapping[str, Any]:
        return {"type": "url", "location": self.url}


@dataclass(frozen=True, slots=True)
class S3Source:
    location: str  # s3://BUCKET/PREFIX
    filter: str | None = None

    @property
    def place(self) -> Mapping[str, Any]:
        return {"type": "s3", "location": self.location, **_filter(self.filter)}


@dataclass(frozen=True, slots=True)
class UploadSource:
    """A file, or an archive of files."""

    path: str  # in the collection
    data: bytes


Source = GitSource | UrlSource | S3Source | UploadSource


@dataclass(frozen=True, slots=True)
class LibrarianSource:
    path: str
    lines: tuple[int, int]
    relevance: float


@dataclass(frozen=True, slots=True)
class LibrarianResponse:
    answer: str
    sources: Sequence[LibrarianSource]
    confidence: float


class Librarian:
    def __init__(self, url: str, key: str | None = None) -> None:
        """`key`: an API key or a token; None where the gateway asks for none."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        timeout = aiohttp.ClientTimeout(TIMEOUT_S)
        self._url = url.rstrip("/")
        self._http = aiohttp.ClientSession(headers=headers, timeout=timeout)

    async def __aenter__(self) -> "Librarian":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()

    async def ingest(self, source: Source, collection: str) -> Mapping[str, Any]:
        """Have the collection follow the source, and read it; or store an upload. Returns what
        became of the files. Raises LibrarianError."""
        if isinstance(source, UploadSource):
            path = f"{FILES}/{quote(collection, safe='')}/{quote(source.path)}"
            stored: Mapping[str, Any] = await self._send("PUT", path, data=source.data)
            return stored
        body = {"collection": collection, **source.place}
        added = await self._send("POST", f"{ROOT}/sources", json=body)
        path = f"{ROOT}/sources/{added['source']['id']}/refresh"
        job = await self._send("POST", path, headers=AS_JOB)
        while "job" in job and "ended" not in job:
            await asyncio.sleep(POLL_S)
            job = await self._send("GET", f"{ROOT}/jobs/{job['job']}")
        if "problem" in job:
            raise LibrarianError(job["problem"]["detail"])
        report: Mapping[str, Any] = job.get("result", job)["report"]
        return report

    async def query(
        self, collection: str, question: str, max_chunks: int = 10, include_sources: bool = True
    ) -> LibrarianResponse:
        """Raises LibrarianError."""
        body = {
            "collection": collection,
            "question": question,
            "max_chunks": max_chunks,
            "include_sources": include_sources,
        }
        answer = await self._send("POST", f"{ROOT}/query", json=body)
        sources = [
            LibrarianSource(source["path"], tuple(source["lines"]), source["relevance"])
            for source in answer.get("sources", ())
        ]
        return LibrarianResponse(answer["answer"], sources, answer["confidence"])

    async def _send(self, method: str, path: str, **body: Any) -> Any:
        async with self._http.request(method, self._url + path, **body) as response:
            answer = await response.json(content_type=None)
        if response.status >= 400:
            raise LibrarianError(answer.get("detail", f"the gateway answered {response.status}"))
        return answer


def _filter(pattern: str | None) -> Mapping[str, Any]:
    return {} if pattern is None else {"filter": [pattern]}
