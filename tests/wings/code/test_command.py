"""`toolgate code run` and `toolgate code runs`."""

from pathlib import Path

import aiohttp
import pytest
from anyio import to_thread
from click.testing import CliRunner
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from gateway.cli.main import cli
from tests.gateway.console.visiting import Browser
from tests.wings.code.shop import CodeShop, code_shop

pytestmark = pytest.mark.anyio


async def run(shop: CodeShop, code: str, *options: str, file: str = "-") -> tuple[int, str, str]:
    return await invoke_command(shop, "run", file, *options, code=code)


async def invoke_command(shop: CodeShop, *words: str, code: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""

    def invoke() -> tuple[int, str, str]:
        all_ = ("code", *words, "--url", shop.client.url)
        ran = CliRunner().invoke(cli, all_, input=code, env={"TOOLGATE_CODE__ENABLED": "true"})
        return ran.exit_code, ran.stdout, ran.stderr

    return await to_thread.run_sync(invoke)


async def test_a_program_is_run_from_a_terminal(settings: Settings, tmp_path: Path) -> None:
    async with code_shop(settings, tmp_path) as shop:
        assert await run(shop, "print('a')\ntools.get_item(id=1)['count']") == (0, "a\n10\n", "")
        code, out, error = await run(shop, "tools.get_item(id=1)\ntools.send_mail(text='x')")
        assert (code, out) == (1, "")
        assert "Denied [send_mail]" in error
        assert "Calls: get-item (ok)" in error
        assert await run(shop, "tools.send_mail(text='x')", "--writing") == (
            0,
            '"204 No Content"\n',
            "",
        )
        assert shop.shop.mails == ["x"]


async def test_a_paused_run_is_listed(settings: Settings, tmp_path: Path) -> None:
    rules = {"mails": Rule("approve", tools=("send_mail",))}
    policy = replace(settings.policy, rules=rules)
    sections = {"policy": policy, "console": replace(settings.console, enabled=True)}
    jar = aiohttp.CookieJar(unsafe=True)  # of an address without a name
    async with (
        code_shop(settings, tmp_path, **sections) as shop,
        aiohttp.ClientSession(cookie_jar=jar) as http,
    ):
        assert await invoke_command(shop, "runs") == (0, "", "")
        code = "tools.get_item(id=1)\ntools.send_mail(text='x')"
        exit_code, _, error = await run(shop, code, "--writing")
        _, out, _ = await invoke_command(shop, "runs")
        [run_id, tool, state, calls, pending, started] = out.split()
        assert (exit_code, tool, state) == (0, "run_code_writing", "paused")
        assert (calls, pending, started[:2]) == ("1", "1", "20")
        assert f"The run {run_id} waits" in error
        status, page = await Browser(shop.client, http).get("code")
        assert (status, run_id in page) == (200, True), page


async def test_a_file_named_js_is_run_as_javascript(settings: Settings, tmp_path: Path) -> None:
    pytest.importorskip("quickjs", reason="quickjs-ng, the extra javascript, is not installed")
    file = tmp_path / "program.js"
    file.write_text("const {count} = await tools.get_item({id: 1}); count")
    async with code_shop(settings, tmp_path) as shop:
        assert await run(shop, "", file=str(file)) == (0, "10\n", "")
