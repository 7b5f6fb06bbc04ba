"""Checks of `toolgate doctor` that query other services: embeddings, MCP servers, a running
gateway.
"""

import http.client
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

import msgspec

from config.hooks import OF_CALLS
from config.settings import EmbeddingSettings, JobsSettings, ServerSettings, Settings
from config.sources import SourceSettings
from gateway.admin.resources.backups import backups_of
from gateway.cli.common.checks import Check, CheckStatus
from gateway.cli.common.database import Registry
from gateway.cli.common.text import time_text
from gateway.cli.doctor.local_checks import TIMEOUT_S, reachable
from gateway.hybrid.python_services import load as load_service
from gateway.operations.job_declarations import SCHEDULE
from registry.access.api_keys import ApiKeys
from registry.access.policies import Policies
from registry.catalog.catalog import Catalog
from registry.catalog.toolsets import members
from registry.database.own_state import count_own_states
from registry.database.postgres import Database, Pool, borrow
from registry.display.tool_shaper import ToolShaper
from registry.documents.ssrf_protection import has_private_host
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.embedder_factory import embedder_for, make_embedder
from registry.embedding.sentence_transformers import NOT_INSTALLED
from registry.embedding.status import EmbeddingStatus, status
from registry.embedding.target_models import Models
from registry.importers.hybrid import describe_actions, select
from registry.jobs.store import JobRow, JobStore, health
from registry.sources.import_specs import configured_import, spec_of
from registry.sources.imports import preview
from registry.sources.pins import Pins
from registry.sources.source_reader import Lister
from schemas.errors import ImportRejected, ToolgateError
from schemas.source import Source
from schemas.tool import Tool

NAME = "embeddings"
COSTS_SHOWN = 3  # tools that are named
RECORDS = 10_000  # of the audit log, that runs of hooks are counted in
LARGE_LIST = 100_000  # tokens; half of the largest context windows in 2026


