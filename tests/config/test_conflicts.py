"""Settings of MCP servers, toolsets and shared state that do not fit together."""

from pathlib import Path

import pytest

from config.load import SettingsError, load
from config.settings import Settings


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_text(text: str) -> Settings:
    Path("toolgate.yaml").write_text(text, encoding="utf-8")
    return load(None, {})


def problem(text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_text(text)
    (one,) = caught.value.problems
    return str(one)


IDLE = [
    ("graphql: http://a/graphql", "entry: a.yaml"),
    ("graphql: http://a/graphql", "media_types: [text/plain]"),
    ("graphql: http://a/graphql", "side: query"),
    ("graphql: http://a/graphql", "pin: true"),
    ("openapi: a.yaml", "depth: 2"),
    ("hybrid: a.yaml, base_url: http://a", "cost: 2"),
    ("mcp: http://a", "depth: 2"),
    ("mcp: http://a", "base_url: http://b"),
    ("mcp: http://a", "retries: 1"),
    ("mcp: http://a", "side: query"),
    ("mcp: http://a", "dialect: legacy"),
    ("mcp: http://a", "batch: 2"),
    ("mcp: http://a", "env: {A: b}"),
    ("command: [a]", "base_url: http://b"),
    ("command: [a]", "headers: {X-A: b}"),
    ("command: [a]", "retries: 1"),
    ("command: [a]", "side: query"),
    ("command: [a]", "dialect: legacy"),
    ("command: [a]", "batch: 2"),
    ("command: [a]", "forward_token: true"),
    ("command: [a]", "exchange: {token_url: https://a/t, client_id: b}"),
    ("command: [a]", "tls: {ca_file: b}"),
    ("python: a.b", "tls: {ca_file: b}"),
    ("command: [a]", "era: stateless"),
    *(
        (kind, key)
        for kind in ("openapi: a.yaml", "hybrid: a.yaml, base_url: http://a", "python: a.b")
        for key in (
            "env: {A: b}",
            "era: handshake",
            "prefix: always",
            "own_sessions: true",
            "pin: true",
        )
    ),
]


@pytest.mark.parametrize(("kind", "key"), IDLE)
def test_a_key_that_means_nothing_beside_a_kind_is_refused(kind: str, key: str) -> None:
    kind_name, key_name = kind.partition(":")[0], key.partition(":")[0]
    assert problem(f"sources:\n  one: {{{kind}, {key}}}") == (
        f"toolgate.yaml:2: sources.one.{key_name}: expected no such key beside {kind_name}, "
        "where it means nothing"
    )


@pytest.mark.parametrize(
    "entry",
    [
        "{mcp: 'http://a/mcp', headers: {X-A: b}, timeout_s: 3, era: handshake}",
        "{mcp: 'http://a/mcp', prefix: never, own_sessions: true, pin: true}",
        "{mcp: 'http://a/mcp', include: [a*], exclude: [ab]}",
        "{command: [npx, -y, 7], env: {A: 1, b_2: x}, timeout_s: 3, include: [a*]}",
        "{command: [a], prefix: always, own_sessions: true, pin: true, exclude: [ab]}",
        "{env: {A: b}, era: stateless, headers: {X-A: b}, pin: true}",
        "{command: [], mcp: 'http://a'}",
        "{graphql: 'http://a/graphql', overlay: a.yaml, only_marked: true, depth: 2, cost: 9}",
        "{graphql: a.graphql, base_url: 'http://a/graphql', headers: {X-A: b}, retries: 1}",
    ],
)
def test_keys_that_mean_something_are_taken(entry: str) -> None:
    assert "one" in load_text(f"sources: {{one: {entry}}}").sources


def test_a_source_is_of_one_kind() -> None:
    assert problem("sources: {one: {mcp: 'http://a', command: [a]}}") == (
        "toolgate.yaml:1: sources.one.command: expected one of openapi, graphql, hybrid, python, "
        "mcp, command, a2a, found mcp and command"
    )


def test_arguments_and_variables_of_a_command_stay_as_written() -> None:
    source = load_text("sources: {one: {command: [serve, 8080, yes], env: {DEBUG: 1.0}}}").sources
    assert source["one"].command == ("serve", "8080", "yes")
    assert source["one"].env == {"DEBUG": "1.0"}


def test_names_of_new_command_variables_are_in_capitals() -> None:
    Path("toolgate.yaml").write_text("sources: {fs: {command: [fs], env: {mixedCase: a}}}")
    env = {
        "TOOLGATE_SOURCES__FS__ENV__API_KEY": "k",
        "TOOLGATE_SOURCES__FS__ENV__MIXEDCASE": "b",
    }
    assert load(None, env).sources["fs"].env == {"API_KEY": "k", "mixedCase": "b"}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{env: {1A: b}}", "env: expected the name of an environment variable"),
        ("{env: {'A=B': b}}", "env: expected the name of an environment variable"),
        ('{command: ["a\\0"]}', "command.0: expected text without NUL characters"),
        ("{mcp: 'stdio:a'}", "mcp: expected an http:// or https:// URL"),
        ("{era: '2026'}", "era: expected one of auto, handshake, stateless"),
    ],
)
def test_values_that_no_server_could_use_are_refused(entry: str, expected: str) -> None:
    assert f"sources.one.{expected}" in problem(f"sources: {{one: {entry}}}")


