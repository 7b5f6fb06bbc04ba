"""The six commands of Anthropic's memory tool (M38, D.7): their texts, their paths, and the client
helper of Anthropic's SDK as their judge."""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import ValidationError, convert

from gateway.wings.memory.dialects.anthropic_files import (
    FileChanged,
    FileCommand,
    FileError,
    FileTool,
    FileVersion,
)
from tests.properties import examples

pytestmark = pytest.mark.anyio
NOTES = "/memories/notes.md"


class DictFiles:
    """FileStore in memory. Implements `FileStore`."""

    def __init__(self) -> None:
        self.versions: dict[str, FileVersion] = {}

    async def sizes(self) -> Mapping[str, int]:
        return {path: len(one.text.encode()) for path, one in self.versions.items()}

    async def read(self, path: str) -> FileVersion | None:
        return self.versions.get(path)

    async def write(self, path: str, text: str, since: str) -> None:
        present = self.versions.get(path)
        if since != ("" if present is None else present.id):
            raise FileChanged(path)
        self.versions[path] = FileVersion(text, f"{since}+")

    async def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            del self.versions[path]

    async def rename(self, paths: Mapping[str, str]) -> None:
        for old, new in paths.items():
            self.versions[new] = self.versions.pop(old)


def anthropic_helper(directory: str) -> Any:
    """The client helper of Anthropic's SDK. It is not imported at the top, which takes two seconds
    of CPU in each worker."""
    return import_module("anthropic.tools.memory").BetaLocalFilesystemMemoryTool(directory)


@pytest.fixture
def files() -> DictFiles:
    return DictFiles()


@pytest.fixture
def tool(files: DictFiles) -> FileTool:
    return FileTool(files, overwrites=False)


async def run(tool: FileTool, command: str, **members: Any) -> str:
    return await tool.run(convert({"command": command, **members}, FileCommand))


async def failure_of(tool: FileTool, command: str, **members: Any) -> str:
    with pytest.raises(FileError) as error:
        await run(tool, command, **members)
    return str(error.value)


async def test_a_file_is_created_viewed_and_listed(tool: FileTool) -> None:
    made = await run(tool, "create", path=NOTES, file_text="one\ntwo\n")
    assert made == f"File created successfully at: {NOTES}"
    assert await run(tool, "view", path=NOTES) == (
        f"Here's the content of {NOTES} with line numbers:\n     1\tone\n     2\ttwo\n     3\t"
    )
    await run(tool, "create", path="/memories/a/b/c/deep.md", file_text="x" * 1536)
    await run(tool, "create", path="/memories/node_modules/x", file_text="x")
    await run(tool, "create", path="/memories/a.md", file_text="")
    assert await run(tool, "view", path="/memories") == (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items"
        " and node_modules:\n1.5K\t/memories\n1.5K\t/memories/a/\n1.5K\t/memories/a/b/\n"
        "0B\t/memories/a.md\n8B\t/memories/notes.md"
    )
    assert "\n1.5K\t/memories/a/b/c/deep.md" in await run(tool, "view", path="/memories/a/b/")


async def test_dot_files_are_files_that_lists_of_folders_leave_out(tool: FileTool) -> None:
    """As those of the client helper of Anthropic's SDK (mending 39)."""
    with TemporaryDirectory() as folder:
        helper = anthropic_helper(folder)
        paths = ("/memories/.plan", "/memories/.git/config", "/memories/a/..b", "/memories/a/c")
        for path in paths:
            made = await run(tool, "create", path=path, file_text="x\n")
            command = {"command": "create", "path": path, "file_text": "x\n"}
            assert helper.call(command) == made
        for path in paths:
            command = {"command": "view", "path": path}
            assert helper.call(command) == await run(tool, "view", path=path)
        listed = await run(tool, "view", path="/memories")
        theirs = helper.call({"command": "view", "path": "/memories"})
        names = [re.findall(r"\t(.*)", str(text)) for text in (listed, theirs)]
        assert names[0] == names[1] == ["/memories", "/memories/a/", "/memories/a/c"]


async def test_a_range_of_lines_is_viewed(tool: FileTool) -> None:
    await run(tool, "create", path=NOTES, file_text="a\nb\nc")
    head = f"Here's the content of {NOTES} with line numbers:\n"
    assert await run(tool, "view", path=NOTES, view_range=[2, 2]) == head + "     2\tb"
    assert await run(tool, "view", path=NOTES, view_range=[2, -1]) == head + "     2\tb\n     3\tc"
    assert await run(tool, "view", path=NOTES, view_range=[3, 99]) == head + "     3\tc"
    for wrong in ([0, 1], [3, 2], [1], [1, 2, 3], [-1, 2]):
        text = await failure_of(tool, "view", path=NOTES, view_range=wrong)
        assert text.startswith("Error: Invalid `view_range` parameter")


