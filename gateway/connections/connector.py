"""People's accounts at sources, as calls need them: read once, renewed by one gateway at a time.

A process remembers what it has read until a notification, or the interval of the access feed, says
that something has changed; a renewed token is no such change, since the one before is good until it
ends. Of a call without a usable connection nothing reaches the service.
"""

import asyncio
import hashlib
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal
from uuid import UUID

import anyio
import msgspec

from config.settings import Settings
from config.sources import Connect, SchemeSettings
from gateway.connections.identity_assertions import IdentityAssertions
from gateway.connections.metrics import ConnectionMetrics
from gateway.connections.required_accounts import (
    Requirement,
    connect_header_value,
    connect_of,
    header_credential,
    requirement,
)
from gateway.connections.token_renewals import RenewalFailed, RenewalRefused, Renewals, Renewed
from gateway.connections.trial_credentials import trial_of
from gateway.context import Context
from gateway.login.login_records import LoginAct, RecordLogin
from gateway.upstreams.auth.credentials import entry_for
from gateway.upstreams.auth.personal_accounts import (
    Connector,
    LoginTokens,
    Security,
    SourceAccount,
    fold_name,
    fold_schemes,
)
from registry.access.secret_digests import secret_digest
from registry.access.secrets import Keys, SecretRefused
from registry.connections.accounts import Connections, Owner, StoredConnection, erase_connections
from registry.connections.connect_links import Tickets
from registry.database.postgres import AWAY, Pool, borrow, unavailability
from schemas.binding import Credential
from schemas.challenges import read_challenge
from schemas.errors import ConnectionRequired, Fault, Forbidden, Unavailable
from schemas.source import Source

log = logging.getLogger("toolgate.connections")

Reason = Literal["missing", "expired", "scopes", "login", "refused", "suspended"]
TEXTS: Mapping[Reason, str] = {
    "missing": "{title} needs your own account there. Open {url} to connect it, then call again.",
    "expired": "Your account at {title} has to be connected again. Open {url}, then call again.",
    "scopes": "{title} needs more rights than you have given. Open {url}, then call again.",
    "login": "{title} asks you to log in there once more. Open {url}, then call again.",
    "refused": "{title} refuses the account that you have connected. Open {url} to connect it "
    "again, then call again.",
    "suspended": "Your connection to {title} is suspended. Open {url} to connect it again.",
}
AWAY_S = 60.0  # for which what was read is good while the database does not answer
POLL_S = 0.1  # while another gateway renews
USE_NOTE_INTERVAL_S = 3600.0  # between notes of use
NO_PARAMETERS: Mapping[str, str] = {}
ACR_LIMIT = 500  # characters
AGE_DIGITS = 9
ELICITATION_CHARACTERS = 32
MOST_SCOPES = 50  # that a service may ask for at once


@dataclass(frozen=True, slots=True)
class _Held:
    """The connections of a person to a source, as they were read."""

    rows: Mapping[str, StoredConnection]  # by scheme
    entries: Mapping[str, SchemeSettings]  # of those that can be used
    renew_at: float  # monotonic time; of the first token that ends
    generation: int
    key: str
    settings: Settings
    read_at: float  # monotonic time
    accounts: dict[Security, SourceAccount] = field(default_factory=dict)  # that were made of it
    # whose shared account serves instead, by what is needed and the caller's roles
    lenders: dict[tuple[Security, frozenset[str]], Owner] = field(default_factory=dict)

    def row(self, credential: Credential) -> StoredConnection | None:
        """The connection that satisfies a scheme, whose name is spelt as entries may be."""
        row = self.rows.get(credential.scheme)
        if row is None:
            folded = fold_name(credential.scheme)
            rows = (row for name, row in self.rows.items() if fold_name(name) == folded)
            row = next(rows, None)
        return row

    def ids(self, credentials: Sequence[Credential]) -> list[str]:
        """Ids of the connections that satisfy schemes."""
        return [str(row.id) for each in credentials if (row := self.row(each)) is not None]


