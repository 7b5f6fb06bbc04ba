"""`make pythons` tests the versions that the package claims."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "pythons.py"


@pytest.fixture
def pythons() -> Any:
    spec = importlib.util.spec_from_file_location("pythons", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tried_versions_equal_the_classifiers(pythons: Any) -> None:
    versions = pythons.supported_versions()
    assert versions[0] == "3.11"
    assert "{}.{}".format(*sys.version_info) in versions


def test_a_version_without_interpreter_is_named_and_an_error(
    pythons: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(pythons, "find_interpreter", {"3.11": "/bin/python3.11"}.get)
    monkeypatch.setattr(pythons, "test_on", lambda version, *_: tried.append(version) or True)
    assert pythons.main([]) == 1
    assert "Python 3.12: expected python3.12 on the path, found none" in capsys.readouterr().out
    assert pythons.main(["--installed"]) == 0
    assert tried == ["3.11", "3.11"]
