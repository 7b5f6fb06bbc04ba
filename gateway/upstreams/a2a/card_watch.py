"""Watch of the cards of agents: each is fetched again at intervals, by its entity tag where it has
one, and its source imported again where it changed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from config.settings import Imports
from schemas.errors import ImportRejected
from schemas.source import Source

log = logging.getLogger("toolgate.upstream")


@dataclass(frozen=True, slots=True)
class SeenCard:
    """A card as it was fetched last."""

    validator: tuple[str, str] = ("", "")
    data: bytes = b""


class CardWatch:
    def __init__(
        self, limits: Imports, every_s: float, changed: Callable[[str], Awaitable[None]]
    ) -> None:
        """`changed` imports a source, by name, again if that is needed."""
        self._limits = limits
        self._every_s = every_s
        self._changed = changed
        self._sources: dict[str, Source] = {}
        self._seen: dict[tuple[str, str], SeenCard] = {}  # by name and location
        self._task: asyncio.Task[None] | None = None

    def follow(self, sources: Iterable[Source]) -> None:
        """Watch the agents among `sources`, and no others; without any there is no task."""
        self._sources = {source.name: source for source in sources if source.facts.polled}
        if self._sources and self._task is None:
            self._task = asyncio.create_task(self._run())
        elif not self._sources and self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for source in list(self._sources.values()):
                try:
                    await self.look(source)
                except ImportRejected as error:
                    facts = {"source": source.name, "reason": str(error)}
                    log.warning("agent_card_unreadable", extra=facts)
                except Exception:  # a faulty card must not end the watch of the others
                    log.exception("agent_card_watch_failed", extra={"source": source.name})

    async def look(self, source: Source) -> None:
        """Fetch a card, and tell of a change. Raises ImportRejected."""
        from registry.sources.agent_cards import fetch_card  # with the first agent

        key = source.name, source.location
        before = self._seen.get(key, SeenCard())
        card = await fetch_card(
            source.location,
            self._limits,
            guarded=source.options.guarded,
            validator=before.validator,
        )
        if card.unchanged or card.data == before.data:
            return
        await self._changed(source.name)
        self._seen[key] = SeenCard(card.validator, card.data)  # after a failure it is told again
