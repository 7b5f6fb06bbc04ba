"""Selection of the memories of a session that are kept for its user when it ends. Pure, and
without a model.

Promoted: what was asked to be kept, preferences and facts that the user stated, what came up in
several sessions or was recalled several times, and turns of the user with a cue such as "remember".
Never: what tools and assistants said, questions, what masking touched, what was superseded.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from config.memory import MemoryPromotion
from gateway.wings.memory.memory_rows import Memory

_CUE = re.compile(
    r"\b(?:remember|don'?t forget|i (?:really )?(?:prefer|like|love|hate|dislike|always|never)|"
    r"my (?:\w+ ){1,4}is|call me|i am allergic|i'm allergic)\b"
    r"|请记住|记住|我喜欢|我不喜欢|我叫|我的名字",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[?\uff1f]\s*$")
_STATEMENT_KINDS = frozenset({"fact", "preference"})
_KINDS = frozenset({"fact", "preference", "summary", "learning", "persona", "turn"})


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """A memory of a session, with what is known of its use."""

    memory: Memory
    sessions: int  # of its user in which it is, this one included
    uses: int


def promotable(memory: Memory) -> bool:
    """Whether it may be promoted at all."""
    return (
        memory.scope == "session"
        and memory.subject is not None
        and memory.trust in ("user", "agent", "inferred")
        and not (memory.kind == "turn" and memory.trust != "user")
        and not memory.masked
        and memory.retired is None
        and memory.kind in _KINDS
        and not _QUESTION.search(memory.content)
    )


def is_promoted(candidate: SessionMemory, rules: MemoryPromotion) -> bool:
    """Whether the rules promote it."""
    memory = candidate.memory
    if not promotable(memory):
        return False
    stated = memory.kind in _STATEMENT_KINDS and memory.trust == "user"
    return (
        memory.keep
        or (stated and memory.importance >= rules.min_importance)
        or candidate.sessions >= rules.sessions
        or candidate.uses >= rules.recalls
        or (memory.kind == "turn" and _CUE.search(memory.content) is not None)
    )


def select_promoted(candidates: Iterable[SessionMemory], rules: MemoryPromotion) -> list[Memory]:
    """Memories that the rules promote: explicitly kept ones first, then the most important."""
    promoted = [candidate.memory for candidate in candidates if is_promoted(candidate, rules)]
    promoted.sort(key=lambda memory: (-memory.keep, -memory.importance, memory.created, memory.id))
    return promoted[: rules.max]
