"""Questions find code by the abbreviations that it has for their words."""

import pytest

from gateway.wings.knowledge.abbreviations import abbreviation_pairs, numeric_types
from tests.wings.knowledge.rig import KnowledgeRig

pytestmark = pytest.mark.anyio

PUT = "fn put(buf: &mut Sink) {}"
FILL = "fn fill(buf: &mut Sink) {}"
DRAIN = "fn drain(buffer: &mut Sink) {}"


async def test_words_find_code_by_their_abbreviation(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    for name, text in {"put": PUT, "fill": FILL, "drain": DRAIN}.items():
        await ann.add(f"{text}\n", path=f"{name}.rs")
    found = await ann.find_texts("buffers", mode="naive")
    assert set(found) == {PUT, FILL, DRAIN}


async def test_no_abbreviation_stands_for_a_word_that_code_has_more_often(
    rig: KnowledgeRig,
) -> None:
    ann = rig.caller()
    await ann.add(f"{PUT}\n", path="put.rs")
    await ann.add(f"{DRAIN}\n", path="drain.rs")
    assert await ann.find_texts("buffers", mode="naive") == [DRAIN]


async def test_no_abbreviation_stands_for_a_word_in_prose(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    await ann.add("The min of the day.", path="a.txt")
    await ann.add("Another min, later.", path="b.txt")
    assert await ann.find_texts("minimum", mode="naive") == []


async def test_no_type_stands_for_a_number_in_prose(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    await ann.add("Il regarde le chat.", path="a.txt")
    assert await ann.find_texts("little-endian", mode="naive") == []


async def test_search_of_prose_reads_no_symbols_of_other_collections(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    await ann.add("The min of the day.", path="a.txt")
    functions = (f"fn fill_{number}(buf: &mut Sink) {{}}\n" for number in range(100))
    await ann.add("".join(functions), collection="code", path="fill.rs")
    async with rig.database.connect() as connection:
        await connection.execute("ANALYZE knowledge_collection_t, knowledge_symbol_t")
    before = await rig.rows_read("knowledge_symbol_t")
    await ann.find_texts("minimum", collections=["notes"], mode="naive")
    assert await rig.rows_read("knowledge_symbol_t") == before


async def test_numbers_find_code_by_their_type(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    wide, narrow = "fn put_wide(n: u64) {}", "fn put_narrow(n: u8) {}"
    await ann.add(f"{wide}\n", path="wide.rs")
    await ann.add(f"{narrow}\n", path="narrow.rs")
    question = "an unsigned 64 bit integer"
    assert await ann.find_texts(question, mode="naive") == [wide]


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Writes an unsigned 64 bit integer", ["u64", "uint64"]),
        ("a signed 8-bit number", ["i8", "int8"]),
        ("16 bits of it", ["u16", "uint16", "i16", "int16"]),
        ("a 32-bit float", ["f32", "float32"]),
        ("Double-precision, in little-endian order", ["f64", "float64", "le"]),
        ("a 12-bit counter of 640 bits", []),
    ],
)
def test_described_numbers_have_names_of_types(question: str, names: list[str]) -> None:
    assert numeric_types(question) == names


async def test_stems_and_abbreviations_are_words_of_the_index(rig: KnowledgeRig) -> None:
    """The index has no other words: it stems them, and leaves out those such as `be`."""
    lexemes = "SELECT tsvector_to_array(to_tsvector('pg_catalog.english', '{}'))"
    pairs = abbreviation_pairs()
    shorts = sorted({short for _, short in pairs})
    assert (await rig.rows(lexemes.format(" ".join(shorts))))[0][0] == shorts
    words = ["configuration", "maximum", "mutable", "references", "repositories", "unsigned"]
    assert set((await rig.rows(lexemes.format(" ".join(words))))[0][0]) <= dict(pairs).keys()