async def test_texts_are_replaced_and_inserted(tool: FileTool) -> None:
    await run(tool, "create", path=NOTES, file_text="1\n2\n3\n4\n5\n6\n")
    assert await run(tool, "str_replace", path=NOTES, old_str="4", new_str="four") == (
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):\n     2\t2\n     3\t3\n     4\tfour\n     5\t5\n     6\t6"
    )
    done = await run(tool, "insert", path=NOTES, insert_line=0, insert_text="zero\n")
    assert done == f"The file {NOTES} has been edited."
    await run(tool, "insert", path=NOTES, insert_line=7, insert_text="seven")
    shown = await run(tool, "view", path=NOTES)
    assert re.findall(r"\t(.*)", shown) == ["zero", "1", "2", "3", "four", "5", "6", "seven", ""]


async def test_errors_have_the_texts_that_models_know(tool: FileTool) -> None:
    await run(tool, "create", path=NOTES, file_text="a\nab\nb")
    none = "The path /memories/x does not exist. Please provide a valid path."
    x = "/memories/x"
    assert await failure_of(tool, "view", path=x) == none
    assert await failure_of(tool, "create", path=NOTES, file_text="") == (
        f"Error: File {NOTES} already exists"
    )
    assert await failure_of(tool, "str_replace", path=x, old_str="a") == f"Error: {none}"
    assert await failure_of(tool, "str_replace", path=NOTES, old_str="z") == (
        f"No replacement was performed, old_str `z` did not appear verbatim in {NOTES}."
    )
    assert await failure_of(tool, "str_replace", path=NOTES, old_str="a", new_str="c") == (
        "No replacement was performed. Multiple occurrences of old_str `a` in lines: 1, 2. Please "
        "ensure it is unique"
    )
    assert (
        await failure_of(tool, "insert", path=x, insert_line=0, insert_text="") == f"Error: {none}"
    )
    for line in (-1, 4):
        assert await failure_of(tool, "insert", path=NOTES, insert_line=line, insert_text="") == (
            f"Error: Invalid `insert_line` parameter: {line}. It should be within the range of "
            "lines of the file: [0, 3]"
        )
    assert await failure_of(tool, "delete", path=x) == f"Error: The path {x} does not exist"
    assert await failure_of(tool, "rename", old_path=x, new_path="/memories/y") == (
        f"Error: The path {x} does not exist"
    )
    await run(tool, "create", path=x, file_text="")
    assert await failure_of(tool, "rename", old_path=x, new_path=NOTES) == (
        f"Error: The destination {NOTES} already exists"
    )
    assert await failure_of(tool, "delete", path="/memories") == (
        "Error: Cannot delete the /memories directory itself"
    )


async def test_folders_are_deleted_and_renamed_whole(tool: FileTool, files: DictFiles) -> None:
    for path in ("/memories/a/1", "/memories/a/b/2", "/memories/ab"):
        await run(tool, "create", path=path, file_text=path)
    done = await run(tool, "rename", old_path="/memories/a", new_path="/memories/c/d/")
    assert done == "Successfully renamed /memories/a to /memories/c/d"
    assert sorted(files.versions) == ["/memories/ab", "/memories/c/d/1", "/memories/c/d/b/2"]
    assert await run(tool, "delete", path="/memories/c") == "Successfully deleted /memories/c"
    assert list(files.versions) == ["/memories/ab"]


async def test_a_file_cannot_contain_files(tool: FileTool) -> None:
    await run(tool, "create", path="/memories/a", file_text="")
    text = await failure_of(tool, "create", path="/memories/a/b", file_text="")
    assert text == "Error: /memories/a is a file, not a directory"
    await run(tool, "create", path="/memories/c/d", file_text="")
    assert "already exists" in await failure_of(tool, "create", path="/memories/c", file_text="")
    assert "Cannot rename" in await failure_of(tool, "rename", old_path="/memories/c",
                                           new_path="/memories/c/e")  # fmt: skip


async def test_create_replaces_a_file_if_the_setting_says_so(files: DictFiles) -> None:
    tool = FileTool(files, overwrites=True)
    for text in ("one", "two"):
        await run(tool, "create", path=NOTES, file_text=text)
    assert files.versions[NOTES] == FileVersion("two", "++")