@dataclass(frozen=True, slots=True)
class _Link:
    ticket: str = field(repr=False)
    url: str
    expires: str
    until: float  # monotonic time, at which another one is made


class PersonalConnector:
    """Implements `Connector`."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        pool: Callable[[], Pool],
        renewals: Renewals,
        *,
        record: RecordLogin,
        assertions: IdentityAssertions,
    ) -> None:
        """`settings`: as they are now; `pool` raises Unavailable until there is a database."""
        self._settings = settings
        self._pool = pool
        self._renewals = renewals
        self._record = record
        self._assertions = assertions
        self.login_tokens: LoginTokens = assertions.login_tokens
        self.metrics = ConnectionMetrics()
        now = settings()
        self._host_id = now.tenant.host_id
        self._keys = Keys.of(now.secrets)
        self._public_url = now.server.public_url.rstrip("/")
        self._generation = 0
        self._held: OrderedDict[Owner, _Held] = OrderedDict()
        self._lenders: dict[tuple[str, str], dict[str, frozenset[str]]] = {}  # by tenant and source
        self._links: OrderedDict[tuple[Owner, Reason, bytes], _Link] = OrderedDict()
        self._renewing: dict[UUID, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()  # set, and replaced, with each change

    def of_mode(self, mode: str) -> Connector:
        return self._assertions if mode == "id_jag" else self

    async def load(self, _pool: Pool) -> None:
        """Read connections again from now on: some have changed, or may have."""
        self._generation += 1
        self._links.clear()
        self._lenders.clear()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def connect_of(self, place: str) -> Connect:
        """The settings of a source, by its place."""
        return connect_of(self._settings(), place)

    @property
    def connections(self) -> Connections:
        """Raises Unavailable."""
        return Connections(self._pool(), self._host_id, self._keys)

    @property
    def tickets(self) -> Tickets:
        """Raises Unavailable."""
        return Tickets(self._pool(), self._host_id)

    async def account(
        self, source: Source, security: Security, context: Context
    ) -> SourceAccount | None:
        identity, account = context.identity, None
        if identity.verified and not context.absent and context.borrows is None:
            principal = identity.principal
            owner = Owner(principal.tenant, principal.id, source.place)
            grants = self._current(owner)
            if grants is not None and grants.lenders:
                lender = grants.lenders.get((security, principal.roles))
                grants = grants if lender is None else self._current(lender)
            if (
                grants is not None
                and grants.renew_at > time.monotonic()
                and trial_of(owner) is None
            ):
                account = grants.accounts.get(security)
        if account is None:
            account = await self._find_account(source, security, context)
        if account is not None and context.note is not None:
            context.note.connection, context.note.owner = account.rows, account.lender
        return account

    async def borrows(self, source: Source, security: Security, context: Context) -> bool:
        """Whether a call would be made with an account that somebody shares. Raises
        Unavailable."""
        connect, security = self._needs(source, security)
        if not context.identity.verified or not security:
            return False
        with suppress(Forbidden):  # the call itself is refused, if no rule denies it before
            chosen = await self._choose(source, connect, security, context)
            return chosen is not None and chosen[0].shared
        return False

    async def _find_account(
        self, source: Source, security: Security, context: Context
    ) -> SourceAccount | None:
        """`account`, for the first call with what was read. Raises as that."""
        original, declared = security, source.facts.schemes
        connect, security = self._needs(source, security)
        if not security:
            return None
        if not context.identity.verified:
            text = f"{source.name} was not called: its callers connect accounts of their own, and "
            raise Forbidden(text + "this caller is not known. Log in, or send an API key.")
        if context.absent and connect.absent != "allow":
            raise _absence(source, f"sources.{source.place}.connect.absent does not allow that")
        generation = self._generation
        chosen = await self._choose(source, connect, security, context)
        if chosen is None:
            return None
        owner, grants, needs = chosen
        if context.borrows is not None and context.borrows != owner.shared:
            raise Unavailable("The account of the call has changed meanwhile. Call again.")
        await self._check_grant(owner, grants, needs)
        self._check_presence(context, source, grants, needs.needed)
        if grants.renew_at <= time.monotonic():
            grants = await self._renew(owner, grants, needs.needed)
            is_there = all(entry_for(grants.entries, each) for each in needs.needed)
            if not is_there or generation != self._generation:  # ended, or shared with others
                return await self._find_account(source, original, context)
        headers = {} if declared else _headers(connect, grants)
        account = _make_account(owner, grants, needs.needed, connect=connect, headers=headers)
        if trial_of(owner) is None:
            grants.accounts[original] = account
            if owner.shared:
                own_grants = await self._read(_owner(source, context))
                if generation == self._generation:
                    own_grants.lenders[original, context.principal.roles] = owner
        return account

    async def _check_grant(self, owner: Owner, grants: _Held, needs: Requirement) -> None:
        """Raises the fault of an account that lacks something, and Unavailable."""
        if needs.missing:
            raise await self.connection_fault(owner, needs.needed, _reason(grants, needs.missing))
        if not all(_has_scopes(grants, each) for each in needs.needed):
            raise await self.connection_fault(owner, needs.needed, "scopes", grants.key)

    def _needs(self, source: Source, security: Security) -> tuple[Connect, Security]:
        """The settings of a source, and what a call there has to satisfy: nothing, or schemes."""
        connect = self.connect_of(source.place)
        if source.facts.schemes:
            return connect, security
        # its header is what people have, whatever `schemes` says
        return msgspec.structs.replace(connect, schemes=()), ((header_credential(connect),),)

    async def _choose(
        self, source: Source, connect: Connect, security: Security, context: Context
    ) -> tuple[Owner, "_Held", Requirement] | None:
        """The account for a call: the caller's own, or the first that can be used of those that are
        shared with their roles. The last of the three says what it lacks; None where the call
        needs no account. Raises Forbidden where there is none to use or to connect."""
        source_entries, first = self._settings().sources[source.place].credentials, None
        for owner in await self._candidates(_owner(source, context), connect, context):
            grants = await self._read(owner)
            if (trial := trial_of(owner)) is not None:
                grants = replace(grants, entries=trial, renew_at=math.inf, key=secrets.token_hex())
            needs = requirement(
                security, connect, source_entries=source_entries, person_entries=grants.entries
            )
            if needs is not None and not needs.missing:
                return owner, grants, needs
            first = first or (None if needs is None else (owner, grants, needs))
        if requirement(security, connect, source_entries=source_entries, person_entries={}) is None:
            return None
        if first is None:
            text = "was not called: it takes an account that is shared with a role of the caller"
            raise Forbidden(f"{source.name} {text}, and there is none")
        return first

    async def _candidates(self, caller: Owner, connect: Connect, context: Context) -> list[Owner]:
        """The owners of accounts that may serve, the first one first; nobody's stands in for one
        that the caller has connected."""
        owners = [] if connect.mode == "shared" and trial_of(caller) is None else [caller]
        if not connect.is_shared or (owners and (await self._read(caller)).rows):
            return owners
        place = caller.tenant, caller.source
        lenders = self._lenders.get(place)
        if lenders is None:
            generation = self._generation
            try:
                lenders = await self.connections.lenders(*place)
            except AWAY as error:
                raise Unavailable(unavailability(error)) from error
            if generation == self._generation:
                self._lenders[place] = lenders
        for principal, roles in lenders.items():
            if principal == caller.principal:
                owners.append(caller)
            elif not roles.isdisjoint(context.principal.roles):
                owners.append(replace(caller, principal=principal, shared=True))
        return owners

    async def renew(
        self, account: SourceAccount, *, status: int, challenge: str
    ) -> SourceAccount | None:
        owner, needed = account.owner, account.needed
        if trial_of(owner) is not None:
            return None
        if status == 403:
            challenges = read_challenge([challenge])
            if challenges is None or challenges.error != "insufficient_scope":
                return None
            needed = tuple(
                msgspec.structs.replace(
                    each, scopes=tuple(sorted({*each.scopes, *challenges.scopes})[:MOST_SCOPES])
                )
                for each in needed
            )
            raise await self.connection_fault(owner, needed, "scopes", account.key)
        self._held.pop(owner, None)
        grants = await self._read(owner)
        if all(grants.entries.get(name) == entry for name, entry in account.entries.items()):
            rows = [row for each in needed if (row := grants.row(each)) is not None]
            login = _stricter_login(challenge)
            if login and any(row.kind == "oauth" for row in rows):
                raise await self.connection_fault(owner, needed, "login", account.key, login=login)
            pause_s = self._settings().connections.refused_token_s
            if any(row.kind == "oauth" and row.renewed_s < pause_s for row in rows):
                return None  # a new token was refused: it is not about the token
            if not any(row.kind == "oauth" for row in rows):
                raise await self.connection_fault(owner, needed, "refused")
            grants = await self._renew(owner, grants, needed, refused=True)
        if not all(entry_for(grants.entries, each) for each in needed):
            raise await self.connection_fault(owner, needed, _reason(grants, needed))
        headers = account.headers
        if headers:
            headers = _headers(self.connect_of(owner.source), grants)
        return replace(account, key=grants.key, entries=grants.entries, headers=headers)

    async def offer(self, owner: Owner, credentials: Sequence[Credential]) -> str:
        """A link by which a person connects of their own accord. Raises Unavailable."""
        return (await self._link(owner, credentials, "missing")).url

    async def disconnect(
        self, tenant: str, id_: str, principal: str | None = None
    ) -> StoredConnection | None:
        """End a connection of a tenant, or of one person alone; returns it as it was. Its token is
        revoked at its server as far as that is possible (RFC 7009)."""
        row = await self.connections.delete(tenant, id_, principal)
        await self.load_now()
        if row is None or row.kind != "oauth":
            return row
        owner = Owner(tenant, row.principal, row.source, row.label)
        try:
            secret = self.connections.open(owner, row)
            await self._renewals.revoke(owner, row, secret)
        except (SecretRefused, RenewalFailed, RenewalRefused) as error:
            log.warning(
                "connection_not_revoked", extra={"connection": str(row.id), "reason": str(error)}
            )
        return row

    async def erase(self, tenant: str, principal: str) -> None:
        """Delete what a person has connected, and their links."""
        for row in await self.connections.all(tenant, principal):
            await self.disconnect(tenant, str(row.id), principal)
        async with borrow(self._pool()) as connection:
            await erase_connections(connection, self._host_id, tenant, principal)

    async def load_now(self) -> None:
        """Act by a change that this process has made; others are notified of it."""
        await self.load(self._pool())

    async def connection_fault(
        self,
        owner: Owner,
        credentials: Sequence[Credential],
        reason: Reason,
        account: str = "",
        *,
        login: Mapping[str, str] = NO_PARAMETERS,
    ) -> Fault:
        """The fault of a call whose person has to connect, or the owner of a shared account.
        `account`: the key of one that lacks scopes, or a login; `login`: further parameters of the
        request to the service's authorization server. Raises Unavailable."""
        if owner.shared:
            text = "was not called: the account that is shared there cannot be used"
            return Forbidden(f"{owner.source} {text} ({reason}). Its owner has to connect it again")
        link = await self._link(owner, credentials, reason, login)
        self.metrics.count_request(owner.source, reason)
        title = self.connect_of(owner.source).title or owner.source
        text = TEXTS[reason].format(title=title, url=link.url)
        return ConnectionRequired(
            text,
            url=link.url,
            source=owner.source,
            reason=reason,
            expires=link.expires,
            account=account,
            wait=partial(self._wait, owner, credentials, self._useless_rows(owner, reason)),
            note_session=partial(self._note_session, link.ticket),
        )

    async def _note_session(self, ticket: str, session: str) -> str:
        with suppress(Unavailable, *AWAY):
            await self.tickets.note_session(ticket, session)
        return elicitation_of(secret_digest(ticket))

    def _useless_rows(self, owner: Owner, reason: Reason) -> frozenset[UUID]:
        """Connections that there are, and that a person has to replace."""
        grants = self._held.get(owner)
        if grants is None or reason not in ("scopes", "login", "refused"):
            return frozenset()
        return frozenset(row.id for row in grants.rows.values())

    async def _wait(
        self,
        owner: Owner,
        credentials: Sequence[Credential],
        useless: frozenset[UUID],
        seconds: float,
    ) -> bool:
        """Wait until a person has connected; returns whether they have. `useless`: connections
        that do not count."""
        with anyio.move_on_after(seconds):
            while True:
                changed = self._changed
                grants = await self._read(owner)
                rows = {row.id for each in credentials if (row := grants.row(each)) is not None}
                if (
                    all(entry_for(grants.entries, each) for each in credentials)
                    and not useless & rows
                ):
                    return True
                await changed.wait()
        return False

    async def _link(
        self,
        owner: Owner,
        credentials: Sequence[Credential],
        reason: Reason,
        login: Mapping[str, str] = NO_PARAMETERS,
    ) -> _Link:
        document = msgspec.json.encode((credentials, login))
        key = owner, reason, document
        link = self._links.get(key)
        if link is not None and link.until > time.monotonic():
            return link
        settings = self._settings().connections
        try:
            text = await self.tickets.make(
                owner,
                msgspec.to_builtins(credentials),
                reason=reason,
                login=login,
                lasts_s=settings.ticket_s,
                limit=settings.tickets,
            )
        except AWAY as error:
            raise Unavailable(unavailability(error)) from error
        expires = datetime.now(UTC) + timedelta(seconds=settings.ticket_s)
        link = _Link(
            text,
            f"{self._public_url}/connect?ticket={text}",
            expires.isoformat(timespec="seconds"),
            time.monotonic() + settings.ticket_s / 2,
        )
        if reason == "scopes":
            scopes = sorted({scope for each in credentials for scope in each.scopes})
            subject = f"{owner.source}: {' '.join(scopes)}"
            self._record(LoginAct("scopes", subject, "deny", owner.tenant, owner.principal))
        self._links[key] = link
        while len(self._links) > settings.cached:
            self._links.popitem(last=False)
        return link

    def _check_presence(
        self, context: Context, source: Source, grants: _Held, credentials: Sequence[Credential]
    ) -> None:
        """Refuse work without its person, unless they have allowed that. Raises Forbidden."""
        if context.absent and not all(
            (row := grants.row(each)) and row.away for each in credentials
        ):
            raise _absence(source, f"its owner has not allowed that ({self._public_url}/connect)")

    async def _read(self, owner: Owner) -> _Held:
        """Everything that a person has connected there. Raises Unavailable."""
        if (current := self._current(owner)) is not None:
            self._held.move_to_end(owner)
            return current
        grants, generation = self._held.get(owner), self._generation
        try:
            connections = self.connections
            rows = await connections.of(owner)
            await self._note_use(connections, rows)
        except AWAY as error:
            if grants is not None and time.monotonic() - grants.read_at < AWAY_S:
                return grants
            raise Unavailable(unavailability(error)) from error
        grants = self._hold(owner, rows, generation)
        self._held[owner] = grants
        while len(self._held) > self._settings().connections.cached:
            self._held.popitem(last=False)
        return grants

    def _current(self, owner: Owner) -> _Held | None:
        """The connections of a person, if nothing has changed since they were read. A caller whom
        another's account serves has to be current, too: their own may have come, or roles gone."""
        grants = self._held.get(owner)
        if grants is None or grants.generation != self._generation:
            return None
        return grants if grants.settings is self._settings() else None

    def _hold(self, owner: Owner, rows: Sequence[StoredConnection], generation: int) -> _Held:
        entries: dict[str, SchemeSettings] = {}
        waits_s = math.inf
        for row in rows:
            if row.state != "ok" or self._is_idle(row):
                continue
            try:
                entries[row.scheme] = self.connections.open(owner, row).entry
            except SecretRefused as error:
                reason = {"connection": str(row.id), "reason": str(error)}
                log.error("connection_unreadable", extra=reason)
                continue
            waits_s = min(waits_s, row.waits_s)
        named = ",".join(sorted(str(row.id) for row in rows))
        return _Held(
            {row.scheme: row for row in rows},
            entries,
            time.monotonic() + waits_s,
            generation,
            hashlib.sha256(f"account:{named}".encode()).hexdigest(),
            self._settings(),
            time.monotonic(),
        )

    def _is_idle(self, row: StoredConnection) -> bool:
        """Whether a token was left unused for so long that it is not renewed any more."""
        last = row.used or row.created
        idle = timedelta(seconds=self._settings().connections.idle_s)
        return row.kind == "oauth" and datetime.now(UTC) - last > idle

    async def _note_use(self, connections: Connections, rows: Sequence[StoredConnection]) -> None:
        """Note that accounts are used, so that those that are not are idle some time."""
        since = datetime.now(UTC) - timedelta(seconds=USE_NOTE_INTERVAL_S)
        good = (row for row in rows if row.state == "ok" and not self._is_idle(row))
        unnoted = [row.id for row in good if row.used is None or row.used < since]
        if unnoted:
            await connections.note_use(unnoted)

    async def _renew(
        self,
        owner: Owner,
        grants: _Held,
        credentials: Sequence[Credential],
        *,
        refused: bool = False,
    ) -> _Held:
        """The connections with renewed tokens. Raises ConnectionRequired where they cannot be, and
        Unavailable where that is not known. `refused`: the present ones are useless."""
        for each in credentials:
            row = grants.row(each)
            if row is None or row.kind != "oauth" or not (refused or row.waits_s < math.inf):
                continue
            if row.id not in self._renewing:
                task = asyncio.create_task(self._renew_row(owner, row))
                self._renewing[row.id] = task
                task.add_done_callback(partial(self._forget, row.id))
            try:
                # a caller may be cancelled; the others still need the token
                await asyncio.shield(self._renewing[row.id])
            except RenewalRefused as error:
                self._held.pop(owner, None)
                raise await self.connection_fault(owner, credentials, "expired") from error
            except (RenewalFailed, *AWAY) as error:
                if refused or row.expires is None or row.expires <= datetime.now(UTC):
                    text = f"{owner.source} was not called: its token could not be renewed"
                    raise Unavailable(text) from error
                return grants  # it still has some seconds
        self._held.pop(owner, None)
        return await self._read(owner)

    def _forget(self, id_: UUID, task: asyncio.Task[None]) -> None:
        self._renewing.pop(id_, None)
        if not task.cancelled():
            task.exception()  # retrieved, since all callers may have been cancelled

    async def _renew_row(self, owner: Owner, row: StoredConnection) -> None:
        """Renew a token, or wait for the gateway that does. Raises RenewalRefused and
        RenewalFailed."""
        timeout_s = self._settings().connections.renew_timeout_s
        connections = self.connections
        with anyio.move_on_after(timeout_s * 2):
            while not await connections.begin_renewal(row.id, row.version, timeout_s):
                await asyncio.sleep(POLL_S)
                now = [each for each in await connections.of(owner) if each.id == row.id]
                if not now or now[0].version != row.version:
                    return
                if now[0].state == "expired":
                    raise RenewalRefused(now[0].failure)
            await self._renew_alone(connections, owner, row, timeout_s)
            return
        raise RenewalFailed("another gateway is at it")

    async def _renew_alone(
        self, connections: Connections, owner: Owner, row: StoredConnection, timeout_s: float
    ) -> None:
        try:
            with self.metrics.count_renewal(owner.source):
                renewed = await self._request_renewal(connections, owner, row, timeout_s)
        except (RenewalRefused, RenewalFailed):
            subject = f"{owner.source}/{row.id}"
            self._record(LoginAct("renew", subject, "deny", owner.tenant, owner.principal))
            raise
        with anyio.CancelScope(shield=True):  # the former refresh token may be good no longer
            stored = await connections.store_renewal(
                owner, row, renewed.secret, lasts_s=renewed.lasts_s, scopes=renewed.scopes
            )
            if not stored:  # it was ended meanwhile
                with suppress(RenewalFailed, RenewalRefused):
                    await self._renewals.revoke(owner, row, renewed.secret)

    async def _request_renewal(
        self, connections: Connections, owner: Owner, row: StoredConnection, timeout_s: float
    ) -> Renewed:
        """A renewed token. Raises RenewalRefused and RenewalFailed."""
        try:
            with anyio.fail_after(timeout_s * 0.8):  # before another gateway may try
                return await self._renewals.renew(owner, row, connections.open(owner, row))
        except TimeoutError as error:
            late = RenewalFailed("no answer in time (connections.renew_timeout_s)")
            await _note_failure(connections, row, late)
            raise late from error
        except (RenewalRefused, RenewalFailed) as error:
            await _note_failure(connections, row, error)
            raise
        except SecretRefused as error:
            raise RenewalRefused(str(error)) from error


