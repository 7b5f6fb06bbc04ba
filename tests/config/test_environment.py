"""Variables: one for every setting, and `${NAME}` in the file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import to_builtins

from config.load import DEFAULTS, SettingsError, load, variable
from config.yaml_document import InterpolationError, Loader, interpolate

Keys = tuple[str, ...]
ENV = {"NAME": "pets", "EMPTY": "", "PORT": "9000", "MONEY": "$NAME ${NAME}", "SWITCH": "true"}


def leaves(tree: dict[str, Any], path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


SETTINGS = [*leaves(yaml.load(DEFAULTS.read_bytes(), Loader=Loader))]
ANY_TEXT = {
    ("mcp", "instructions"),
    *(("embedding", key) for key in ("model", "api_key", "query_prefix", "endpoint")),
    *(
        ("models", "strategies", name, "model")
        for name in ("deepseek_single", "qwen_single_thinking", "qwen_single_instruct")
    ),
    *(("agent", key) for key in ("strategy", "instructions")),
    *(("events", "kafka", key) for key in ("username", "password", "principal")),
    ("skills", "agent_claim"),
    *(("backups", "bucket", key) for key in ("region", "key_id", "secret")),
    *(("knowledge", key) for key in ("agent_claim", "no_context_reply", "model")),
    ("librarian", "query", "model"),
    *(("librarian", "research", key) for key in ("model", "sub_model")),
    ("memory", "agent_claim"),
    ("memory", "extraction", "strategy"),
    ("search", "rerank_model"),
    ("database", "data_dir"),
    ("audit", "spool_dir"),
    ("packages", "folder"),
    *(("server", "tls", key) for key in ("cert", "key")),
    *(("notifications", "smtp", key) for key in ("user", "password", "ca_file")),
    *(("auth", key) for key in ("key_file", "jwks_file", "issuer", "audience")),
}
COMPARED = {"TOOLGATE_MODELS__STRATEGY"}  # any text, which has to be one of the strategies
CHECKED = [path for path, _ in SETTINGS if path not in ANY_TEXT]


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_settings(text: str) -> str:
    Path("toolgate.yaml").write_text(text, encoding="utf-8")
    return "toolgate.yaml"


def problems(path: str | None, env: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(path, env)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $ text, $5, $NAME", "plain $ text, $5, $NAME"),
        ("${NAME}", "pets"),
        ("http://${NAME}:${PORT}/", "http://pets:9000/"),
        ("${NONE:-else}", "else"),
        ("${EMPTY:-else}", "else"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-http://a:1/b}", "http://a:1/b"),
        ("$$", "$"),
        ("$${NAME}", "${NAME}"),
        ("$$$NAME", "$$NAME"),
        ("${MONEY}", "$NAME ${NAME}"),  # once, whatever comes out
    ],
)
def test_interpolation(text: str, result: str) -> None:
    found, _ = interpolate(text, ENV, Path())
    assert found == result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${NONE}", "the environment variable NONE is not set, and there is no default"),
        ("${1A}", "expected ${NAME}, ${NAME:-default} or ${file:PATH}, found ${1A}"),
        ("${}", "expected ${NAME}, ${NAME:-default} or ${file:PATH}, found ${}"),
        ("${NAME", "expected ${NAME}, ${NAME:-default} or ${file:PATH}, found ${"),
        ("${NONE-x}", "expected ${NAME}, ${NAME:-default} or ${file:PATH}, found ${NONE-x}"),
        ("${NONE:-${NAME}}", "expected ${NAME}, ${NAME:-default} or ${file:PATH}, found ${NONE:…"),
    ],
)
def test_a_reference_that_cannot_be_filled_in(text: str, reason: str) -> None:
    with pytest.raises(InterpolationError) as caught:
        interpolate(text, ENV, Path())
    assert str(caught.value) == reason


def test_a_filled_in_text_takes_the_type_that_is_expected_there() -> None:
    path = write_settings(
        "auth: {mode: keys}\n"
        "server: {port: '${PORT}', allowed_hosts: '${NONE:-[a.example, b.example]}'}\n"
        "mcp: {instructions: '${PORT}'}\n"
        "imports:\n  private_networks: ${SWITCH}\n"
        "upstream:\n  timeout_s: ${NONE:-2.5}\n"
        "sources: {a: {base_url: '${EMPTY}', headers: {X-Port: '${PORT}'}}}\n"
    )
    settings = load(path, ENV)
    assert settings.server.port == 9000
    assert settings.server.allowed_hosts == ("a.example", "b.example")
    assert settings.mcp.instructions == "9000"
    assert settings.imports.private_networks is True
    assert settings.upstream.timeout_s == 2.5
    assert settings.sources["a"].base_url is None
    assert settings.sources["a"].headers == {"X-Port": "9000"}


def test_an_unset_variable_is_told_with_the_setting_and_its_line() -> None:
    assert problems(write_settings("server:\n  port: ${NONE}"), ENV) == [
        (
            "toolgate.yaml:2: server.port: the environment variable NONE is not set, "
            "and there is no default"
        )
    ]


def test_every_setting_has_a_variable() -> None:
    texts = {
        variable(path): default if isinstance(default, str) else json.dumps(default)
        for path, default in SETTINGS
    }
    assert len(texts) == len(SETTINGS)
    assert load(None, texts) == load(None, {})


def test_every_variable_is_checked() -> None:
    names = {variable(path) for path in CHECKED}
    found = problems(None, dict.fromkeys(names, "{[ "))
    assert {problem.partition(":")[0] for problem in found} == names - COMPARED


@pytest.mark.parametrize("name", sorted(COMPARED))
def test_a_variable_is_compared_with_other_settings(name: str) -> None:
    (problem,) = problems(None, {name: "{[ "})
    assert problem.startswith(name)


def test_a_variable_wins_over_the_file() -> None:
    path = write_settings("server: {port: 1, host: 127.0.0.2}")
    settings = load(path, {"TOOLGATE_SERVER__PORT": "2"})
    assert (settings.server.port, settings.server.host) == (2, "127.0.0.2")


def test_names_of_variables_ignore_case() -> None:
    assert load(None, {"toolgate_Server__port": "2"}).server.port == 2


def test_text_values_are_not_parsed_as_yaml() -> None:
    env = {"TOOLGATE_MCP__INSTRUCTIONS": "{a: 1", "TOOLGATE_DATABASE__OPTIONS__JIT": "off"}
    settings = load(None, env)
    assert settings.mcp.instructions == "{a: 1"
    assert settings.database.options == {"jit": "off"}


def test_lists_and_mappings_are_yaml_or_json() -> None:
    settings = load(
        None,
        {
            "TOOLGATE_SERVER__ALLOWED_HOSTS": '["a.example"]',
            "TOOLGATE_AUTH__MODE": "keys",
            "TOOLGATE_SOURCES": '{"pets": {"openapi": "/p.yaml", "retries": 0}}',
            "TOOLGATE_RPC": "{batch_limit: 3}",
        },
    )
    assert settings.server.allowed_hosts == ("a.example",)
    assert settings.sources["pets"].retries == 0
    assert (settings.rpc.batch_limit, settings.rpc.path) == (3, "/rpc")


def test_the_finer_of_two_variables_wins() -> None:
    env = {
        "TOOLGATE_SOURCES__PETS__RETRIES": "2",
        "TOOLGATE_SOURCES": "{pets: {retries: 1, openapi: /p.yaml}}",
        "TOOLGATE_SOURCES__PETS": "{retries: 3, timeout_s: 4}",
    }
    pets = load(None, env).sources["pets"]
    assert (pets.retries, pets.timeout_s, pets.openapi) == (2, 4, "/p.yaml")


def test_a_variable_replaces_all_sources_of_the_file() -> None:
    path = write_settings("sources: {pets: {}, shops: {}}")
    assert load(path, {"TOOLGATE_SOURCES": "{}"}).sources == {}


def test_a_variable_reaches_an_entry_whose_name_has_dashes() -> None:
    path = write_settings("sources: {pet-shop: {headers: {X-Api-Key: a}}}")
    env = {
        "TOOLGATE_SOURCES__PET_SHOP__HEADERS__X_API_KEY": "b",
        "TOOLGATE_SOURCES__PET_SHOP__HEADERS__X_TRACE": "c",
        "TOOLGATE_SOURCES__OTHER_SHOP__RETRIES": "1",
    }
    sources = load(path, env).sources
    assert sources["pet-shop"].headers == {"X-Api-Key": "b", "x-trace": "c"}
    assert sources["other_shop"].retries == 1


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("TOOLGATE_SERVER__PROT", "there is no such setting; did you mean TOOLGATE_SERVER__PORT?"),
        ("TOOLGATE_SERVER_PORT", "there is no such setting; did you mean TOOLGATE_SERVER__PORT?"),
        (
            "TOOLGATE_SERVER__PORT__X",
            "there is no such setting; did you mean TOOLGATE_SERVER__PORT?",
        ),
        (
            "TOOLGATE_SOURCES__PETS__BASEURL",
            "there is no such setting; did you mean TOOLGATE_SOURCES__PETS__BASE_URL?",
        ),
        ("TOOLGATE_XYZ", "there is no such setting"),
    ],
)
def test_a_variable_that_means_nothing_is_an_error(name: str, problem: str) -> None:
    assert problems(None, {name: "1"}) == [f"{name}: {problem}"]


def test_a_wrong_value_is_told_with_variable_and_setting() -> None:
    assert problems(None, {"TOOLGATE_SERVER__PORT": "http", "TOOLGATE_RPC": "{path: [}"}) == [
        (
            "TOOLGATE_RPC: not valid YAML in line 1, column 9: while parsing a flow node, "
            "did not find expected node content"
        ),
        'TOOLGATE_SERVER__PORT: server.port: expected a TCP port from 0 to 65535, found "http"',
    ]


def test_variables_that_kubernetes_sets_for_a_service_called_toolgate_are_not_ours() -> None:
    env = {
        "TOOLGATE_SERVICE_HOST": "10.0.0.1",
        "TOOLGATE_SERVICE_PORT": "80",
        "TOOLGATE_SERVICE_PORT_HTTP": "80",
        "TOOLGATE_PORT": "tcp://10.0.0.1:80",
        "TOOLGATE_PORT_80_TCP": "tcp://10.0.0.1:80",
        "TOOLGATE_DB_SERVICE_HOST": "10.0.0.2",
        "TOOLGATE_DB_PORT": "tcp://10.0.0.2:5432",
        "OTHER_VARIABLE": "x",
    }
    assert to_builtins(load(None, env)) == to_builtins(load(None, {}))


def test_a_section_that_is_no_mapping_is_told_once() -> None:
    path = write_settings("server: 5")
    assert problems(path, {"TOOLGATE_SERVER__PORT": "1"}) == [
        "toolgate.yaml:1: server: expected a mapping, found 5"
    ]
