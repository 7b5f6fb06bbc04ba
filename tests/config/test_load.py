"""Settings from defaults, a file and the environment; and what is said when they are wrong."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from config.foreign_settings import ELSEWHERE
from config.load import SettingsError, load, settings_file
from config.settings import Settings

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a settings file into an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        Path("toolgate.yaml").write_text(text, encoding="utf-8")
        return "toolgate.yaml"

    return write


def problems(path: str | None, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(path, env or {})
    return [str(problem) for problem in caught.value.problems]


def test_nothing_needs_to_be_set(write: Write) -> None:
    settings = load(None, {})
    assert settings.server.port == 8765
    assert settings.database.url == "embedded"
    assert settings.sources == {}


def test_a_file_changes_only_the_keys_that_stand_there(write: Write) -> None:
    settings = load(write("server: {port: 9000}\nrpc: {batch_limit: 7}"), {})
    assert (settings.server.port, settings.rpc.batch_limit) == (9000, 7)
    assert settings.server.host == "127.0.0.1"


@pytest.mark.parametrize("text", ["", "# nothing\n", "server:\n  # port: 1\nsources:\n"])
def test_commented_out_settings_are_not_set(write: Write, text: str) -> None:
    assert load(write(text), {}) == load(None, {})


@pytest.mark.parametrize("text", ["off", "'off'"])
def test_off_is_a_word_despite_yaml(write: Write, text: str) -> None:
    assert load(write(f"auth: {{bind_audience: {text}}}"), {}).auth.bind_audience == "off"


def test_words_that_yaml_takes_for_true_are_quoted_as_written(write: Write) -> None:
    found = problems(write("audit: {mode: on}"))
    assert found[0].endswith('expected one of authenticated, always, never, found "on"')


def test_a_group_of_a_source_whose_entries_are_commented_out_is_none(write: Write) -> None:
    path = write("sources:\n  pets:\n    exchange:\n      # client_id: x\n")
    assert load(path, {}).sources["pets"].exchange is None


def test_the_settings_file_is_given_then_from_the_environment_then_usual(
    write: Write,
) -> None:
    assert settings_file(None, {}) is None
    write("")
    assert settings_file(None, {}) == Path("toolgate.yaml")
    assert settings_file(None, {"TOOLGATE_CONFIG": "a.yaml"}) == Path("a.yaml")
    assert settings_file("b.yaml", {"TOOLGATE_CONFIG": "a.yaml"}) == Path("b.yaml")


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    assert problems(missing) == [f"{missing}: the settings file: no such file or directory"]
    assert problems(None, {"TOOLGATE_CONFIG": missing}) == problems(missing)
    assert problems(str(tmp_path)) == [f"{tmp_path}: the settings file: is a directory"]


def test_settings_are_frozen(write: Write) -> None:
    with pytest.raises(AttributeError):
        load(None, {}).server.port = 1  # type: ignore[misc]


def test_numbers_may_be_whole_where_fractions_are_allowed(write: Write) -> None:
    assert load(write("upstream: {timeout_s: 3, retry_backoff_s: 0.5}"), {}).upstream.timeout_s == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "server:\n  prot: 1",
            "toolgate.yaml:2: server.prot: there is no such setting; did you mean server.port?",
        ),
        ("servr: {}", "toolgate.yaml:1: servr: there is no such setting; did you mean server?"),
        ("xyz: 1", "toolgate.yaml:1: xyz: there is no such setting"),
        (
            "server: {port: 99999}",
            "toolgate.yaml:1: server.port: expected a TCP port from 0 to 65535, found 99999",
        ),
        (
            "server:\n\n  port: '80'",
            'toolgate.yaml:3: server.port: expected a TCP port from 0 to 65535, found "80"',
        ),
        (
            "server: {port: yes}",
            "toolgate.yaml:1: server.port: expected a TCP port from 0 to 65535, found true",
        ),
        (
            "server: {port: }",
            "toolgate.yaml:1: server.port: expected a TCP port from 0 to 65535, found nothing",
        ),
        (
            "server: {port: {a: b}}",
            "toolgate.yaml:1: server.port: expected a TCP port from 0 to 65535, found a mapping",
        ),
        ("hooks: {h: {befor: x}}", "toolgate.yaml:1: hooks.h.befor: there is no such setting"),
        ("server: 5", "toolgate.yaml:1: server: expected a mapping, found 5"),
        ("server: [5]", "toolgate.yaml:1: server: expected a mapping, found a list"),
        (
            "server: {allowed_hosts: a}",
            "toolgate.yaml:1: server.allowed_hosts: expected a list, found text; such as [a]",
        ),
        (
            "server:\n  allowed_hosts:\n  - ok.example\n  - example:80",
            (
                "toolgate.yaml:4: server.allowed_hosts.1: expected a host name or an IP address "
                'without port, as in gateway.example.com, found "example:80"'
            ),
        ),
        (
            "logging: {level: loud}",
            (
                "toolgate.yaml:1: logging.level: expected one of debug, info, warning, error, "
                'found "loud"'
            ),
        ),
        (
            "imports: {private_networks: 1}",
            "toolgate.yaml:1: imports.private_networks: expected true or false, found 1",
        ),
        (
            "upstream: {timeout_s: .inf}",
            (
                "toolgate.yaml:1: upstream.timeout_s: expected a number of seconds, above 0 and "
                "within a year, found inf"
            ),
        ),
        (
            "mcp: {instructions: 2026-01-01}",
            "toolgate.yaml:1: mcp.instructions: expected text, found 2026-01-01",
        ),
        (
            "sources: {Pets: {}}",
            (
                "toolgate.yaml:1: sources: expected a name of at most 63 characters out of a-z, "
                '0-9, "_" and "-", found "Pets"'
            ),
        ),
        (
            "sources: {pets: {timeout: 3}}",
            (
                "toolgate.yaml:1: sources.pets.timeout: there is no such setting; "
                "did you mean sources.pets.timeout_s?"
            ),
        ),
        (
            "policy: {rules: {a: {tools: [x]}}}",
            (
                "toolgate.yaml:1: policy.rules.a.effect: expected one of allow, deny, approve, "
                "found nothing"
            ),
        ),
        (
            "auth: {issuers: {a: }}",
            "toolgate.yaml:1: auth.issuers.a.issuer: expected text, found nothing",
        ),
        (
            "policy: {rules: {a: {efect: deny}}}",
            (
                "toolgate.yaml:1: policy.rules.a.efect: there is no such setting; "
                "did you mean policy.rules.a.effect?"
            ),
        ),
        (
            "server: {port: 1,\n  port: 2}",
            "toolgate.yaml:2: server.port: the key stands twice, first at toolgate.yaml:1",
        ),
        (
            "- a",
            "toolgate.yaml:1: expected a mapping such as `server: {port: 8765}` as the whole file",
        ),
        (
            "server:\n  port: [",
            (
                "toolgate.yaml:3: not valid YAML in line 3, column 1: while parsing a flow node, "
                "did not find expected node content"
            ),
        ),
        (
            "server: {}\n---\nrpc: {}",
            (
                "toolgate.yaml:2: not valid YAML in line 2, column 1: expected a single document "
                "in the stream, but found another document"
            ),
        ),
        ("{{ name }}: 1", "toolgate.yaml:1: {…}: there is no such setting"),
        ("a: &a [*a]", "toolgate.yaml:1: a.0.0…: nested too deeply"),
        (
            "server: {host: !!python/name:os.system x}",
            (
                "toolgate.yaml:1: not valid YAML in line 1, column 16: could not determine a "
                "constructor for the tag 'tag:yaml.org,2002:python/name:os.system'"
            ),
        ),
    ],
)
def test_a_mistake_is_told_with_place_expectation_and_suggestion(
    write: Write, text: str, problem: str
) -> None:
    assert problems(write(text)) == [problem]


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    path = write("server: {port: x}\nrpc: {batch_limit: 0}\nlogging: {acess: true}\nmcp: 1")
    with pytest.raises(SettingsError, match=r"^4 problems in the settings:\n") as caught:
        load(path, {})
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"server.port", "rpc.batch_limit", "logging.acess", "mcp"}


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x00\x80\xff")
    assert problems(str(file)) == [f"{file}: expected YAML in UTF-8"]


@pytest.mark.parametrize("path", ["mcp", "/", "/mcp/", "//mcp", "/a/../b", "/a b", "/mcp\\n", "/ä"])
@pytest.mark.parametrize("key", ["mcp", "rpc"])
def test_an_endpoint_has_a_plain_path(write: Write, key: str, path: str) -> None:
    (problem,) = problems(write(f'{key}: {{path: "{path}"}}'))
    assert f"{key}.path: expected a path such as /mcp" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mcp: {path: /rpc}", "rpc.path: expected a path of its own, found /rpc"),
        ("rpc: {path: /mcp}", "rpc.path: expected a path of its own, found /mcp"),
        ("rpc: {path: /mcp/sse}", "rpc.path: expected a path of its own, found /mcp/sse"),
        ("rpc: {path: /mcp/message}", "rpc.path: expected a path of its own, found /mcp/message"),
        ("mcp: {path: /metrics}", "mcp.path: expected a path of its own, found /metrics"),
        ("rpc: {path: /health}", "rpc.path: expected a path of its own, found /health"),
        ("database: {pool_max: 50}", "database.pool_max: expected less than"),
        ("database: {max_connections: 8}", "database.pool_max: expected less than"),
    ],
)
def test_settings_must_fit_together(write: Write, text: str, problem: str) -> None:
    (found,) = problems(write(text))
    assert found.startswith(f"toolgate.yaml:1: {problem}")


def test_the_pool_of_another_database_is_not_our_business(write: Write) -> None:
    settings = load(write("database: {url: 'postgresql://db/x', pool_max: 90}"), {})
    assert settings.database.pool_max == 90


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example",
        "a.example",
        "http://user:pw@a.example",
        "http://a.example/?key=1",
        "http://a.example/#top",
        "http://",
        "http://a.example/\\n",
    ],
)
def test_a_base_url_is_bare(write: Write, url: str) -> None:
    (problem,) = problems(write(f'sources: {{pets: {{base_url: "{url}"}}}}'))
    assert "credentials go into `headers`" in problem
    assert "pw" not in problem.rpartition("found")[2]
    assert "key" not in problem.rpartition("found")[2]


@pytest.mark.parametrize(
    "header",
    [
        '"X Y": a',
        '"X-A\\n": a',
        '"": a',
        'X-A: "a\\r\\nHost: b"',
        'X-A: "a\\n"',
        "X-A: [a]",
        "X-A:",
    ],
)
def test_a_header_is_one_line(write: Write, header: str) -> None:
    (problem,) = problems(write(f"sources:\n  pets:\n    headers:\n      {header}"))
    assert problem.startswith("toolgate.yaml:4: sources.pets.headers")


def test_numbers_and_switches_stay_text_where_text_is_expected(
    write: Write,
) -> None:
    path = write("database: {options: {jit: off, x: 1.50}}\nsources: {a: {headers: {X-Id: 007}}}")
    settings = load(path, {})
    assert settings.database.options == {"jit": "off", "x": "1.50"}
    assert settings.sources["a"].headers == {"X-Id": "007"}


def test_relative_paths_are_relative_to_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "t.yaml").write_text(
        "database: {data_dir: data}\n"
        "sources:\n"
        "  file: {openapi: ./pets.yaml}\n"
        "  absolute: {openapi: /srv/pets.yaml}\n"
        "  url: {openapi: 'https://a.example/pets.yaml'}\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = load("etc/t.yaml", {"TOOLGATE_SOURCES__HERE__OPENAPI": "pets.yaml"})
    assert settings.database.data_dir == str(tmp_path / "etc" / "data")
    assert {name: source.openapi for name, source in settings.sources.items()} == {
        "file": str(tmp_path / "etc" / "pets.yaml"),
        "absolute": "/srv/pets.yaml",
        "url": "https://a.example/pets.yaml",
        "here": str(tmp_path / "pets.yaml"),
    }


def test_the_paths_of_hybrid_and_python_sources_are_relative_to_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "t.yaml").write_text(
        "sources:\n"
        "  rules: {hybrid: rule/spec.yaml, base_url: 'http://localhost:8439', side: command,\n"
        "          batch: 5, same_trust_domain: true}\n"
        "  old: {hybrid: /srv/spec.yaml, base_url: 'http://localhost:8440', dialect: legacy}\n"
        "  file: {python: own.py}\n"
        "  module: {python: company.rules}\n"
    )
    monkeypatch.chdir(tmp_path)
    sources = load("etc/t.yaml", {}).sources
    rules = sources["rules"]
    assert rules.hybrid == str(tmp_path / "etc" / "rule" / "spec.yaml")
    assert (rules.side, rules.dialect, rules.batch, rules.same_trust_domain) == (
        "command",
        "jsonrpc",
        5,
        True,
    )
    assert (sources["old"].hybrid, sources["old"].dialect) == ("/srv/spec.yaml", "legacy")
    assert sources["file"].python == str(tmp_path / "etc" / "own.py")
    assert sources["module"].python == "company.rules"
    assert (sources["module"].side, sources["module"].dialect) == (None, "jsonrpc")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{openapi: a.yaml, hybrid: b.yaml}", "hybrid: expected one of .* openapi and hybrid"),
        ("{hybrid: b.yaml, python: c.d}", "python: expected one of .* hybrid and python"),
        ("{openapi: a, hybrid: b, python: c}", "hybrid: .* openapi and hybrid and python"),
        ("{python: c-d}", "python: expected a module such as company.rules"),
        ("{python: c.txt.}", "python: expected a module"),
        ("{side: both}", "side: expected"),
        ("{dialect: soap}", "dialect: expected"),
        ("{batch: 0}", "batch: expected a whole number of at least 1"),
    ],
)
def test_ambiguous_sources_are_refused_at_their_line(write: Write, source: str, found: str) -> None:
    (problem,) = problems(write(f"sources:\n  one: {source}"))
    assert re.match(rf"toolgate\.yaml:2: sources\.one\.{found}", problem), problem


@pytest.mark.parametrize(
    ("source", "key", "text"),
    [
        ("{hybrid: a.yaml}", "hybrid", "expected base_url beside it"),
        (
            "{hybrid: a, base_url: http://a, dialect: legacy, batch: 2}",
            "batch",
            "expected 1 with dialect: le",
        ),
        ("{dialect: legacy, batch: 2}", "batch", "expected 1 with dialect: legacy"),
        ("{openapi: a.yaml, side: query}", "side", "expected no such key beside openapi"),
        ("{openapi: a.yaml, dialect: legacy}", "dialect", "expected no such key beside openapi"),
        ("{openapi: a.yaml, batch: 2}", "batch", "expected no such key beside openapi"),
        ("{python: a.b, base_url: http://a}", "base_url", "expected no such key beside python"),
        ("{python: a.b, headers: {X-A: b}}", "headers", "expected no such key beside python"),
        ("{python: a.b, dialect: legacy}", "dialect", "expected no such key beside python"),
        ("{python: a.b, batch: 2}", "batch", "expected no such key beside python"),
        ("{python: a.b, forward_token: true}", "forward_token", "expected no such key beside pyth"),
    ],
)
def test_inapplicable_keys_of_sources_are_refused_at_their_line(
    write: Write, source: str, key: str, text: str
) -> None:
    (problem,) = problems(write(f"sources:\n  one: {source}"))
    assert problem.startswith(f"toolgate.yaml:2: sources.one.{key}: {text}")


@pytest.mark.parametrize(
    "source",
    [
        "{openapi: a.yaml, dialect: jsonrpc, batch: 1, forward_token: false}",
        "{python: a.b, side: query, include: [x], timeout_s: 3, headers: {}}",
        "{hybrid: a, base_url: http://a, dialect: legacy, side: command}",
        "{base_url: http://a, retries: 1, headers: {X-A: b}, side: query, batch: 5}",
    ],
)
def test_a_key_that_works_or_changes_nothing_is_none(write: Write, source: str) -> None:
    assert "one" in load(write(f"sources:\n  one: {source}"), {}).sources


def test_the_kind_that_a_variable_adds_is_one_too_many(write: Write) -> None:
    path = write("sources: {one: {openapi: a.yaml}}")
    (problem,) = problems(path, {"TOOLGATE_SOURCES__ONE__PYTHON": "company.rules"})
    assert "TOOLGATE_SOURCES__ONE__PYTHON" in problem
    assert "openapi and python" in problem


def test_defaults_match_the_types_of_settings(write: Write) -> None:
    assert isinstance(load(None, {}), Settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mcpServers: {}", "MCP servers are sources, as in `sources: "),
        ("limits: {per_minute: 9}", "rates have calls and seconds"),
        ("limits: {per_tool: {}}", "as in `limits: {tools: "),
        ("limits: {tool: {}}", "did you mean limits.tools?"),
        ("users: []", "callers have tokens or keys"),
        ("openai: {}", "chat models are strategies, as in `models: "),
        ("tool: {}", "tools come from sources"),
        ("Tools: []", "tools come from sources"),
    ],
)
def test_settings_of_other_products_are_explained(write: Write, text: str, words: str) -> None:
    """A name that newcomers try is told with an example (mending 41)."""
    (problem,) = problems(write(text))
    assert "there is no such setting" in problem
    assert words in problem


def test_examples_of_explanations_are_settings(write: Write) -> None:
    texts = {text for section in ELSEWHERE.values() for text in section.values()}
    examples = [example for text in texts for example in re.findall(r"`(.+)`", text)]
    assert len(examples) == len(texts)
    for example in examples:
        assert load(write(example), {})
