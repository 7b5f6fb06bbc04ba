"""The graph of names: what is linked, ranked and joined, each with its evidence."""

import pytest

from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import Passage
from gateway.wings.knowledge import graph_ranking
from gateway.wings.knowledge.chunk_search import PERMITTED
from gateway.wings.knowledge.communities import central, communities
from gateway.wings.knowledge.entities import npmi
from gateway.wings.knowledge.graph_ranking import (
    Edge,
    edges,
    page_ranked,
    prefer_named,
    raise_linked,
)
from tests.wings.knowledge.rig import KnowledgeRig

pytestmark = pytest.mark.anyio
PARSED_ONCE = 4096  # bytes of a statement whose parse psycopg keeps

BOOK = {
    "Aldri": "# Aldri Annet\n\nA film of 1930 that was directed by Tancred Ibsen.",
    "Ibsen": "# Tancred Ibsen\n\nHe was born in Gausdal, as a grandson of Henrik Ibsen.",
    "Gausdal": "# Gausdal\n\nIt has woods, and a school that Bjarne Slapgard led.",
    "Bread": "# Bread\n\nA film of flour and water is on it; it was made by hand.",
}


async def book(rig: KnowledgeRig) -> None:
    for name, text in BOOK.items():
        await rig.caller().add(text, "book", path=f"{name}.md")


async def test_passages_linked_from_the_best_hit_are_found_without_shared_words(
    rig: KnowledgeRig,
) -> None:
    await book(rig)
    ann, query = rig.caller(), {"query": "Who directed the film Aldri Annet?"}
    naive = [one.path for one in (await ann("query", mode="naive", **query)).evidence]
    assert "Ibsen.md" not in naive
    for mode in ("mix", "local"):
        found = [one.path for one in (await ann("query", mode=mode, **query)).evidence]
        assert found[:2] == ["Aldri.md", "Ibsen.md"]
    for mode in ("global", "hybrid"):
        assert "Ibsen.md" in [one.path for one in (await ann("query", mode=mode, **query)).evidence]


async def test_homonyms_are_both_found_by_their_bare_name(rig: KnowledgeRig) -> None:
    for kind in ("car", "cat"):
        text = f"# Jaguar ({kind})\n\nIt is fast."
        await rig.caller().add(text, path=f"{kind}.md")
    found = await rig.caller()("entity", name="jaguar")
    assert [one.path for one in found.mentions if one.role == "subject"] == ["car.md", "cat.md"]
    assert (await rig.caller()("entity", name="Jaguar (car)")).passages == 1


async def test_graph_search_respects_the_filter(rig: KnowledgeRig) -> None:
    """Graph search respects the filter (K12)."""
    await book(rig)
    ann, query = rig.caller(), "Who directed the film Aldri Annet?"
    for mode in ("mix", "global"):
        found = await ann("query", query=query, mode=mode, filter={"paths": ["[AB]*", "A*", "B*"]})
        assert {one.path for one in found.evidence} <= {"Aldri.md", "Bread.md"}


@pytest.mark.parametrize("mode", ["naive", "local", "global", "hybrid", "mix"])
async def test_each_filter_holds_in_each_mode(rig: KnowledgeRig, mode: str) -> None:
    """Each filter holds in each mode (K12)."""
    ann = rig.caller()
    await ann.add(BOOK["Ibsen"], "book", path="Ibsen.md", metadata={"skill": "film"})
    text = "Date: 2020-01-02\nUser: Who is Tancred Ibsen?\nAssistant: A grandson of Henrik Ibsen."
    old = await ann.add(text, "book", path="old/talk.txt", metadata={"skill": "talk"})
    await ann.add("class Ibsen:\n    def film(self):\n        pass\n", "book", path="ibsen.py")
    for wanted, paths in (
        ({"paths": ["*.md"]}, {"Ibsen.md"}),
        ({"documents": [old.document]}, {"old/talk.txt"}),
        ({"metadata": {"skill": "film"}}, {"Ibsen.md"}),
        ({"kinds": ["class"]}, {"ibsen.py"}),
        ({"heading": "tancred"}, {"Ibsen.md"}),
        ({"until": "2020-02-01T00:00:00Z"}, {"old/talk.txt"}),
        ({"since": "2020-02-01T00:00:00Z"}, {"Ibsen.md", "ibsen.py"}),
        ({"languages": ["python"]}, {"ibsen.py"}),
    ):
        given = {"query": "Tancred Ibsen", "mode": mode, "filter": wanted, "names": 50}
        found = await ann("query", **given)
        assert {one.path for one in found.evidence} == paths, wanted
        chunks = {one.chunk for one in found.evidence}
        assert all(chunks.issuperset(one.chunks) for one in found.names), wanted


