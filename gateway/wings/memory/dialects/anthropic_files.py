"""Anthropic's memory tool (`memory_20250818`): six commands on files below /memories.

The texts are part of the contract, since models were trained with them. Deviations from the client
helper of Anthropic's SDK, which keeps files on a disk: a folder is there as long as it has files;
paths are checked as text alone and never percent-decoded; a new line after an inserted text is
kept. Names that begin with a dot are hidden in lists of folders, as there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from schemas.errors import ToolgateError

ROOT = "/memories"
PATH_BYTES = 512
LINES = 999_999
PLACES = 20  # of a text that are named
DEPTH = 2  # levels of a listed folder
CONTEXT = 2  # lines around a change
HIDDEN_FOLDER = "node_modules"


class FileError(ToolgateError):
    """A command cannot be carried out. Its text is for the model."""


class FileChanged(ToolgateError):
    """Somebody else wrote the file since it was read."""


class FileVersion(Struct, frozen=True):
    """A file as it was read."""

    text: str
    id: str  # of its memory


class FileStore(Protocol):
    """The files of one owner, by their paths."""

    async def sizes(self) -> Mapping[str, int]:
        """All paths, with the bytes of their texts."""

    async def read(self, path: str) -> FileVersion | None: ...

    async def write(self, path: str, text: str, since: str) -> None:
        """Write the version after that of the id `since`; "": the file is new. Raises
        FileChanged."""

    async def delete(self, paths: Sequence[str]) -> None: ...

    async def rename(self, paths: Mapping[str, str]) -> None:
        """New paths by old ones. Raises FileChanged where a new one is taken."""


class FileCommand(Struct, frozen=True, forbid_unknown_fields=True):
    """The argument of the tool: the members that a command has depend on it."""

    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"]
    path: str = ""
    view_range: Annotated[
        list[int] | None, Meta(description="first and last line to view; -1: to the end")
    ] = None
    file_text: str | None = None
    old_str: str | None = None
    new_str: str = ""
    insert_line: Annotated[
        int | None, Meta(description="the line after which the text is inserted; 0: before all")
    ] = None
    insert_text: str | None = None
    old_path: str = ""
    new_path: str = ""


class FileTool:
    """The tool over the files of one owner."""

    def __init__(self, files: FileStore, *, overwrites: bool) -> None:
        """`overwrites`: `create` replaces a file that is there, as older documentation has it."""
        self._files = files
        self._overwrites = overwrites

    async def run(self, command: FileCommand) -> str:
        """The text of the answer. Raises FileError."""
        try:
            return await getattr(self, command.command)(command)  # type: ignore[no-any-return]
        except FileChanged as error:
            path = command.path or command.new_path
            raise FileError(
                f"Error: {path} was changed by somebody else meanwhile; view it and try again"
            ) from error

    async def view(self, command: FileCommand) -> str:
        path = check_path(command.path)
        if (file := await self._files.read(path)) is not None:
            return _number_lines(path, file.text, command.view_range)
        below = _below(path, await self._files.sizes())
        if not below and path != ROOT:
            raise FileError(f"The path {path} does not exist. Please provide a valid path.")
        return _list_folder(path, below)

    async def create(self, command: FileCommand) -> str:
        path, text = check_path(command.path), _require(command.file_text, "file_text", "create")
        text_found, sizes = await self._files.read(path), await self._files.sizes()
        if path == ROOT or _below(path, sizes) or (text_found is not None and not self._overwrites):
            raise FileError(f"Error: File {path} already exists")
        _check_parents(path, sizes)
        await self._files.write(path, text, "" if text_found is None else text_found.id)
        return f"File created successfully at: {path}"

    async def str_replace(self, command: FileCommand) -> str:
        path, old = check_path(command.path), _require(command.old_str, "old_str", "str_replace")
        file = await self._file(path)
        if (count := file.text.count(old) if old else 0) != 1:
            raise FileError(_not_replaced(file.text, old, path, count))
        text = file.text.replace(old, command.new_str)
        await self._files.write(path, text, file.id)
        changed = file.text.partition(old)[0].count("\n")
        lines = text.split("\n")
        begin = max(0, changed - CONTEXT)
        numbered = _with_numbers(lines[begin : changed + CONTEXT + 1], begin + 1)
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line "
            f"numbers):\n{numbered}"
        )

    async def insert(self, command: FileCommand) -> str:
        path, text = (
            check_path(command.path),
            _require(command.insert_text, "insert_text", "insert"),
        )
        file = await self._file(path)
        lines = file.text.removesuffix("\n").split("\n") if file.text else []
        at = command.insert_line
        if at is None or not 0 <= at <= len(lines):
            raise FileError(
                f"Error: Invalid `insert_line` parameter: {at}. It should be within the range of "
                f"lines of the file: [0, {len(lines)}]"
            )
        lines.insert(at, text.removesuffix("\n"))
        changed = "\n".join(lines)
        ended = changed if changed.endswith("\n") else f"{changed}\n"
        await self._files.write(path, ended, file.id)
        return f"The file {path} has been edited."

    async def delete(self, command: FileCommand) -> str:
        path = check_path(command.path)
        if path == ROOT:
            raise FileError(f"Error: Cannot delete the {ROOT} directory itself")
        await self._files.delete([*await self._all(path)])
        return f"Successfully deleted {path}"

    async def rename(self, command: FileCommand) -> str:
        old, new = check_path(command.old_path), check_path(command.new_path)
        if ROOT in (old, new) or f"{new}/".startswith(f"{old}/"):
            raise FileError(f"Error: Cannot rename {old} to {new}")
        moved = await self._all(old)
        sizes = await self._files.sizes()
        if new in sizes or _below(new, sizes):
            raise FileError(f"Error: The destination {new} already exists")
        _check_parents(new, sizes)
        await self._files.rename({path: check_path(new + path[len(old) :]) for path in moved})
        return f"Successfully renamed {old} to {new}"

    async def _file(self, path: str) -> FileVersion:
        if (file := await self._files.read(path)) is None:
            raise FileError(f"Error: The path {path} does not exist. Please provide a valid path.")
        return file

    async def _all(self, path: str) -> list[str]:
        """The file, or the files of the folder."""
        sizes = await self._files.sizes()
        paths = [path] if path in sizes else [*_below(path, sizes)]
        if not paths:
            raise FileError(f"Error: The path {path} does not exist")
        return paths


def check_path(path: str) -> str:
    """The path without a slash at its end. Raises FileError."""
    if not path.startswith(ROOT):
        raise FileError(f"Path must start with {ROOT}, got: {path[:PATH_BYTES]}")
    parts = path[len(ROOT) :].removesuffix("/").split("/")
    names = parts[1:]
    if parts[0] or any(name in ("", ".", "..") for name in names):
        raise FileError(f"Path {path[:PATH_BYTES]} would escape {ROOT} directory")
    if "\\" in path or "%" in path or not path.isprintable() or len(path.encode()) > PATH_BYTES:
        raise FileError(
            f"Path {path[:80]!r} is invalid: expected at most {PATH_BYTES} bytes without %, \\ and "
            "control characters"
        )
    return "/".join([ROOT, *names])


def _below(path: str, sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name.startswith(f"{path}/")}


def _check_parents(path: str, sizes: Mapping[str, int]) -> None:
    """A file has no files below it."""
    parts = path.split("/")
    for end in range(3, len(parts)):
        if (parent := "/".join(parts[:end])) in sizes:
            raise FileError(f"Error: {parent} is a file, not a directory")


def _list_folder(path: str, below: Mapping[str, int]) -> str:
    """The folder with what is at most two levels below it; sizes of folders are those of all their
    files."""
    sizes: dict[str, int] = {}
    for name, size in below.items():
        parts = name[len(path) + 1 :].split("/")
        if HIDDEN_FOLDER not in parts and not any(part.startswith(".") for part in parts):
            for depth in range(1, min(len(parts), DEPTH) + 1):
                folder = "/".join(parts[:depth]) + "/" * (depth < len(parts))
                sizes[folder] = sizes.get(folder, 0) + size
    rows = [f"{_size(sum(below.values()))}\t{path}"]
    rows += [f"{_size(sizes[name])}\t{path}/{name}" for name in sorted(sizes, key=_parts)]
    head = (
        f"Here're the files and directories up to {DEPTH} levels deep in {path}, excluding hidden"
    )
    return "\n".join([f"{head} items and {HIDDEN_FOLDER}:", *rows])


def _parts(path: str) -> list[str]:
    return path.removesuffix("/").split("/")


def _size(count: int) -> str:
    unit = min(2, max(0, count.bit_length() - 1) // 10)
    size = count / 1024**unit
    return f"{size:g}{'BKM'[unit]}" if size == int(size) else f"{size:.1f}{'BKM'[unit]}"


def _number_lines(path: str, text: str, line_range: Sequence[int] | None) -> str:
    lines = text.split("\n")
    if len(lines) > LINES:
        raise FileError(f"File {path} exceeds maximum line limit of {LINES:,} lines.")
    begin, end = 1, len(lines)
    if line_range:
        begin, end = line_range if len(line_range) == 2 else (0, 0)
        end = len(lines) if end == -1 else end
        if not 1 <= begin <= end:
            raise FileError(
                f"Error: Invalid `view_range` parameter: {list(line_range)}. It should be two "
                f"lines of the file, [1, {len(lines)}] at most; -1 stands for the last"
            )
    numbered = _with_numbers(lines[begin - 1 : end], begin)
    return f"Here's the content of {path} with line numbers:\n{numbered}"


def _with_numbers(lines: Iterable[str], first: int) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))


def _not_replaced(text: str, old: str, path: str, count: int) -> str:
    if count == 0:
        return f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
    lines: list[str] = []
    at, line, counted = text.find(old), 1, 0
    while at != -1 and len(lines) < PLACES:
        line, counted = line + text.count("\n", counted, at), at
        lines.append(str(line))
        at = text.find(old, at + 1)
    more = "" if at == -1 else " and others"
    return (
        f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
        f"{', '.join(lines)}{more}. Please ensure it is unique"
    )


def _require(value: str | None, name: str, command: str) -> str:
    if value is None:
        raise FileError(f"Error: The command {command} needs the parameter `{name}`")
    return value
