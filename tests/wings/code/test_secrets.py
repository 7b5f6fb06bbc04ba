"""What guardrails keep from callers they keep from programs; and questions to people in calls."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.access import Guardrail
from config.settings import Settings
from tests.fixtures_servers import serving
from tests.servers.mcp_wire import Scripted, Turn, discovery_result, question
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio

SECRET = "4111111111111111"
HINTS = {"readOnlyHint": True}
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "string", "x-mask": True}, "name": {"type": "string"}},
}
# Ways of a program to get at what it was told, and to bring it out.
LEAKS = {
    "result": "tools.{tool}()",
    "output": "print(tools.{tool}())",
    "error": "raise ValueError(str(tools.{tool}()))",
    "raised": "tools.{tool}()",
    "caught": (
        "try:\n    tools.{tool}()\nexcept ToolError as error:\n"
        "    result([str(error), error.data, vars(error)])"
    ),
    "pieces": "[*json.dumps(tools.{tool}())]",
    "pages": "tools.pages(tools.{tool})",
    "together": "tools.all([tools.{tool}(), tools.{tool}()], errors=True)",
}


async def list_tools(turn: Turn) -> None:
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "annotations": HINTS}
        for name in ("card", "failing", "asking")
    ]
    tools[0] = {**tools[0], "outputSchema": SCHEMA}
    await turn.result(tools=tools, resultType="complete", ttlMs=0, cacheScope="private")


async def answer_call(turn: Turn) -> None:
    card = {"number": SECRET, "name": "Ada"}
    if turn.params["name"] == "failing":
        text = f"The card {SECRET} is blocked."
        await turn.result(content=[{"type": "text", "text": text}], isError=True)
        return
    await turn.result(content=[{"type": "text", "text": json.dumps(card)}], structuredContent=card)


def bank(**plays: Any) -> Scripted:
    every = {"tools/list": list_tools, "tools/call": answer_call, **plays}
    return Scripted(every, capabilities={"tools": {}})


def with_rules(settings: Settings, **rules: Guardrail) -> Any:
    return replace(settings.guardrails, rules=rules)


async def leaks(shop: CodeShop, tool: str) -> dict[str, str]:
    """What came out of a program, in any way, about a secret."""
    ends = {
        name: json.dumps(await shop.run("import json\n" + code.format(tool=tool)))
        for name, code in LEAKS.items()
    }
    joined = {name: text.replace('", "', "").replace("\\", "") for name, text in ends.items()}
    return {name: text for name, text in joined.items() if SECRET in text}


async def test_masked_values_are_masked_inside(settings: Settings, tmp_path: Path) -> None:
    async with (
        serving(bank()) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp") as shop,
    ):
        assert await leaks(shop, "card") == {}  # by x-mask of its output schema
        assert await leaks(shop, "failing") != {}  # or this test could not fail
        assert (await shop.run("tools.card()['name']"))["result"] == "Ada"


async def test_redacted_texts_are_redacted_inside(settings: Settings, tmp_path: Path) -> None:
    rule = Guardrail("result", "redact", pattern=r"\b[0-9]{16}\b")
    rules = with_rules(settings, cards=rule)
    async with (
        serving(bank()) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp", guardrails=rules) as shop,
    ):
        assert await leaks(shop, "failing") == {}


async def test_guardrails_deny_arguments_and_results_inside(
    settings: Settings, tmp_path: Path
) -> None:
    rules = with_rules(
        settings,
        no_cards=Guardrail("arguments", "deny", tools=("send_mail",), pattern=r"[0-9]{16}"),
        no_ten=Guardrail("result", "deny", tools=("get-item",), pattern=r"10"),
    )
    async with code_shop(settings, tmp_path, guardrails=rules) as shop:
        end = await shop.run(f"tools.send_mail(text='{SECRET}')", "run_code_writing")
        assert (end["state"], shop.shop.mails) == ("failed", [])
        assert "no_cards" in end["error"]
        end = await shop.run("tools.get_item(id=1)['count']")
        assert "no_ten" in end["error"]
        assert "result" not in end
        code = (
            "try:\n    tools.get_item(id=1)\nexcept ToolError as error:\n"
            "    result([error.data, error.tool])"
        )
        assert '"count"' not in json.dumps(await shop.run(code))


async def test_the_jail_has_nothing_of_the_environment(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
    code = (
        "import os\n"
        "try:\n    own = open('/proc/self/environ').read()\nexcept OSError:\n    own = ''\n"
        "[dict(os.environ), own]"
    )
    async with code_shop(settings, tmp_path) as shop:
        assert SECRET not in json.dumps(await shop.run(code))


async def require_input(turn: Turn) -> None:
    """Of a server without sessions, which answers that it needs more."""
    wanted = {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}
    await turn.result(resultType="input_required", inputRequests={"name": wanted}, requestState="s")


async def discover(turn: Turn) -> None:
    await turn.result(**discovery_result())


async def refuse(turn: Turn) -> None:
    await turn.error(-32601, "There are no sessions")


@pytest.mark.parametrize("way", ["session", "stateless"])
async def test_a_question_to_a_person_is_an_error_of_its_call(
    settings: Settings, tmp_path: Path, way: str
) -> None:
    """A program has nobody who answers, and does not wait for one."""
    server = bank()

    async def ask_person(turn: Turn) -> None:
        """Of a server of sessions, which asks within a call."""
        await turn.begin()
        await turn.event(question(5, "elicitation/create", message="Who?", requestedSchema={}))
        answer = (await server.wait_for_request("answer")).message
        told = {"content": [{"type": "text", "text": json.dumps(answer)}], "isError": True}
        await turn.event({"jsonrpc": "2.0", "id": turn.id, "result": told})
        await turn.end()

    ways: dict[str, Any] = {
        "session": {"tools/call": ask_person},
        "stateless": {
            "server/discover": discover,
            "initialize": refuse,
            "tools/call": require_input,
        },
    }
    server.plays = {**server.plays, **ways[way]}
    code = "try:\n    tools.asking()\nexcept ToolError as error:\n    result(str(error))"
    async with (
        serving(server) as url,
        code_shop(settings, tmp_path, crm=f"{url}/mcp") as shop,
    ):
        with anyio.fail_after(20):
            end = await shop.run(code)
        assert "cannot be asked for input" in end["result"]