async def test_the_same_query_gives_the_same_bytes(rig: KnowledgeRig) -> None:
    """The same query gives the same bytes (K18)."""
    await book(rig)
    ann = rig.caller()
    for mode in ("naive", "mix", "hybrid"):
        answers = [await ann.output("query", query="a film of Ibsen", mode=mode) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]


async def test_an_entity_lists_its_mentions_and_is_deleted_without_mentions(
    rig: KnowledgeRig,
) -> None:
    """An entity lists its mentions and is deleted with them (K13)."""
    await book(rig)
    ann = rig.caller()
    found = await ann("entity", name="tancred ibsen")
    assert found.passages == 2
    subject, mention = [one for one in found.mentions if one.role in ("subject", "mention")][:2]
    assert (subject.path, subject.role, mention.name) == ("Ibsen.md", "subject", "Tancred Ibsen")
    assert all(one.name in one.quote for one in found.mentions)
    assert "Gausdal" in [one.name for one in found.near]
    listed = await ann("documents", collection="book")
    ids = [one.document for one in listed.items if one.path in ("Ibsen.md", "Aldri.md")]
    await ann("delete", collection="book", documents=ids)
    with pytest.raises(ProblemDetails, match="404"):
        await ann("entity", name="Tancred Ibsen")
    with pytest.raises(ProblemDetails, match="404"):
        await rig.caller("eve")("entity", name="Gausdal")


async def test_graph_paths_are_shortest_and_each_hop_has_evidence(rig: KnowledgeRig) -> None:
    """Graph paths are shortest and each hop has evidence (K22)."""
    await book(rig)
    ann = rig.caller()
    for target, hops in (
        ("Tancred Ibsen", ["Aldri.md"]),
        ("Henrik Ibsen", ["Aldri.md", "Ibsen.md"]),
        ("Bjarne Slapgard", ["Aldri.md", "Ibsen.md", "Gausdal.md"]),
    ):
        found = await ann("path", **{"from": "Aldri Annet", "to": target})
        best = found.paths[0]
        assert [hop.evidence[0].path for hop in best.hops] == hops, target
        assert best.hops[0].source == "Aldri Annet"
        assert best.hops[-1].to == target
        for before, after in zip(best.hops, best.hops[1:], strict=False):
            assert before.to == after.source
        for hop in best.hops:
            assert [one.name for one in hop.evidence] == [hop.source, hop.to]
            assert all(one.name in one.quote for one in hop.evidence)
    for source, target in (("Aldri Annet", "Nobody"), ("Gausdal", "Gausdal")):
        assert (await ann("path", **{"from": source, "to": target})).paths == ()
    eve = rig.caller("eve")
    assert (await eve("path", **{"from": "Aldri Annet", "to": "Tancred Ibsen"})).paths == ()


def test_links_raise_passages_about_a_mention_once() -> None:
    scores = {"a": 2.0, "c": 1.0, "e": 0.0}
    edges = [Edge("a", "x", "b"), Edge("a", "y", "b"), Edge("a", "z", "a"), Edge("c", "x", "e")]
    found = raise_linked(scores, edges)
    link = graph_ranking.EDGE_WEIGHT * graph_ranking.LEAST
    assert found == pytest.approx({"a": 1, "b": link, "c": 0.5, "e": link * 0.5 / 1.1})
    named = raise_linked(scores, [Edge(graph_ranking.QUESTION, "x", "c")])
    assert named["c"] == pytest.approx(
        0.5 + graph_ranking.NAME_WEIGHT * (graph_ranking.LEAST + 0.5)
    )
    assert raise_linked({}, []) == page_ranked({}, []) == {}


