"""What keeps answers, in memory, and what makes them fit."""

from gateway.methods.result_processing import AnswerProcessing, Mismatches
from gateway.state.memory import MemoryCounter, MemoryLog
from gateway.state.stored_answers import StoredAnswerLimits, StoredAnswers

ROOMY = StoredAnswerLimits(keep_s=900, caller_bytes=1 << 28, kept_bytes=1 << 29)


def keeping(limits: StoredAnswerLimits = ROOMY) -> StoredAnswers:
    log = MemoryLog(1_000_000, limits.keep_s, limits.kept_bytes)
    return StoredAnswers(log, MemoryCounter(), limits)


def answering(answers: StoredAnswers | None = None, tokens: int = 20_000) -> AnswerProcessing:
    return AnswerProcessing(answers or keeping(), tokens, frozenset(), Mismatches())
