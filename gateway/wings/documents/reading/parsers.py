"""The text of documents: encodings, PDF, office documents, HTML. Pure, and run in processes of
their own, since the bytes are not trusted.

What has headings and tables becomes Markdown, so that one chunker knows them. A library is loaded
with the first document of its kind: those of office documents take 0.3 s and 50 MB together.
"""

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import charset_normalizer
from lxml.etree import LxmlError
from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from gateway.wings.documents.reading import media_types
from gateway.wings.documents.reading.archives import checked_zip
from gateway.wings.documents.reading.reading_limits import ReadingLimits, ReadingRefused

if TYPE_CHECKING:
    import openpyxl
    import pptx
    import pypdfium2
    from docx.document import Document

MARKDOWN = "text/markdown"
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe\0\0": "utf-32-le", b"\0\0\xfe\xff": "utf-32-be",
          b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # fmt: skip
_SAMPLE = 64 * 1024  # bytes from which an encoding is guessed
_ROWS = 100_000  # of a sheet
_CELLS = 256  # of a row
_ERRORS = (zipfile.BadZipFile, LxmlError, KeyError, ValueError, IndexError, OSError)
_HIDDEN = "script,style,template,noscript,svg,iframe,object,nav,aside,form,footer,[hidden]"
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "p div section article main header ul ol table tr blockquote pre dl dt dd figure figcaption"
        " hr br address details",
    )
)
_LINKS = ("http://", "https://", "mailto:", "/", "./", "../")


class DocumentText(Struct, frozen=True):
    """The text of a document, and how it is to be cut."""

    text: str
    media_type: str
    title: str = ""
    encoding: str = "utf-8"
    pages: tuple[int, ...] = ()  # where each page begins, characters


def document_text(path: str, data: bytes, limits: ReadingLimits) -> DocumentText:
    """The text of a file. Raises ReadingRefused with the reason why there is none."""
    media_type = media_types.media_type(path, data)
    if media_type == media_types.BINARY:
        raise ReadingRefused("it is binary, or not what its name says")
    if media_type == media_types.ZIP:
        raise ReadingRefused("it is an archive in a source; add it as a source of its own")
    parser = _PARSERS.get(media_type)
    limit = limits.container_bytes if parser else limits.file_bytes
    if len(data) > limit:
        raise ReadingRefused(f"it is larger than {limit:,} bytes")
    if parser is not None:
        return parser(data, limits)
    text, encoding = decode_text(data)
    if media_type == media_types.HTML:
        return html_text(text, encoding)
    return DocumentText(text, media_type, encoding=encoding)


