"""`toolgate keys`: API keys for machines."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from config.settings import Settings
from gateway.cli.access.scopes import check_scopes, known_scopes
from gateway.cli.common.acts import Act, actor
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import DURATION, json_option, tenant_option
from gateway.cli.common.output import out, print_json, print_rows, remark, say
from registry.access.keys import ApiKey, ApiKeys, earlier_mark

COMMANDS = {
    "create": ("gateway.cli.access.keys:create", "Create a key; it is shown once."),
    "list": ("gateway.cli.access.keys:list_", "List the keys, without their secrets."),
    "rotate": ("gateway.cli.access.keys:rotate", "Replace a key by a new one of its principal."),
    "revoke": ("gateway.cli.access.keys:revoke", "Revoke a key."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def keys() -> None:
    """Create, list, rotate and revoke API keys for machines.

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
@click.option("--any-scope", is_flag=True, help="Allow scopes that nothing asks for yet.")
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
    any_scope: bool,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Create the key NAME and print it; it cannot be displayed later.

    \b
    Examples:
      toolgate keys create deploy --scope memory:read --expires 90d
      toolgate keys create audit --role auditor > audit.key
    """
    until = datetime.now(UTC) + expires if expires else None
    given = [word for text in scopes for word in text.split()]

    async def work() -> tuple[ApiKey, str]:
        async with open_registry(settings, Act("createKey", name, tenant)) as registry:
            host_id = tenant or registry.host_id
            if given and not any_scope:
                check_scopes(given, await known_scopes(settings, registry, host_id))
            store = ApiKeys(registry.database.pool, host_id)
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
        remark(
            "Nobody is asked for a key now: keys count if auth.mode is jwt or keys, and "
            "auth.api_keys is true."
        )


@click.command(name="list")
@tenant_option
@json_option
@settings_option
def list_(settings: Settings, tenant: str | None, as_json: bool) -> None:
    """List the keys.

    A pipe gets one line for each: id, name, principal, state, last use, scopes and roles.
    """
    keys = run(_all(settings, tenant))
    if as_json:
        print_json([_builtins(key) for key in keys])
        return
    print_rows(
        ("id", "name", "principal", "state", "last used", "scopes and roles"),
        [_row(key) for key in keys],
    )
    if not keys:
        remark("No keys yet. Try: toolgate keys create NAME")


@click.command()
@click.argument("key")
@click.option(
    "--overlap",
    type=DURATION,
    default="1d",
    help="How long the earlier key is valid  [default: 1d].",
)
@click.option("--expires", type=DURATION, help="Lifetime  [default: that of the earlier key].")
@tenant_option
@json_option
@settings_option
def rotate(
    settings: Settings,
    key: str,
    overlap: timedelta,
    expires: timedelta | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Replace KEY, an id or a name, by a new one, which is printed once.

    The new key has the name, the principal, the scopes and the roles of the earlier one, so that
    memories, collections and grants of its principal stay its own. The earlier one is valid for the
    --overlap, in which clients take the new one.

    \b
    Example:
      toolgate keys rotate deploy --overlap 2h > deploy.key
    """
    earlier = _usable(run(_all(settings, tenant)), key, "rotate")
    until = datetime.now(UTC) + expires if expires else None

    async def work() -> tuple[ApiKey, str]:
        async with open_registry(settings, Act("rotateKey", earlier.id, tenant)) as registry:
            store = ApiKeys(registry.database.pool, tenant or registry.host_id)
            return await store.rotate(earlier.id, overlap, expires=until, makers=[actor()])

    made, text = run(work())
    if as_json:
        print_json({"secret": text, **_builtins(made)})
        return
    out.print(text, markup=False)
    remark(
        f"The key {made.id} of {made.principal}. Store it now: it is not shown again. "
        f"The earlier one, {earlier.id}, is valid for {overlap} more at most."
    )


@click.command()
@click.argument("key")
@tenant_option
@settings_option
def revoke(settings: Settings, key: str, tenant: str | None) -> None:
    """Revoke KEY, an id or a name, at all gateways.

    A name revokes the keys, too, that it replaced by `keys rotate` and that are still valid.
    Gateways refuse them at once, at the latest after auth.revocation_s seconds.
    """
    keys = run(_all(settings, tenant))
    named = _usable(keys, key, "revoke")
    mark = earlier_mark(named.name)
    earlier = [
        candidate
        for candidate in keys
        if candidate.revoked is None and candidate.name.startswith(mark)
    ]

    async def work(revoked: ApiKey) -> None:
        async with open_registry(settings, Act("revokeKey", revoked.id, tenant)) as registry:
            await ApiKeys(registry.database.pool, tenant or registry.host_id).revoke(revoked.id)

    for one in (named, *(earlier if key == named.name else ())):
        run(work(one))
        say(f"Revoked {one.name} ({one.id}).")


def _usable(found: Sequence[ApiKey], key: str, what: str) -> ApiKey:
    """The key of an id or a name that is not revoked; fails without one."""
    named = [
        candidate
        for candidate in found
        if candidate.revoked is None and key in (candidate.id, candidate.name)
    ]
    if not named:
        fail(f"there is no key {key!r} to {what}; `toolgate keys list` lists the keys")
    if len(named) > 1:
        fail(f"{key!r} is the id of one key and the name of another: use the other's id", USAGE)
    return named[0]


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
