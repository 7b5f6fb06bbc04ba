"""Prose has one sentence a line, so that a diff shows the sentences that changed."""

from types import ModuleType

import pytest

from tests.documentation.pages import program


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    return program("prose")


def test_pages_have_one_sentence_a_line(prose: ModuleType) -> None:
    pages = {path.name: path.read_text() for path in prose.pages()}
    wrapped = [name for name, text in pages.items() if prose.rewrite(text) != text]
    assert wrapped == [], "run .ci/prose.py --write"


def test_a_wrapped_paragraph_is_rewritten(prose: ModuleType) -> None:
    before = "# A title. Kept\n\n- One that\n  is wrapped. `Another.` one (see\n  [x. Y](z.md)).\n"
    after = "# A title. Kept\n\n- One that is wrapped.\n  `Another.` one (see [x. Y](z.md)).\n"
    assert prose.rewrite(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "```text\nA line. Another.\n```\n",
        "    indented code. Kept\n",
        "| a | b |\n|---|---|\n| One. Two. | 3 |\n",
        "Versions of Python, e.g. Python 3.11.\n",
        "**Lead.** With its sentence.\nAnother.\n",
        "A hard break  \nstays. So it does.\n",
    ],
)
def test_other_text_stays(prose: ModuleType, text: str) -> None:
    assert prose.rewrite(text) == text
