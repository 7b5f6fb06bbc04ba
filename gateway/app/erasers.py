"""Erasers of the gateway's own tables, for erasures of people."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, LiteralString

from msgspec import to_builtins

from config.settings import Settings
from gateway.admin.resources.erasures import PersonErasure
from gateway.app.components import has_jobs
from gateway.audit.erasure import AuditEraser
from gateway.interfaces import PersonEraser
from gateway.state.sessions import Sessions
from gateway.wings.table import WINGS
from registry.access.revocations import Revocation, Revocations
from registry.costs.daily_costs import DailyCosts
from registry.database.person_rows import ErasedPerson, HeldRows
from registry.database.postgres import Pool, borrow

if TYPE_CHECKING:  # a gateway without wings does not import them
    from gateway.wings.interface import WingContributions

GetPool = Callable[[], Pool | None]
EraseHeld = Callable[[str, str], Awaitable[None]]  # of a tenant's person

OF_PRINCIPAL: LiteralString = "r.host_id = %(host)s AND r.principal = %(person)s"
OF_MAKER: LiteralString = "r.host_id = %(host)s AND %(person)s = ANY (r.makers)"
RENAMED_MAKERS: LiteralString = "makers = array_replace(r.makers, %(person)s, %(pseudonym)s)"
OF_LOGIN: LiteralString = "r.tenant_id = %(host)s AND r.principal = %(person)s"
OF_CALL: LiteralString = (
    "r.host_id = %(host)s AND r.arguments <> '{}' AND EXISTS (SELECT FROM approval_t AS a"
    " WHERE a.host_id = r.host_id AND a.approval_id = r.approval_id"
    " AND a.principal IN (%(person)s, %(pseudonym)s))"  # the latter once interrupted
)
ADDRESSES: LiteralString = (
    "SELECT email FROM login_person_t WHERE tenant_id = %(host)s AND principal = %(person)s"
    " AND email IS NOT NULL"
)
ACCOUNTS: LiteralString = (
    "SELECT DISTINCT source FROM connection_t WHERE tenant_id = %(host)s AND principal = %(person)s"
)
ENDED_JOB: LiteralString = (
    "principal_id = %(pseudonym)s, principal = 'null', request = 'null', result = NULL,"
    " problem = NULL, note = '', location = '',"
    " state = CASE WHEN ended_ts IS NULL THEN 'cancelled' ELSE state END,"
    " ended_ts = coalesce(ended_ts, clock_timestamp())"
)
REVOCATION_LIFETIME = timedelta(days=30)  # longer than tokens of an issuer are valid
REVOCATION_TEXT = "the id, so that tokens from before the erasure are refused, for 30 days"
UNDATED_TEXT = (
    "backups and the WAL of the database, until they end",
    "logs, traces and metrics of the gateway and of proxies before it",
)


def rows_of_gateway(settings: Settings, pool: GetPool) -> list[HeldRows]:
    """Rows of the registry's tables, those of approvals and jobs among them."""

    def rows_of(
        place: str, table: LiteralString, condition: LiteralString, blanks: LiteralString = "",
        **more: Any,
    ) -> HeldRows:  # fmt: skip
        return HeldRows(
            place=place, table=table, pool=pool, condition=condition, blanks=blanks, **more
        )

    rows = [
        rows_of("API keys", "api_key_t", OF_PRINCIPAL,
             before=partial(_revoke, pool), is_copy=False),
        rows_of("keys of others", "api_key_t", OF_MAKER, RENAMED_MAKERS, is_copy=False),
        rows_of("waiting approvals", "approval_t", OF_PRINCIPAL + " AND r.state = 'waiting'"),
        rows_of("calls in approvals", "approval_call_t", OF_CALL, "arguments = '{}'"),
        rows_of("decided approvals", "approval_t", OF_PRINCIPAL,
             "principal = %(pseudonym)s, arguments = '{}', program = NULL"),
        rows_of("decisions", "approval_t", "r.host_id = %(host)s AND r.decide_user = %(person)s",
             "decide_user = %(pseudonym)s", is_copy=False),
        rows_of("approvals by keys", "approval_t", OF_MAKER, RENAMED_MAKERS, is_copy=False),
        rows_of("log of searches", "usage_request_t",
             "r.host_id = %(host)s AND r.caller = md5(%(person)s)"),
        rows_of("searches as feedback", "usage_query_t",
             "r.host_id = %(host)s AND r.principal = md5(%(person)s)"),
        rows_of("stored answers", "command_idempotency_t",
             "r.host_id = %(host)s AND r.principal_id = left(%(person)s, 256)", is_copy=False),
        # Without an answer, a repeated request is refused rather than executed again.
        rows_of("stored answers to others", "command_idempotency_t",
             "r.host_id = %(host)s AND r.principal_id <> left(%(person)s, 256)"
             " AND convert_from(r.response, 'UTF8') ~ %(word)s",
             "response = NULL", is_copy=False),
        rows_of("authors of toolsets", "toolset_t",
             "r.host_id = %(host)s AND %(person)s IN (r.create_principal, r.update_principal)",
             "create_principal = coalesce(nullif(create_principal, %(person)s), %(pseudonym)s),"
             " update_principal = coalesce(nullif(update_principal, %(person)s), %(pseudonym)s)",
             is_copy=False),
        rows_of("requests of erasures", "erasure_t",
             "r.host_id = %(host)s AND r.requester = %(person)s", "requester = %(pseudonym)s",
             is_copy=False),
    ]  # fmt: skip
    if has_jobs(settings):
        person_condition: LiteralString = "r.host_id = %(host)s AND r.principal_id = %(person)s"
        rows.append(rows_of("jobs", "job_t", person_condition, ENDED_JOB))
    if settings.console.enabled or settings.login.enabled:
        by: LiteralString = (
            "r.caller -> 'principal' ->> 'id' = %(person)s"
            " AND r.caller -> 'principal' ->> 'tenant' = %(host)s"
        )
        rows.append(rows_of("sessions of the console", "console_session_t", by, is_copy=False))
    return rows


