"""Paths of the files of a skill, which are safe on every system."""

import re
from pathlib import PurePosixPath

from schemas.errors import ImportRejected
from schemas.invisible_characters import without_hidden

SKILL_FILE = "SKILL.md"
PATH_LIMIT = 255  # characters
_UNWRITABLE = re.compile("[\ud800-\udfff]")  # Python's surrogates for names that are not UTF-8
_FORBIDDEN = frozenset('<>:"|?*\\') | {chr(code) for code in range(32)} | {"\x7f"}
# Windows opens a device for these names, with any extension. It also drops dots and blanks at the
# end of a name.
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


def checked_path(path: str, where: str) -> str:
    """The path. Raises ImportRejected for one that could escape the directory, here or on another
    system."""
    parts = PurePosixPath(path).parts
    if (
        not parts
        or len(path) > PATH_LIMIT
        or "/".join(parts) != path
        or _UNWRITABLE.search(path)
        or without_hidden(path) != path
        or any(part in {".", "..", "/"} or _FORBIDDEN & set(part) for part in parts)
        or any(part[-1] in ". " or _DEVICE.fullmatch(part) for part in parts)
        or path.casefold() == SKILL_FILE.casefold()
    ):
        raise ImportRejected(
            f"{where}: {path[:100]!r} is no path for a file of a skill: expected names with / "
            f"between them, at most {PATH_LIMIT} characters."
        )
    return path
