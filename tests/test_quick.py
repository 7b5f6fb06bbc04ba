"""`make test-quick` runs the tests near a change, and ends in time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import quick
from tests.quick import ROOT, nearby_tests


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("registry/access/api_keys.py", "tests/registry/access/test_api_keys.py"),
        ("gateway/methods/prompts.py", "tests/gateway/methods/test_prompts.py"),
        ("registry/sources/tool_store.py", "tests/registry/sources/test_tool_store.py"),
        ("tests/schemas/test_globs.py", "tests/schemas/test_globs.py"),
        ("README.md", "tests/documentation/test_links.py"),
    ],
)
def test_tests_of_the_same_name_come_first(path: str, first: str) -> None:
    assert nearby_tests([path])[0] == first


def test_modules_importing_a_file_are_near_the_file() -> None:
    """Completion has no file of its own in the product: it stands in `prompts.py`."""
    assert "tests/gateway/methods/test_completion.py" in nearby_tests(
        ["gateway/methods/prompts.py"]
    )
    assert "tests/wings/memory/test_erasure.py" in nearby_tests(["tests/wings/memory/rig.py"])


def test_a_folder_stands_for_its_files() -> None:
    near = nearby_tests(["registry/access"])
    names = {"approvals", "api_keys", "policies", "revocations", "secrets"}
    assert {f"tests/registry/access/test_{name}.py" for name in names} <= set(near)


def test_a_module_that_no_test_names_has_the_tests_of_its_folder() -> None:
    importers = quick._importers()
    bare = [
        file
        for package in quick.PACKAGES
        for file in quick._files(package)
        if not [rank for rank, _ in quick._tests_of(file, importers) if rank < 4]
    ]
    assert bare, "each module has tests by name"
    for file in bare:
        for _, test in quick._tests_of(file, importers):
            assert list((ROOT / test).rglob("test_*.py")), f"{file}: nothing is in {test}"


def test_a_test_module_that_was_removed_is_not_run() -> None:
    assert nearby_tests(["tests/registry/test_that_was_removed.py"]) == []


def test_all_that_is_chosen_whatever_changed_exists() -> None:
    always = [*quick.SMOKE, *(test for _, tests in quick.KINDS for test in tests)]
    assert [test for test in always if not (ROOT / test).exists()] == []


def test_a_path_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        quick.main(["registry/acces"])
    assert "found 'registry/acces'" in capsys.readouterr().err


def test_files_that_git_does_not_know_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "ROOT", tmp_path)

    def git(*words: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--initial-branch", "main")
    (tmp_path / "old.py").write_text("")
    git("add", "old.py")
    git("commit", "--message", "one")
    git("switch", "--create", "work")
    (tmp_path / "committed.py").write_text("")
    git("add", "committed.py")
    git("commit", "--message", "two")
    (tmp_path / "old.py").write_text("a = 1\n")
    (tmp_path / "new.py").write_text("")
    assert sorted(quick.changed_files()) == ["committed.py", "new.py", "old.py"]
    assert quick.changed_files("nowhere") == ["old.py", "new.py"]


def test_tests_that_cannot_begin_in_time_are_skipped_and_counted() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.quick", "-q", "-n", "0"]
    done = subprocess.run(
        [*command, "tests/schemas/test_globs.py"],
        cwd=ROOT, env={**quick.os.environ, quick.VARIABLE: "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "no time left: `make test` runs all" in done.stdout
    assert " passed" not in done.stdout