def test_commands_are_refused_where_none_may_be_run() -> None:
    assert problem("upstream: {stdio: false}\nsources: {one: {command: [a]}}") == (
        "toolgate.yaml:2: sources.one.command: expected no command while upstream.stdio is false, "
        "which allows none to be run"
    )


@pytest.mark.parametrize("path", ["/mcp/sales", "/mcp/sales/sse", "/mcp/sales/message"])
def test_a_toolset_has_paths_of_its_own(path: str) -> None:
    assert problem(f"rpc: {{path: {path}}}\ntoolsets: {{sales: {{}}}}") == (
        "toolgate.yaml:2: toolsets.sales: expected a path of its own, "
        f"found {path} (taken by rpc.path)"
    )


def test_operations_as_tools_have_paths_of_their_own() -> None:
    on = "auth: {mode: keys}\nadmin: {tools: true}\n"
    found = problem(f"{on}toolsets: {{admin: {{}}}}")
    expected = "expected a path of its own, found /mcp/admin (taken by toolsets.admin)"
    assert found == f"toolgate.yaml:2: admin.tools: {expected}"


@pytest.mark.parametrize("mode", ["admin: {tools: true}", "admin: {tools: true, enabled: false}"])
def test_operations_are_tools_only_where_callers_are_known(mode: str) -> None:
    assert problem(mode) == (
        "toolgate.yaml:1: admin.tools: expected false while admin.enabled is false or auth.mode is "
        "none, found true"
    )


@pytest.mark.parametrize("path", ["/mcp", "/mcp/sse", "/metrics", "/portal"])
def test_the_admin_api_has_all_below_its_path(path: str) -> None:
    found = problem(f"admin: {{path: {path}}}")
    expected = f"toolgate.yaml:1: admin.path: expected a path of its own, found {path} (taken by "
    assert found.startswith(expected)


def test_an_admin_api_that_is_off_takes_no_path() -> None:
    assert load_text("admin: {enabled: false, path: /mcp}").admin.path == "/mcp"


@pytest.mark.parametrize("name", ["sse", "message", "Sales", "a b", "_a", "x" * 64])
def test_a_toolset_has_a_name_that_can_stand_in_a_path(name: str) -> None:
    assert "toolsets: expected a name of at most 63" in problem(f"toolsets: {{{name}: {{}}}}")


def test_a_toolset_may_name_a_source_that_is_imported_by_command() -> None:
    assert load_text("toolsets: {sales: {sources: [crm], include: [list*]}}").toolsets["sales"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("{backend: redis}", "state.backend: expected state.redis_url with it"),
        (
            "{redis_url: 'redis://a'}",
            "state.redis_url: expected state.backend: redis with it, found memory",
        ),
        (
            "{backend: postgres, redis_url: 'redis://a'}",
            "state.redis_url: expected state.backend: redis with it, found postgres",
        ),
        ("{backend: etcd}", "state.backend: expected one of auto, memory, postgres, redis"),
        ("{secret: short}", "state.secret: expected at least 16 characters, or nothing"),
    ],
)
def test_shared_state_requires_its_address(state: str, expected: str) -> None:
    assert problem(f"state: {state}").startswith(f"toolgate.yaml:1: {expected}")


