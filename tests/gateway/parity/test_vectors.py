"""The vectors themselves: complete, well-formed, and what becomes of a file that is not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.parity.vector_requests import body
from gateway.parity.vectors import CHECKOUT, Vector, load, mint
from schemas.errors import ToolgateError
from tests.vectors import ledger

FILES = sorted(path for path in CHECKOUT.glob("*.json") if path.name != "tokens.json")
SCHEMA = json.loads((CHECKOUT.parent / "vectors.schema.json").read_text())
VECTORS = {vector.id: vector for vector in load(CHECKOUT).vectors}
# The rows of the requirements; a number with several vectors has them as L8-string, L8-number.
ROWS = [
    *(f"L{number}" for number in range(1, 35)),
    *(f"J{number}" for number in range(1, 31)),
    *(f"S{number}" for number in range(1, 22)),
    *(f"G{number}" for number in range(1, 8)),
]
SERVED_BY_STRICT_AND_SPEC = {"J4", "J8", "J10", "J11", "J12", "J13", "J14", "J16", "J17", "J18"}


def write(folder: Path, vector: dict[str, Any], name: str = "some.json") -> Path:
    (folder / name).write_text(json.dumps({"title": "Some", "vectors": [vector]}))
    return folder


SOUND = {"id": "L1", "title": "One", "modes": ["strict"], "given": {"target": "command"},
         "expect": {"status": 200}}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_vectors_matches_its_schema(path: Path) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(json.loads(path.read_text()))


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_requirements_has_a_vector(row: str) -> None:
    assert any(re.fullmatch(rf"{row}(-.*)?", id_) for id_ in VECTORS)


@pytest.mark.parametrize("row", sorted(SERVED_BY_STRICT_AND_SPEC))
def test_where_the_modes_differ_each_has_a_vector(row: str) -> None:
    assert VECTORS[row].modes == ("strict",)
    assert VECTORS[f"{row}-spec"].modes == ("spec",)


@pytest.mark.parametrize("vector", VECTORS.values(), ids=lambda vector: str(vector.id))
def test_no_500_is_expected_but_for_a_handler_that_crashes(vector: Vector) -> None:
    for step in vector.all_steps:
        statuses = step.expect.status
        allowed = statuses if isinstance(statuses, tuple) else (statuses,)
        crashes = "parity/throws" in str(step.given.body) or vector.id == "L32"
        assert crashes or all(status < 500 or status == 503 for status in allowed)


@pytest.mark.parametrize("vector", VECTORS.values(), ids=lambda vector: str(vector.id))
def test_a_vector_for_rpc_is_of_the_mode_that_rpc_has(vector: Vector) -> None:
    targets = {
        target
        for step in vector.all_steps
        for target in ([step.given.target] if isinstance(step.given.target, str)
                       else step.given.target)
    }  # fmt: skip
    assert "rpc" not in targets or "spec" in vector.modes


@pytest.mark.parametrize("vector", VECTORS.values(), ids=lambda vector: str(vector.id))
def test_an_entry_of_the_ledger_is_self_contained(vector: Vector) -> None:
    if vector.ledger is not None:
        for text in (vector.ledger.was, vector.ledger.now, vector.ledger.reason):
            assert not re.search(r"^As [A-Z]\d|\bsee [A-Z]\d", text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_vectors_names_its_required_action(path: Path) -> None:
    assert json.loads(path.read_text())["needs"] == "lightapi.net/parity/echo/0.1.0"


def test_sizes_of_vectors_match_their_titles() -> None:
    def size(id_: str) -> int:
        given = VECTORS[id_].given
        assert given is not None
        return len(body(given) or b"")

    assert size("X12") > 2_000_000
    given = VECTORS["S17"].given
    assert given is not None
    assert len(json.loads(body(given) or b"")) == 10_001


def test_the_keys_beside_the_vectors_sign_the_tokens() -> None:
    tokens = mint(load(CHECKOUT), None)
    assert {"valid", "expired", "reader", "forged", "unsigned"} <= tokens.keys()
    assert all(token.count(".") == 2 for token in tokens.values())


def test_the_ledger_matches_the_vectors() -> None:
    assert ledger.LEDGER.read_text() == ledger.render_ledger(), (
        "run: python -m tests.vectors.ledger"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expect": {"status": 200, "statsu": 1}}, "unknown field `statsu`"),
        ({"modes": ["lenient"]}, "Invalid enum value 'lenient'"),
        ({"modes": []}, "L1: `modes` is empty"),
        (
            {"given": {"target": "query", "body": 1, "text": "1"}},
            "L1: expected at most one of body",
        ),
        ({"expect": {"status": 200, "body": None, "empty": True}}, "L1: expected at most one of"),
        ({"steps": [{"given": {"target": "rpc"}, "expect": {"status": 1}}]}, "L1: expected either"),
        ({"expect": None}, "L1: expected either `given` and `expect`, or `steps`"),
        (
            {"ledger": {"was": "a", "now": "b", "reason": "c", "legacy": []}},
            "L1: `ledger.legacy` has 0 expectations for 1 steps",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolgateError, match=re.escape(said)) as raised:
        load(write(tmp_path, SOUND | change))
    assert "some.json" in str(raised.value)


def test_a_sound_file_is_taken(tmp_path: Path) -> None:
    assert [vector.id for vector in load(write(tmp_path, SOUND)).vectors] == ["L1"]


def test_an_action_that_a_file_needs_has_a_whole_id(tmp_path: Path) -> None:
    file = {"title": "Some", "needs": "lightapi.net/parity", "vectors": [SOUND]}
    (tmp_path / "some.json").write_text(json.dumps(file))
    with pytest.raises(ToolgateError, match=r"some\.json: expected host/service/action/version"):
        load(tmp_path)


def test_an_id_stands_for_one_vector(tmp_path: Path) -> None:
    write(tmp_path, SOUND, "one.json")
    write(tmp_path, SOUND, "two.json")
    with pytest.raises(ToolgateError, match="several vectors have the id L1"):
        load(tmp_path)


def test_a_folder_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolgateError, match="no vectors"):
        load(tmp_path)
    with pytest.raises(ToolgateError, match="there is no such folder"):
        load(tmp_path / "nowhere")


def test_a_missing_key_is_reported_with_its_option(tmp_path: Path) -> None:
    write(tmp_path, SOUND)
    with pytest.raises(ToolgateError, match=r"tokens\.json: No such file.*describes the tokens"):
        mint(load(tmp_path), None)
    (tmp_path / "tokens.json").write_text((CHECKOUT / "tokens.json").read_text())
    with pytest.raises(ToolgateError, match=r"public-test-key\.pem: No such file.*--key FILE"):
        mint(load(tmp_path), None)


def test_a_key_that_is_none_and_a_token_that_nobody_describes_are_told(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text((CHECKOUT / "tokens.json").read_text())
    suite = load(write(tmp_path, SOUND))
    with pytest.raises(ToolgateError, match="expected a private key in PEM"):
        mint(suite, CHECKOUT / "keys" / "jwks.json")
    write(tmp_path, SOUND | {"given": {"target": "rpc", "token": "admin"}})
    with pytest.raises(ToolgateError, match=r"L1: tokens\.json has no token 'admin'"):
        mint(load(tmp_path), None)
