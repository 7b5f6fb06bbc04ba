"""Texts of files that are not trusted, read in processes with limits."""

import resource
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import anyio
import docx
import openpyxl
import pptx
import pytest
from msgspec.structs import replace

from config.load import load
from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.reading.parsers import decode_text, document_text
from gateway.wings.documents.reading.process_pool import ReadingWorkers, Turn, _Died, _Worker
from gateway.wings.documents.reading.reader_messages import FileReading, ReadDocument
from gateway.wings.documents.reading.reader_process import read_document
from gateway.wings.documents.reading.reading_limits import DEFAULT_LIMITS, ReadingRefused
from gateway.wings.knowledge.wing import check_isolation
from tests.polling import until
from tests.wings.documents.test_chunks import assert_covered

pytestmark = pytest.mark.anyio
LIMITS = replace(DEFAULT_LIMITS, parse_s=60.0, cut_s=60.0)


def read(path: str, data: bytes) -> ReadDocument:
    found = read_document(FileReading(path, data))
    assert_covered(found.text, found.chunks)
    return found


def pdf(*pages: str, extra: bytes = b"") -> bytes:
    """A small PDF, with a text on each page."""
    objects = [b"<</Type/Catalog/Pages 2 0 R" + extra + b">>"]
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(pages)))
    objects.append(b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(pages), kids))
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for n, text in enumerate(pages):
        stream = b"BT /F1 12 Tf 40 700 Td (%s) Tj ET" % text.encode()
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>>>>>" % (5 + 2 * n)
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    return pdf_of(objects)


def pdf_of(objects: Sequence[bytes]) -> bytes:
    """A PDF of objects, of which the first one is its catalogue."""
    body, places = b"%PDF-1.4\n", []
    for n, one in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%s endobj\n" % (n, one)
    table = b"".join(b"%010d 00000 n \n" % at for at in places)
    count = len(objects) + 1
    return body + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (count, table, count, len(body))
    )


def save_bytes(document: object) -> bytes:
    file = BytesIO()
    document.save(file)  # type: ignore[attr-defined]
    return file.getvalue()


def word() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Handbook"
    document.add_heading("Install", 2)
    document.add_paragraph("Run the installer.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "port", "80"
    return save_bytes(document)


def slides() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Install"
    slide.placeholders[1].text = "Run the installer."
    return save_bytes(presentation)


def sheet() -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "Ports"
    book.active.append(["name", "port"])
    book.active.append(["web", 80])
    return save_bytes(book)


@pytest.mark.parametrize(
    ("path", "make", "expected"),
    [
        ("a.docx", word, "## Install\n\nRun the installer.\n\n| port | 80 |"),
        ("a.pptx", slides, "## Install\n\nRun the installer."),
        ("a.xlsx", sheet, "## Ports\n\nname | port\nweb | 80"),
    ],
)
def test_office_documents(path: str, make: Callable[[], bytes], expected: str) -> None:
    found = read(path, make())
    assert expected in found.text
    assert found.chunks[0].header in ("Install", "Ports")


def test_pages_of_a_pdf_are_known() -> None:
    task = FileReading(
        "a.pdf", pdf("First. " * 12, "Second. " * 12), ChunkingOptions(40, overlap=0)
    )
    chunks = read_document(task).chunks
    pages = [one.page for one in chunks]
    assert pages == sorted(pages, key=lambda page: page or 0)
    assert set(pages) == {1, 2}


def encrypt_pdf(data: bytes) -> bytes:
    """A PDF that says that it is encrypted, with a password that nobody has."""
    password = b"<" + b"41" * 32 + b">"
    rule = b"<</Filter/Standard/V 1/R 2/P -4/O " + password + b"/U " + password + b">>"
    identity = b"/ID[<41><41>]/Encrypt " + rule
    return data.replace(b"/Root", identity + b"/Root")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pdf(""), "it has no text"),
        (b"%PDF-1.4 nothing", "it is no readable PDF"),
        (encrypt_pdf(pdf("Herons")), "it is encrypted"),
        (pdf(*["x"] * 4), "it has 4 pages, expected at most 3"),
    ],
)
def test_pdfs_that_are_not_read(data: bytes, reason: str) -> None:
    with pytest.raises(ReadingRefused, match=reason):
        document_text("a.pdf", data, replace(LIMITS, pages=3))


