"""Reading of the conversations that the memory's quality is measured on."""

import json
from pathlib import Path

from benchmarks.recall import LABELS, locomo, memorybank


def test_locomo_is_read_with_its_malformed_evidence(tmp_path: Path) -> None:
    turns = [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "Hi", "blip_caption": "a cat"},
        {"speaker": "Bo", "dia_id": "D1:2", "text": "Hello"},
    ]
    given = {
        "conversation": {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"},
        "qa": [
            {"question": "who?", "evidence": ["D1:1; D:1:02"], "category": 1},
            {"question": "where?", "evidence": ["D9:9"], "category": 3},
        ],
    }
    (tmp_path / "locomo").mkdir()
    (tmp_path / "locomo" / "conversations.json").write_text(json.dumps([given]))
    [pool] = locomo(tmp_path)
    assert [one.text for one in pool.turns] == ["Hi [shares a cat]", "Hello"]
    assert pool.turns[0].at.isoformat() == "2023-05-08T13:56:00+00:00"
    [question] = pool.questions
    assert question.evidence == {"D1:1", "D1:2"}


def test_memorybank_has_the_labelled_questions(tmp_path: Path) -> None:
    folder = tmp_path / "memorybank-zh"
    folder.mkdir()
    exchange = {"query": "你好", "response": "你好"}
    history = {"2023-04-27": [exchange] * 60}
    (folder / "memory_bank_cn.json").write_text(
        json.dumps({name: {"history": history} for name in LABELS})
    )
    lines = [json.dumps({name: ["?"] * 7}) for name in LABELS]
    (folder / "probing_questions_cn.jsonl").write_text("\n".join(lines))
    pools = memorybank(tmp_path)
    assert sum(len(pool.questions) for pool in pools) == 45
    assert pools[3].questions[1].evidence == {"7"}  # two of that user are not used
