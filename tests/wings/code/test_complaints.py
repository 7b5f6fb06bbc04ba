"""What people complain of in code modes of others, and what must hold: each by its name, with its
test here or elsewhere."""

from importlib import import_module
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from gateway.sandbox.program_process import javascript_engine
from registry.display.token_budgets import tokens
from tests.gateway.disclosing import ask_gateway
from tests.wings.code.shop import CodeShop

pytestmark = pytest.mark.anyio

WRITING = "run_code_writing"
ELSEWHERE = {
    "thin schemas": "wings.code.test_learned_results:test_results_are_learned_from_answers",
    "names that collide": "registry.names.test_identifiers:"
    "test_a_collision_leaves_identifiers_of_exact_names_unchanged",
    "forged frames": "wings.code.test_hostile_programs:test_forged_frames_end_the_calls_in_flight",
    "giant frames": "wings.code.test_hostile_programs:test_frames_are_bounded",
    "kill -9 of a gateway at each step": "wings.code.test_kills:"
    "test_a_program_whose_gateway_is_killed_goes_on_at_another",
    "kill -9 of a program at each step": "wings.code.test_kills:"
    "test_a_program_whose_process_is_killed_goes_on",
    "each write at most once": "wings.code.test_pauses:"
    "test_each_approved_write_is_made_once_at_any_gateway",
    "50 gathered writes, one approval": "wings.code.test_pauses:"
    "test_calls_made_together_wait_for_one_approval",
    "changed code is refused": "wings.code.test_pauses:"
    "test_a_program_that_was_changed_before_the_decision_is_refused",
    "the same output in both languages": "benchmarks.test_code_mode:"
    "test_programs_of_both_languages_give_the_same_answer",
    "cancel in the middle of 8 open calls": "wings.code.test_jobs:"
    "test_a_cancelled_run_ends_its_process_and_open_calls",
}


@pytest.mark.parametrize("subject", ELSEWHERE)
def test_the_test_of_a_subject_is_there(subject: str) -> None:
    module, name = ELSEWHERE[subject].split(":")
    assert callable(getattr(import_module(f"tests.{module}"), name))


@pytest.fixture(scope="module")
def shop_options(shared_settings: Settings) -> dict[str, Any]:
    rules = {"hidden": Rule("deny", tools=("list_items",))}
    return {"code": {"cpu_s": 0.5}, "policy": replace(shared_settings.policy, rules=rules)}


FAILING = {
    "ToolError": "get_item(id=99)",
    "Invalid": "get_item(id='x')",
    "NotFound": "get_itm(id=1)",
    "Denied": "send_mail(text='x')",
}
CRASHES = {
    "python": ("import ctypes\nctypes.string_at(1)", "has ended"),
    "javascript": ("const deeper = () => deeper() + 1; deeper()", "stack"),
}
SPINNING = """
import threading
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
tools.get_item(id=1)
"""


async def test_exceptions_are_caught_and_failures_are_no_values(shop: CodeShop) -> None:
    for kind, call in FAILING.items():
        caught = "\n".join(
            f"try: tools.{call}\nexcept {caught} as error: kinds.append(type(error).__name__)"
            for caught in (kind, "ToolError", "Exception")
        )
        assert (await shop.run(f"kinds = []\n{caught}\nkinds"))["result"] == [kind] * 3
        for code in (
            f"value = tools.{call}\n'a value'",
            f"values = tools.all([tools.{call}])\n'a value'",
            f"values = await asyncio.gather(tools.{call})\n'a value'",
        ):
            end = await shop.run(code)
            assert (end["state"], "result" in end) == ("failed", False), (code, end)
            assert f"{kind} [" in end["error"]


async def test_errors_are_in_the_words_of_the_schema(shop: CodeShop) -> None:
    error = (await shop.run("tools.get_item(id='x', name=1)"))["error"]
    assert 'id: expected integer, got "x"; name: is not known; expected: id' in error


async def test_a_crashed_interpreter_ends_its_program_alone(shop: CodeShop) -> None:
    for language, (code, text) in CRASHES.items():
        if language == "python" or javascript_engine():
            end = await shop.run(code, language=language)
            assert (end["state"], text in end["error"]) == ("failed", True), end
            assert (await shop.run("tools.get_item(id=1)['id']"))["result"] == 1


async def test_cpu_time_counts_during_calls(shop: CodeShop) -> None:
    """Waiting is free, and nothing else is."""
    shop.shop.slow_s = 1.2
    assert (await shop.run("tools.get_item(id=1)['id']"))["result"] == 1
    shop.shop.hangs = True
    with anyio.fail_after(30):
        end = await shop.run(SPINNING)
    assert "more than 0.5 s of CPU time" in end["error"], end


async def test_tools_cost_no_tokens_before_their_signatures_are_read(shop: CodeShop) -> None:
    listed = (await ask_gateway(shop.client, "tools/list", {}, "/mcp?code=only"))["tools"]
    assert not any("item" in tool["description"] for tool in listed if "code" in tool["name"])
    asked = {"name": "describe_tools", "arguments": {"names": ["get-item"]}}
    described = await ask_gateway(shop.client, "tools/call", asked, "/mcp?code=only")
    assert tokens(described["content"][0]["text"]) < 20


async def test_a_denied_tool_is_denied_inside_at_every_front(shop: CodeShop) -> None:
    code = "try: tools.list_items()\nexcept NotFound: result('none')"
    params = {"name": WRITING, "arguments": {"code": code}}
    session = await shop.client.session("2025-11-25")
    by_session = await session.call("tools/call", params)
    by_modern = await ask_gateway(shop.client, "tools/call", params, "/mcp")
    _, by_rest, _ = await shop.client.post("/code/v1/run-writing", {"code": code})
    ends = {
        "/rpc": await shop.run(code, WRITING),
        "REST": by_rest,
        "2026-07-28": by_modern["structuredContent"],
        "2025-11-25": by_session["result"]["structuredContent"],
    }
    assert {front: end["result"] for front, end in ends.items()} == dict.fromkeys(ends, "none")
