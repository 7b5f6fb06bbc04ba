"""`toolgate agent chat`, with a gateway whose model is scripted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from config.settings import DatabaseSettings
from tests.gateway.cli.conftest import Toolgate
from tests.servers.provider import chat, chat_whole, failing
from tests.wings.agent.rig import Rig, open_rig
from tests.wings.agent.test_takeover import GET


@pytest.fixture
def rig(database_settings: DatabaseSettings, tmp_path: Path) -> Iterator[Rig]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_rig(database_settings, tmp_path)) as rig,
    ):
        yield rig


def test_a_chat_shows_words_and_calls(rig: Rig, bare: Toolgate, tmp_path: Path) -> None:
    url = ("--url", rig.client.url)
    rig.script(chat("Let me see.", [GET]), chat("A fine cat."))
    ran = bare("agent", "chat", "--message", "Which pet?", *url)
    assert (ran.code, ran.out) == (0, "Let me see.\nA fine cat.\n")
    assert '-> getPet {"id":7}' in ran.err
    assert "<- getPet" in ran.err
    rig.script(chat("One."), chat("Two."))
    ran = bare("agent", "chat", *url, stdin="first\nsecond\n\n")
    assert ran.out == "One.\nTwo.\n"
    rig.script(failing(401))
    ran = bare("agent", "chat", "--message", "x", *url)
    assert ran.code == 1
    assert "provider_auth" in ran.err
    ran = bare("agent", "chat", "--message", "x", "--conversation", "none", *url)
    assert "422" in ran.err
    cases = tmp_path / "cases.jsonl"
    lines = (
        {"message": "x", "tools": ["getPet"], "arguments": {"getPet": {"id": 7}}},
        {"message": "y", "forbidden": ["getPet"], "contains": ["dog"], "max_iterations": 1},
    )
    cases.write_text("\n".join(map(json.dumps, lines)))
    one = (chat_whole("", [GET]), chat_whole("A cat."))
    rig.script(*one, *one)
    ran = bare("agent", "eval", str(cases), "--json", "--fail-under", "0.6", *url)
    assert (ran.code, json.loads(ran.out)["passed"]) == (4, 1)
    assert json.loads(ran.out)["results"][1]["problems"] == [
        "getPet was called",
        "the answer lacks 'dog'",
        "2 iterations, at most 1 expected",
    ]
    ran = bare("agent", "health", *url)
    assert ran.json["strategy"] == "scripted"


def test_an_approver_is_shown_the_call_to_approve(rig: Rig, bare: Toolgate, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    rig.script(chat("", [("d1", "deletePet", '{"id": 7}')]), chat("Not done."))
    ran = bare(
        "agent", "chat", "--message", "Remove it.", "--approver-key-file", str(key),
        "--url", rig.client.url, stdin="n\n",
    )  # fmt: skip
    assert ran.out.endswith("Not done.\n")
    question = ran.err[: ran.err.index("Approve this call?")]
    assert re.search(r'Approval [0-9a-f-]{36}: deletePet {"id":7}', question)
