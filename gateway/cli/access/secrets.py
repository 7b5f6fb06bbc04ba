"""`toolgate secrets`: credentials that sources require, stored encrypted in the database."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click
import msgspec

from config.settings import Settings
from config.sources import SchemeSettings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import Registry, open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.upstreams.auth.credentials import UnusedSecret, check_used
from registry.access.secrets import Keys, Secrets, StoredSecret
from registry.names.similar_names import did_you_mean

MODELS = "models"  # the source of keys of chat models
VALUE_LIMIT = 65536  # characters
# The secret member of a kind that is identified by another one.
SECRET_OF = {"username": "password", "client_id": "client_secret"}

COMMANDS = {
    "set": ("gateway.cli.access.secrets:set_", "Store a secret of a source."),
    "list": ("gateway.cli.access.secrets:list_", "List secrets without their values."),
    "remove": ("gateway.cli.access.secrets:remove", "Remove a secret."),
    "rotate": ("gateway.cli.access.secrets:rotate", "Encrypt all secrets with the current key."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def secrets() -> None:
    """Store encrypted credentials of sources in the database.

    They complement `sources.NAME.credentials` of the settings, which take precedence. The
    encryption key is TOOLGATE_SECRETS__KEY, or secrets.key as ${file:PATH}. A running gateway uses
    them at once. Stored values cannot be displayed.
    """


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
@settings_option
def set_(
    settings: Settings, source: str, scheme: str, force: bool, **given: str | tuple[str, ...] | None
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
    entry = _entry(given)

    async def work() -> bool:
        async with open_registry(settings, Act("putSecret", f"{source}/{scheme}")) as registry:
            if not force:
                await _check(settings, registry, source, scheme)
            return await _secrets(settings, registry).put(source, scheme, entry)

    new = run(work())
    say(f"{'Stored' if new else 'Replaced'} the secret {scheme} of {source}.")


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List secrets without their values."""

    async def work() -> list[StoredSecret]:
        async with _open_secrets(settings) as stored:
            return await stored.all()

    secrets = run(work())
    if as_json:
        print_json([msgspec.to_builtins(secret) for secret in secrets])
    elif not secrets:
        say("No secrets are stored.")
    else:
        print_rows(
            ("source", "scheme", "kind", "updated", "key"), [_row(secret) for secret in secrets]
        )


@click.command()
@click.argument("source")
@click.argument("scheme")
@yes_option
@settings_option
def remove(settings: Settings, source: str, scheme: str, yes: bool) -> None:
    """Remove the credential for SCHEME of SOURCE."""
    if not yes:
        ask("remove", f"the secret {scheme} of {source}")

    async def work() -> None:
        async with _open_secrets(settings, Act("deleteSecret", f"{source}/{scheme}")) as stored:
            if not await stored.delete(source, scheme):
                fail(f"there is no secret {scheme} of {source}")

    run(work())
    say(f"Removed the secret {scheme} of {source}.")


@click.command()
@settings_option
def rotate(settings: Settings) -> None:
    """Encrypt all secrets with secrets.key. Keep earlier keys in secrets.old_keys of every gateway
    until then."""

    async def work() -> int:
        async with _open_secrets(settings, Act("rotateSecrets", "")) as stored:
            return await stored.rotate()

    count = run(work())
    say(f"Encrypted {count} with secrets.key." if count else "All are encrypted with secrets.key.")


def _entry(given: dict[str, str | tuple[str, ...] | None]) -> SchemeSettings:
    """The credential from the options, with its one secret read from input."""
    ways = [way for way in ("value", "token", "username", "client_id") if given[way] is not None]
    if len(ways) > 1:
        named = " and ".join(f"--{way.replace('_', '-')}" for way in ways)
        fail(f"expected one kind of secret, found {named}", USAGE)
    way = ways[0] if ways else "value"
    secret = SECRET_OF.get(way, way)
    values = {name: value for name, value in given.items() if value}
    if values.get(secret, "-") == "-":
        values[secret] = _read(secret.replace("_", " "))
    if way != "client_id":
        values.pop("client_auth", None)
    return SchemeSettings(**values)  # type: ignore[arg-type]  # the registry checks them


def _read(what: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(what.capitalize(), hide_input=True, err=True))
    text = sys.stdin.read(VALUE_LIMIT + 1)
    if len(text) > VALUE_LIMIT:
        fail(f"expected at most {VALUE_LIMIT} characters as the {what}", USAGE)
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        fail(f"expected the {what} on standard input", USAGE)
    return secret


def _row(one: StoredSecret) -> tuple[str, ...]:
    key = one.key_id if one.readable else f"{one.key_id} (not in the settings)"
    return one.source, one.scheme, one.kind, f"{one.updated:%Y-%m-%d %H:%M}", key


@asynccontextmanager
async def _open_secrets(settings: Settings, act: Act | None = None) -> AsyncIterator[Secrets]:
    async with open_registry(settings, act) as registry:
        yield _secrets(settings, registry)


def _secrets(settings: Settings, registry: Registry) -> Secrets:
    return Secrets(registry.database.pool, registry.host_id, Keys.of(settings.secrets))


async def _check(settings: Settings, registry: Registry, source: str, scheme: str) -> None:
    if source == MODELS and scheme not in settings.models.strategies:
        fail(
            f"There is no strategy {scheme!r} in models.strategies. "
            f"{did_you_mean(scheme, settings.models.strategies)}".rstrip()
        )
    try:
        await check_used(
            registry.store,
            registry.host_id,
            configured=[*settings.sources, MODELS],
            source=source,
            scheme=scheme,
        )
    except UnusedSecret as error:
        fail(f"{error} Add --force to store it anyway.")
