"""Recording of searches: calls that follow them, and their log."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from config.settings import SearchSettings
from gateway.context import Principal
from gateway.methods.search_tools import PastSearch, Record, Usage
from registry.database.postgres import Pool
from registry.search.feedback import Feedback

if TYPE_CHECKING:  # only a gateway that logs searches imports it
    from registry.search.usage_log import UsageLog


def usage_recorder(settings: SearchSettings, pool: Callable[[], Pool | None]) -> Usage | None:
    """Recorder of calls that follow a search; None without one."""
    records: list[Record] = []
    characters = 0
    if settings.feedback:
        records.append(_to_feedback(Feedback(pool)))
    if settings.usage_log:
        from registry.search.usage_log import MASKING_FACTOR

        characters = MASKING_FACTOR * settings.query_characters
        records.append(_to_usage_log(usage_log(settings, pool)))
    return Usage(records, characters=characters) if records else None


def usage_log(settings: SearchSettings, pool: Callable[[], Pool | None]) -> "UsageLog":
    from registry.search.usage_log import UsageLog

    return UsageLog(pool, settings.usage_log_days, settings.query_characters)


def _to_feedback(feedback: Feedback) -> Record:
    async def record(principal: Principal, tool: str, search: PastSearch) -> None:
        if search.model is None or search.vector is None:
            return
        await feedback.record(
            principal.tenant,
            tool,
            model=search.model,
            vector=search.vector,
            principal=principal.id,
        )

    return record


def _to_usage_log(log: "UsageLog") -> Record:
    async def record(principal: Principal, tool: str, search: PastSearch) -> None:
        await log.record(
            principal.tenant,
            tool,
            request_id=search.request_id,
            query=search.query,
            principal=principal.id,
        )

    return record
