"""Names of tests begin with their subject, which `.ci/names.py` counts."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.documentation.pages import program


@pytest.fixture(scope="module")
def names() -> ModuleType:
    return program("names")


@pytest.mark.parametrize(
    "name",
    [
        "test_what_is_of_no_use_is_not_passed_on",
        "test_it_is_looked_for_at_every_usual_place",
        "test_those_who_come_at_once_share_one_request",
        "test_hosts_refuse_others",
        "test_the_first_answer_is_the_good_one",
        "test_a_key_that_replaces_one_that_expired_is_new",
    ],
)
def test_pronouns_in_place_of_a_noun_are_riddles(names: ModuleType, name: str) -> None:
    assert names.is_riddle(name)


@pytest.mark.parametrize(
    "name",
    [
        "test_invalid_metadata_is_not_forwarded",
        "test_concurrent_callers_share_one_request",
        "test_another_node_reads_its_limit",
        "test_whole_wits",
    ],
)
def test_numbers_and_nouns_are_no_riddles(names: ModuleType, name: str) -> None:
    assert not names.is_riddle(name)


@pytest.fixture
def root(names: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (*names.PACKAGES, names.TESTS):
        (tmp_path / folder).mkdir()
    (tmp_path / "names.json").write_text(json.dumps(dict.fromkeys(names.RULES, 0)))
    monkeypatch.setattr(names, "ROOT", tmp_path)
    monkeypatch.setattr(names, "BUDGET", tmp_path / "names.json")
    return tmp_path


def test_pronouns_are_counted_among_locals_and_parameters(
    names: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "class Tool:\n    def __eq__(self, other): ...\n    def join(self, other): ...\n\n\n"
    code += "def find(name, *found, which, **kept):\n    one, what = map(lambda it: it, found)\n"
    (root / "config" / "a.py").write_text(code)
    assert names.main(["--list"]) == 1
    places = [line.split(":") for line in capsys.readouterr().out.splitlines() if ".py:" in line]
    expected = {"3 other", "6 found", "6 which", "6 kept", "7 one", "7 what", "7 it"}
    assert {f"{line}{text}" for _, line, _, text in places} == expected


def test_participles_among_parameters_are_counted(
    names: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def merge(left, right, *, sealed):\n    return lambda opened: 1\n\n\n"
    code += "def limit(left): ...\n"
    (root / "config" / "a.py").write_text(code)
    assert names.main(["--list"]) == 1
    out = capsys.readouterr().out
    assert "parameters: 3 of 5" in out
    assert "config/a.py:1: parameters: sealed\n" in out
    assert "config/a.py:2: parameters: opened\n" in out
    assert "config/a.py:5: parameters: left\n" in out


def test_riddles_and_participles_of_tests_are_counted_apart(
    names: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def told():\n    one = 1\n\n\ndef test_what_is_wrong():\n    told()\n"
    (root / "tests" / "test_a.py").write_text(code)
    budget = root / "names.json"
    assert names.main([]) == 1
    out, err = capsys.readouterr()
    assert "riddles: 1 of 1" in out
    assert "participles: 0 of 0" in out
    assert "riddles: 1, expected at most 0 (--list)\n" in err
    assert "helpers: 1, expected at most 0 (--list)\n" in err
    budget.write_text(json.dumps({**dict.fromkeys(names.RULES, 0), "riddles": 3, "helpers": 1}))
    assert names.main(["--lower"]) == 0
    assert json.loads(budget.read_text())["riddles"] == 1
