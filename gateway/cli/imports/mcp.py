"""`toolgate import mcp`: list the contents of another MCP server."""

import shlex
from collections.abc import Sequence
from typing import Literal

import click

from config.settings import Settings
from config.value_types import McpUrl
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.options import yes_option
from gateway.cli.common.settings import settings_option
from gateway.cli.imports.published import PublishedImport, Values, add_published
from gateway.cli.imports.report import ReportingCommand
from gateway.cli.imports.shared import (
    ImportChoice,
    ImportCommand,
    SettingType,
    import_and_report,
    import_options,
    name_option,
)
from schemas.source import McpOptions, Prefix, stdio_location

COMMAND = "toolgate.command"  # key of the click context's `meta`: what followed `--`


class WithCommand(ReportingCommand):
    """A command that accepts another command line after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=WithCommand, short_help="Import the tools of another MCP server.")
@click.argument("url", required=False, type=SettingType("url", McpUrl))
@name_option
@click.option(
    "--stdio", "line", metavar="COMMAND", help="Command of a server on standard input and output."
)
@click.option(
    "--from", "server", metavar="NAME[@VERSION]", help="Server of a registry (see registries)."
)
@click.option("--registry", default="", metavar="NAME", help="Registry of --from.")
@click.option(
    "--as",
    "way",
    type=click.Choice(["remote", "oci", "mcpb", "pypi", "npm"]),
    help="How a server of --from is reached [default: remote, else packages.kinds].",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Input of --from; repeatable. - reads it from standard input.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="SUBJECT",
    help="Allow what --from refuses else, as its message says; repeatable.",
)
@click.option(
    "--unpinned", is_flag=True, help="Run npx or uvx, which fetch what is newest at each start."
)
@click.option(
    "--prefix",
    type=click.Choice(["conditional", "always", "never"]),
    default="conditional",
    show_default=True,
    help="When names are prefixed with the source's name.",
)
@click.option(
    "--era",
    type=click.Choice(["auto", "handshake", "stateless"]),
    default="auto",
    show_default=True,
    help="Protocol revisions to use; auto detects them.",
)
@click.option(
    "--own-sessions", is_flag=True, help="Open an upstream session for each client session."
)
@click.option(
    "--pin", is_flag=True, help="Hold back new and changed tools until they are accepted."
)
@import_options
@yes_option
@settings_option
def mcp(
    settings: Settings,
    url: str | None,
    name: str,
    line: str | None,
    prefix: Prefix,
    era: Literal["auto", "handshake", "stateless"],
    own_sessions: bool,
    pin: bool,
    choice: ImportChoice,
    server: str | None,
    registry: str,
    way: str | None,
    pairs: tuple[str, ...],
    allow: tuple[str, ...],
    unpinned: bool,
    yes: bool,
) -> None:
    """Import the tools, prompts and resources of another MCP server: at a URL, with any protocol
    revision, or of a command on its standard input and output.

    A repeated import updates the source. A running gateway updates it by itself, on notifications
    of the server and at intervals. Tools of an unreachable server stay listed; calls of them fail.

    --prefix conditional prefixes a name that another source has with the source's name; always
    prefixes every name; never leaves conflicting names out. URIs of resources are prefixed with
    toolgate://NAME/.

    Credentials belong in the settings: in sources.NAME.headers, in sources.NAME.env for a command,
    or where a server takes its key in the query, in sources.NAME.mcp.

    --from adds a server by its name in a registry, after its plan was shown and confirmed; its
    inputs are asked, its packages installed and pinned, and its tools pinned as by --pin.

    A PATTERN is a glob for tool names, here or at the server. Both options are repeatable.

    \b
    Examples:
      toolgate import mcp https://mcp.example.com/mcp --name example
      toolgate import mcp --name linear --connect linear
      toolgate import mcp http://localhost:8000/mcp --name crm \\
          --prefix always --pin
      toolgate import mcp --stdio "npx -y some-server /srv" --name files
      toolgate import mcp --from io.github.ada/weather --name weather
      toolgate import mcp --name files --dry-run -- npx -y some-server /srv
    """
    if server is not None:
        if url or line or choice.connect is not None:
            fail("--from: expected neither a URL, nor a command, nor --connect beside it", USAGE)
        wish = PublishedImport(
            server=server, source=name, registry=registry, choice=way, values=Values.of(pairs),
            allow=allow, unpinned=unpinned, yes=yes,
        )  # fmt: skip
        run(add_published(settings, wish, choice))
        return
    command = _command(line, click.get_current_context().meta.get(COMMAND))
    location = _server_location(settings, url, command, choice)
    options = McpOptions(command, era, prefix, own_sessions, pin)
    import_command = ImportCommand(name=name, location=location, kind="mcp", options=options)
    import_and_report(settings, import_command, choice)


def _server_location(
    settings: Settings, url: str | None, command: tuple[str, ...], choice: ImportChoice
) -> str:
    """The location of a server at a URL, of a preset of `connect`, or of a command."""
    if command and choice.connect is not None:
        fail("--connect is for servers at a URL: people log in over HTTP", USAGE)
    if not (url or command) and choice.connect is not None:
        url = choice.connect.facts.mcp or None
    location = _location(url, command)
    if command and not settings.upstream.stdio:
        fail("commands are not allowed: upstream.stdio is false", USAGE)
    return location


def _command(line: str | None, words: Sequence[str] | None) -> tuple[str, ...]:
    """The server's command line, from --stdio or after `--`; empty without either."""
    if words is not None:
        if line is not None:
            fail("expected one command: --stdio COMMAND, or -- COMMAND", USAGE)
        if not words:
            fail("expected a command after --", USAGE)
        return tuple(words)
    if line is None:
        return ()
    try:
        command = tuple(shlex.split(line))
    except ValueError as error:
        fail(f"--stdio: {line!r} is not a command: {error}".lower(), USAGE)
    if not command:
        fail("--stdio: expected a command, found nothing", USAGE)
    return command


def _location(url: str | None, command: tuple[str, ...]) -> str:
    if url is not None and command:
        fail(f"expected a URL or a command, found both, {url} and {shlex.join(command)}", USAGE)
    if url is None and not command:
        fail("expected the URL of an MCP server, or a command: --stdio COMMAND", USAGE)
    return url or stdio_location(command)