def test_page_rank_reaches_passages_sharing_rare_names() -> None:
    edges = [Edge("a", "x", "b"), Edge("a", "y", "b"), Edge("a", "y", "c")]
    found = page_ranked({"a": 1.0, "d": 0.1}, edges)
    assert found["a"] > found["b"] > found["c"] > 0


def test_npmi_is_from_never_to_always_together() -> None:
    assert npmi(0, 5, 5, 100) == -1
    assert npmi(5, 5, 5, 100) == pytest.approx(1)
    assert npmi(5, 50, 10, 100) == pytest.approx(0)


async def test_merges_of_names_can_be_undone(rig: KnowledgeRig) -> None:
    """Merges of names can be undone (K16)."""
    ann = rig.caller()
    await ann.add("# International Business Machines\n\nIt sits in Armonk.", path="a.md")
    await ann.add("# Note\n\nThey say IBM is near Watson Laboratory.", path="b.md")
    merged = {"collection": "notes", "into": "International Business Machines"}
    before = await ann("entity", name="IBM")
    assert (await ann("merge", names=["IBM", "Big Blue"], **merged)).names == 2
    assert (await ann("merge", names=["IBM"], **merged)).names == 0
    cycle = {"collection": "notes", "into": "IBM"}
    assert (await ann("merge", names=["International Business Machines"], **cycle)).names == 1
    for name in ("ibm", "Big Blue", "International Business Machines"):
        found = await ann("entity", name=name)
        assert (found.passages, len(found.merged)) == (2, 2)
    assert (await ann("path", **{"from": "Big Blue", "to": "Armonk"})).paths
    assert (await ann("path", **{"from": "IBM", "to": "Big Blue"})).paths == ()
    bob = rig.caller("bob")
    with pytest.raises(ProblemDetails):
        await bob("merge", names=["IBM"], **merged)
    assert (await ann("split", names=["International Business Machines"], **cycle)).names == 1
    assert (await ann("split", names=["IBM", "Big Blue"], **merged)).names == 2
    assert await ann("entity", name="IBM") == before


async def test_merged_names_rank_together_until_split(rig: KnowledgeRig) -> None:
    """Merged names rank together until split (K16)."""
    ann = rig.caller()
    await ann.add("# International Business Machines\n\nIt sits in Armonk.", path="about.md")
    await ann.add("# Note\n\nThey say IBM is near Watson Laboratory.", path="note.md")
    await ann.add("# Bread\n\nFlour; who leads the bakery?", path="bread.md")
    into, modes = "International Business Machines", ("mix", "local", "global", "hybrid")

    async def rank_paths() -> list[list[str]]:
        """For a name that no passage has, for a short one, and for the long one."""
        questions = ("Who leads Big Blue?", "Who leads IBM?", f"Who leads {into}?")
        found = [await ann("query", query=one, mode=m) for one in questions for m in modes]
        return [[one.path for one in each.evidence] for each in found]

    before = await rank_paths()
    assert not any({"about.md", "note.md"} <= set(one) for one in before)
    await ann("merge", collection="notes", names=["IBM", "Big Blue"], into=into)
    for paths in await rank_paths():
        assert {"about.md", "note.md"} <= set(paths)
    narrow = {"paths": ["note.md"]}
    for mode in modes:
        found = await ann("query", query="Who leads Big Blue?", mode=mode, filter=narrow)
        assert [one.path for one in found.evidence] == ["note.md"]
    assert [one.path for one in (await ann("query", query="Big Blue", mode="naive")).evidence] == []
    await ann("split", collection="notes", names=["IBM", "Big Blue"], into=into)
    assert await rank_paths() == before


