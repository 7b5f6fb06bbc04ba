"""The share of the damaged descriptions that every run of the tests does, and the tool itself."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz.documents import check as checking
from tests.fuzz.documents.check import check
from tests.fuzz.documents.excerpts import LIMIT_BYTES, excerpt, gather_excerpts
from tests.fuzz.documents.mutants import encode_mutant, mutant, mutate
from tests.fuzz.documents.run import fuzz, prepare
from tests.fuzz.documents.worker import shrink
from tests.roundtrip.ours import describe_api, swagger

SEED, MUTANTS = 20260728, 400


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="toolgate-mutants-") as name:
        yield Path(name)


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_no_damaged_description_does_harm(directory: Path, anyio_backend: str) -> None:
    prepare(directory, None, SEED)
    outcome = await fuzz(directory, SEED, range(MUTANTS))
    assert not outcome.findings, "\n\n".join(outcome.findings)
    assert outcome.done == MUTANTS
    assert outcome.refused < MUTANTS / 2  # most of them are read, or nothing was tried
    assert outcome.tools > MUTANTS


def test_mutants_are_reproducible() -> None:
    excerpts = gather_excerpts(None, Random(1))
    made = [mutant(*excerpts[n % len(excerpts)], Random(n)) for n in range(60)]
    assert made == [mutant(*excerpts[n % len(excerpts)], Random(n)) for n in range(60)]
    assert made != [mutant(*excerpts[n % len(excerpts)], Random(n + 1)) for n in range(60)]


@pytest.mark.parametrize("whole", [describe_api("3.1"), swagger()], ids=["3.1", "2.0"])
def test_an_excerpt_includes_everything_referenced(whole: dict[str, Any]) -> None:
    for number in range(20):
        part = excerpt(whole, Random(number))
        text = json.dumps(part)
        assert len(text) < LIMIT_BYTES
        for name in ("Pet", "Person"):
            schemas = part.get("definitions") or part.get("components", {}).get("schemas", {})
            assert (f'/{name}"' in text) == (name in schemas)


def test_endless_nesting_is_written_as_text() -> None:
    assert encode_mutant({"a": "@deep:list:3@", "b": "@deep:all:2@"}) == (
        b'{"a": [[[1]]], "b": {"allOf":[{"allOf":[1]}]}}'
    )


def test_every_kind_of_damage_leaves_something_to_write() -> None:
    whole = json.dumps(swagger())
    for number in range(300):
        assert encode_mutant(mutate(json.loads(whole), Random(number)))


def test_a_crash_is_a_finding_that_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_to_read(path: Path) -> Any:
        raise KeyError("x")

    monkeypatch.setattr(checking, "read", fail_to_read)  # there is no crash to be had otherwise
    verdict = check(tmp_path / "x.json", Random(1))
    assert verdict.wrong.startswith("import: KeyError")
    assert verdict.where.startswith("KeyError test_documents.py")


def test_slow_checks_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "CPU_LIMIT_S", 0.0)
    path = tmp_path / "slow.json"
    path.write_bytes(encode_mutant(describe_api("3.0")))
    assert "of processor time" in check(path, Random(1)).wrong


def test_a_description_that_is_refused_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "refused.json"
    path.write_bytes(b"[]")
    assert (check(path, Random(1)).tools, check(path, Random(1)).wrong) == (-1, "")


def test_a_finding_shrinks_while_the_fault_remains() -> None:
    document = {"a": {"b": 1, "c": {"bad": 1, "d": 2}}, "e": [{"f": 1}], "g": 3}
    shrink(document, lambda one: '"bad"' in json.dumps(one), 100)
    assert document == {"a": {"c": {"bad": 1}}}
