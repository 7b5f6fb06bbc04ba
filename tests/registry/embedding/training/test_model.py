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
    assert {one["licence"] for one in sources} == {"Apache-2.0", "MIT"}
    trained_on = json.dumps([one["name"] for one in PROVENANCE["data"]])
    assert not any(name in trained_on for name in ("livemcpbench", "locomo", "hotpotqa", "musique"))
    assert "Apache License" in (FOLDER / "LICENSE").read_text()
