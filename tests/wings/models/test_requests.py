"""Requests to providers: retries, deadlines, cancellation, budgets, the cache, transcripts."""

import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from config.models import Price, Strategy
from config.sources import SchemeSettings
from gateway.http_client.pool import Pool
from gateway.wings.models.configured_models import ConfiguredModels, Model
from gateway.wings.models.messages import (
    ChatMessage,
    ContentChunk,
    ModelExchange,
    ModelFailed,
    RequestOptions,
    StatusUpdate,
)
from gateway.wings.models.provider_http import Replay
from gateway.wings.models.usage import Budget, ModelCost
from tests.polling import until
from tests.servers.provider import Answer, chat, chat_whole, delta, failing, providing, sse
from tests.wings.models.asking import HELLO, PETS, asking, collect_events, limits, reply_of

pytestmark = pytest.mark.anyio

PRICE = Price(input=1_000_000.0, output=2_000_000.0, cached=100_000.0)  # one for a token
BEGUN = [sse(delta(content="One"))]


async def failure_of(model: Model, *args: Any) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        await collect_events(model, *args)
    return caught.value


@pytest.mark.parametrize("status", [429, 502, 503, 504, 529])
async def test_a_busy_provider_is_asked_again(status: int) -> None:
    answers = (failing(status), failing(status, Retry_After="0.01"), chat("Yes."))
    async with providing(*answers) as provider, asking(provider.url) as model:
        with anyio.fail_after(30):
            events = await collect_events(model, HELLO)
    assert events[:2] == [StatusUpdate("retrying", "busy")] * 2
    assert reply_of(events).text == "Yes."


async def test_a_retry_that_would_come_too_late_is_none() -> None:
    async with (
        providing(failing(429, Retry_After="86400")) as provider,
        asking(provider.url) as model,
    ):
        error = await failure_of(model, HELLO)
    assert (error.kind, error.retry_after_s) == ("busy", 86400)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "bad", "refused"),
        (401, "who?", "auth"),
        (403, "not you", "auth"),
        (404, "no such model", "refused"),
        (413, "large", "overflow"),
        (400, "maximum context length is 128000 tokens", "overflow"),
        (302, "elsewhere", "refused"),
    ],
)
async def test_refused_requests_are_not_repeated(status: int, message: str, kind: str) -> None:
    answer = failing(status, message, Location="http://169.254.169.254/")
    async with providing(answer) as provider, asking(provider.url) as model:
        error = await failure_of(model, HELLO)
    assert (error.kind, error.detail) == (kind, message)
    assert message not in str(error)
    assert len(provider.requests) == 1


async def test_the_key_is_sent_but_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    answer = failing(401, "Incorrect API key provided: sk-secret-1234.")
    async with (
        providing(answer) as provider,
        asking(provider.url, strategy={"api_key": "sk-secret-1234"}) as model,
    ):
        error = await failure_of(model, HELLO)
    assert provider.requests[0].headers["authorization"] == "Bearer sk-secret-1234"
    assert error.detail == "Incorrect API key provided: ***."
    assert "secret" not in f"{error}{caplog.text}{caplog.records[0].__dict__}"


async def test_a_stored_key_is_used_where_the_settings_have_none() -> None:
    stored: dict[str, Any] = {}
    async with providing(chat("Yes.")) as provider:
        settings = limits(provider.url, strategy={"needs_key": True})
        async with ConfiguredModels(settings, lambda: stored) as models:
            with pytest.raises(ModelFailed, match="toolgate secrets set models tested"):
                models.of()
            stored["models"] = {"tested": SchemeSettings(value="stored-key\n")}
            assert models.configured_strategies == ["tested"]
            await collect_events(models.of(), HELLO)
    assert provider.requests[0].headers["authorization"] == "Bearer stored-key"


async def test_strategies_without_an_address_are_not_configured() -> None:
    async with ConfiguredModels(limits()) as models:
        assert models.configured_strategies == []
        with pytest.raises(ModelFailed, match="no address") as caught:
            models.of("tested")
        assert caught.value.kind == "unconfigured"
        with pytest.raises(ModelFailed, match="no strategy 'other', only tested"):
            models.of("other")