async def _note_failure(
    connections: Connections, row: StoredConnection, error: RenewalRefused | RenewalFailed
) -> None:
    log.warning("connection_not_renewed", extra={"connection": str(row.id), "reason": str(error)})
    with suppress(*AWAY):
        over = isinstance(error, RenewalRefused)
        await connections.fail_renewal(row, str(error)[:500], over=over)


def _owner(source: Source, context: Context) -> Owner:
    """The caller, as the owner of an account."""
    return Owner(context.principal.tenant, context.principal.id, source.place)


def _make_account(
    owner: Owner,
    grants: _Held,
    credentials: tuple[Credential, ...],
    *,
    connect: Connect,
    headers: Mapping[str, str],
) -> SourceAccount:
    return SourceAccount(
        owner,
        grants.key,
        credentials,
        grants.entries,
        fold_schemes(connect.schemes),
        headers,
        "" if trial_of(owner) is not None else ",".join(grants.ids(credentials)),
        owner.principal if owner.shared else "",
    )


def _headers(connect: Connect, grants: _Held) -> dict[str, str]:
    """The header of a source that declares no schemes."""
    entry = entry_for(grants.entries, header_credential(connect))
    return {} if entry is None else {connect.header: connect_header_value(connect, entry)}


def elicitation_of(digest: bytes) -> str:
    """The id of the elicitation of a ticket, by its digest."""
    return digest.hex()[:ELICITATION_CHARACTERS]


