"""The official MCP client calls a tool, and leads its person to the account that the tool needs.

    python client.py [--as NAME:PASSWORD] [--there SECRET] TOOL [URL]

Opens a browser, or fills in the pages itself: those of the gateway with `--as`, and those on the
way to the account with `--there`, a key or NAME:PASSWORD. Needs `mcp` 2.3.
"""

import argparse
import asyncio
import webbrowser

from examples.login.client import Login, open_session, run

URL = "http://127.0.0.1:8765/mcp"


async def main(arguments: argparse.Namespace) -> None:
    login = Login(arguments.credentials)
    async with open_session(arguments.url, login) as (client, _):
        result = await client.call_tool(arguments.tool)
        if asked := (result.meta or {}).get("toolgate/connect"):
            print(result.content[0].text, flush=True)
            await connect(asked["url"], login, arguments.there)
            result = await client.call_tool(arguments.tool)
        print(f"{arguments.tool}:", result.content[0].text)


async def connect(link: str, login: Login, secret: str | None) -> None:
    """The person's part."""
    if secret is None:
        webbrowser.open(link)
        try:
            await asyncio.to_thread(input, "Press Enter when it is connected. ")
        except EOFError as error:
            raise EOFError("expected a terminal, or --there SECRET") from error
    else:
        await login.fill_in(link, secret)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python client.py")
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument("url", nargs="?", default=URL)
    parser.add_argument("--as", dest="credentials", help="NAME:PASSWORD, instead of a browser")
    parser.add_argument("--there", help="a key or NAME:PASSWORD, instead of a browser")
    run(main(parser.parse_args()))
