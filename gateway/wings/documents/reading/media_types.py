"""Media type of a file: by its extension, by its first bytes, then by what its text looks like.
Pure."""

import posixpath
import re
import zipfile
from collections.abc import Mapping
from io import BytesIO

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ZIP = "application/zip"
HTML = "text/html"
TEXT = "text/plain"
BINARY = "application/octet-stream"
_LOOKED_AT = 8192  # bytes
_ENTRY = b"PK\x01\x02"  # magic number of an entry in the directory of a zip archive
_ENTRIES = 10_000

EXTENSIONS: Mapping[str, str] = {
    extension: media_type
    for media_type, extensions in {
        "text/markdown": "md markdown mdown mdx",
        "text/x-rst": "rst rest",
        TEXT: "txt text log adoc org tex",
        HTML: "html htm xhtml",
        "application/json": "json jsonl ndjson geojson ipynb",
        "application/yaml": "yaml yml",
        "application/xml": "xml xsd xsl svg rss atom",
        "application/toml": "toml ini cfg conf properties",
        "text/csv": "csv",
        "text/tab-separated-values": "tsv",
        PDF: "pdf",
        DOCX: "docx docm",
        PPTX: "pptx pptm",
        XLSX: "xlsx xlsm",
        "text/x-python": "py pyi pyw",
        "text/javascript": "js mjs cjs jsx",
        "text/x-typescript": "ts mts cts",
        "text/x-tsx": "tsx",
        "text/x-go": "go",
        "text/x-rust": "rs",
        "text/x-java": "java",
        "text/x-c": "c h",
        "text/x-c++": "cc cpp cxx hh hpp hxx ino",
    }.items()
    for extension in extensions.split()
}
_OFFICE = {"word/document.xml": DOCX, "ppt/presentation.xml": PPTX, "xl/workbook.xml": XLSX}
PARSED_TYPES = frozenset([PDF, DOCX, PPTX, XLSX])  # by libraries of their own
_MAGIC = {b"%PDF-": PDF, b"PK\x03\x04": ZIP, b"PK\x05\x06": ZIP}
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16 and UTF-32
_GUESSES = (
    (HTML, re.compile(r"\s*(?:<!doctype html|<html[\s>])", re.IGNORECASE)),
    ("application/xml", re.compile(r"\s*<(?:\?xml|[A-Za-z][\w:.-]*[\s>/])")),
    ("application/json", re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\[{\"\d\]])")),
    ("text/markdown", re.compile(r"(?:.*\n){0,40}?(?:#{1,6} \S|```|[*-] \[.\] |\[.+\]\(.+\))")),
    ("application/yaml", re.compile(r"(?:#.*\n)*---\s|(?:[\w.-]+:(?: .*)?\n(?:[ -].*\n)*){3}")),
)


def media_type(path: str, data: bytes) -> str:
    """The media type of a file; `BINARY`: it has no text that is read. What a name promises counts
    only where the bytes do not say otherwise."""
    named = EXTENSIONS.get(posixpath.splitext(path)[1][1:].lower(), "")
    magic = next((type_name for mark, type_name in _MAGIC.items() if data.startswith(mark)), "")
    if magic:
        return _zip_type(data) if magic == ZIP else magic
    if (b"\0" in data[:_LOOKED_AT] and not data.startswith(_WIDE)) or named in PARSED_TYPES:
        return BINARY
    return named or _guess_type(data[:_LOOKED_AT].decode("utf-8", "replace").lstrip("\ufeff"))


def _zip_type(data: bytes) -> str:
    """The type of a zip archive: a document of an office suite, or an archive."""
    if data.count(_ENTRY) > _ENTRIES:  # it takes long to list, and is no document
        return ZIP
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return BINARY
    return next((type_name for name, type_name in _OFFICE.items() if name in names), ZIP)


def _guess_type(text: str) -> str:
    return next((type_name for type_name, pattern in _GUESSES if pattern.match(text)), TEXT)