async def test_a_file_that_changed_meanwhile_is_not_overwritten(files: DictFiles) -> None:
    class Slow(DictFiles):
        async def write(self, path: str, text: str, since: str) -> None:
            await super().write(path, "theirs", since)
            await super().write(path, text, since)

    tool = FileTool(Slow(), overwrites=False)
    assert await failure_of(tool, "create", path=NOTES, file_text="mine") == (
        f"Error: {NOTES} was changed by somebody else meanwhile; view it and try again"
    )


@pytest.mark.parametrize(
    "path",
    ["", "notes.md", "/etc/passwd", "/memoriesX", "/memories/../x", "/memories/./x", "/memories//x",
     "/memories/a/../../x", "/memories/%2e%2e/x", "/memories/..%2fx", "/memories/..",
     "/memories/a\\..\\x", "/memories/a\0b", "/memories/a\nb", "/memories/" + "x" * 512,
     "memories/x", "//memories/x", "/memories/\u202ex"],
)  # fmt: skip
@pytest.mark.parametrize("command", ["view", "create", "delete", "rename"])
async def test_other_paths_are_refused(tool: FileTool, path: str, command: str) -> None:
    members = {"path": path, "file_text": "x"}
    if command == "rename":
        await run(tool, "create", path=NOTES, file_text="")
        members = {"old_path": NOTES, "new_path": path}
    text = await failure_of(tool, command, **members)
    assert text.startswith("Path ")
    assert "\0" not in text


def test_a_command_without_its_parameter_is_refused(tool: FileTool) -> None:
    for command in ("create", "str_replace", "insert"):
        with pytest.raises(FileError, match=f"The command {command} needs the parameter"):
            anyio.run(lambda name=command: run(tool, name, path=NOTES))
    with pytest.raises(ValidationError):
        convert({"command": "format"}, FileCommand)


PATHS = st.sampled_from(["/memories", *(f"/memories/{one}" for one in
    ("a", "a/b", "a/b/c.md", "d.md", "e f.txt", "a.md", "../x", "ä"))])  # fmt: skip
TEXTS = st.sampled_from(["", "x", "x\n", "x\nx", "one\ntwo\n", "\n", "ä\n\nb"])
COMMANDS = st.one_of(
    st.fixed_dictionaries({"command": st.just("view"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": PATHS,
            "old_str": st.sampled_from(["x", "one", "z", "x\n"]),
            "new_str": TEXTS,
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("insert"),
            "path": PATHS,
            "insert_line": st.integers(-1, 4),
            "insert_text": st.sampled_from(["new", "new\n", "two\nlines", ""]),
        }
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(COMMANDS, max_size=12))
def test_the_helper_of_the_sdk_does_the_same(commands: list[dict[str, Any]]) -> None:
    async def both() -> None:
        files = DictFiles()
        tool = FileTool(files, overwrites=False)
        with TemporaryDirectory() as directory:
            judge = anthropic_helper(directory)
            for command in commands:
                ours, theirs = await _ours(tool, command), _theirs(judge, command)
                assert ours == theirs, command
                assert {path: one.text for path, one in files.versions.items()} == _on(directory)

    anyio.run(both)


async def _ours(tool: FileTool, command: dict[str, Any]) -> str:
    try:
        return _comparable(await run(tool, **command))
    except FileError:
        return "failed"


def _theirs(judge: Any, command: dict[str, Any]) -> str:
    _prune(judge.memory_root)
    try:
        return _comparable(str(judge.call(command)))
    except (import_module("anthropic.lib.tools").ToolError, OSError):
        return "failed"
    finally:
        _prune(judge.memory_root)


def _comparable(text: str) -> str:
    """Listings without sizes, which are those of a disk there, and without their heads."""
    if not text.startswith("Here're"):
        return text
    return "\n".join(line.partition("\t")[2] for line in text.splitlines()[1:])


def _prune(root: Path) -> None:
    """Remove empty folders."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _on(directory: str) -> dict[str, str]:
    root = Path(directory)
    files = [path for path in root.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(root)}": path.read_bytes().decode() for path in files}


async def test_of_many_occurrences_the_first_lines_are_named(tool: FileTool) -> None:
    await run(tool, "create", path=NOTES, file_text="a\n" * 30_000)
    text = await failure_of(tool, "str_replace", path=NOTES, old_str="a", new_str="c")
    assert text.endswith("18, 19, 20 and others. Please ensure it is unique")