def test_a_pdf_of_too_much_text_is_not_read() -> None:
    limits = replace(LIMITS, file_bytes=20)
    with pytest.raises(ReadingRefused, match="larger than 20 bytes"):
        document_text("a.pdf", pdf("Herons nest", "in reeds and trees"), limits)


def office(**members: str) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_xml", ".xml"), text)
    return file.getvalue()


def test_entities_of_office_documents_are_not_resolved() -> None:
    """Neither files nor addresses are read (XXE)."""
    original = word()
    file = BytesIO()
    hostile = (
        '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        "<w:body><w:p><w:r><w:t>a&x;b</w:t></w:r></w:p></w:body></w:document>"
    )
    with ZipFile(BytesIO(original)) as before, ZipFile(file, "w") as after:
        for name in before.namelist():
            changed = name == "word/document.xml"
            after.writestr(name, hostile if changed else before.read(name))
    try:
        text = document_text("a.docx", file.getvalue(), LIMITS).text
    except ReadingRefused:
        return
    assert "root" not in text


def test_an_office_document_of_foreign_parts_is_refused_in_plain_words() -> None:
    file = BytesIO()
    with ZipFile(BytesIO(word())) as archive, ZipFile(file, "w") as foreign:
        for name in archive.namelist():
            types = name == "[Content_Types].xml"
            foreign.writestr(name, "<Types/>" if types else archive.read(name))
    with pytest.raises(ReadingRefused, match="its parts are not those of such a document"):
        document_text("a.docx", file.getvalue(), LIMITS)


def test_an_office_document_that_is_a_bomb_is_not_unpacked() -> None:
    bomb = office(word__document_xml="0" * 20_000_000)
    with pytest.raises(ReadingRefused, match="unpacks to more than is allowed"):
        document_text("a.docx", bomb, LIMITS)


HTML = """<html><head><title>The guide</title><style>p{}</style></head><body>
<nav>Menu</nav><h1>Guide</h1><p>Read <a href="/x">this</a> and
<a href="data:text/html,x">that</a>.</p><p style="display: none">secret</p><p hidden>secret</p>
<h2 id="i">Install</h2><ul><li>one</li><li>two</li></ul><pre>a
  b</pre><script>evil()</script></body></html>"""


def test_html_is_its_visible_text() -> None:
    found = read("a.html", HTML.encode())
    assert found.title == "The guide"
    assert found.text == (
        "# Guide\n\nRead [this](/x) and that.\n\n## Install\n\n- one\n- two\n\n```\na\n  b\n```\n"
    )
    assert [one.header for one in found.chunks] == ["Guide", "Guide > Install"]


def test_html_nested_deeper_than_a_call_stack() -> None:
    found = read("a.html", b"<div>" * 3000 + b"text")
    assert found.text == "text\n"


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        (b"\xef\xbb\xbf", "", "utf-8"),
        ("Größe\r\nx\ry".encode(), "Größe\r\nx\ry", "utf-8"),
        ("\ufeffGröße".encode("utf-16-le"), "Größe", "utf-16-le"),
        (b"\xfe\xff\x00a\xd8", "a\ufffd", "utf-16-be"),
        (b"a\0b", "a\ufffdb", "utf-8"),
    ],
)
def test_encodings(data: bytes, text: str, encoding: str) -> None:
    assert decode_text(data) == (text, encoding)


def test_an_encoding_without_a_mark_is_guessed() -> None:
    text = "Die Größe der Häuser überrascht die Bürger der schönen Stadt Köln." * 5
    assert decode_text(text.encode("latin-1"))[0] == text


def test_generated_files_are_known_by_their_names() -> None:
    found = read("dist/app.min.js", b"a;" * 100_000)
    assert found.note.startswith("it is generated")
    assert found.chunks[0].subjects == ("app.min",)
    assert len(found.text) == 200


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def workers() -> AsyncIterator[ReadingWorkers]:
    found = ReadingWorkers(2, LIMITS)
    yield found
    await found.close()


