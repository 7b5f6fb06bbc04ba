"""Names of tests begin with their subject, which `.ci/names.py` counts."""

import json
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


def test_riddles_and_participles_of_tests_are_counted_apart(
    names: ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path_factory.mktemp("checkout")
    for folder in (*names.PACKAGES, names.TESTS):
        (root / folder).mkdir()
    code = "def told():\n    one = 1\n\n\ndef test_what_is_wrong():\n    told()\n"
    (root / "tests" / "test_a.py").write_text(code)
    budget = root / "names.json"
    budget.write_text(json.dumps(dict.fromkeys(names.RULES, 0)))
    monkeypatch.setattr(names, "ROOT", root)
    monkeypatch.setattr(names, "BUDGET", budget)
    assert names.main([]) == 1
    out, err = capsys.readouterr()
    assert "riddles: 1 of 1" in out
    assert "participles: 0 of 0" in out
    assert "riddles: 1, expected at most 0 (--list)\n" in err
    assert "helpers: 1, expected at most 0 (--list)\n" in err
    budget.write_text(json.dumps({**dict.fromkeys(names.RULES, 0), "riddles": 3, "helpers": 1}))
    assert names.main(["--lower"]) == 0
    assert json.loads(budget.read_text())["riddles"] == 1
