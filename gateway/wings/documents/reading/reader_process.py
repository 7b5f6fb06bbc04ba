"""Process that reads what is not trusted for the gateway: files into chunks, archives, git.

Requests and answers are frames on its standard input and output. It has no environment of the
gateway, may not write files but for the objects of a repository, and is ended when it takes too
long or too much memory. Those that fetch nothing leave the network where the machine allows it:
Linux with user namespaces.
"""

import ctypes
import os
import resource
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import IO, Any, cast

import msgspec
from msgspec.structs import replace

from gateway.wings.documents.chunking.chunks import Chunk, Offsets
from gateway.wings.documents.chunking.chunks_by_kind import Chunker, cut
from gateway.wings.documents.reading.archives import archive_files
from gateway.wings.documents.reading.parsers import DocumentText, decode_text, document_text
from gateway.wings.documents.reading.reader_messages import (
    LENGTH_BYTES,
    NETWORK,
    Answer,
    ArchiveReading,
    ChunkerTrial,
    EndOfAnswers,
    FileReading,
    GitFetch,
    NotRead,
    ReadDocument,
    Request,
    WorkerReady,
)
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.documents.reading.source_files import is_generated, select_files
from gateway.wings.documents.reading.wasm_limits import ChunkerRefused

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # linux/sched.h
_HEAD = 200  # characters of a generated file that are kept
_READER_ERRORS = (MemoryError, RecursionError, ValueError, LookupError, OSError, SystemError)


def read_document(task: FileReading) -> ReadDocument:
    """The text and the chunks of a file. Raises ReadingRefused."""
    if task.plain or task.chunker:
        document = DocumentText(decode_text(task.data)[0], "text/plain")
    else:
        document = document_text(task.path, task.data, task.limits)
    text, note = document.text, ""
    if not task.plain and not task.chunker and is_generated(task.path, text):
        text, note = text[:_HEAD], "it is generated or minified: known by its name"
    media_type = "text/plain" if note else document.media_type
    chunker = _wasm_chunker(task) if task.chunker else None
    options: dict[str, Any] = {
        "path": task.path,
        "title": document.title,
        "chunking": task.chunking,
    }
    try:
        chunks = cut(text, media_type=media_type, chunker=chunker, **options)
    except ChunkerRefused as error:
        note = f"it was cut as plain text: its chunker {error}"
        chunks = cut(text, media_type="text/plain", **options)
    return ReadDocument(
        text,
        media_type,
        _with_pages(text, chunks, document.pages),
        title=document.title,
        encoding=document.encoding,
        note=note,
    )


def _wasm_chunker(task: FileReading) -> Chunker:
    """Raises ChunkerRefused."""
    return cast("Chunker", _wasm().wasm_chunker(task.chunker, task.path, task.wasm))


def _wasm() -> ModuleType:
    """The runtime of WebAssembly, which most processes never need. Raises ReadingRefused."""
    try:
        return import_module("gateway.wings.documents.reading.wasm_chunkers")
    except ImportError as error:
        raise ReadingRefused("chunkers need the extra toolgate[wasm]") from error


def _with_pages(text: str, chunks: tuple[Chunk, ...], pages: Sequence[int]) -> tuple[Chunk, ...]:
    if not pages:
        return chunks
    offsets = Offsets(text)
    starts = [offsets.byte(page) for page in pages]
    return tuple(replace(chunk, page=bisect_right(starts, chunk.start)) for chunk in chunks)


def answers(request: Request) -> Iterator[Answer]:
    """Answers to a request; `Finished` or `NotRead` is the last."""
    try:
        if isinstance(request, FileReading):
            yield read_document(request)
        elif isinstance(request, ArchiveReading):
            yield from select_files(
                archive_files(request.data, request.files.limits), request.files
            )
        elif isinstance(request, ChunkerTrial):
            yield _wasm().try_module(
                request.module, request.samples, request.chunking, request.wasm
            )
        else:
            from gateway.wings.documents.reading.git import git_files  # 0.2 s

            yield from git_files(request)
        yield EndOfAnswers()
    except ReadingRefused as error:
        yield NotRead(str(error))
    except _READER_ERRORS as error:
        yield NotRead(f"it cannot be read ({type(error).__name__})")


def main() -> None:
    _limit(resource.RLIMIT_AS, int(sys.argv[1]))
    _limit(resource.RLIMIT_CORE, 0)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    decoder = msgspec.msgpack.Decoder(Request)
    network = sys.argv[2] == NETWORK or not _left_network()
    _send(output, WorkerReady(network))
    while frame := _frame(sys.stdin.buffer):
        request = decoder.decode(frame)
        files = request.files.limits.source_bytes if isinstance(request, GitFetch) else 0
        _limit(resource.RLIMIT_FSIZE, files)
        if isinstance(
            request, FileReading | ChunkerTrial
        ):  # ends also where nobody is left to end it
            _limit(resource.RLIMIT_CPU, int(time.process_time() + request.limits.parse_s) + 2)
        for answer in answers(request):
            _send(output, answer)


def _left_network() -> bool:
    """Enter an empty network namespace; False: the machine does not allow it."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)  # of Linux
    return unshare is not None and 0 in (unshare(_NEW_NETWORK), unshare(_NEW_USER | _NEW_NETWORK))


def _limit(kind: int, value: int) -> None:
    """Limit a resource of this process, within what it may have at most."""
    _, most = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def _send(file: IO[bytes], answer: Answer) -> None:
    data = msgspec.msgpack.encode(answer)
    file.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    file.flush()


def _frame(file: IO[bytes]) -> bytes:
    """The next frame; empty at the end."""
    length = int.from_bytes(file.read(LENGTH_BYTES), "big")
    return file.read(length)


if __name__ == "__main__":
    main()
