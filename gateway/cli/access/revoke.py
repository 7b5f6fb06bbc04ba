"""`toolgate token revoke`: have tokens refused before they end."""

from datetime import UTC, datetime, timedelta

import click

from config.settings import Settings
from gateway.cli.access.acts import Act
from gateway.cli.access.token import read_token, sent
from gateway.cli.common.database import open_registry, run
from gateway.cli.common.durations import DURATION
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.options import tenant_option
from gateway.cli.common.output import say
from gateway.cli.common.settings import settings_option
from registry.access.revocations import Revocation, Revocations


@click.command()
@click.argument("token", required=False)
@click.option("--jti", metavar="TEXT", help="The token with this `jti`.")
@click.option("--sub", metavar="NAME", help="All tokens of this principal made until now.")
@click.option("--reason", default="", metavar="TEXT", help="For those who look at it later.")
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    default="30d",
    show_default=True,
    help="How long it is remembered; no less than tokens last.",
)
@tenant_option
@settings_option
def revoke(
    settings: Settings,
    token: str | None,
    jti: str | None,
    sub: str | None,
    reason: str,
    lasts: timedelta,
    tenant: str | None,
) -> None:
    """Have TOKEN, or what the options name, refused by all gateways.

    Usually at once, and at the latest after auth.revocation_s seconds. "-" reads TOKEN from
    standard input. A name is that of a principal, as the log has it.
    """
    if sum(one is not None for one in (token, jti, sub)) != 1:
        fail("expected one of TOKEN, --jti and --sub", USAGE)
    now = datetime.now(UTC)
    if token is not None:
        jti = _jti(token)
    issued_before = now if sub is not None else None
    revocation = Revocation(jti, sub, issued_before, now + lasts, reason)

    async def work() -> None:
        async with open_registry(
            settings, Act("revokeTokens", jti or sub or "", tenant)
        ) as registry:
            await Revocations(registry.database.pool, tenant or registry.host_id).add(revocation)

    run(work())
    say(f"Revoked {f'the token {jti}' if sub is None else f'all tokens of {sub}'}.")


def _jti(token: str) -> str:
    _, claims = read_token(sent(token))
    jti = claims.get("jti")
    if not isinstance(jti, str):
        fail("this token has no `jti` to tell it by; revoke all of its subject with --sub", USAGE)
    return jti
