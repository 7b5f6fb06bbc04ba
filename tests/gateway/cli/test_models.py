"""`toolgate models`, with a scripted provider."""

from collections.abc import Iterator
from contextlib import contextmanager

from anyio.from_thread import start_blocking_portal

from tests.gateway.cli.conftest import Toolgate
from tests.servers.provider import Answer, Provider, chat, chat_whole, failing, providing

URL = "TOOLGATE_MODELS__STRATEGIES__OPENAI_COMPATIBLE__URL"
KEY = "TOOLGATE_MODELS__STRATEGIES__OPENAI_COMPATIBLE__API_KEY"
SECRETS = {"TOOLGATE_SECRETS__KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}


@contextmanager
def serving(*answers: Answer) -> Iterator[Provider]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(providing(*answers)) as provider,
    ):
        yield provider


def test_the_list_names_the_missing_parts_of_each_strategy(bare: Toolgate) -> None:
    ran = bare("models", "list", "--json", **{URL: "http://127.0.0.1:9/v1"})
    states = {one["strategy"]: (one["state"], one["default"]) for one in ran.json}
    assert states["openai_compatible"] == ("configured", True)
    assert states["deepseek_single"] == ("no key", False)
    ran = bare("models", "list")
    assert "deepseek_single *" in ran.out
    assert "no address" in ran.out


def test_an_answer_is_printed(bare: Toolgate) -> None:
    with serving(chat("Hello there, friend.", reasoning="hm")) as provider:
        ran = bare("models", "ask", "Hi", "--system", "Be kind.", **{URL: provider.url})
        assert (ran.code, ran.out) == (0, "Hello there, friend.\n")
        sent = provider.requests[0].body["messages"]
        assert [(one["role"], one["content"]) for one in sent] == [
            ("system", "Be kind."),
            ("user", "Hi"),
        ]
        ran = bare("models", "ask", "-", "--reasoning", stdin="Hi", **{URL: provider.url})
        assert ran.err == "hm"


def test_checks_name_the_reason_and_fail(bare: Toolgate) -> None:
    with serving(chat_whole("ready"), failing(401, "key sk-very-secret is wrong")) as provider:
        env = {URL: provider.url, KEY: "sk-very-secret"}
        ran = bare("models", "check", "--json", **env)
        assert (ran.code, ran.json[0]["status"], ran.json[0]["model"]) == (0, "ok", "m-1")
        ran = bare("models", "check", "openai_compatible", **env)
    assert ran.code == 1
    assert "key *** is wrong" in ran.out
    assert "does not answer" in ran.err


def test_invalid_model_requests_are_reported(bare: Toolgate) -> None:
    assert "no strategy is configured" in bare("models", "check").err
    assert "deepseek_single" in bare("models", "check", "deepseek_singel").err
    assert "models.strategies.deepseek_single.api_key" in bare("models", "ask", "Hi").err
    assert bare("models", "ask", " ").code == 2


def test_keys_are_stored_as_secrets(toolgate: Toolgate) -> None:
    ran = toolgate("secrets", "set", "models", "nobody", stdin="sk-1\n", **SECRETS)
    assert "no strategy 'nobody'" in ran.err
    ran = toolgate("secrets", "set", "models", "openai_compatible", stdin="sk-1\n", **SECRETS)
    assert ran.code == 0, ran.err
    with serving(chat("Yes.")) as provider:
        ran = toolgate("models", "ask", "Hi", **{URL: provider.url}, **SECRETS)
        assert provider.requests[0].headers["authorization"] == "Bearer sk-1"
    assert ran.out == "Yes.\n"