def _stricter_login(challenge: str) -> Mapping[str, str]:
    """The parameters of a login that a service asks for (RFC 9470, section 3); none where it asks
    for none."""
    challenges = read_challenge([challenge])
    if challenges is None or challenges.error != "insufficient_user_authentication":
        return NO_PARAMETERS
    parameters = {"acr_values": challenges.acr_values[:ACR_LIMIT], "max_age": challenges.max_age}
    if not challenges.max_age.isdecimal() or len(challenges.max_age) > AGE_DIGITS:
        parameters["max_age"] = ""
    return {name: text for name, text in parameters.items() if text} or {"prompt": "login"}


def _absence(source: Source, why: str) -> Forbidden:
    text = "was not called: it takes an account, whose person is absent, and"
    return Forbidden(f"{source.name} {text} {why}")


def _reason(grants: _Held, missing: Sequence[Credential]) -> Reason:
    rows = [grants.row(each) for each in missing]
    states = {row.state for row in rows if row is not None}
    if "suspended" in states:
        return "suspended"
    return "expired" if states else "missing"


def _has_scopes(grants: _Held, credential: Credential) -> bool:
    """Whether the person has granted what the operation needs; a server that said nothing of
    scopes may have granted them."""
    row = grants.row(credential)
    if row is None or row.kind != "oauth" or not row.scopes:
        return True
    return set(credential.scopes) <= set(row.scopes)
