"""Second stage of a search: a cross-encoder reads the request and the best tools together.

Any cross-encoder in ONNX that takes input_ids, attention_mask and token_type_ids, with a BERT
tokenizer.json beside it; none comes with the product, as none that was trained for it gained
without losing elsewhere (benchmarks/training/README.md). Its scores are standardised within
an answer, so that models of any scale can be used. Imported only where `search.rerank` is not off.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from anyio import CapacityLimiter, to_thread
from tokenizers import Tokenizer

from config.settings import SearchSettings as Settings
from registry.embedding.onnx_sessions import make_session
from registry.embedding.texts import ToolFields, query_text, readable, tool_text
from registry.search.fusion import DIGITS, Hit
from registry.search.search_breaker import SearchBreaker

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger("toolgate.search")

TOKENS, QUERY_TOKENS = 96, 40  # of a pair, and at most of its request; as in training
CHARACTERS = 8 * TOKENS  # that are tokenised of a text
CLEAR = 0.1  # lead of the first from which `auto` reads none: it is right in 6 to 10 of 10 then
RUNS = 2  # concurrent runs of the model
LONGEST_REST_S = 60.0
INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class CannotRerank(Exception):
    """The model cannot be loaded or run; says why."""


class SecondStage:
    """Re-ranks the best tools of a search, where it can: a failure leaves their order, and those of
    the searches in the rest that follows."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """A stage whose model is not loaded yet."""
        self.reads = settings.rerank_tools
        self._settings = settings
        self._model: _CrossEncoder | None = None
        self._lock = threading.Lock()
        self._runs = CapacityLimiter(RUNS)
        self._rest = SearchBreaker(LONGEST_REST_S, clock)

    async def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """`hits`, best first, in their new order."""
        if len(hits) < 2 or self._is_clear(hits) or self._rest.rests():
            return list(hits)
        first, others = hits[: self.reads], hits[self.reads :]
        try:
            with anyio.fail_after(self._settings.query_timeout_s):
                scores = await to_thread.run_sync(  # never abandoned: `runs` counts what runs
                    partial(self._scores, query_text(query), [_text(hit) for hit in first]),
                    limiter=self._runs,
                )
        except CannotRerank as error:
            return self._on_failure(hits, str(error))
        except TimeoutError:
            return self._on_failure(hits, "timeout")
        if self._rest.record_answer():
            log.info("search_rerank_recovered")
        return [*mix_scores(first, scores, self._settings.rerank_share), *others]

    def _on_failure(self, hits: Sequence[Hit], reason: str) -> list[Hit]:
        extra = {"reason": reason, "retry_s": self._rest.record_failure()}
        log.warning("search_rerank_failed", extra=extra)
        return list(hits)

    def _is_clear(self, hits: Sequence[Hit]) -> bool:
        return self._settings.rerank == "auto" and hits[0].score - hits[1].score >= CLEAR

    def _scores(self, query: str, texts: Sequence[str]) -> "NDArray[Any]":
        with self._lock:
            model = self._model = self._model or _CrossEncoder(Path(self._settings.rerank_model))
        try:
            return model.scores(query, texts)
        except CannotRerank:
            self._model = None  # its files may be others by the next try
            raise


def mix_scores(hits: Sequence[Hit], scores: "NDArray[Any]", share: float) -> list[Hit]:
    """`hits` by their score and `share` of the standard score of the second stage."""
    standard = (scores - scores.mean()) / max(float(scores.std()), 1e-6)
    mixed_hits = [
        replace(hit, score=round(hit.score + share * float(more), DIGITS))
        for hit, more in zip(hits, standard, strict=True)
    ]
    return sorted(mixed_hits, key=lambda hit: -hit.score)


def _text(hit: Hit) -> str:
    return tool_text(
        ToolFields(
            name=hit.name, title=hit.title or "", description=hit.description, source=hit.source
        )
    )


class _CrossEncoder:
    def __init__(self, folder: Path) -> None:
        """The model in `folder`. Raises CannotRerank."""
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._session = make_session(folder / "model.onnx")
        except Exception as error:  # the two libraries' exceptions share no other base
            raise CannotRerank(f"search.rerank_model cannot be loaded: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if {tensor.name for tensor in self._session.get_inputs()} != INPUTS:
            names = ", ".join(sorted(INPUTS))
            raise CannotRerank(f"search.rerank_model: expected the inputs {names}")

    def scores(self, query: str, texts: Sequence[str]) -> "NDArray[Any]":
        """One score for each text, shape (texts,). Raises CannotRerank."""
        query_tokens = self._tokens(query, QUERY_TOKENS)
        text_tokens = [self._tokens(text, TOKENS - len(query_tokens) + 1)[1:] for text in texts]
        scores = np.array([self._run(query_tokens, tokens) for tokens in text_tokens], np.float32)
        if not np.isfinite(scores).all():
            raise CannotRerank("search.rerank_model gave a score that is no finite number")
        return scores

    def _tokens(self, text: str, limit: int) -> list[int]:
        """At most `limit` tokens, the last of which ends the text."""
        # one by one: encode_batch starts threads, and warns at every fork from then on
        ids: list[int] = self._tokenizer.encode(readable(text, CHARACTERS)).ids
        return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]

    def _run(self, query_tokens: list[int], text_tokens: list[int]) -> float:
        """The score of one pair. An int8 graph would give a pair another score beside others."""
        ids = np.array([query_tokens + text_tokens], np.int64)
        kinds = np.array([[0] * len(query_tokens) + [1] * len(text_tokens)], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": kinds}
        try:
            (scores, *_) = self._session.run(None, inputs)
            return float(np.asarray(scores).reshape(()))
        except Exception as error:  # as above
            raise CannotRerank(f"search.rerank_model failed: {error}") from error
