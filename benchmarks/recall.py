"""Conversations with questions whose answers are known turns: LoCoMo, and MemoryBank in Chinese.

Neither is part of the repository (LoCoMo is CC BY-NC 4.0: it is for evaluation alone). They are
read from a folder (`--recall`) with `locomo/conversations.json` and
`memorybank-zh/` (`memory_bank_cn.json`, `probing_questions_cn.jsonl`), as published.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ADVERSARIAL = "5"  # category of questions about the other speaker
EVIDENCE = re.compile(r"D:?(\d+):0*(\d+)")
# Exchanges that answer the questions of MemoryBank, from 0 in the history of each user, question by
# question; none: not used. Labelled by hand.
LABELS = {
    "张曼婷": "17, 20, 32, 5, 15+16, 26, 35",
    "王峰": "2, 15, 18, 47+48, 50, 25, 9",
    "李雪": "3, 10+11, 6, 14, 15+23, 21, 6",
    "刘琳": "42, -, -, 7, 24, 19, 33",
    "陆琳": "8, 19, 36, 34, 10",
    "焦彦": "2, 17, 18, 20, 20, 23, 28",
    "孙悦": "6, 4, 25, 19, 2, 15, 27",
}


@dataclass(frozen=True, slots=True)
class Turn:
    id: str
    session: str
    speaker: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    evidence: frozenset[str]  # ids of turns
    category: str


@dataclass(frozen=True, slots=True)
class Pool:
    """One conversation, or the exchanges of one user."""

    name: str
    turns: Sequence[Turn]
    questions: Sequence[Question]


def locomo(directory: Path) -> list[Pool]:
    """The conversations, with the questions that have evidence."""
    text = (directory / "locomo" / "conversations.json").read_text()
    return [_conversation(number, talk) for number, talk in enumerate(json.loads(text), 1)]


def _conversation(number: int, conversation: Mapping[str, Any]) -> Pool:
    turns = list(_turns(conversation["conversation"]))
    turn_ids = {turn.id for turn in turns}
    questions = [
        Question(entry["question"], evidence, str(entry["category"]))
        for entry in conversation["qa"]
        if (evidence := _evidence(entry["evidence"]) & turn_ids)
    ]
    return Pool(f"conversation {number}", turns, questions)


def _turns(conversation: Mapping[str, Any]) -> Iterator[Turn]:
    sessions = sorted(
        int(name.split("_")[1]) for name in conversation if re.fullmatch(r"session_\d+", name)
    )
    for number in sessions:
        begun = conversation[f"session_{number}_date_time"]  # "1:56 pm on 8 May, 2023"
        at = datetime.strptime(begun, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(conversation[f"session_{number}"]):
            caption = turn.get("blip_caption")
            text = turn["text"] + (f" [shares {caption}]" if caption else "")
            moment = at + timedelta(seconds=place)
            yield Turn(turn["dia_id"], f"D{number}", turn["speaker"], text, moment)


def _evidence(entries: Sequence[str]) -> frozenset[str]:
    """Some ids are malformed: `D8:6; D9:17`, `D:11:26`, `D30:05`."""
    matches = (match for entry in entries for match in EVIDENCE.finditer(entry))
    return frozenset(f"D{match[1]}:{match[2]}" for match in matches)


def memorybank(directory: Path) -> list[Pool]:
    """The exchanges of the users whose questions are labelled."""
    folder = directory / "memorybank-zh"
    users = json.loads((folder / "memory_bank_cn.json").read_text())
    lines = (folder / "probing_questions_cn.jsonl").read_text().splitlines()
    asked: dict[str, list[str]] = {}
    for line in lines:
        asked |= json.loads(line)
    return [_user(name, users[name], asked[name]) for name in LABELS]


def _user(name: str, user: Mapping[str, Any], texts: Sequence[str]) -> Pool:
    exchanges = [
        (day, place, f"{turn['query']} {turn['response']}")
        for day, day_turns in user["history"].items()
        for place, turn in enumerate(day_turns)
    ]
    turns = [
        Turn(str(number), day, "", text, datetime.fromisoformat(f"{day}T12:{place:02}:00+00:00"))
        for number, (day, place, text) in enumerate(exchanges)
    ]
    labels = [label.strip() for label in LABELS[name].split(",")]
    questions = [
        Question(text, frozenset(label.split("+")), "zh")
        for text, label in zip(texts, labels, strict=False)
        if label != "-"
    ]
    return Pool(name, turns, questions)