@pytest.mark.parametrize(
    "url",
    [
        *("redis://a:b", "redis://:6379", "redis://a:pass/word@b", "rediss://a:0", "redis://a/b"),
        *("redis+cluster://a,", "redis+cluster://a:1,b:x", "redis+cluster://a/1"),
        "redis+cluster://u:pass,word@",
    ],
)
def test_an_address_of_redis_that_cannot_be_read_is_refused_unseen(url: str) -> None:
    said = problem(f"state: {{backend: redis, redis_url: '{url}'}}")
    assert "state.redis_url: expected redis://[user:password@]host[:port][/database]" in said
    assert url not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://a",
        "redis://:p%2F@a:6380/3",
        "rediss://u:p@[::1]:1/",
        "unix:///run/redis.sock?db=1",
        "redis+cluster://:p%2F@a:7000,b,[::1]:7001",
        "rediss+cluster://u:p@a",
    ],
)
def test_addresses_of_redis_are_taken(url: str) -> None:
    assert load_text(f"state: {{backend: redis, redis_url: '{url}'}}").state.redis_url == url


def test_profiles_are_told_by_names_that_there_are() -> None:
    said = problem("profiles: {default: cluade, custom: {mine: {}}}")
    assert "profiles.default: expected one of auto, plain, claude" in said
    assert said.endswith("mine")
    assert load_text("profiles: {default: mine, custom: {mine: {}}}").profiles.default == "mine"
    said = problem("profiles: {tool_tokens: {cluade: 500}}")
    assert "profiles.tool_tokens.cluade: expected one of plain, claude" in said
    limits = load_text(
        "profiles: {tool_tokens: {mine: 500, claude: 300}, custom: {mine: {}}}"
    ).profiles
    assert limits.tool_tokens == {"mine": 500, "claude": 300}


def test_a_model_has_a_profile_that_there_is() -> None:
    """Tools are written for a model by its dialect, or by a profile that it names (mending 21)."""
    said = problem("models: {strategies: {gem: {url: 'http://127.0.0.1:9/v1', profile: gemnii}}}")
    assert "models.strategies.gem.profile: expected one of auto, plain, claude" in said
    models = load_text(
        "profiles: {custom: {mine: {}}}\n"
        "models: {strategies: {gem: {profile: mine}, claude: {dialect: anthropic}, gpt: {}}}\n"
    ).models
    assert {name: models.strategies[name].tool_profile for name in ("gem", "claude", "gpt")} == {
        "gem": "mine", "claude": "claude", "gpt": "openai",
    }  # fmt: skip


@pytest.mark.parametrize("number", [".nan", ".inf"])
def test_a_number_is_finite(number: str) -> None:
    assert "search.query_timeout_s: expected" in problem(f"search: {{query_timeout_s: {number}}}\n")


def test_names_of_arguments_are_told_by_a_regular_expression() -> None:
    said = problem("profiles: {custom: {mine: {arguments: '[a'}}}")
    assert said.endswith("profiles.custom.mine.arguments: expected a regular expression")


@pytest.mark.parametrize(
    ("embedding", "expected"),
    [
        ("provider: local-http", "embedding.url: expected the URL of a service"),
        ("provider: openai-compatible, url: http://a", "embedding.model: expected the name"),
        ("provider: openai-compatible, model: m", "embedding.url: expected the URL of a service"),
        ("provider: sentence-transformers", "embedding.model: expected the name of a model"),
    ],
)
def test_an_embedding_provider_needs_its_model_or_address(embedding: str, expected: str) -> None:
    found = problem(f"embedding: {{{embedding}}}\n")
    assert expected in found
    assert found.startswith("toolgate.yaml:1")


