"""`cut`: the chunks of a document, by the kind of its text. Pure."""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions, Mention, locate
from gateway.wings.documents.chunking.code_chunks import code
from gateway.wings.documents.chunking.data_chunks import SCANNERS, data, table
from gateway.wings.documents.chunking.mentions import link_target, mentions
from gateway.wings.documents.chunking.prose_chunks import (
    markdown_headings,
    no_headings,
    prose,
    rst_headings,
    toml_headings,
)

Chunker: TypeAlias = Callable[[str, ChunkingOptions], Iterator[Chunk]]  # offsets in characters

CODE: Mapping[str, str] = {  # languages of `GRAMMARS`
    "text/x-python": "python",
    "text/javascript": "javascript",
    "text/x-typescript": "typescript",
    "text/x-tsx": "tsx",
    "text/x-go": "go",
    "text/x-rust": "rust",
    "text/x-java": "java",
    "text/x-c": "c",
    "text/x-c++": "cpp",
}
CHUNKERS: Mapping[str, Chunker] = {
    "text/markdown": partial(prose, headings=markdown_headings),
    "text/x-rst": partial(prose, headings=rst_headings),
    "text/plain": partial(prose, headings=no_headings),
    "application/toml": partial(prose, headings=toml_headings),
    **{media_type: partial(data, scanner=scanner) for media_type, scanner in SCANNERS.items()},
    "text/csv": partial(table, delimiter=","),
    "text/tab-separated-values": partial(table, delimiter="\t"),
    **{media_type: partial(code, language=language) for media_type, language in CODE.items()},
}
DEFAULT_CHUNKING = ChunkingOptions()


def cut(
    text: str,
    *,
    media_type: str = "text/plain",
    path: str = "",
    title: str = "",
    chunking: ChunkingOptions = DEFAULT_CHUNKING,
    chunker: Chunker | None = None,
) -> tuple[Chunk, ...]:
    """The chunks of a text. `path` is a name, of which the stem is a subject of the first chunk, as
    is `title`; `chunker` takes the place of that of the media type."""
    chosen = chunker or CHUNKERS.get(media_type, CHUNKERS["text/plain"])
    chunks_ = chosen(text, chunking)
    if chunker or media_type not in CODE:  # which has the mentions of its syntax tree
        chunks_ = (_add_mentions(text, chunk, path) for chunk in chunks_)
    chunks = list(locate(text, chunks_))
    if chunks:
        about = [title, _stem(path), *chunks[0].subjects]
        chunks[0] = replace(chunks[0], subjects=tuple(dict.fromkeys(filter(None, about))))
    return tuple(chunks)


def _add_mentions(text: str, chunk: Chunk, path: str) -> Chunk:
    """The chunk with its mentions; a link mentions its target by the stem of the file."""
    named = mentions(text, chunk.start, chunk.end)
    return replace(chunk, mentions=tuple(_resolve_link(mention, path) for mention in named))


def _resolve_link(mention: Mention, path: str) -> Mention:
    is_link = (mention.role, mention.type) == ("link", "path")
    return replace(mention, name=_stem(link_target(path, mention.name))) if is_link else mention


def _stem(path: str) -> str:
    return posixpath.splitext(posixpath.basename(path))[0]