def decode_text(data: bytes) -> tuple[str, str]:
    """A text and its encoding: by its byte order mark, UTF-8, or a guess. What cannot be decoded or
    stored, as NUL, becomes U+FFFD; line ends stay."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    if mark:
        encoding = _MARKS[mark]
        return _storable(data[len(mark) :].decode(encoding, "replace")), encoding
    try:
        return _storable(data.decode()), "utf-8"
    except UnicodeDecodeError:
        best = charset_normalizer.from_bytes(data[:_SAMPLE]).best()
        encoding = best.encoding if best is not None else "cp1252"
    return _storable(data.decode(encoding, "replace")), encoding


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _pdf(data: bytes, limits: ReadingLimits) -> DocumentText:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        reason = "it is encrypted" if locked else "it is no readable PDF"
        raise ReadingRefused(reason) from error
    count = len(document)
    if count > limits.pages:
        raise ReadingRefused(f"it has {count:,} pages, expected at most {limits.pages:,}")
    pages, size = [], 0
    for at in range(count):
        pages.append(_page(document[at]))
        size += len(pages[-1])
        if size > limits.file_bytes:
            raise ReadingRefused(f"its text is larger than {limits.file_bytes:,} bytes")
    if not any(map(str.strip, pages)):
        raise ReadingRefused("it has no text: its pages may be scanned images")
    starts, text = [], ""
    for page in pages:
        starts.append(len(text))
        text += page.strip() + "\n\n"
    title = document.get_metadata_dict().get("Title", "")
    return DocumentText(text, media_types.TEXT, title.strip()[:256], "utf-8", tuple(starts))


def _page(page: "pypdfium2.PdfPage") -> str:
    textpage = page.get_textpage()
    text = _storable(textpage.get_text_bounded()).replace("\r\n", "\n")
    textpage.close()
    page.close()
    return text


def _office(read_office: Callable[[bytes], tuple[str, Iterable[str]]]) -> "_Parser":
    """A parser of an office document, of its title and the lines of its text."""

    def parse(data: bytes, limits: ReadingLimits) -> DocumentText:
        try:
            checked_zip(data, limits).close()
            title, lines = read_office(data)
            text, size = [], 0
            for line in lines:
                size += len(line) + 1
                if size > limits.file_bytes:
                    raise ReadingRefused(f"its text is larger than {limits.file_bytes:,} bytes")
                text.append(line)
        except AttributeError as error:
            raise ReadingRefused("its parts are not those of such a document") from error
        except _ERRORS as error:
            raise ReadingRefused(f"it is broken: {str(error)[:200]}") from error
        return DocumentText(_storable("\n".join(text)), MARKDOWN, title.strip()[:256])

    return parse


def _docx(data: bytes) -> tuple[str, Iterable[str]]:
    import docx

    document = docx.Document(io.BytesIO(data))
    return document.core_properties.title or "", _docx_lines(document)


def _docx_lines(document: "Document") -> Iterator[str]:
    from docx.table import Table

    for block in document.iter_inner_content():
        if isinstance(block, Table):
            yield from ("| " + " | ".join(_cells(row.cells)) + " |" for row in block.rows)
            yield ""
            continue
        style = (block.style.name or "") if block.style is not None else ""
        level = (
            1 if style == "Title" else int(style[-1]) if re.match(r"Heading [1-6]\Z", style) else 0
        )
        yield ("#" * level + " " + block.text) if level and block.text.strip() else block.text
        yield ""


def _cells(cells: Iterable[object]) -> Iterator[str]:
    return (" ".join(str(getattr(cell, "text", cell)).split()) for cell in cells)


def _pptx(data: bytes) -> tuple[str, Iterable[str]]:
    import pptx

    presentation = pptx.Presentation(io.BytesIO(data))
    return presentation.core_properties.title or "", _pptx_lines(presentation)


def _pptx_lines(presentation: "pptx.presentation.Presentation") -> Iterator[str]:
    for number, slide in enumerate(presentation.slides, 1):
        title = slide.shapes.title
        heading = " ".join(title.text_frame.text.split()) if title is not None else ""
        yield f"## {heading or f'Slide {number}'}\n"
        for shape in slide.shapes:
            if shape.has_text_frame and shape != title:
                yield shape.text_frame.text + "\n"
            elif shape.has_table:
                yield from ("| " + " | ".join(_cells(row.cells)) + " |" for row in shape.table.rows)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            yield slide.notes_slide.notes_text_frame.text + "\n"


def _xlsx(data: bytes) -> tuple[str, Iterable[str]]:
    import openpyxl

    book = openpyxl.load_workbook(
        io.BytesIO(data), read_only=True, data_only=True, keep_links=False
    )
    return book.properties.title or "", _xlsx_lines(book)


def _xlsx_lines(book: "openpyxl.Workbook") -> Iterator[str]:
    for sheet in book.worksheets:
        yield f"## {sheet.title}\n"
        for row in sheet.iter_rows(max_row=_ROWS, max_col=_CELLS, values_only=True):
            cells = [" ".join(str(cell).split()) for cell in row if cell is not None]
            if cells:
                yield " | ".join(cells)
        yield ""


def html_text(html: str, encoding: str = "utf-8") -> DocumentText:
    """The visible text of HTML as Markdown: headings, links, lists, code."""
    tree = LexborHTMLParser(html)
    for node in tree.css(_HIDDEN):
        node.decompose()
    title = tree.css_first("title")
    root = tree.body or tree.root
    raw_text = "" if root is None else "".join(_html(root))
    text = re.sub(r"[ \t]*\n(?:[ \t]*\n)+", "\n\n", raw_text).strip() + "\n"
    name = "" if title is None else " ".join(title.text().split())[:256]
    return DocumentText(_storable(text), MARKDOWN, _storable(name), encoding)


def _html(root: LexborNode) -> Iterator[str]:
    """Pieces of Markdown, by a walk without recursion; strings are what closes an element."""
    stack: list[LexborNode | str] = [root]
    code = 0  # depth of elements of preformatted text
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            code -= node == _FENCE
            yield node
            continue
        if node.tag == "-text":
            text = node.text_content or ""
            yield text if code else re.sub(r"\s+", " ", text)
            continue
        if _INVISIBLE.search((node.attributes or {}).get("style") or ""):
            continue
        opens, closes = _around(node)
        code += closes == _FENCE
        yield opens
        stack.append(closes)
        stack.extend(reversed(list(node.iter(include_text=True))))


_FENCE = "\n```\n\n"


def _around(node: LexborNode) -> tuple[str, str]:
    tag = node.tag or ""
    if re.fullmatch("h[1-6]", tag):
        return f"\n\n{'#' * int(tag[1])} ", "\n\n"
    if tag == "pre":
        return "\n\n```\n", _FENCE
    if tag == "li":
        return "\n- ", ""
    if tag in ("td", "th"):
        return "", " | "
    target = (node.attributes or {}).get("href") or ""
    if tag == "a" and target.startswith(_LINKS) and not re.search(r"[\s()]", target):
        return "[", f"]({target[:400]})"
    return ("\n\n", "\n\n") if tag in _BLOCKS else ("", "")


_Parser = Callable[[bytes, ReadingLimits], DocumentText]
_PARSERS: Mapping[str, _Parser] = {
    media_types.PDF: _pdf,
    media_types.DOCX: _office(_docx),
    media_types.PPTX: _office(_pptx),
    media_types.XLSX: _office(_xlsx),
}