@pytest.mark.parametrize(
    ("answer", "changed", "said"),
    [
        (Answer(silent=True), {"silence_s": 0.05, "retries": 0}, "silence_s"),
        (Answer(pieces=BEGUN, end="hang"), {"silence_s": 0.05}, "silence_s"),
        (Answer(pieces=BEGUN, end="hang"), {"timeout_s": 0.05}, "timeout_s"),
    ],
)
async def test_a_silent_provider_is_left(
    answer: Answer, changed: dict[str, float], said: str
) -> None:
    async with providing(answer) as provider, asking(provider.url, **changed) as model:
        with anyio.fail_after(30):
            error = await failure_of(model, HELLO)
            await provider.hung_up[0].wait()
    assert error.kind == "late"
    assert f"models.{said}" in str(error)


async def test_an_unreachable_provider_is_named_without_its_address() -> None:
    async with providing(chat("Yes.")) as provider:
        url = provider.url
    async with asking(url, retries=1) as model:
        error = await failure_of(model, HELLO)
    assert (error.kind, error.retryable) == ("unreachable", True)
    assert "127.0.0.1" not in str(error)


async def streaming(model: Model) -> None:
    await collect_events(model, HELLO)


async def whole(model: Model) -> None:
    await model.complete(HELLO)


@pytest.mark.parametrize("ask", [streaming, whole])
@pytest.mark.parametrize("answer", [Answer(silent=True), Answer(pieces=BEGUN, end="hang")])
async def test_cancellation_closes_the_connection_of_the_provider(
    ask: Callable[[Model], Any], answer: Answer
) -> None:
    async with providing(answer) as provider, asking(provider.url) as model:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, model)
                await provider.asked.wait()
                tasks.cancel_scope.cancel()
            await provider.hung_up[0].wait()


async def test_leaving_a_stream_closes_the_connection_of_the_provider() -> None:
    async with (
        providing(Answer(pieces=BEGUN, end="hang")) as provider,
        asking(provider.url) as model,
    ):
        with anyio.fail_after(30):
            async with aclosing(model.stream(HELLO)) as events:
                assert await anext(events) == ContentChunk("One")
            await provider.hung_up[0].wait()


async def test_an_answer_longer_than_the_limit_is_left() -> None:
    async with (
        providing(chat("word " * 400)) as provider,
        asking(provider.url, response_limit_bytes=10_000) as model,
    ):
        error = await failure_of(model, HELLO)
    assert error.kind == "malformed"
    assert "models.response_limit_bytes" in str(error)


async def test_a_budget_is_reserved_before_the_request_and_settled_afterwards() -> None:
    budget = Budget(tokens=10_000, money=20_000.0)
    async with (
        providing(chat("Yes.")) as provider,
        asking(provider.url, strategy={"price": PRICE, "max_tokens": 5_000}) as model,
    ):
        reply = reply_of(await collect_events(model, HELLO, [], RequestOptions(budget=budget)))
        assert reply.cost == ModelCost(11 + 2 * 7, "USD")
        assert (budget.tokens, budget.money) == (10_000 - 18, 20_000 - 25)
        options = RequestOptions(budget=budget, max_tokens=9_990)
        error = await failure_of(model, HELLO, [], options)
        assert error.kind == "budget"
        assert "budget has 9,982 tokens left" in str(error)
        assert len(provider.requests) == 1
        assert budget.tokens == 10_000 - 18


async def test_a_budget_of_one_token_sends_nothing() -> None:
    async with providing(chat("Yes.")) as provider, asking(provider.url) as model:
        error = await failure_of(model, HELLO, [], RequestOptions(budget=Budget(tokens=1)))
    assert (error.kind, provider.requests) == ("budget", [])


@pytest.mark.parametrize("price", [None, Price(input=1.0, output=1.0, currency="EUR")])
async def test_a_budget_of_money_needs_a_price_in_its_currency(price: Price | None) -> None:
    async with (
        providing(chat("Yes.")) as provider,
        asking(provider.url, strategy={"price": price}) as model,
    ):
        error = await failure_of(model, HELLO, [], RequestOptions(budget=Budget(money=1000.0)))
    assert (error.kind, provider.requests) == ("budget", [])
    assert "needs a price" in str(error)


