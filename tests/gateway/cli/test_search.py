"""`toolgate search`: what is measured, what is explained, and what is said of bad files."""

import json
from pathlib import Path

import psycopg
import pytest

from config.settings import DatabaseSettings
from tests.gateway.cli.conftest import Toolgate, answering

OFF = {"TOOLGATE_EMBEDDING__PROVIDER": "disabled"}
UNUSABLE = {
    "TOOLGATE_EMBEDDING__PROVIDER": "sentence-transformers",
    "TOOLGATE_EMBEDDING__MODEL": "./nowhere",
}
TOOLS = [
    {"name": "forecast", "description": "Weather forecast of a city", "server": "Sky"},
    {"name": "delete_invoice", "description": "Delete an invoice"},
    {"name": "send_mail", "description": "Send a message by e-mail"},
]
REQUESTS = [
    {"query": "what is the weather forecast?", "gold": ["forecast"]},
    {"query": "delete the invoice and send a message", "gold": ["delete_invoice", "send_mail"]},
]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def here(folder: Path) -> Path:
    """A working directory with a set, as two files and as a directory."""
    write(folder / "requests.jsonl", REQUESTS)
    write(folder / "catalog.jsonl", TOOLS)
    (folder / "both").mkdir()
    write(folder / "both" / "queries.jsonl", REQUESTS)
    write(folder / "both" / "tools.jsonl", TOOLS)
    return folder


@pytest.mark.parametrize(
    "args", [("both",), ("requests.jsonl", "--catalog", "catalog.jsonl")], ids=["folder", "files"]
)
def test_a_catalog_is_measured_beside_the_registry(
    with_pets: Toolgate, here: Path, args: tuple[str, ...]
) -> None:
    before = with_pets("tools", "list", "--json").json
    ran = with_pets("search", "eval", *args, "--modes", "lexical", "--baseline", "--json", **OFF)
    assert ran.code == 0, ran.err
    [one] = ran.json["sets"]
    assert (one["tools"], one["requests"], one["unknown"]) == (3, 2, {})
    assert one["modes"]["lexical"]["recall@10"] == {"mean": 100, "low": 100, "high": 100}
    assert "lexical - bm25+rrf" in one["differences"]
    assert with_pets("tools", "list", "--json").json == before


def test_tables_have_titles_in_a_pipe_too(toolgate: Toolgate, here: Path) -> None:
    ran = toolgate("search", "eval", "both", "--modes", "lexical", **OFF)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[2].split()[:4] == ["set", "mode", "recall@1", "recall@5"]
    assert lines[3].split()[:3] == ["both", "lexical", "75.0"]
    marked = toolgate("search", "eval", "both", "--modes", "lexical", "--md", **OFF)
    assert "| both | lexical | 75.0 |" in marked.out


def test_the_bundled_model_finds_tools_without_shared_words(toolgate: Toolgate, here: Path) -> None:
    write(here / "asked.jsonl", [{"query": "will it rain tomorrow", "gold": ["forecast"]}])
    ran = toolgate("search", "eval", "asked.jsonl", "--catalog", "catalog.jsonl", "--json")
    assert ran.code == 0, ran.err
    [one] = ran.json["sets"]
    assert one["model"].startswith("bundled/")
    assert one["modes"]["dense"]["recall@1"]["mean"] == 100
    assert one["modes"]["hybrid"]["recall@1"]["mean"] == 100
    assert one["modes"]["lexical"]["recall@10"]["mean"] == 0
    assert one["paths"]["dense"] == {"exact": 1}
    assert one["latency_ms"]["encode"]["p50"] > 0


def test_the_tools_of_the_registry_are_measured_by_name(with_pets: Toolgate, here: Path) -> None:
    write(
        here / "asked.jsonl",
        [{"query": "remove a pet", "gold": "deletePet"}, {"query": "pets", "gold": ["sellPet"]}],
    )
    ran = with_pets("search", "eval", "asked.jsonl", "--modes", "lexical", "--json")
    assert ran.code == 0, ran.err
    [one] = ran.json["sets"]
    assert one["modes"]["lexical"]["recall@5"]["mean"] == 50
    assert one["unknown"] == {"sellPet": ["line 2"]}
    told = with_pets("search", "eval", "asked.jsonl", "--modes", "lexical")
    assert "1 wanted tools are not there and count as missed" in told.out