async def embeddings(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """Whether the texts of each purpose have vectors. The provider itself is not called: that may
    cost money."""
    state = await status(registry.database.pool, registry.host_id)
    for purpose in state.models:
        yield _of_purpose(state, purpose, settings.embedding.of(purpose))


def _of_purpose(status: EmbeddingStatus, purpose: str, settings: EmbeddingSettings) -> Check:
    try:
        embedder = _require_embedder(settings)
    except EmbeddingFailed as error:
        return Check(NAME, "failed", str(error))
    if embedder is None:
        return Check(NAME, "ok", f"disabled; the search for {purpose} is lexical")
    return _of_texts(status, purpose, embedder.model, settings)


def mismatch(settings: EmbeddingSettings, models: Models) -> str | None:
    """Consequence of a model mismatch between settings and database; None: no consequence.

    Raises EmbeddingFailed.
    """
    embedder = make_embedder(settings)
    if embedder is None:
        return None
    configured_model, target, serving = embedder.model, models.target, models.serving
    if serving in (None, configured_model) and target in (None, configured_model):
        return None
    still_serves = serving is not None and _is_asked(settings, serving)
    if still_serves and target == configured_model:
        return None  # a normal migration from one model to the other
    stored_model = target if serving in (None, configured_model) else serving
    how = "the old vectors serve" if still_serves else "the search is lexical"
    until = f"{_worker(settings)} or `toolgate embed backfill` has created all embeddings"
    return f"the settings have {configured_model}, the database {stored_model}: {how} until {until}"


def _require_embedder(settings: EmbeddingSettings) -> Embedder | None:
    """The embedder. Raises EmbeddingFailed, also where its library is not installed."""
    embedder = make_embedder(settings)
    if settings.provider == "sentence-transformers" and not find_spec("sentence_transformers"):
        raise EmbeddingFailed(NOT_INSTALLED, retryable=False)
    return embedder


def _is_asked(settings: EmbeddingSettings, label: str) -> bool:
    """Whether queries can be embedded with the model of these vectors."""
    try:
        return embedder_for(settings, label) is not None
    except EmbeddingFailed:
        return False


def _of_texts(
    status: EmbeddingStatus, purpose: str, model: str, settings: EmbeddingSettings
) -> Check:
    counts = [count for count in status.counts if count.purpose == purpose]
    model_counts = [count for count in counts if count.model == model]
    if failed := sum(count.failed for count in model_counts):
        why = "".join(count.error for count in status.failed[:1]).rstrip(".")
        hint = "`toolgate embed retry` retries"
        texts = _count_texts(failed, "has failed", "have failed")
        return Check(NAME, "warning", f"{texts}: {why}. {hint}")
    if text := mismatch(settings, status.models[purpose]):
        return Check(NAME, "warning", text)
    if waiting := sum(count.total - count.ready - count.blank for count in model_counts or counts):
        hint = f"{_worker(settings)} embeds them, or `toolgate embed backfill` now"
        return Check(NAME, "ok", f"{_count_texts(waiting, 'waits', 'wait')} for {model}; {hint}")
    ready = sum(count.ready for count in model_counts)
    return Check(NAME, "ok", f"{_count_texts(ready, 'has a vector', 'have vectors')} of {model}")


def _count_texts(count: int, has: str, have: str) -> str:
    return f"1 text {has}" if count == 1 else f"{count} texts {have}"


def _worker(settings: EmbeddingSettings) -> str:
    """The process that works on the embedding queue."""
    return "`toolgate serve`" if settings.workers else "`toolgate worker`"


LISTS = 5  # unusable entries of a server's lists that are shown


async def mcp_server(source: Source, settings: Settings, lister: Lister) -> AsyncIterator[Check]:
    """Whether the server answers, and which entries of its lists are unusable."""
    source_settings = settings.sources.get(source.name)
    spec = (
        configured_import(source.name, source_settings) if source_settings else None
    ) or spec_of(source)
    subject = f"{source.name}: {source.tool_count} tools"
    try:
        report = await preview(spec, settings.imports, lister)
    except ImportRejected as error:
        yield Check("source", "warning", f"{subject}; {error}")
        return
    facts = report.source.server
    spoken = [
        revision for revision in ((facts.stateless, facts.handshake) if facts else ()) if revision
    ]
    yield Check("source", "ok", f"{subject}; answers as an MCP server of {' and '.join(spoken)}")
    for note in report.notes:
        yield Check("source", "warning", f"{source.name}: {note}")
    skipped = [outcome for outcome in report.outcomes if outcome.status == "skipped"]
    for outcome in skipped[:LISTS]:
        detail = f"{source.name}: {outcome.operation} is left out: {outcome.reason}"
        yield Check("source", "warning", detail)
    if len(skipped) > LISTS:
        more = f"{source.name}: {len(skipped) - LISTS} more are left out; `toolgate import mcp`"
        yield Check("source", "warning", f"{more} with --dry-run lists them")


async def toolsets(
    settings: Settings, tools: Sequence[Tool], sources: Sequence[Source]
) -> AsyncIterator[Check]:
    """Empty toolsets; `idle_patterns` has the unknown sources in them."""
    sources_by_name = {source.name: source for source in sources}
    for name, toolset in settings.toolsets.items():
        picked, whose, _ = members(name, toolset, tools=tools, sources=sources_by_name, items=())
        status: CheckStatus = "ok" if picked or whose else "warning"
        yield Check("toolset", status, f"{name}: {len(picked)} tools of {len(whose)} sources")


def python_services(sources: Mapping[str, SourceSettings]) -> Iterator[Check]:
    """Whether each Python service can be loaded, and its actions imported."""
    for name, source in sources.items():
        if source.python is None:
            continue
        try:
            actions = describe_actions(load_service(source.python).actions)
            selected = select(
                actions, "python", source.side, source.include, exclude=source.exclude
            )
        except ToolgateError as error:
            yield Check("source", "failed", f"{name}: {error}")
            continue
        for note in selected.notes:
            yield Check("source", "warning", f"{name}: {note}")
        yield Check("source", "ok", f"{name}: {len(selected.drafts)} actions in Python")


async def source_checks(source: Source, settings: Settings, lister: Lister) -> AsyncIterator[Check]:
    """Whether a source can be called."""
    if source.facts.server:
        async for check in mcp_server(source, settings, lister):
            yield check
    elif not source.facts.loaded:  # those have no address; that they load was checked above
        adjusted = settings.sources.get(source.name)
        confirmed = adjusted.base_url if adjusted else None
        url = confirmed or source.base_url
        if url and not confirmed and not source.base_url_trusted and has_private_host(url):
            refused = f"calls are refused: {url} is a private address of the description"
            hint = f"to allow it, set sources.{source.name}.base_url"
            yield Check("source", "warning", f"{source.name}: {refused}; {hint}")
        else:
            yield reachable(source.name, source.tool_count, url)


async def held_back(registry: Registry) -> AsyncIterator[Check]:
    """Tools that wait to be accepted."""
    held_tools = await Pins(registry.database.pool).list_held(registry.host_id)
    if held_tools:
        names = ", ".join(tool.name for tool in held_tools[:LISTS])
        more = f" and {len(held_tools) - LISTS} more" if len(held_tools) > LISTS else ""
        hint = "see `toolgate tools accept --help`"
        yield Check("pins", "warning", f"{names}{more} held back until accepted; {hint}")


async def hook_runs(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """The last run of each hook around calls, and its failures, by the newest audit records."""
    names = [name for name, hook in settings.hooks.items() if hook.at in OF_CALLS]
    if not names:
        return
    async with borrow(registry.database.pool) as connection:
        rows = await connection.execute(
            "SELECT run->>'name', count(*), count(run->>'failed'), max(recorded_ts),"
            " (array_agg(run->>'failed' ORDER BY recorded_ts DESC))[1]"
            " FROM (SELECT recorded_ts, hooks FROM audit_t WHERE host_id = %s"
            "  ORDER BY recorded_ts DESC LIMIT %s) AS newest,"
            " jsonb_array_elements(nullif(hooks, '')::jsonb) AS run GROUP BY 1",
            [registry.host_id, RECORDS],
        )
        runs = {name: counts async for name, *counts in rows}
    for name in names:
        if name not in runs:
            yield Check("hook", "ok", f"{name}: no run in the newest {RECORDS} audit records")
            continue
        count, failed, last, reason = runs[name]
        outcome = f"failed: {reason}" if reason else "succeeded"
        text = f"{name}: last ran {time_text(last)}, {outcome}; {failed} of {count} failed"
        yield Check("hook", "warning" if reason else "ok", text)


async def shared_state(database: Database) -> AsyncIterator[Check]:
    """Whether running gateways of this database have sessions and counters of their own."""
    async with database.connect() as connection:
        count = await count_own_states(connection)
    if count > 1:
        yield Check(
            "state",
            "warning",
            f"{count} gateways run on this database, each with sessions and counters of its own: "
            "a session is unknown at the others, and a limit counts at each; set state.backend to "
            "postgres or redis at all of them",
        )


async def approvers(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """Whether anybody can approve calls of keys, where rules ask for it. A key that shares a maker
    with the caller's key may not; a person who logs in has no maker."""
    if settings.auth.mode != "keys" or settings.login.enabled:
        return
    pool, tenant = registry.database.pool, registry.host_id
    stored_rules = [stored.rule for stored in await Policies(pool, tenant).all()]
    effects = {rule.effect for rule in (*settings.policy.rules.values(), *stored_rules)}
    if "approve" not in effects and not settings.policy.approve_destructive:
        return
    now = datetime.now(UTC)
    keys = [
        key
        for key in await ApiKeys(pool, tenant).all()
        if key.revoked is None and (key.expires is None or key.expires > now)
    ]
    makers = [{key.principal, *key.makers} for key in keys]
    if makers and (shared_makers := set.intersection(*makers)):
        yield Check(
            "approvals",
            "warning",
            f"rules ask for approvals, but {min(shared_makers)} made all keys, so that no key may "
            "approve a call of another: let the person who approves make a key under another "
            "account of this machine (toolgate keys create approver --scope admin:policy:write), "
            "or let people log in (login.enabled)",
        )


async def jobs(database: Database, settings: JobsSettings) -> Check:
    """Whether jobs are run."""
    async with database.connect() as connection:
        health_ = await health(connection, settings.stalled_s)
    if health_.waiting and not health_.workers:
        hint = "start a gateway with jobs.concurrency above 0, or `toolgate worker`"
        return Check("jobs", "warning", f"{health_.waiting} wait, but no worker runs; {hint}")
    if health_.stalled:
        hint = (
            "the next worker takes them over" if not health_.workers else "they are taken over soon"
        )
        return Check("jobs", "warning", f"{health_.stalled} stalled (no heartbeat); {hint}")
    return Check("jobs", "ok", f"{health_.waiting} wait, {health_.running} run")


async def backups(settings: Settings) -> AsyncIterator[Check]:
    """Age of the newest backup."""
    backup_settings = settings.backups
    if not backup_settings.enabled:
        return
    try:
        stored = await backups_of(backup_settings).all()
    except ToolgateError as error:
        yield Check("backups", "failed", str(error))
        return
    now = datetime.now(UTC)
    stored = [backup for backup in stored if backup.created <= now]  # no clock ran ahead
    if not stored:
        yield Check(
            "backups", "warning", f"there is none in {backup_settings.to}: toolgate backup run"
        )
        return
    hours = (now - stored[0].created).total_seconds() / 3600
    text = f"the newest is {hours:.1f} hours old, of {len(stored)} in {backup_settings.to}"
    yield Check("backups", "warning" if hours > backup_settings.late_hours else "ok", text)


async def schedules(pool: Pool, host_id: str) -> AsyncIterator[Check]:
    """The last result of each schedule."""
    for row in await JobStore(pool).newest_ended(host_id, SCHEDULE):
        name = f"{row.operation}, last ended {row.ended}"
        if row.state == "succeeded":
            yield Check("schedule", "ok", f"{name}: succeeded")
        else:
            hint = f"toolgate jobs show {row.job_id}"
            yield Check("schedule", "warning", f"{name}: {row.state}{_reason_of(row)}; {hint}")


def _reason_of(row: JobRow) -> str:
    """The detail of its problem."""
    try:
        detail = msgspec.json.decode(row.problem or "{}").get("detail", "")
    except (msgspec.DecodeError, AttributeError):
        return ""
    return f" ({detail})" if detail else ""


READY_BYTES = 1_000_000


def serving(settings: Settings) -> Iterator[Check]:
    """Status of the gateway at this address: its workers, and the sources whose circuit
    breaker is open. Nothing if none serves here."""
    state = _state(settings.server, settings.metrics.token)
    for worker, reported in sorted(_strings(state.get("workers")).items()):
        if reported != "ok":
            text = f"worker {worker} of the running gateway is {reported}"
            yield Check("workers", "warning", text)
    for source, circuit in sorted(_strings(state.get("breakers")).items()):
        handling = "refused" if circuit == "open" else "tried one at a time"
        yield Check(
            "source",
            "warning",
            f"{source}: its circuit breaker is {circuit}, so calls to it are {handling}",
        )


def _state(server: ServerSettings, token: str) -> dict[str, Any]:
    """/ready of the running gateway. `token` is that of the metrics: the server need not listen on
    loopback."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/ready", headers=headers)
        state = json.loads(connection.getresponse().read(READY_BYTES))
        return state if isinstance(state, dict) else {}
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()


def _strings(parts: object) -> dict[str, str]:
    return (
        {str(name): str(value) for name, value in parts.items()} if isinstance(parts, dict) else {}
    )


def costs(settings: Settings, tools: Sequence[Tool]) -> Iterator[Check]:
    """Checks token costs of lists, and tools that lists of limited clients omit."""
    shaper = ToolShaper.of(settings)
    lists = Catalog(tools, shaper=shaper).lists
    tool_list = lists.tools()
    most = settings.budgets.catalog_tokens
    dear = sorted(tool_list.costs, key=lambda name: (-tool_list.costs[name], name))[:COSTS_SHOWN]
    named = ", ".join(f"{name} {tool_list.costs[name]}" for name in dear)
    detail = f"{tool_list.tokens:,} tokens for {len(tool_list.costs)} tools"
    detail += f"; most for {named}" if named else ""
    if tool_list.shortened:
        detail += f"; {len(tool_list.shortened)} shortened"
    large = tool_list.tokens > LARGE_LIST
    if large:
        detail += (
            "; that is more than most models can read: serve parts of it as `toolsets`, or import "
            "less with `include` and `exclude` of sources"
        )
    over = bool(most) and tool_list.level > 0
    if over:
        detail += f"; budgets.catalog_tokens is {most}, so all are shortened further"
    yield Check("lists", "warning" if over or large else "ok", detail)
    for chosen in shaper.profiles:
        left_out = lists.tools(chosen).left_out
        for name, reason in list(left_out.items())[:1]:
            count = f"{len(left_out)} tools are" if len(left_out) > 1 else "a tool is"
            hint = f"toolgate tools list --profile {chosen.name}"
            text = f"{count} left out for clients of profile {chosen.name}: {name}: {reason}"
            yield Check("lists", "warning", f"{text}; see {hint}")
