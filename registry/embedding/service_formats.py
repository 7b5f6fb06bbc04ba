"""Requests and responses of embedding services: OpenAI's API and that of text-embeddings-inference.
Pure.

https://platform.openai.com/docs/api-reference/embeddings,
https://huggingface.co/docs/text-embeddings-inference
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import Struct

from registry.embedding.embedder import EmbeddingFailed

Rows = list[list[float]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wire:
    """Wire format of a kind of service. `rows` raises EmbeddingFailed."""

    body: Callable[[Sequence[str]], bytes]
    rows: Callable[[bytes], Rows]


class _Request(Struct, frozen=True):
    model: str
    input: Sequence[str]
    dimensions: int
    encoding_format: str = "float"


class _Item(Struct, frozen=True):
    embedding: list[float]
    index: int | None = None


class _Answer(Struct, frozen=True):
    data: list[_Item]


class _Embeddings(Struct, frozen=True):
    embeddings: Rows


def openai(model: str, dimension: int) -> Wire:
    def body(texts: Sequence[str]) -> bytes:
        return msgspec.json.encode(_Request(model, texts, dimension))

    return Wire(body, _openai_rows)


def _openai_rows(answer: bytes) -> Rows:
    """Rows in the order of the texts, sorted by `index` where the service sends one."""
    items = _decode_answer(answer, _Answer).data
    indexes = [item.index for item in items if item.index is not None]
    if indexes and sorted(indexes) != list(range(len(items))):
        raise _unusable(f"indexes that are not 0 to {len(items) - 1}, each once")
    if indexes:
        items = sorted(items, key=lambda item: item.index or 0)
    return [item.embedding for item in items]


def _local_body(texts: Sequence[str]) -> bytes:
    return msgspec.json.encode({"inputs": texts})


def _local_rows(answer: bytes) -> Rows:
    # one or the other: a union of them is more than a type checker can follow
    if answer.lstrip()[:1] == b"{":
        return _decode_answer(answer, _Embeddings).embeddings
    return _decode_answer(answer, Rows)


LOCAL = Wire(_local_body, _local_rows)


def _decode_answer(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.ValidationError as error:  # contains types and paths, no values
        raise _unusable(f"something else than vectors: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        problem = "JSON with NaN in it" if b"NaN" in answer else "what is no JSON"
        raise _unusable(problem) from error


def _unusable(came: str) -> EmbeddingFailed:
    return EmbeddingFailed(f"The embedding service answered {came}.", retryable=False)