async def _revoke(pool: GetPool, person: ErasedPerson) -> None:
    if (opened := pool()) is not None:
        now = datetime.now(UTC)
        await Revocations(opened, person.tenant).add(Revocation(
            None, person.id, issued_before=now, expires=now + REVOCATION_LIFETIME,
            reason="person erased",
        ))  # fmt: skip


def rows_of_login(pool: GetPool, erase_login: EraseHeld, disconnect: EraseHeld) -> list[HeldRows]:
    """Accounts at services, and what the login knows of the person."""

    def before(erase: EraseHeld) -> Callable[[ErasedPerson], Awaitable[None]]:
        return lambda person: erase(person.tenant, person.id)

    return [
        _Whole(place="accounts at services", table="connection_t", pool=pool, condition=OF_LOGIN,
               before=before(disconnect)),
        _Whole(place="people and logins", table="login_person_t", pool=pool, condition=OF_LOGIN,
               before=before(erase_login), remains=REVOCATION_TEXT),
    ]  # fmt: skip


def rows_of_costs(pool: GetPool, flush: Callable[[], Awaitable[None]]) -> HeldRows:
    """Sums of costs, which become those of nobody; `flush` stores those of this process."""

    async def before(person: ErasedPerson) -> None:
        await flush()
        if (opened := pool()) is not None:
            await DailyCosts(opened).erase(person.tenant, person.id)

    return _Whole(
        place="costs by day", table="cost_t", pool=pool, before=before,
        condition="r.host_id = %(host)s AND r.caller = %(person)s",
    )  # fmt: skip


class _Whole(HeldRows, frozen=True, kw_only=True):
    """Rows that another part erases whole, with all that belongs to them."""

    async def erase_person(self, person: ErasedPerson) -> int:
        count = await self.count_person(person)
        if self.before is not None:
            await self.before(person)
        return count