async def test_a_failed_request_costs_its_received_tokens() -> None:
    budget = Budget(tokens=50_000)
    cut = Answer(pieces=[sse(delta(content="abcdefgh"))], end="reset")
    async with providing(failing(400), cut) as provider, asking(provider.url) as model:
        await failure_of(model, HELLO, [], RequestOptions(budget=budget))
        assert budget.tokens == 50_000
        await failure_of(model, HELLO, [], RequestOptions(budget=budget))
    assert budget.tokens is not None
    assert 49_900 < budget.tokens < 50_000 - 2


async def test_equal_requests_are_answered_from_an_enabled_cache() -> None:
    answers = (chat("One."), chat("Two."), chat("Three."))
    async with (
        providing(*answers) as provider,
        asking(provider.url, cache_entries=1) as model,
    ):
        texts = [reply_of(await collect_events(model, HELLO)).text for _ in range(2)]
        again = reply_of(await collect_events(model, HELLO))
        other = reply_of(await collect_events(model, [ChatMessage("user", "Else")]))
        last = reply_of(await collect_events(model, HELLO))
    assert (texts, other.text, last.text) == (["One.", "One."], "Two.", "Three.")
    assert (again.cached, again.usage.total, again.cost) == (True, 0, None)


async def test_a_recording_of_a_strategy_answers_without_network(tmp_path: Path) -> None:
    exchanges: list[ModelExchange] = []
    async with (
        providing(chat("Yes."), chat_whole("No.")) as provider,
        asking(provider.url) as model,
    ):
        options = RequestOptions(record=exchanges.append)
        events = await collect_events(model, HELLO, [PETS], options)
        reply = await model.complete(HELLO, (), options)
    path = tmp_path / "recording.jsonl"
    spaced = [json.dumps(json.loads(msgspec.json.encode(one)), indent=None) for one in exchanges]
    path.write_text("\n".join(spaced))
    async with asking("", strategy={"recording": str(path), "model": ""}) as again:
        assert await collect_events(again, HELLO, [PETS]) == events
        assert await again.complete(HELLO) == reply
    path.write_text("{}")
    with pytest.raises(ModelFailed, match="recording cannot be read"):
        async with asking("", strategy={"recording": str(path)}):
            pass


async def test_strategies_of_an_endpoint_share_its_connections() -> None:
    async with providing(Answer(silent=True)) as provider:
        asked = Strategy(
            url=provider.url, needs_key=False, model="m", endpoint="one", connections=1
        )
        models = ConfiguredModels(replace(limits(), strategies={"a": asked, "b": asked}))
        async with models:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(models.of("a").complete, HELLO)
                with anyio.fail_after(30):
                    await provider.asked.wait()
                tasks.start_soon(models.of("b").complete, HELLO)
                await until(
                    lambda: any(one._slots and one._slots._waiters for one in pools(models))
                )
                assert len(provider.requests) == 1
                tasks.cancel_scope.cancel()
            with anyio.fail_after(30):
                await provider.hung_up[0].wait()


def pools(models: ConfiguredModels) -> list[Pool]:
    return list(models._pools.values())


async def test_a_transcript_gives_the_same_events_without_network() -> None:
    exchanges: list[ModelExchange] = []
    options = RequestOptions(record=exchanges.append)
    answers = (failing(503), chat("Hm, well.", [("a", "find_pets", "{}")]), chat_whole("Yes."))
    async with (
        providing(*answers) as provider,
        asking(provider.url, strategy={"api_key": "sk-secret"}) as model,
    ):
        events = await collect_events(model, HELLO, [PETS], options)
        reply = await model.complete(HELLO, [PETS], options)
    assert [one.status for one in exchanges] == [503, 200, 200]
    assert "secret" not in str([(bytes(one.request), one.answer) for one in exchanges])
    settings = limits("http://none.invalid")
    again = Model("tested", settings.strategies["tested"], settings, Replay(exchanges))
    assert await collect_events(again, HELLO, [PETS]) == events
    assert await again.complete(HELLO, [PETS]) == reply
    with pytest.raises(ModelFailed, match="not asked this"):
        await again.complete([ChatMessage("user", "Else")])