async def test_files_are_read_in_processes(workers: ReadingWorkers) -> None:
    async with anyio.create_task_group() as tasks:
        for n in range(4):
            tasks.start_soon(workers.read, f"{n}.md", b"# Title\n\ntext")
    found = await workers.read("a.py", b"def f(): pass", ChunkingOptions(size=50))
    assert found.chunks[0].symbol == "f"
    with pytest.raises(ReadingRefused, match="binary"):
        await workers.read("a.bin", b"\0")


async def test_a_file_whose_chunker_does_not_end_is_plain_text() -> None:
    workers = ReadingWorkers(1, replace(LIMITS, cut_s=1.0))
    found = await workers.read("a.html", b"<div>\n" * 100_000)  # a minute, by the rules of HTML
    assert found.note.startswith("it was cut as plain text")
    assert found.media_type == "text/plain"
    await workers.close()


async def test_a_small_text_does_not_wait_for_a_strangers_files(workers: ReadingWorkers) -> None:
    """Two files that take a minute hold both places; another tenant's text is read (mending 5)."""
    stranger, owner = Turn("a", "user:ann"), Turn("b", "user:bo")
    async with anyio.create_task_group() as tasks:
        for n in range(8):
            slow = partial(workers.read, f"{n}.html", b"<div>\n" * 100_000, turn=stranger)
            tasks.start_soon(slow)
        await until(lambda: workers._slots._held[("a",)] == 2)
        with anyio.fail_after(30):
            assert (await workers.read("a.md", b"text", turn=owner)).text == "text"
        assert workers._slots._held[("a",)] == 2, "those of the stranger are read still"
        tasks.cancel_scope.cancel()


async def test_a_parser_that_needs_too_much_memory_fails_alone() -> None:
    workers = ReadingWorkers(1, replace(LIMITS, memory_bytes=600 * 2**20, ratio=10**6))
    bomb = office(word__document_xml="<a>" + " " * 200_000_000)
    with pytest.raises(ReadingRefused, match=r"cannot be read|memory|broken"):
        await workers.read("a.docx", bomb)
    assert (await workers.read("a.md", b"text")).text == "text"
    await workers.close()


async def test_a_process_that_reads_files_writes_none() -> None:
    workers = ReadingWorkers(1, LIMITS)
    await workers.read("a.md", b"text")
    [idle] = workers._idle
    assert resource.prlimit(idle._process.pid, resource.RLIMIT_FSIZE)[0] == 0
    await workers.close()


async def test_a_process_that_reads_files_has_no_network() -> None:
    workers = ReadingWorkers(1, LIMITS)
    if not await workers.is_isolated():
        pytest.skip("this machine allows no network namespaces")
    [idle] = workers._idle
    interfaces = Path(f"/proc/{idle._process.pid}/net/dev").read_text().splitlines()[2:]
    assert [one.partition(":")[0].strip() for one in interfaces] == ["lo"]
    await workers.close()


async def test_the_doctor_says_whether_files_are_read_without_network() -> None:
    [found] = [one async for one in check_isolation(load(None, {}).knowledge, "", None)]
    assert found.status in ("ok", "warning")
    assert "network" in found.detail


async def test_an_answer_longer_than_the_document_allows_ends_its_process() -> None:
    """The process is not trusted after it has read a file: its answers are bounded by that."""
    small = replace(LIMITS, file_bytes=2**16)
    assert small.frame_bytes(10) < small.frame_bytes(2**20) == 2**20 + 2**20
    worker = await _Worker.start(2**30)
    await worker.send(FileReading("a.md", b"# Heading\n\ntext"))
    with pytest.raises(_Died):
        await worker.receive(50)
    await worker.end()


async def test_a_process_that_was_killed_while_idle_is_replaced() -> None:
    workers = ReadingWorkers(1, LIMITS)
    await workers.read("a.md", b"text")
    [idle] = workers._idle
    idle._process.kill()
    await until(lambda: not idle.alive)
    found = await workers.read("a.py", b"def f(): pass")
    assert found.note == ""
    await workers.close()
