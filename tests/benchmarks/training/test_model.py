"""The files of the bundled model are the ones that its provenance describes."""

import hashlib
import json
from pathlib import Path

import pytest

import registry.embedding

FOLDER = Path(registry.embedding.__file__).with_name("model")
PROVENANCE = json.loads((FOLDER / "provenance.json").read_text())


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_shipped_file_has_its_recorded_checksum(name: str) -> None:
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == PROVENANCE["files"][name]


def test_base_and_data_are_named_with_their_licences() -> None:
    sources = [PROVENANCE["base"], *PROVENANCE["data"]]
    licences = {
        "Apache-2.0", "BSD-3-Clause", "CC BY 3.0", "CC BY 4.0", "CC BY-SA 4.0", "CC0-1.0", "MIT",
        "MIT OR Apache-2.0", "PSF-2.0",
    }  # fmt: skip
    assert {one["licence"] for one in sources} == licences
    trained_on = json.dumps([one["name"] for one in PROVENANCE["data"]])
    never = ("livemcpbench", "locomo", "hotpotqa", "musique", "github", "flask", "cobra", "serde")
    assert not any(name in trained_on for name in never)
    assert "Apache License" in (FOLDER / "LICENSE").read_text()


@pytest.mark.parametrize("than", ["before", "previous"])
def test_all_that_became_worse_is_said(than: str) -> None:
    scores = PROVENANCE["scores"]
    lower = {
        measure: [name for name, score in found.items() if score < scores[than][measure][name]]
        for measure, found in scores["after"].items()
    }
    assert PROVENANCE["worse"][f"than_{than}"] == {
        one: names for one, names in lower.items() if names
    }


def test_held_out_sets_are_not_in_the_training_data() -> None:
    trained_on = {one["name"].removesuffix(".jsonl") for one in PROVENANCE["data"]}
    assert not trained_on & set(PROVENANCE["protocol"]["never_trained_or_tuned_on"])