def test_models_of_purposes_are_checked_like_the_general_model() -> None:
    found = problem("embedding: {purposes: {passages: {provider: local-http}}}\n")
    assert "embedding.purposes.passages.url: expected the URL of a service" in found
    found = problem("embedding: {purposes: {passages: {provider: bundled, model: m}}}\n")
    assert "embedding.purposes.passages.model: expected nothing, the bundled model has" in found


def test_the_key_of_a_purpose_is_a_secret() -> None:
    found = problem("embedding: {purposes: {passages: {provider: bundled, api_key: [s3cret]}}}\n")
    assert "embedding.purposes.passages.api_key" in found
    assert "s3cret" not in found


def test_a_purpose_takes_its_own_model_and_the_rest_from_all() -> None:
    model = "{provider: openai-compatible, model: m, url: http://a}"
    found = load_text(f"embedding: {{lease_s: 7, purposes: {{passages: {model}}}}}\n").embedding
    passages = found.of("passages")
    assert (passages.provider, passages.model, passages.lease_s) == ("openai-compatible", "m", 7)
    assert found.of("tools").provider == "bundled"


def test_models_share_the_address_and_key_of_an_endpoint() -> None:
    found = load_text(
        "models:\n"
        "  endpoints: {lab: {url: http://127.0.0.1:1/v1, api_key: k, connections: 3}}\n"
        "  strategies: {local: {endpoint: lab, model: m}, own: {endpoint: lab, api_key: own}}\n"
        "embedding: {endpoint: lab, provider: openai-compatible, model: e,\n"
        "            purposes: {passages: {endpoint: lab, provider: local-http}}}\n"
    )
    local, own = found.models.strategies["local"], found.models.strategies["own"]
    assert own.api_key == "own"
    for one in (local, found.embedding, found.embedding.of("passages")):
        assert (one.url, one.api_key, one.connections) == ("http://127.0.0.1:1/v1", "k", 3)
    said = problem("models: {strategies: {local: {endpoint: lob}}}\n")
    assert "models.strategies.local.endpoint: expected an entry of models.endpoints" in said


@pytest.mark.parametrize(
    "embedding",
    [
        "provider: local-http, url: http://a",
        "provider: openai-compatible, model: m, url: http://a/v1",
        "provider: sentence-transformers, model: acme/bge",
        "provider: disabled",
    ],
)
def test_a_complete_embedding_provider_is_accepted(embedding: str) -> None:
    assert load_text(f"embedding: {{{embedding}}}\n").embedding.provider in embedding


@pytest.mark.parametrize("key", ["model: m", "url: http://a", "api_key: hidden"])
def test_the_bundled_model_refuses_settings_of_services(key: str) -> None:
    said = problem(f"embedding: {{{key}}}\n")
    assert said.startswith(f"toolgate.yaml:1: embedding.{key.partition(':')[0]}: expected nothing")
    assert said.endswith("set embedding.provider")
    assert "hidden" not in said
    off = load_text(f"embedding: {{provider: disabled, {key}}}\n")
    assert off.embedding.provider == "disabled", "they may wait until it is switched on again"


def test_meaning_or_nothing_needs_meaning() -> None:
    closed = "disclosure: {when_down: fail_closed}\n"
    said = problem(f"{closed}embedding: {{provider: disabled}}\n")
    assert said.startswith("toolgate.yaml:1: disclosure.when_down: expected lexical")
    assert load_text(closed).disclosure.when_down == "fail_closed"


def test_a_second_stage_needs_its_model() -> None:
    said = problem("search: {rerank: auto}\n")
    assert said.startswith("toolgate.yaml:1: search.rerank_model: expected the folder")
    assert load_text("search: {rerank_model: /some/folder}\n").search.rerank == "off"


@pytest.mark.parametrize(
    ("portal", "expected"),
    [
        ("legacy_deprecated: '2027-02-30'", "expected a date of the calendar, found 2027-02-30"),
        ("legacy_sunset: soon", "expected a date such as 2027-06-30"),
        (
            "legacy_deprecated: '2027-02-01', legacy_sunset: '2027-01-31'",
            "expected no day before portal.legacy_deprecated (2027-02-01), found 2027-01-31",
        ),
    ],
)
def test_the_end_of_the_legacy_payload_is_announced_by_dates(portal: str, expected: str) -> None:
    assert expected in problem(f"portal: {{{portal}}}")


