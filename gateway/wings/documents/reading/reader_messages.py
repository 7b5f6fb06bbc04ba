"""Requests to a process that reads what is not trusted, and its answers.

Frames have 4 bytes of length, most significant first, then MessagePack.
"""

from msgspec import Struct

from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions
from gateway.wings.documents.reading.reading_limits import ReadingLimits
from gateway.wings.documents.reading.source_files import LeftOut, SourceFile, WantedFiles
from gateway.wings.documents.reading.wasm_limits import ChunkerReport, WasmLimits

LENGTH_BYTES = 4
NETWORK, NO_NETWORK = "network", "no-network"  # the second argument of the process


class FileReading(Struct, frozen=True, tag=True):
    """A file to read."""

    path: str
    data: bytes
    chunking: ChunkingOptions = ChunkingOptions()
    limits: ReadingLimits = ReadingLimits()
    plain: bool = False  # cut as plain text, since its own chunker did not end
    chunker: bytes = b""  # a module of WebAssembly that cuts the text; it is not parsed
    wasm: WasmLimits = WasmLimits()


class ArchiveReading(Struct, frozen=True, tag=True):
    """An archive of which the files are wanted."""

    data: bytes
    files: WantedFiles = WantedFiles()


class ChunkerTrial(Struct, frozen=True, tag=True):
    """A module of WebAssembly that is tried with samples, each a path and a text."""

    module: bytes
    samples: tuple[tuple[str, str], ...]
    chunking: ChunkingOptions = ChunkingOptions()
    limits: ReadingLimits = ReadingLimits()
    wasm: WasmLimits = WasmLimits()


class ReadDocument(Struct, frozen=True, tag=True):
    """The text of a file, and its chunks."""

    text: str
    media_type: str
    chunks: tuple[Chunk, ...]
    title: str = ""
    encoding: str = "utf-8"
    note: str = ""  # why it was not read as its type is
    degraded: bool = False  # since a process had to be ended: another reading may be better


class NotRead(Struct, frozen=True, tag=True):
    """Why there is no answer, or no further one."""

    reason: str


class EndOfAnswers(Struct, frozen=True, tag=True):
    """The end of the answers."""


class WorkerReady(Struct, frozen=True, tag=True):
    """The first answer: whether the process still has the network of the gateway."""

    network: bool


class GitFetch(Struct, frozen=True, tag=True):
    """A branch or tag to fetch, with what is wanted of it."""

    url: str
    ref: str = ""  # a branch or a tag; empty: the default branch
    user: str = ""
    password: str = ""
    private_networks: bool = False
    files: WantedFiles = WantedFiles()


class GitHead(Struct, frozen=True, tag=True):
    """The commit of which the files follow; none of them if it is `unchanged`."""

    commit: str
    unchanged: bool = False


Request = FileReading | ArchiveReading | GitFetch | ChunkerTrial
Answer = (
    ReadDocument
    | ChunkerReport
    | NotRead
    | EndOfAnswers
    | SourceFile
    | LeftOut
    | GitHead
    | WorkerReady
)
