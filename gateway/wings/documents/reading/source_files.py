"""Files of sources: their path, an id of their content, and their bytes; and those of a directory.

A source is read as an iterator of files and of what is left out. A file whose content id is known
already has no bytes: it has not changed.
"""

import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import re2
from dulwich.ignore import IgnoreFilter, translate
from dulwich.wildmatch import MalformedPattern
from msgspec import Struct
from urllib3.util import parse_url

from gateway.wings.documents.reading.reading_limits import (
    DEFAULT_LIMITS,
    ReadingLimits,
    ReadingRefused,
)

IGNORED_PATHS = (
    *(".git/", ".hg/", ".svn/", "node_modules/", "vendor/", "dist/", "build/", "__pycache__/"),
    *(".venv/", "venv/", ".tox/", ".mypy_cache/", ".pytest_cache/", ".DS_Store", "*.pyc"),
)
SECRET_PATHS = (
    *(".env", ".env.*", "!.env.example", ".netrc", ".pgpass", "id_rsa", "id_ecdsa", "id_ed25519"),
    *("*.pem", "*.key"),
)
_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_AMBIGUOUS = re.compile(r"[\\?#\s\x00-\x1f\x7f]")  # in a URL: parsers differ about them
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 2**20  # of one pattern
_PATTERNS = 20  # of a filter
_GENERATED_FILE = re.compile(
    r"(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|Cargo\.lock"
    r"|go\.sum|composer\.lock|Gemfile\.lock|[^/]+\.min\.(?:js|css)|[^/]+\.map)\Z"
)


_EXPECTED_URL = "expected the URL of a source"
NOTHING: Mapping[str, str] = {}


def source_url(url: str, *schemes: str) -> str:
    """A normalised URL, by which credentials are chosen and to which they are sent. Raises
    ReadingRefused for a URL that servers and parsers may take for another one."""
    if "@" in url:
        raise ReadingRefused("the URL has credentials; they belong into the secret store")
    decoded = unquote(url.replace("%20", "_"))
    segments = decoded.partition("://")[2].removesuffix("/").split("/")
    if _AMBIGUOUS.search(decoded) or not {"", ".", ".."}.isdisjoint(segments):
        raise ReadingRefused(f"{_EXPECTED_URL} without '..', '//' and query")
    try:
        parts = parse_url(url)
    except ValueError as error:
        raise ReadingRefused(_EXPECTED_URL) from error
    if parts.scheme not in schemes or not _HOST.fullmatch(parts.host or ""):
        raise ReadingRefused(f"{_EXPECTED_URL} with {' or '.join(schemes)}")
    return str(parts.url)


def git_url(url: str) -> str:
    """The normalised URL of a repository. Raises ReadingRefused for what is no https URL, or has
    credentials."""
    return source_url(url, "https")


class SourceFile(Struct, frozen=True, tag=True):
    """A file of a source. `data` is None where its content is known."""

    path: str
    id: str  # of its content: a git blob id, an etag, or "sha256:..."
    data: bytes | None

    @classmethod
    def of(cls, path: str, data: bytes, known_ids: Mapping[str, str] = NOTHING) -> "SourceFile":
        """A file with the hash of its bytes as content id."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        return cls(path, digest, None if known_ids.get(path) == digest else data)


class LeftOut(Struct, frozen=True, tag=True):
    """A file that is not read."""

    path: str
    reason: str
    unread: bool = False  # it is wanted and there, so that its older version stays


Entry = SourceFile | LeftOut


class WantedFiles(Struct, frozen=True):
    """Selection of a source's files, and the contents that are known."""

    filter: tuple[str, ...] = ()  # patterns in the syntax of .gitignore; empty: all
    content_ids: dict[str, str] = {}  # ids of contents by path
    state: str = (
        ""  # state of the whole source whose contents are known; nothing follows if it is it
    )
    limits: ReadingLimits = DEFAULT_LIMITS

    def selects(self, path: str) -> bool:
        ignored = matches(IGNORED_PATHS, path) or matches(SECRET_PATHS, path)
        return not ignored and (not self.filter or matches(self.filter, path))


def matches(patterns: Sequence[str], path: str) -> bool:
    """Whether patterns match a path or a directory above it; the last one that does decides."""
    compiled = _compile_patterns(tuple(patterns))
    above = path.split("/")
    candidates = ["/".join(above[:n]) + "/" for n in range(1, len(above))]
    return any(_is_selected(compiled, candidate) for candidate in (*candidates, path))


def _is_selected(patterns: Sequence[tuple[bool, Any]], path: str) -> bool:
    return next(
        (selected for selected, pattern in reversed(patterns) if pattern.match(path)), False
    )


