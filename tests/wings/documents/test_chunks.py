"""Chunks of texts: what is covered, where they are cut, what they are about."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions
from gateway.wings.documents.chunking.chunks_by_kind import CHUNKERS, cut
from gateway.wings.documents.chunking.prose_chunks import markdown_headings
from gateway.wings.documents.chunking.text_splitting import size
from tests.properties import examples
from tests.wings.documents.gaps import gaps

GUIDE = """\
# Guide

Welcome.

## Install

Run `pip install toolgate`.

### Linux

Use the package of Debian.

### Windows

Not supported.

## Use

See [the tools](../tools.md#list).
"""


def texts(text: str, chunks: tuple[Chunk, ...]) -> list[str]:
    data = text.encode()
    return [data[one.start : one.end].decode() for one in chunks]


def assert_covered(text: str, chunks: tuple[Chunk, ...]) -> None:
    """Chunks and gaps are the text, gaps are blank, and lines are those of the spans."""
    data = text.encode()
    for start, end in gaps(chunks, len(data)):
        assert not data[start:end].decode().strip()
    for one in chunks:
        before = data[: one.start].decode()
        within = data[one.start : one.end].decode()
        assert one.start_line == _line(before)
        assert one.end_line == _line(before + within[:-1])
        for mention in one.mentions:
            assert one.start <= mention.start < mention.end <= one.end


def _line(before: str) -> int:
    normal = before.replace("\r\n", "\n").replace("\r", "\n")
    return normal.count("\n") + 1


MARKUP = st.sampled_from(
    [
        "# A\n",
        "## B c\n",
        "Title\n=====\n",
        "```\n",
        "\r\n",
        "\r",
        "\n\n",
        "  ",
        "Ünï Cöde. ",
        "語。",
    ]
)


@pytest.mark.parametrize("media_type", list(CHUNKERS))
@given(parts=st.lists(MARKUP | st.text(max_size=30), max_size=20), limit=st.integers(1, 60))
@settings(max_examples=examples(60), deadline=None)
def test_chunks_and_gaps_make_up_the_text(media_type: str, parts: list[str], limit: int) -> None:
    """Chunks and gaps make up the text (L06)."""
    text = "".join(parts).encode("utf-8", "replace").decode()
    chunking = ChunkingOptions(size=limit, overlap=limit // 4)
    assert_covered(text, cut(text, media_type=media_type, chunking=chunking))


def test_headings_to_the_set_level_begin_chunks() -> None:
    """Headings to the set level begin chunks (L04)."""
    chunks = cut(GUIDE, media_type="text/markdown", path="docs/guide.md")
    assert [one.header for one in chunks] == ["Guide", "Guide > Install", "Guide > Use"]
    assert [(one.start_line, one.end_line) for one in chunks] == [(1, 3), (5, 15), (17, 19)]
    assert chunks[0].subjects == ("guide", "Guide")
    assert chunks[1].subjects == ("Install", "Linux", "Windows")
    assert [one.parent for one in chunks] == [None, 0, 0]
    assert [one.name for one in chunks[2].mentions if one.role == "link"] == ["tools"]


def test_lower_headings_begin_chunks_once_a_chunk_is_full() -> None:
    chunks = cut(GUIDE, media_type="text/markdown", chunking=ChunkingOptions(size=50))
    assert [one.header for one in chunks] == [
        "Guide", "Guide > Install", "Guide > Install > Linux", "Guide > Install > Windows",
        "Guide > Use",
    ]  # fmt: skip
    assert chunks[2].parent == 1


def test_headings_are_never_alone() -> None:
    text = "# Top\n\n## Middle\n\n### Low\n\nText.\n\n## Next\n\nMore.\n"
    chunks = cut(text, media_type="text/markdown")
    assert texts(text, chunks) == ["# Top\n\n## Middle\n\n### Low\n\nText.", "## Next\n\nMore."]
    assert chunks[0].header == "Top > Middle > Low"


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("text/markdown", "One\n===\n\ntext\n\nTwo\n---\n\ntext\n"),
        ("text/x-rst", "===\nOne\n===\n\ntext\n\nTwo\n---\n\ntext\n"),
    ],
)
def test_underlined_headings(media_type: str, text: str) -> None:
    assert [one.header for one in cut(text, media_type=media_type)] == ["One", "One > Two"]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Heron ##  ", "Heron"),
        ("# Heron#", "Heron#"),
        ("#\tHeron # #", "Heron #"),
        ("## ##", ""),
        ("#", ""),
        pytest.param("# a" + " " * 2_000_000 + "b", "a b", id="blanks"),
        pytest.param("# a" + " #" * 1_000_000 + "b", ("a" + " #" * 100)[:200], id="signs"),
    ],
)
def test_titles_of_headings(line: str, title: str) -> None:
    assert [one.title for one in markdown_headings(line)] == [title]


def test_fenced_code_has_no_headings_and_stays_whole_within_the_limit() -> None:
    fence = "```sh\n# not a heading\n\nmake\n```"
    text = f"# A\n\n{'word ' * 20}\n\n{fence}\n\n{'word ' * 20}\n"
    chunks = cut(text, media_type="text/markdown", chunking=ChunkingOptions(size=90, overlap=0))
    assert {one.header for one in chunks} == {"A"}
    assert any(fence in one for one in texts(text, chunks))


def test_long_text_is_cut_between_sentences_and_overlaps() -> None:
    text = " ".join(f"Sentence number {n} ends here." for n in range(200))
    chunks = cut(text, chunking=ChunkingOptions(size=500, overlap=100))
    for before, after in zip(texts(text, chunks), texts(text, chunks)[1:], strict=False):
        assert after.startswith("Sentence")
        assert before.endswith("here.")
        assert after.split(" ends")[0] in before
    assert all(size(text, one.start, one.end) <= 600 for one in chunks)


def test_a_line_without_words_is_cut_all_the_same() -> None:
    chunks = cut("x" * 100_000, chunking=ChunkingOptions(overlap=0))
    assert [one.end - one.start for one in chunks] == [2000] * 50