async def test_a_merge_ranks_in_its_collection_alone(rig: KnowledgeRig) -> None:
    """A merge ranks in its collection alone (K16)."""
    ann, eve = rig.caller(), rig.caller("eve")
    await ann.add("# Acme Corp\n\nIt pays Bob Smith.", "private", path="secret.md")
    await eve.add("# Evil Corp\n\nIt sells anvils.", "public", path="open.md")
    await eve.add("# Note\n\nThey like Zenith Group.", "public", path="note.md")
    await eve("put_collection", collection="public", grants={"*": "read"})
    await eve("merge", collection="public", names=["Acme Corp", "Zenith Group"], into="Evil Corp")
    for mode in ("mix", "global"):
        found = await ann("query", query="Zenith Group", mode=mode)
        assert {one.path for one in found.evidence} == {"open.md", "note.md"}
        found = await eve("query", query="Acme Corp", mode=mode)
        assert {one.path for one in found.evidence} == {"open.md", "note.md"}


async def test_communities_contain_only_readable_passages(rig: KnowledgeRig) -> None:
    ann, bob = rig.caller(), rig.caller("bob")
    for number, (one, other) in enumerate((("Ada Lovelace", "Charles Babbage"),) * 3):
        await ann.add(f"With {one} came {other}, and no. {number}.", path=f"{number}.md")
    await ann.add("They say Niels Bohr met Lise Meitner.", path="bohr.md")
    found = await ann("communities", collection="notes")
    assert [one.passages for one in found.items] == [3, 1]
    assert set(found.items[0].names[:2]) == {"Ada Lovelace", "Charles Babbage"}
    assert {"Niels Bohr", "Lise Meitner"} <= set(found.items[1].names)
    assert {"Ada Lovelace", "Charles Babbage"} <= set(found.items[0].name.split(", "))
    assert (len(found.items[0].summary), found.passages, found.sampled) == (3, 4, False)
    assert [(one.path, one.line, one.text) for one in found.items[1].summary] == [
        ("bohr.md", 1, "They say Niels Bohr met Lise Meitner.")
    ]
    assert await ann("communities", collection="notes") == found
    assert len((await ann("communities", collection="notes", limit=1, names=1)).items[0].names) == 1
    for name in ("notes", "nothing"):
        with pytest.raises(ProblemDetails, match="404"):
            await bob("communities", collection=name)
    await ann("put_collection", collection="notes", grants={"user:bob": "read"})
    assert await bob("communities", collection="notes") == found
    await ann("merge", collection="notes", names=["Niels Bohr"], into="Ada Lovelace")
    merged = await ann("communities", collection="notes")
    assert "Niels Bohr" not in [name for one in merged.items for name in one.names]
    await ann("split", collection="notes", names=["Niels Bohr"], into="Ada Lovelace")
    listed = await ann("documents", collection="notes")
    gone = [one.document for one in listed.items if one.path == "bohr.md"]
    await ann("delete", collection="notes", documents=gone)
    left = await ann("communities", collection="notes")
    assert [one.passages for one in left.items] == [3]
    assert "Niels Bohr" not in left.items[0].names


def test_communities_are_the_same_in_any_order_of_their_rows() -> None:
    groups = {"abc": 3, "xyz": 2}
    rows = [
        (n, n.upper(), f"{g}{i}") for g, count in groups.items() for i in range(count) for n in g
    ]
    rows.append(("a", "A", "xyz0"))
    found = communities(tuple(rows), ())
    assert [(set(one.names), len(one.chunks)) for one in found] == [
        (set("ABC"), 4), (set("XYZ"), 2),
    ]  # fmt: skip
    assert communities(tuple(sorted(rows, reverse=True)), ()) == found
    assert communities((), ()) == ()
    merges = (("q", "r"), ("a", "q"), ("r", "x"))
    names = [set(one.names) for one in communities(tuple(rows), merges)]
    assert names == [set("ABC"), set("YZ")]