@pytest.mark.parametrize(
    ("threshold", "code", "said"),
    [
        ("recall@5=100", 0, ""),
        ("recall@1=80", 4, "recall@1 of lexical on both is 75.0, less than 80"),
    ],
)
def test_a_gate_fails_with_a_code_of_its_own(
    toolgate: Toolgate, here: Path, threshold: str, code: int, said: str
) -> None:
    args = ("search", "eval", "both", "--modes", "lexical", "--fail-under", threshold)
    ran = toolgate(*args, **OFF)
    assert ran.code == code
    assert said in ran.err
    assert "both" in ran.out, "the tables are printed in any case"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("gone.jsonl",), 1, "gone.jsonl: no such file or directory"),
        (("empty.jsonl",), 1, "empty.jsonl is empty; expected lines such as"),
        (("bad.jsonl",), 1, "bad.jsonl:2: gold names no tool"),
        (("requests.jsonl", "--catalog", "bad.jsonl"), 1, "bad.jsonl:1: name is missing"),
        (("requests.jsonl",), 1, "the registry has no tools"),
        (("both", "--modes", "psychic"), 2, "'psychic' is none of hybrid, dense, lexical"),
        (("both", "--fail-under", "speed=1"), 2, "'speed' is no measure; there are recall@1"),
        (("both", "--modes", "lexical", "--fail-under", "dense:mrr@10=1"), 2, "not among --modes"),
        ((), 1, "search.usage_log records them"),
    ],
)  # fmt: skip
def test_invalid_evaluations_are_reported(
    toolgate: Toolgate, here: Path, args: tuple[str, ...], code: int, said: str
) -> None:
    (here / "empty.jsonl").touch()
    write(here / "bad.jsonl", [{"query": "good", "gold": ["forecast"]}, {"query": "bad"}])
    ran = toolgate("search", "eval", *args)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.fixture
def with_vectors(with_pets: Toolgate, here: Path) -> Toolgate:
    """Runs commands on tools with vectors of the bundled model; `asked.jsonl` asks for one."""
    write(here / "asked.jsonl", [{"query": "remove a pet", "gold": "deletePet"}])
    queued = with_pets("embed", "backfill")
    assert queued.code == 0, queued.err
    return with_pets


def test_vectors_that_the_gateway_does_not_use_are_not_measured(with_vectors: Toolgate) -> None:
    [on] = with_vectors("search", "eval", "asked.jsonl", "--json").json["sets"]
    assert (on["model"].startswith("bundled/"), on["notes"]) == (True, {})
    assert set(on["modes"]) == {"hybrid", "dense", "lexical"}
    ran = with_vectors("search", "eval", "asked.jsonl", "--json", **OFF)
    assert ran.code == 0, ran.err
    [off] = ran.json["sets"]
    assert (off["model"], off["paths"]["hybrid"]) == (None, {"lexical": 1})
    assert set(off["modes"]) == {"hybrid", "lexical"}
    assert off["notes"] == {
        "hybrid": {
            "searched by words only: Embeddings are disabled (embedding.provider).": 1,
        },
        "dense": {"no vectors: nothing can be found by meaning": 1},
    }
    told = with_vectors("search", "eval", "asked.jsonl", **OFF)
    assert "asked: dense, 1 times: no vectors: nothing can be found by meaning" in told.out


def test_modes_refused_by_the_gateway_are_not_measured(with_pets: Toolgate, here: Path) -> None:
    closed = {"TOOLGATE_DISCLOSURE__WHEN_DOWN": "fail_closed"}
    write(here / "asked.jsonl", [{"query": "remove a pet", "gold": "deletePet"}])
    ran = with_pets("search", "eval", "asked.jsonl", **closed)
    assert (ran.code, ran.out) == (1, "")
    assert "disclosure.when_down is fail_closed" in ran.err
    words = with_pets("search", "eval", "asked.jsonl", "--modes", "lexical", **closed)
    assert words.code == 0, words.err


def test_nothing_is_measured_by_meaning_without_vectors(with_vectors: Toolgate) -> None:
    args = ("search", "eval", "asked.jsonl")
    alone = with_vectors(*args, "--modes", "dense", **OFF)
    assert (alone.code, alone.out) == (1, "")
    assert "asked: no vectors: nothing can be found by meaning" in alone.err
    for gate in (("dense:mrr@10=1",), ("mrr@10=1", "--modes", "dense,lexical")):
        gated = with_vectors(*args, "--fail-under", *gate, **OFF)
        assert gated.code == 1
        assert "--fail-under: dense was left out" in gated.err


def test_few_requests_are_told_to_be_few(with_pets: Toolgate, here: Path) -> None:
    ran = with_pets("search", "eval", "both", "--modes", "lexical", "--baseline", **OFF)
    assert "too few requests" in ran.out
    assert "certain" not in ran.out


def test_models_are_compared_in_one_run(toolgate: Toolgate, here: Path) -> None:
    args = ("requests.jsonl", "--catalog", "catalog.jsonl", "--modes", "lexical", "--json")
    ran = toolgate("search", "eval", *args, "--provider", "disabled", "--provider", "bundled")
    assert ran.code == 0, ran.err
    names = [one["name"] for one in ran.json["sets"]]
    assert names == ["requests, no model", "requests, bundled/toolgate-minilm-4"]