def test_dates_are_taken_with_quotes_and_without() -> None:
    for day in ("2027-06-30", "'2027-06-30'"):
        assert load_text(f"portal: {{legacy_sunset: {day}}}").portal.legacy_sunset == "2027-06-30"


@pytest.mark.parametrize("setting", ["context_tools", "observer_tools"])
def test_tools_read_and_kept_by_an_agent_are_named_with_their_source(setting: str) -> None:
    """A name alone is that of an operation of a wing (mending 1)."""
    told = problem(f"agent: {{{setting}: [memory_context, crm.notes, crm_notes]}}")
    assert "expected SOURCE.crm_notes, or an operation of a wing; found crm_notes" in told


@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("schedules", "cron: '0 4 * * *', principal: clock"),
        ("inbound", f"secret: whsec_{'QUJD' * 10}, principal: shop"),
    ],
)
def test_schedules_and_hooks_name_tools_with_their_source(section: str, entry: str) -> None:
    """A name alone is a skill of workers or an operation of a wing: any server may list others
    (mending 1)."""

    def events(skill: str) -> str:
        return (
            f"events: {{skills: {{report: {{}}}}, {section}: {{x: {{skill: {skill}, {entry}}}}}}}"
        )

    for skill in ("report", "memory_purge", "crm.notes", ".by_hand"):
        assert load_text(events(skill)).events
    told = problem(events("notes"))
    assert f"events.{section}.x.skill" in told
    assert "expected SOURCE.notes, a key of events.skills, or an operation of a wing" in told


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("toolset: sales", "toolset: expected one of toolsets (letters), found sales"),
        ("strategy: clever", "strategy: expected an entry of models.strategies, found clever"),
    ],
)
def test_served_agents_name_existing_toolsets_and_strategies(entry: str, expected: str) -> None:
    agent = f"a2a: {{enabled: true, agents: {{desk: {{description: d, {entry}}}}}}}"
    assert problem(f"toolsets: {{letters: {{}}}}\n{agent}") == (
        f"toolgate.yaml:2: a2a.agents.desk.{expected}"
    )


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("namespace: com.example", "server.public_url: expected the URL that clients use"),
        ("access: open", "subregistry.namespace: expected a reversed domain"),
        ("access: token", "subregistry.access: expected open: with auth.mode none"),
    ],
)
def test_a_registry_has_a_name_an_address_and_readers(members: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text(f"subregistry: {{enabled: true, {members}}}")
    assert any(expected in str(problem) for problem in caught.value.problems)


def test_cards_are_signed_by_the_key_of_a_login() -> None:
    expected = "toolgate.yaml:1: a2a.sign: expected login.enabled with it, whose key signs cards"
    assert problem("a2a: {enabled: true, sign: true}") == expected


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("server: {public_url: 'https://bücher.example'}", "server.public_url"),
        (
            "oauth: {authorization_servers: ['https://bücher.example']}",
            "oauth.authorization_servers",
        ),
    ],
)
def test_signed_cards_lead_to_no_host_without_accents(section: str, key: str) -> None:
    """bücher.example would be signed as bucher.example, which is another host."""
    with pytest.raises(SettingsError) as caught:
        load_text(f"a2a: {{enabled: true, sign: true}}\n{section}")
    expected = f"{key}: expected ASCII with a2a.sign"
    assert any(expected in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("auth: {mode: keys}\nbackups: {enabled: true}", "expected a folder, or s3://BUCKET"),
        ("backups: {enabled: true, to: /b}", "backups are jobs: set auth.mode (jwt or keys)"),
        ("auth: {mode: keys}\nbackups: {to: here}", "an absolute path of a folder, or s3://"),
    ],
)
def test_backups_have_a_place_and_jobs(text: str, reason: str) -> None:
    assert reason in problem(text)