class SessionsOfPerson:
    """Implements `PersonEraser`."""

    place, remains, is_copy = "sessions", "", False

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def count_person(self, person: ErasedPerson) -> int:
        return sum(
            record.principal == person.id for record in await self._sessions.all(person.tenant)
        )

    async def erase_person(self, person: ErasedPerson) -> int:
        records = await self._sessions.all(person.tenant)
        person_sessions = [record for record in records if record.principal == person.id]
        for record in person_sessions:
            await self._sessions.end(record)
        return len(person_sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPlaces:
    """Places of a person that are erased, and those that are left: the gateway's own, those of
    open wings, and at last the audit log."""

    settings: Callable[[], Settings]
    pool: GetPool
    own: Sequence[PersonEraser]
    audit: AuditEraser
    offers: Mapping[str, "WingContributions"]

    @property
    def erasure(self) -> PersonErasure:
        return PersonErasure(
            erasers=self._erasers, addresses=self._addresses, ask=self._ask, remains=self._remains
        )

    def _erasers(self) -> Sequence[PersonEraser]:
        of_wings = [eraser for offer in [*self.offers.values()] for eraser in offer.erasers]
        return [*self.own, *of_wings, self.audit]

    async def _addresses(self, tenant: str, person: str) -> list[str]:
        if not self.settings().login.enabled:
            return []
        return await self._fetch(ADDRESSES, ErasedPerson(tenant, person, ""))

    async def _ask(self, person: ErasedPerson) -> list[str]:
        accounts = await self._fetch(ACCOUNTS, person) if self.settings().login.enabled else []
        called = [name for name in await self.audit.find_sources(person) if name not in WINGS]
        asks = not self.offers.keys().isdisjoint(("agent", "knowledge", "librarian", "memory"))
        strategies = self.settings().models.strategies.items() if asks else ()
        models = sorted(name for name, strategy in strategies if strategy.is_configured)
        return [
            *(f"{name}: an account of the person was connected there" for name in accounts),
            *(f"{name}: was called for the person" for name in called),
            *(f"{name}: a chat model, if it was asked for the person" for name in models),
            *UNDATED_TEXT,
        ]

    async def _remains(self, person: ErasedPerson) -> list[tuple[str, str]]:
        named = _paths_of(to_builtins(self.settings(), str_keys=True), person.id)
        is_own = person.tenant == self.settings().tenant.host_id  # others see no contents
        edits = (
            "it names the person: edit the file"
            if is_own
            else "they name the person: ask those who run the gateway to edit them"
        )
        places = [f"settings: {path}" for path in named] if is_own else ["settings"] * bool(named)
        rules = await self._fetch(
            "SELECT name FROM policy_rule_t WHERE host_id = %(host)s"
            " AND rule -> 'principals' ? %(person)s",
            person,
        )
        closed = await self._fetch(
            "SELECT DISTINCT component FROM schema_version_t ORDER BY component", person
        )
        off = [name for name in closed if name in WINGS and name not in self.offers]
        fixed = await self._fetch(
            "SELECT 'audit_t' WHERE NOT has_table_privilege('audit_t', 'UPDATE')", person
        )
        return [
            ("tokens", REVOCATION_TEXT),
            *((place, edits) for place in places),
            *((f"policy rule {name}", "it names the person: edit the rule") for name in rules),
            *((f"tables of {name}", "the wing is off: enable it, and run again") for name in off),
            *((name, "it names the person: the database user may not update it") for name in fixed),
        ]

    async def _fetch(self, statement: LiteralString, person: ErasedPerson) -> list[str]:
        if (opened := self.pool()) is None:
            return []
        async with borrow(opened) as connection:
            rows = await connection.execute(statement, person.values)
            return [name for (name,) in await rows.fetchall()]


def _paths_of(value: Any, person: str, path: str = "") -> list[str]:
    """Paths of settings whose value is the id."""
    if isinstance(value, Mapping):
        entries = [(f"{path}.{name}".lstrip("."), inner) for name, inner in value.items()]
    elif isinstance(value, list | tuple):
        entries = [(path, inner) for inner in value]
    else:
        return [path] if value == person else []
    return [name for where, inner in entries for name in _paths_of(inner, person, where)]