def test_a_community_has_distinctive_names_and_a_central_summary() -> None:
    rows = [(name, name.upper(), chunk) for chunk, names in {
        "1": "apk", "2": "apk", "3": "apk", "4": "a", "5": "xyp", "6": "xyp", "7": "x",
    }.items() for name in names]  # fmt: skip
    first, second = communities(tuple(rows), ())
    assert (first.title[0], second.title[0]) == ("A", "X")  # not P, which both have
    texts = {
        "1": "Herons nest in reeds. The weather was mild.",
        "2": "Herons nest in the reeds of lakes. Nobody came.",
        "3": "Herons eat fish in lakes. Herons nest in reeds.",
    }
    passages = {id_: chunk_of(id_, text) for id_, text in texts.items()}
    found = central(first, passages)
    assert {one.text for one in found} == {
        "Herons nest in reeds.", "Herons nest in the reeds of lakes.", "Herons eat fish in lakes.",
    }  # fmt: skip
    assert central(first, {}) == []


def chunk_of(id_: str, text: str) -> Passage:
    return Passage(
        collection="notes",
        path=f"{id_}.md",
        version=1,
        lines=(1, 1),
        text=text,
        chunk=id_,
        document=id_,
    )


async def test_homonyms_are_separated_by_their_qualifiers(rig: KnowledgeRig) -> None:
    """Homonyms are separated by their qualifiers (K16)."""
    ann = rig.caller()
    await ann.add("# Jaguar (car)\n\nIt has four wheels.", path="a.md")
    await ann.add("# Jaguar (animal)\n\nIt has four legs.", path="b.md")
    found = await ann("entity", name="Jaguar")
    assert (found.passages, found.senses) == (2, ("Jaguar (animal)", "Jaguar (car)"))
    assert (await ann("entity", name="Jaguar (car)")).passages == 1


