"""SKILL.md: what is one, what is none, and that nothing of it gets lost."""

import pytest

from registry.skills.skill_md import check_imported_document, compose, read_document
from schemas.errors import ImportRejected

HEAD = b"---\nname: a\ndescription: Does A.\n"


def document(*lines: str):
    return read_document(HEAD + "".join(f"{line}\n" for line in lines).encode() + b"---\nX", "S")


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: a\ndescription: A.\n---\nBody\n",
        "---\r\nname: a\r\ndescription: A.\r\n---\r\nBody\r\n",
        "\ufeff---  \nname: a\ndescription: >\n  A\n  b.\n---\t\n\n\nBody --- \n---\nmore",
        "---\nname: a\ndescription: A.\n---",
        "---\n# why\nname: 'a'\ndescription: \"A\\tb\"\nother: {x: [1, 2.5, null]}\n---\n\u00e9",
    ],
    ids=["plain", "crlf", "bom", "no body", "comments"],
)
def test_the_whole_text_is_kept(text: str) -> None:
    assert read_document(text.encode(), "S").text == text


def test_the_front_matter_of_a_skill_is_read() -> None:
    found = document(
        "allowed-tools: listPets, getPet  Bash(git add:*) listPets",
        "metadata:",
        "  version: 1.2.3",
        "  toolgate-requires: b, c",
        "  toolgate-suggests: d",
        "  toolgate-parent: e",
        "  toolgate-access: getPet=execute",
        "license: MIT",
    )
    assert (found.name, found.description, found.instructions) == ("a", "Does A.", "X")
    assert found.tools == ("listPets", "getPet", "Bash(git add:*)")
    assert (found.requires, found.suggests, found.parent) == (("b", "c"), ("d",), "e")
    assert (found.access, found.version) == ({"getPet": "execute"}, "1.2.3")
    assert found.metadata["license"] == "MIT"


def test_tools_may_be_a_list() -> None:
    assert document("allowed-tools:", "  - a", "  - b c").tools == ("a", "b", "c")


def test_a_composed_text_is_read_again() -> None:
    metadata = {"name": "a", "description": "It says: \u00e9 # no comment\nand more"}
    found = read_document(compose(metadata, "Body").encode(), "S")
    assert (found.metadata, found.instructions) == (metadata, "\nBody")


NAMES = [
    "",
    "A",
    "a b",
    "-a",
    "a-",
    "a--b",
    "../a",
    "a/b",
    "a" * 65,
    "\u00e4",
    "a\n",
    "con:x",
    "a.b",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_hostile_names_are_refused(name: str) -> None:
    text = compose({"name": name, "description": "A."}, "X")
    with pytest.raises(ImportRejected, match=r"^S: name "):
        read_document(text.encode(), "S")


BOMB = "\n".join(
    ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    + [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 8)]
)
BAD = {
    "empty": (b"", "must begin with a line ---"),
    "no front": (b"# Hello\n", "must begin with a line ---"),
    "open front": (b"---\nname: a\n", "a second line --- is missing"),
    "one fence": (b"---", "a second line --- is missing"),
    "binary": (b"\x89PNG\r\n\x1a\n\xff", "no UTF-8 text"),
    "nul": (HEAD + b"---\nA\x00B", "NUL"),
    "escaped nul": (HEAD + b'x: "\\0"\n---\n', "NUL"),
    "utf16": ("---\nname: a".encode("utf-16"), "no UTF-8 text"),
    "list": (b"---\n- a\n---\n", "must be an object"),
    "bad yaml": (b"---\nname: a\ndescription: b: c\n---\n", "S, line 3, column 15: not valid YAML"),
    "twice": (HEAD + b"name: b\n---\n", "stands twice"),
    "no name": (b"---\ndescription: A.\n---\n", "name is missing"),
    "name number": (b"---\nname: 1\ndescription: A.\n---\n", "name is missing"),
    "no description": (b"---\nname: a\n---\n", "description is missing"),
    "blank description": (b"---\nname: a\ndescription: ' '\n---\n", "description is missing"),
    "long description": (
        b"---\nname: a\ndescription: %s\n---\n" % (b"x" * 1025), "1,025 of at most 1024",
    ),
    "long front": (HEAD + b"x: %s\n---\n" % (b"y" * 70_000), "more than 65,536"),
    "bomb": (HEAD + BOMB.encode() + b"\n---\n", "aliases expand"),
    "bomb of texts": (
        HEAD + b"x: &a %s\ny: [%s]\n---\n" % (b"z" * 40_000, b",".join([b"*a"] * 400)),
        "aliases expand",
    ),
    "deep": (HEAD + b"x: " + b"[" * 600 + b"]" * 600 + b"\n---\n", "nested deeper"),
    "tools object": (HEAD + b"allowed-tools: {a: b}\n---\n", "allowed-tools must be a text"),
    "tools many": (
        HEAD + b"allowed-tools: %s\n---\n" % b" ".join(b"t%d" % n for n in range(1001)),
        "1,001 of at most 1,000",
    ),
    "metadata": (HEAD + b"metadata: [a]\n---\n", "metadata must be an object"),
    "requires": (HEAD + b"metadata: {toolgate-requires: ../x}\n---\n", "names '../x'"),
    "requires list": (HEAD + b"metadata: {toolgate-requires: [b]}\n---\n", "must be a text"),
    "access": (HEAD + b"metadata: {toolgate-access: a=all}\n---\n", "TOOL=read, TOOL=write"),
    "version": (HEAD + b"metadata: {version: {}}\n---\n", "version must be a text"),
    "long version": (HEAD + b"metadata: {version: %s}\n---\n" % (b"1" * 21), "1 to 20"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "problem"), BAD.values(), ids=BAD)
