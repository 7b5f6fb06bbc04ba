"""`toolgate secrets set`: reads a secret, and stores it by the operation."""

import sys
from typing import IO

import click
import msgspec

from config.settings import Settings
from config.sources import SchemeSettings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, CommandFailure, fail
from gateway.cli.common.output import say
from gateway.cli.common.settings import settings_option
from gateway.cli.operations import open_client
from gateway.cli.running.client import OperationRefused, gateway_options

VALUE_LIMIT = 65536  # characters
# The secret member of a kind that is identified by another one.
SECRET_OF = {"username": "password", "client_id": "client_secret"}


@click.command(name="set")
@click.argument("source")
@click.argument("scheme")
@click.option(
    "--value", metavar="TEXT", help="API key or header value; - reads standard input [default: -]."
)
@click.option("--token", metavar="TEXT", help="Bearer token; - reads standard input.")
@click.option("--username", metavar="TEXT", help="User name; the password is read.")
@click.option("--client-id", metavar="TEXT", help="OAuth client; its secret is read.")
@click.option("--token-url", metavar="URL", help="Token endpoint of the OAuth client.")
@click.option(
    "--scope", "scopes", metavar="NAME", multiple=True, help="Scope of the tokens; repeatable."
)
@click.option(
    "--client-auth",
    type=click.Choice(["header", "body"]),
    default="header",
    show_default=True,
    help="Place of the client secret in token requests.",
)
@click.option("--force", is_flag=True, help="Store it even if no tool requires it yet.")
@gateway_options(key_required=False)
@settings_option
def set_(
    settings: Settings,
    *,
    source: str,
    scheme: str,
    force: bool,
    url: str | None,
    key_file: IO[str] | None,
    **options: str | tuple[str, ...] | None,
) -> None:
    """Store or replace the credential for the security scheme SCHEME of SOURCE. For a source
    without security schemes (an MCP server, GraphQL, a hybrid service) SCHEME is a header name.
    The keys of chat models have the source `models`; SCHEME is the strategy.

    Secrets are read from standard input, or from a prompt at a terminal. Arguments are visible to
    other users of this machine.

    SOURCE is in the settings or imported, and its tools require SCHEME; --force stores other
    credentials, for example before the import of an MCP server that needs them.

    \b
    Examples:
      toolgate secrets set petshop api_key < key.txt
      toolgate secrets set crm oauth --client-id gw --token-url https://id.example
      toolgate secrets set crm Authorization --value -
      toolgate secrets set models deepseek_single < key.txt
    """
    entry = msgspec.to_builtins(_entry(options))
    names = {"source": source, "scheme": scheme, "force": force}

    async def work() -> None:
        async with open_client(settings, url=url, key_file=key_file) as client:
            await client.call("putSecret", {**names, **entry})

    try:
        run(work())
    except OperationRefused as refused:
        text = refused.message.replace("force=true", "--force")
        raise CommandFailure(text, refused.exit_code) from refused
    say(f"Stored the secret {scheme} of {source}.")


def _entry(options: dict[str, str | tuple[str, ...] | None]) -> SchemeSettings:
    """The credential from the options, with its one secret read from input."""
    ways = [way for way in ("value", "token", "username", "client_id") if options[way] is not None]
    if len(ways) > 1:
        named = " and ".join(f"--{way.replace('_', '-')}" for way in ways)
        fail(f"expected one kind of secret, found {named}", USAGE)
    way = ways[0] if ways else "value"
    secret = SECRET_OF.get(way, way)
    values = {name: value for name, value in options.items() if value}
    if values.get(secret, "-") == "-":
        values[secret] = _read(secret.replace("_", " "))
    if way != "client_id":
        values.pop("client_auth", None)
    return SchemeSettings(**values)  # type: ignore[arg-type]  # the registry checks them


def _read(label: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(label.capitalize(), hide_input=True, err=True))
    text = sys.stdin.read(VALUE_LIMIT + 1)
    if len(text) > VALUE_LIMIT:
        fail(f"expected at most {VALUE_LIMIT} characters as the {label}", USAGE)
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        fail(f"expected the {label} on standard input", USAGE)
    return secret
