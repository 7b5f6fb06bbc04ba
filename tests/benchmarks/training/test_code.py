import pytest

from benchmarks.training.code import code_pairs, documented
from benchmarks.training.sets import BadTrainingSet

GO = """package shop

// Cancel ends the order and gives its money back. It can not be undone.
func (o *Order) Cancel(reason string) error {
	return o.end(reason)
}

// Other text that belongs to nothing.

func plain() {}
"""
RUST = """pub struct Stack;

impl Stack {
    /// Removes the value that was put on top last, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<u8> {
        self.values.pop()
    }
}
"""
PYTHON = '''class Shelf:
    """A place where several books stand in order."""

    def add(self, book):
        """Put a book where the alphabet wants it to be.

        More text.
        """
        self.books.insert(0, book)

    def short(self):
        """Too short."""
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tests").mkdir()
    for name, text in {"order.go": GO, "stack.rs": RUST, "shelf.py": PYTHON}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / "tests" / name).write_text(text)
    (tmp_path / "broken.py").write_text("def (:")
    return tmp_path


def test_definitions_are_found_with_the_first_sentence_of_their_documentation(folder):
    found = {one.symbol: one for one in documented(folder)}
    assert {symbol: one.sentence for symbol, one in found.items()} == {
        "Order.Cancel": "ends the order and gives its money back.",
        "Stack.pop": "Removes the value that was put on top last, if there is one.",
        "Shelf": "A place where several books stand in order.",
        "Shelf.add": "Put a book where the alphabet wants it to be.",
    }
    assert {one.path for one in found.values()} == {"order.go", "stack.rs", "shelf.py"}


def test_the_documentation_is_not_in_the_code_that_is_to_be_found(folder):
    for one in documented(folder):
        assert one.sentence not in one.code
    assert [one.code for one in documented(folder) if one.symbol == "Stack.pop"] == [
        "    pub fn pop(&mut self) -> Option<u8> {\n        self.values.pop()\n    }"
    ]


def test_pairs_are_the_same_in_each_run(folder):
    assert code_pairs(folder, 7) == code_pairs(folder, 7)
    assert {one.group for one in code_pairs(folder, 7)} == {f"code {folder.name}"}


def test_a_folder_without_documented_code_is_refused_by_its_name(tmp_path):
    with pytest.raises(BadTrainingSet, match=tmp_path.name):
        code_pairs(tmp_path, 7)