def test_models_are_compared_on_a_catalog_alone(toolgate: Toolgate, here: Path) -> None:
    ran = toolgate("search", "eval", "requests.jsonl", "--provider", "bundled")
    assert ran.code == 2
    assert "--provider needs --catalog" in ran.err


def test_queries_of_any_kind_have_an_outcome(toolgate: Toolgate, here: Path) -> None:
    odd = [
        "é" * 100_000,
        "the of and",
        "🦆🦆",
        "天气",
        "'; DROP TABLE tool_t; --",
        "\0",
        "\u2028 \\",
    ]
    write(here / "odd.jsonl", [{"query": text, "gold": ["forecast"]} for text in odd])
    args = ("odd.jsonl", "--catalog", "catalog.jsonl", "--modes", "lexical", "--json")
    ran = toolgate("search", "eval", *args, **OFF)
    assert ran.code == 0, ran.err
    [one] = ran.json["sets"]
    assert one["requests"] == len(odd)
    assert one["notes"]["lexical"] == {
        "the query is empty; describe what to find in a sentence or two": 1
    }


def test_a_query_is_explained(with_pets: Toolgate) -> None:
    ran = with_pets("search", "try", "remove", "a", "pet", "--mode", "lexical")
    assert ran.code == 0, ran.err
    first = ran.out.splitlines()[0].split()
    assert first[6:8] == ["deletePet", "pets"]
    assert first[0] == first[2], "all of its score comes from its words"
    assert "by words alone" in ran.out
    found = with_pets("search", "try", "remove a pet", "--mode", "lexical", "--json").json
    assert found["path"] == "lexical"
    assert found["hits"][0]["name"] == "deletePet"


def test_a_query_can_be_of_domains_and_tiers(with_pets: Toolgate) -> None:
    with_pets("tools", "edit", "listPets", "--domain", "sales", "--tier", "public")
    with_pets("tools", "edit", "getPet", "--domain", "care", "--tier", "public")

    def names(*options: str) -> list[str]:
        told = with_pets("search", "try", "pet", "--mode", "lexical", "--json", *options, **OFF)
        return sorted(hit["name"] for hit in told.json["hits"])

    assert len(names()) > 2
    assert names("--domain", "sales") == ["listPets"]
    assert names("--domain", "sales", "--domain", "care") == ["getPet", "listPets"]
    assert names("--tier", "public") == ["getPet", "listPets"]
    assert names("--tier", "public", "--domain", "care") == ["getPet"]
    assert names("--domain", "nowhere") == []
    for protocol, found in (("openapi", ["getPet", "listPets"]), ("graphql", [])):
        among = ("--tier", "public", "--protocol", protocol)
        told = with_pets("tools", "search", "pet", "--words", "--json", *among, **OFF)
        assert sorted(hit["name"] for hit in told.json) == found
    nothing = with_pets("search", "try", "pet", "--domain", "nowhere", **OFF)
    assert (nothing.code, nothing.out.splitlines()[0]) == (
        0,
        "Nothing found; try other words.",
    )


def test_a_query_without_vectors_says_why_words_decide(with_pets: Toolgate) -> None:
    ran = with_pets("search", "try", "remove a pet")
    assert ran.code == 0, ran.err
    assert "note: searched by words only" in ran.out


@pytest.fixture
def with_vectors_of_a_service(with_pets: Toolgate, folder: Path) -> Toolgate:
    """Runs commands on tools whose vectors a service made that is away now."""
    made = json.dumps({"embeddings": [[1.0] + [0.0] * 383]}).encode()
    with answering({"/embed": made}) as port:
        url = f"http://127.0.0.1:{port}/embed"
        settings = {"provider": "local-http", "url": url, "batch_size": 1}
        (folder / "toolgate.yaml").write_text(json.dumps({"embedding": settings}))
        queued = with_pets("embed", "backfill")
    assert queued.code == 0, queued.err
    return with_pets


def test_while_the_provider_is_down_words_decide_as_in_the_gateway(
    with_vectors_of_a_service: Toolgate,
) -> None:
    ran = with_vectors_of_a_service("search", "try", "remove a pet")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].split()[6:8] == ["deletePet", "pets"]
    assert "note: searched by words only: the embedding model gives no vectors" in ran.out
    assert "The embedding service could not be reached" in ran.out
    found = with_vectors_of_a_service("search", "try", "remove a pet", "--json").json
    assert found["note"].startswith("searched by words only")