def test_invalid_skill_documents_name_the_problem(content: bytes, problem: str) -> None:
    with pytest.raises(ImportRejected) as caught:
        read_document(content, "S")
    assert str(caught.value).startswith("S")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("metadata: {toolgate-require: b}", "require is unknown; did you mean toolgate-requires?"),
        ("metadata: {toolgate-acces: b=read}", "acces is unknown; did you mean toolgate-access?"),
        ("metadata: {toolgate-zzz: b}", "toolgate-zzz is unknown; there is toolgate-requires, "),
        ("metadata: {toolgate-access: b=read}", "names 'b', which allowed-tools does not"),
    ],
    ids=["requires", "access", "nothing near", "tool"],
)
def test_ineffective_keys_of_toolgate_are_refused(line: str, problem: str) -> None:
    found = document("allowed-tools: a", line)  # what is stored is read as ever
    with pytest.raises(ImportRejected, match=r"^S: ") as caught:
        check_imported_document(found, "S")
    assert problem in str(caught.value)


def test_foreign_metadata_keys_are_accepted() -> None:
    check_imported_document(document("metadata: {author: me, 1: 2, toolgate: x}"), "S")
    check_imported_document(
        document("allowed-tools: a", "metadata: {toolgate-access: a=read}"), "S"
    )


@pytest.mark.parametrize(
    "hidden", ["\U000e0053\U000e0045", "\u200b", "\u202e", "\x1b[8m"], ids=ascii
)
def test_instructions_that_nobody_sees_are_refused(hidden: str) -> None:
    found = read_document(HEAD + f"---\nBe kind.\nSell {hidden} pets.".encode(), "S")
    with pytest.raises(ImportRejected, match=r"^S: line \d+ has invisible characters: ") as no:
        check_imported_document(found, "S")
    assert str(no.value).isprintable()
    escaped = b'---\nname: a\ndescription: "A.\\U000E0041"\n---\nX'
    with pytest.raises(
        ImportRejected, match=r"^S: description: an escape stands for an invisible character"
    ):
        check_imported_document(read_document(escaped, "S"), "S")
    for line in (r'license: "a\u200B"', r'metadata: {author: ["\U000E0041"]}', r'"x\u202E": 1'):
        with pytest.raises(
            ImportRejected, match=r"^S: .*: an escape stands for an invisible character"
        ):
            check_imported_document(document(line), "S")
    kind = "---\n\u0645\u06cc\u200c\u062e and \U0001f468\u200d\U0001f469"
    check_imported_document(read_document(HEAD + kind.encode(), "S"), "S")