async def test_code_is_linked_from_texts_alone(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    code = "def close(pool):\n    drain(pool)\n"
    await ann.add(code, path="pool.py")
    await ann.add("def drain(waiting):\n    return waiting\n", path="queue.py")
    await ann.add("class Door:\n    def close(self):\n        return 1\n", path="door.py")
    asked = "pool is shut, then close"
    paths = [one.path for one in (await ann("query", query=asked)).evidence]
    assert set(paths) == {"pool.py", "door.py"}  # by their words; what is called is not
    plain = await ann("query", query=asked, mode="naive")
    assert paths == [one.path for one in plain.evidence]
    await ann.add("# Shutting\n\nTo shut a pool use `drain`.", path="guide.md")
    paths = [one.path for one in (await ann("query", query="shut a pool")).evidence]
    assert {"guide.md", "queue.py"} <= set(paths)


async def test_definitions_rank_before_surrounding_code(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    around = "# The pump empties tanks.\nfrom pump import tank\n"
    await ann.add(around, path="around.py")
    await ann.add("def drain(tank, pump):\n    return tank - pump\n", path="drain.py")
    asked = "the pump of the tanks"
    assert (await ann.find_texts(asked))[0].startswith("def drain")
    await rig.run("UPDATE search_doc_t SET weight = 1")
    assert (await ann.find_texts(asked))[0].startswith("# The pump"), (
        "it is their weight that decides"
    )


async def test_types_rank_before_their_implementations_of_traits(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    await ann.add("impl Show for Pump { fn tank(&self) {} }\n", path="show.rs")
    await ann.add("pub struct Pump { tank: u8, pipes: usize, valve: u8 }\n", path="types.rs")
    asked = "the tank of pumps"
    assert (await ann.find_texts(asked))[0].startswith("pub struct")
    await rig.run("UPDATE search_doc_t SET weight = 1")
    assert (await ann.find_texts(asked))[0].startswith("impl"), "it is their weight that decides"


async def test_a_merge_holds_in_its_collection_alone(rig: KnowledgeRig) -> None:
    """Else who shares a collection with all decides what names in others mean."""
    ann, eve = rig.caller(), rig.caller("eve")
    await ann.add("Acme Corp pays Bob Smith.", "private")
    await eve.add("Evil Corp pays Acme Corp.", "public")
    await eve("put_collection", collection="public", grants={"*": "read"})
    await eve("merge", collection="public", names=["Acme Corp"], into="Evil Corp")
    found = await ann("entity", name="Evil Corp")
    assert {one.collection for one in found.mentions} == {"public"}
    assert "Bob Smith" not in [one.name for one in found.near]
    assert (await ann("path", **{"from": "Evil Corp", "to": "Bob Smith"})).paths == ()
    both = await ann("entity", name="Acme Corp")
    assert {one.collection for one in both.mentions} == {"private", "public"}


SERIES = {
    "Salt Road": "# Salt Road\n\nA novel, written by Ada Brell.",
    "Ada Brell": "# Ada Brell\n\nShe grew up in Norfen.",
    "Reviews": "# Reviews\n\nWho wrote what: the novels Grey Tide, Far Bell and Ash.",
    "Prizes": "# Prizes\n\nWho wrote the best novel: Cato Lind, before Salt Road.",
    "Shops": "# Shops\n\nWho wrote asked for the novel Salt Road, and Grey Tide of Cato Lind.",
    "Cato Lind": "# Cato Lind\n\nHe wrote the novel Grey Tide, and who reads it reads Far Bell.",
}


async def test_the_modes_of_the_graph_rank_as_well_as_the_links(rig: KnowledgeRig) -> None:
    """`global` and `hybrid` find what a question asks for as early as `local`, and are rankings of
    their own (mending 46)."""
    ann = rig.caller()
    for name, text in SERIES.items():
        await ann.add(text, "books", path=f"{name}.md")
    scores, places = set[tuple[float, ...]](), dict[str, int]()
    for mode in ("naive", "local", "global", "hybrid", "mix"):
        found = (await ann("query", query="Who wrote the novel Salt Road?", mode=mode)).evidence
        paths = [one.path for one in found]
        places[mode] = paths.index("Ada Brell.md") if "Ada Brell.md" in paths else len(SERIES)
        scores.add(tuple(one.score for one in found))
    assert max(places[mode] for mode in ("global", "hybrid", "mix")) <= places["local"]
    assert places["local"] < places["naive"]
    assert len(scores) == 5


async def test_local_prefers_passages_with_the_names_of_the_best(rig: KnowledgeRig) -> None:
    """`local` halves the scores of passages that share words with the question, but no name with
    the best passages; `mix` does not (mending 46)."""
    ann = rig.caller()
    for path, text in (
        ("road.md", "# Salt Road\n\nA film that was made by Ada Brell."),
        ("one.md", "# Hints\n\nAsk who made the film, and who made the film before it."),
        ("two.md", "# More\n\nWho made the film, and who made the films after it?"),
        ("words.md", "# Rest\n\nwe made one of the films of then, at home."),
        ("name.md", "# Post\n\nToday a note of Ada Brell came, on rain and a film."),
        ("end.md", "# Snow\n\n" + "It fell on hills, on roofs and on carts. " * 9 + "A film."),
    ):
        await ann.add(text, "films", path=path)
    scores = dict[str, dict[str, float]]()
    for mode in ("mix", "local"):
        evidence = (await ann("query", query="Who made the film Salt Road?", mode=mode)).evidence
        scores[mode] = {passage.path: passage.score for passage in evidence}
    assert scores["local"]["name.md"] == scores["mix"]["name.md"] > 0
    assert scores["local"]["words.md"] == pytest.approx(
        scores["mix"]["words.md"] * graph_ranking.UNNAMED_FACTOR, abs=0.001
    )


def test_chunks_without_a_name_of_the_edges_score_half() -> None:
    """Chunks that no edge joins are lowered, unless there is no edge (mending 46)."""
    scores = {"a": 1.0, "b": 0.6, "c": 0.5}
    halved = scores | {"b": 0.6 * graph_ranking.UNNAMED_FACTOR}
    assert prefer_named(scores, [Edge("a", "x", "c")]) == pytest.approx(halved)
    assert prefer_named(scores, []) == scores


def test_statements_of_the_graph_are_parsed_once() -> None:
    assert max(len(edges(PERMITTED, None, about=about)) for about in (True, False)) <= PARSED_ONCE