def test_by_meaning_alone_nothing_is_found_while_the_provider_is_down(
    with_vectors_of_a_service: Toolgate,
) -> None:
    ran = with_vectors_of_a_service("search", "try", "remove a pet", "--mode", "dense")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(
        "toolgate: no vectors: nothing can be found by meaning. the embedding"
    )
    assert "The embedding service could not be reached" in ran.err


def test_settings_that_want_meaning_or_nothing_get_nothing(
    with_vectors_of_a_service: Toolgate,
) -> None:
    closed = {"TOOLGATE_DISCLOSURE__WHEN_DOWN": "fail_closed"}
    ran = with_vectors_of_a_service("search", "try", "remove a pet", **closed)
    assert (ran.code, ran.out) == (1, "")
    assert "disclosure.when_down is fail_closed" in ran.err
    words = with_vectors_of_a_service("search", "try", "pet", "--mode", "lexical", **closed)
    assert words.code == 0, "words were asked for"


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_by_meaning_alone_nothing_is_found_without_vectors(
    with_pets: Toolgate, form: tuple[str, ...]
) -> None:
    ran = with_pets("search", "try", "remove a pet", "--mode", "dense", *form)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "toolgate: no vectors: nothing can be found by meaning. There are no vectors yet.\n"
    )


def test_settings_of_no_model_are_a_reason_for_words(with_pets: Toolgate) -> None:
    assert with_pets("embed", "backfill").code == 0
    ran = with_pets("search", "try", "remove a pet", **UNUSABLE)
    assert ran.code == 0, ran.err
    assert "note: searched by words only: " in ran.out
    assert "there is no directory" in ran.out


def test_an_empty_query_is_refused(with_pets: Toolgate) -> None:
    ran = with_pets("search", "try", " ")
    assert ran.code == 1
    assert "the query is empty" in ran.err


def test_the_parts_of_a_score_add_up(with_pets: Toolgate) -> None:
    queued = with_pets("embed", "backfill")
    assert queued.code == 0, queued.err
    ran = with_pets("search", "try", "remove a pet. Then show all pets that are left.")
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines() if " pets " in line and "Pet" in line]
    assert len(rows) >= 3
    for score, *parts, _cosine, _bm25 in (map(float, row[:6]) for row in rows):
        assert score == pytest.approx(sum(parts), abs=0.002)
    assert float(rows[0][3]) > 0  # for its sentences
    assert "all vectors were compared" in ran.out
    assert ran.out.count("also looked up by itself: ") == 2


def test_a_source_that_is_not_there_is_told(with_pets: Toolgate) -> None:
    ran = with_pets("search", "try", "--source", "pts", "pet", **OFF)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "toolgate: There is no source 'pts'. Did you mean pets?\n"


def test_requests_in_use_are_measured(
    with_pets: Toolgate, database_settings: DatabaseSettings
) -> None:
    ran = with_pets("search", "eval", "--from-usage", **OFF)
    assert ran.code == 1
    assert "search.usage_log records them" in ran.err
    with psycopg.connect(database_settings.url, autocommit=True) as database:
        [(pet,)] = database.execute(
            "INSERT INTO usage_request_t (host_id, request_id, caller, query, called)"
            " SELECT host_id, gen_random_uuid(), 'x', 'remove a pet', ARRAY[tool_id]"
            " FROM tool_t WHERE name = 'deletePet' RETURNING called[1]::text"
        ).fetchall()
    listed = with_pets("search", "usage")
    assert json.loads(listed.out) == {"query": "remove a pet", "gold": [pet]}
    ran = with_pets("search", "eval", "--from-usage", "--modes", "lexical", "--json", **OFF)
    assert ran.code == 0, ran.err
    [one] = ran.json["sets"]
    assert (one["name"], one["requests"], one["unknown"]) == ("usage", 1, {})


def test_missed_tools_are_listed_with_a_proposed_description(
    with_pets: Toolgate, database_settings: DatabaseSettings
) -> None:
    with psycopg.connect(database_settings.url, autocommit=True) as database:
        database.execute(
            "INSERT INTO usage_request_t (host_id, request_id, caller, query, called)"
            " SELECT host_id, gen_random_uuid(), 'x', 'xyzzy plugh', ARRAY[tool_id]"
            " FROM tool_t WHERE name = 'deletePet'"
        )
    ran = with_pets("search", "eval", "--modes", "lexical", "--json", **OFF)
    assert ran.code == 0, ran.err
    [missed] = ran.json["sets"][0]["improvements"]
    assert (missed["tool"], missed["missed"], missed["requests"]) == ("deletePet", 1, 1)
    assert missed["proposal"] == "Delete pet (pets), by id."
    table = with_pets("search", "eval", "--modes", "lexical", **OFF)
    assert "Tools missed most often" in table.out
