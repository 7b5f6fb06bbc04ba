"""Files of sources that are not trusted: directories, archives, git."""

import io
import os
import tarfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
from msgspec.structs import replace

from gateway.wings.documents.reading.archives import archive_files, safe_name
from gateway.wings.documents.reading.reading_limits import (
    DEFAULT_LIMITS,
    ReadingLimits,
    ReadingRefused,
)
from gateway.wings.documents.reading.source_files import (
    Entry,
    LeftOut,
    SourceFile,
    WantedFiles,
    directory,
    select_files,
)

LIMITS = replace(DEFAULT_LIMITS, entries=50, container_bytes=2**20)


def paths(found: Iterator[Entry]) -> list[str]:
    return [one.path for one in found if isinstance(one, SourceFile)]


def left_out(found: Iterator[Entry]) -> dict[str, str]:
    return {one.path: one.reason for one in found if isinstance(one, LeftOut)}


def zip_of(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in members:
            info = ZipInfo("x")
            info.filename, info.external_attr = name, mode << 16
            archive.writestr(info, data, ZIP_DEFLATED)
    return file.getvalue()


def tar_of(*members: tuple[str, bytes], mode: str = "w:gz", kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_files_of_an_archive_are_read(make: Callable[..., bytes]) -> None:
    """Files of an archive are read (L01)."""
    data = make(("a/b.md", b"# B"), ("c.txt", b""))
    found = list(archive_files(data, LIMITS))
    assert [(one.path, one.data) for one in found if isinstance(one, SourceFile)] == [
        ("a/b.md", b"# B"), ("c.txt", b""),
    ]  # fmt: skip
    known = {one.path: one.id for one in found if isinstance(one, SourceFile)}
    again = select_files(archive_files(data, LIMITS), WantedFiles(content_ids=known))
    assert [one.data for one in again if isinstance(one, SourceFile)] == [None, None]


@pytest.mark.parametrize("make", [zip_of, tar_of])
@pytest.mark.parametrize(
    "name", ["../a", "a/../../b", "/etc/passwd", "C:/a", "C:\\a", "\\\\host\\a", "a\nb", "x" * 4096]
)
def test_names_that_lead_elsewhere_are_left_out(make: Callable[..., bytes], name: str) -> None:
    data = make((name, b"x"), ("good.md", b"x"))
    assert paths(archive_files(data, LIMITS)) == ["good.md"]
    assert set(left_out(archive_files(data, LIMITS)).values()) == {"its name is not safe"}


@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_of_equal_names_the_first_counts(make: Callable[..., bytes]) -> None:
    data = make(("a.md", b"1"), ("A.md", b"2"), ("a.md", b"3"))
    assert [one.data for one in archive_files(data, LIMITS) if isinstance(one, SourceFile)] == [
        b"1"
    ]


def test_links_and_devices_are_left_out() -> None:
    assert paths(archive_files(zip_of(("a", b"/etc/passwd"), mode=0o120777), LIMITS)) == []
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        assert paths(archive_files(tar_of(("a", b""), kind=kind), LIMITS)) == []


def overlapping() -> bytes:
    """An archive whose directory names one entry twice."""
    data = bytearray(zip_of(("a", b"x" * 100), ("b", b"y" * 100)))
    second = data.rindex(b"PK\x01\x02")
    first = data.index(b"PK\x01\x02")
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    return bytes(data)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: zip_of(("a", b"0" * 30_000_000)), "may be a zip bomb"),
        (lambda: tar_of(*((f"{n}", b"0" * 900_000) for n in range(41))), "zip bomb"),
        (overlapping, "overlap"),
        (lambda: zip_of(*((str(n), b"") for n in range(60))), "more than 50 entries"),
        (lambda: tar_of(*((str(n), b"") for n in range(60))), "more than 50 entries"),
        (lambda: zip_of(("a", os.urandom(3 * 2**20))), "larger than 1,048,576 bytes"),
        (lambda: zip_of(("a", b"x"))[:30], "broken"),
        (lambda: tar_of(("a", b"x" * 9999))[:60], "broken"),
        (lambda: tar_of(("a", b"x"), ("b", os.urandom(99_999)))[:-50_000], "broken"),
        (lambda: b"no archive", "expected a zip or tar archive"),
    ],
    ids=["zip", "tar", "overlap", "entries", "tar entries", "large", "cut", "cut tar",
         "cut late", "text"],
)  # fmt: skip
def test_archives_that_are_not_read(make: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(ReadingRefused, match=reason):
        next(archive_files(make(), LIMITS))  # before any file of it is stored


def test_a_zip_whose_stated_sizes_are_false_is_not_unpacked() -> None:
    data = bytearray(zip_of(("a", b"0" * 30_000_000)))
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = data.index(mark) + place
        data[at : at + 4] = (10).to_bytes(4, "little")
    found = []
    with pytest.raises(ReadingRefused):  # its checksum cannot be right
        found.extend(archive_files(bytes(data), LIMITS))
    assert found == []


def test_an_archive_in_an_archive_is_a_file() -> None:
    found = list(archive_files(zip_of(("inner.zip", zip_of(("a", b"x")))), LIMITS))
    assert [one.path for one in found] == ["inner.zip"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        ".gitignore": "*.log\n/secret/\n",
        "a.md": "# A", "b.log": "x", "secret/c.md": "x", "node_modules/d.js": "x",
        "docs/.gitignore": "!keep.log\ndraft.md\n",
        "docs/keep.log": "x", "docs/draft.md": "x", "docs/e.md": "x", ".git/config": "x",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_ignored_files_of_a_directory_are_left_out(tree: Path) -> None:
    found = list(directory(tree, WantedFiles()))
    assert paths(iter(found)) == [
        ".gitignore", "a.md", "docs/.gitignore", "docs/e.md", "docs/keep.log",
    ]  # fmt: skip
    assert paths(directory(tree, WantedFiles(filter=("*.md", "!docs/**")))) == ["a.md"]


def test_known_contents_of_a_directory_are_not_handed_over(tree: Path) -> None:
    known = {
        one.path: one.id for one in directory(tree, WantedFiles()) if isinstance(one, SourceFile)
    }
    (tree / "a.md").write_text("# New")
    found = directory(tree, WantedFiles(content_ids=known))
    changed = [one.path for one in found if isinstance(one, SourceFile) and one.data is not None]
    assert changed == ["a.md"]


@pytest.mark.parametrize(
    ("filter_", "path", "selected"),
    [
        (("*.md",), "a/b.md", True),
        (("*.md", "!docs/**"), "docs/b.md", False),
        (("src/",), "src/a/b.py", True),
        (("/a.md",), "b/a.md", False),
        (("a/**/b",), "a/x/y/b", True),
        ((), "a/node_modules/b.js", False),
        ((), "a/.env", False),
        (("*.key",), "tls/server.key", False),
        ((), "a/.env.example", True),
        (("*a" * 100 + "b",), "a" * 1000, False),
    ],
)
def test_filters_are_patterns_of_gitignore(
    filter_: tuple[str, ...], path: str, selected: bool
) -> None:
    """Filters are patterns of gitignore (L01)."""
    assert WantedFiles(filter_).selects(path) is selected


@pytest.mark.parametrize("pattern", ["\udc80", "a" * 300_000])
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(ReadingRefused, match="no pattern"):
        WantedFiles((pattern,)).selects("a")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ReadingLimits(files=2), "more than 2 files"),
        (ReadingLimits(source_bytes=3), "larger than 3 bytes"),
    ],
)
def test_a_directory_that_is_too_large(tree: Path, limits: ReadingLimits, reason: str) -> None:
    with pytest.raises(ReadingRefused, match=reason):
        list(directory(tree, WantedFiles(limits=limits)))
    assert left_out(directory(tree, WantedFiles(limits=ReadingLimits(container_bytes=2)))) != {}


def test_filters_and_paths_are_bounded() -> None:
    with pytest.raises(ReadingRefused, match="at most 20 patterns"):
        WantedFiles(("*.md",) * 21).selects("a.md")
    assert WantedFiles(("*.md",) * 20).selects("a.md")
    assert safe_name("a/" * 63 + "b", LIMITS)
    assert not safe_name("a/" * 64 + "b", LIMITS)
