"""`toolgate keys`: API keys for machines."""

from datetime import UTC, datetime, timedelta

import click

from config.settings import Settings
from gateway.cli.access.acts import Act, actor
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import DURATION, json_option, tenant_option
from gateway.cli.common.output import out, print_json, print_rows, remark, say
from registry.access.keys import ApiKey, ApiKeys

COMMANDS = {
    "create": ("gateway.cli.access.keys:create", "Create a key; it is shown once."),
    "list": ("gateway.cli.access.keys:list_", "List the keys, without their secrets."),
    "revoke": ("gateway.cli.access.keys:revoke", "Revoke a key."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def keys() -> None:
    """Create, list and revoke API keys for machines.

    Clients send a key as "Authorization: Bearer KEY" or "X-API-Key: KEY", if auth.mode is jwt or
    keys. Its principal is key:NAME by default, or key:NAME#ID if the name was used by a revoked
    key; its scopes and roles set its permissions. The creator of a key cannot approve calls made
    with it. The registry stores a hash of the key only.
    """


@click.command()
@click.argument("name")
@click.option("--principal", metavar="ID", help="Principal of its callers [default: key:NAME].")
@click.option("--scope", "scopes", metavar="TEXT", multiple=True, help="Scope; repeatable.")
@click.option("--role", "roles", metavar="NAME", multiple=True, help="Role; repeatable.")
@click.option("--expires", type=DURATION, help="Lifetime, such as 90d [default: unlimited].")
@tenant_option
@json_option
@settings_option
def create(
    settings: Settings,
    name: str,
    principal: str | None,
    scopes: tuple[str, ...],
    roles: tuple[str, ...],
    expires: timedelta | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Create the key NAME and print it; it cannot be displayed later.

    \b
    Examples:
      toolgate keys create deploy --scope pets.write --expires 90d
      toolgate keys create audit --role auditor > audit.key
    """
    until = datetime.now(UTC) + expires if expires else None
    given = [word for text in scopes for word in text.split()]

    async def work() -> tuple[ApiKey, str]:
        async with open_registry(settings, Act("createKey", name, tenant)) as registry:
            store = ApiKeys(registry.database.pool, tenant or registry.host_id)
            return await store.create(
                name, principal, given, roles, expires=until, makers=[actor()]
            )

    key, text = run(work())
    if as_json:
        print_json({"secret": text, **_builtins(key)})
        return
    out.print(text, markup=False)
    remark(f"The key {key.id} of {key.principal}. Store it now: it is not shown again.")
    if settings.auth.mode == "none" or not settings.auth.api_keys:
        remark("Keys are used only if auth.mode is jwt or keys, and auth.api_keys is true.")


@click.command(name="list")
@tenant_option
@json_option
@settings_option
def list_(settings: Settings, tenant: str | None, as_json: bool) -> None:
    """List the keys.

    A pipe gets one line for each: id, name, principal, state, last use, scopes and roles.
    """
    found = run(_all(settings, tenant))
    if as_json:
        print_json([_builtins(key) for key in found])
        return
    print_rows(
        ("id", "name", "principal", "state", "last used", "scopes and roles"),
        [_row(key) for key in found],
    )
    if not found:
        remark("No keys yet. Try: toolgate keys create NAME")


@click.command()
@click.argument("key")
@tenant_option
@settings_option
def revoke(settings: Settings, key: str, tenant: str | None) -> None:
    """Revoke KEY, an id or a name, at all gateways.

    Gateways refuse it at once, at the latest after auth.revocation_s seconds.
    """
    usable = [one for one in run(_all(settings, tenant)) if one.revoked is None]
    named = [one for one in usable if key in (one.id, one.name)]
    if not named:
        fail(f"there is no key {key!r} to revoke; `toolgate keys list` lists the keys")
    if len(named) > 1:
        fail(f"{key!r} is the id of one key and the name of another: use the other's id", USAGE)

    async def work() -> None:
        async with open_registry(settings, Act("revokeKey", named[0].id, tenant)) as registry:
            await ApiKeys(registry.database.pool, tenant or registry.host_id).revoke(named[0].id)

    run(work())
    say(f"Revoked {named[0].name} ({named[0].id}).")


async def _all(settings: Settings, tenant: str | None) -> list[ApiKey]:
    async with open_registry(settings) as registry:
        return await ApiKeys(registry.database.pool, tenant or registry.host_id).all()


def _row(key: ApiKey) -> tuple[str, ...]:
    used = key.last_used.strftime("%Y-%m-%d %H:%M") if key.last_used else "never"
    words = [*key.scopes, *(f"role:{role}" for role in key.roles)]
    return key.id, key.name, key.principal, state(key), used, " ".join(words) or "-"


def state(key: ApiKey) -> str:
    if key.revoked is not None:
        return "revoked"
    if key.expires is None:
        return "valid"
    until = key.expires.strftime("%Y-%m-%d")
    return f"expired {until}" if key.expires <= datetime.now(UTC) else f"until {until}"


def _builtins(key: ApiKey) -> dict[str, object]:
    names = (
        "id",
        "name",
        "principal",
        "scopes",
        "roles",
        "makers",
        "created",
        "expires",
        "revoked",
    )
    return {name: getattr(key, name) for name in (*names, "last_used")} | {"state": state(key)}