@lru_cache(maxsize=64)
def _compile_patterns(patterns: tuple[str, ...]) -> tuple[tuple[bool, Any], ...]:
    """Patterns, and whether each selects or, with `!`, deselects. RE2 matches in linear time, since
    callers choose them. Raises ReadingRefused."""
    if len(patterns) > _PATTERNS:
        raise ReadingRefused(f"expected at most {_PATTERNS} patterns")
    return tuple(
        (not pattern.startswith("!"), _pattern(pattern.removeprefix("!"))) for pattern in patterns
    )


def _pattern(pattern: str) -> Any:
    try:
        expression = translate(pattern.encode()).decode()
        return re2.compile(expression.removesuffix(r"\Z") + r"\z", _OPTIONS)
    except (MalformedPattern, re2.error, UnicodeError) as error:
        raise ReadingRefused(f"{pattern[:100]!r} is no pattern of .gitignore") from error


def is_generated(path: str, text: str) -> bool:
    """Whether a file was generated or minified, so that its name says more than its text."""
    head = text[:2000]
    lines = text.count("\n") + 1
    minified = len(text) > 5000 and len(text) / lines > 300 and not path.endswith((".md", ".txt"))
    return bool(_GENERATED_FILE.search(path)) or "@generated" in head or minified


def directory(root: Path, selection: WantedFiles) -> Iterator[Entry]:
    """The files of a directory, but for those that .gitignore leaves out. Links are not
    followed."""
    budget_bytes = selection.limits.source_bytes
    for path, file in list_files(root, selection):
        content = read_file(path, file.path, selection)
        if isinstance(content, SourceFile) and content.data is not None:
            budget_bytes -= len(content.data)
            if budget_bytes < 0:
                raise ReadingRefused(
                    f"the files are larger than {selection.limits.source_bytes:,} bytes"
                )
        yield content


def list_files(root: Path, selection: WantedFiles) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The paths of these files, sorted, and the files. Raises ReadingRefused and OSError."""
    count = 0
    for path, file in _walk(root, ()):
        if not selection.selects(path):
            continue
        count += 1
        if count > selection.limits.files:
            raise ReadingRefused(f"the directory has more than {selection.limits.files:,} files")
        yield path, file


_Rules = tuple[tuple[str, IgnoreFilter], ...]  # directories with a .gitignore


def _walk(root: Path, rules: _Rules) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Paths and files below a directory, sorted, without recursion."""
    stack: list[tuple[str, _Rules]] = [("", rules)]
    while stack:
        above, rules = stack.pop()
        with os.scandir(root / above) as entries_:
            entries = sorted(entries_, key=lambda entry: entry.name)
        if any(
            entry.name == ".gitignore" and entry.is_file(follow_symlinks=False) for entry in entries
        ):
            ignore = IgnoreFilter.from_path(root / above / ".gitignore")
            rules = (*rules, (above, ignore))
        below = []
        for entry in entries:
            path = posixpath.join(above, entry.name)
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _is_ignored(rules, path + "/" * is_directory):
                continue
            if is_directory:
                below.append((path, rules))
            elif entry.is_file(follow_symlinks=False):
                yield path, entry
        stack.extend(reversed(below))


def _is_ignored(rules: _Rules, path: str) -> bool:
    """Whether a path is ignored; rules of directories further down come first."""
    for above, ignore in reversed(rules):
        inner = path[len(above) + 1 :] if above else path
        if (verdict := ignore.is_ignored(inner)) is not None:
            return verdict
    return False


def read_file(path: str, file_path: str, selection: WantedFiles) -> Entry:
    """A file of this machine by its path in the source. A link is left out."""
    limit = selection.limits.container_bytes
    try:
        readable = path.encode().decode()
        descriptor = os.open(file_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return LeftOut(path, "it is not a regular file")
            data = file.read(limit + 1)
    except UnicodeEncodeError:
        return LeftOut(path.encode("utf-8", "replace").decode(), "its name is not UTF-8")
    except OSError as error:
        return LeftOut(path, error.strerror or "it cannot be read")
    if len(data) > limit:
        return LeftOut(path, f"it is larger than {limit:,} bytes")
    return SourceFile.of(readable, data, selection.content_ids)


def select_files(files: Iterable[Entry], selection: WantedFiles) -> Iterator[Entry]:
    """The files of an archive that are wanted."""
    for file in files:
        if isinstance(file, LeftOut):
            yield file
        elif selection.selects(file.path):
            is_unchanged = selection.content_ids.get(file.path) == file.id
            yield SourceFile(file.path, file.id, None) if is_unchanged else file
