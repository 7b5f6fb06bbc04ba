"""The librarian's questions over documents in a database, with a scripted model and callers."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from config.librarian import LibrarianSettings
from config.load import load
from config.models import Price, Strategy
from gateway.wings.interface import Screen
from gateway.wings.librarian.library_access import LibraryAccess
from gateway.wings.librarian.question_operations import QuestionOperations
from gateway.wings.models.configured_models import ConfiguredModels
from registry.database.postgres import Database
from tests.fixtures_database import Cluster, lend_database
from tests.recycling import Recycling
from tests.servers.provider import Answer, Asked, Provider, chat_whole, providing
from tests.wings.identities import WingCaller, identity_of
from tests.wings.knowledge.rig import SCOPES, KnowledgeRig, open_rig

SETTINGS = load(None, {})
PLAIN: Screen = lambda _principal, _tool, value: value  # noqa: E731
Script = Callable[[str, str], str]
"""The answer to a request by its instructions, "" without, and its last message."""


def librarian_settings(*, model: str = "", **sections: Any) -> LibrarianSettings:
    """`sections`: changes of query, answers, research and its limits."""
    own = SETTINGS.librarian
    limits = replace(own.research.limits, **sections.pop("limits", {}))
    research = {
        "enabled": True, "limits": limits, "model": "scripted", "runs_per_hour": 1000,
        **sections.get("research", {}),
    }  # fmt: skip
    return replace(
        own,
        enabled=True,
        query=replace(own.query, **{"model": model, **sections.get("query", {})}),
        answers=replace(own.answers, **sections.get("answers", {})),
        research=replace(own.research, **research),
    )


@dataclass
class Librarian:
    rig: KnowledgeRig
    models: ConfiguredModels
    provider: Provider
    prompts: list[str] = field(default_factory=list)  # last messages that reached the model

    async def script(self, answer: Script) -> None:
        """What the model says from now on. No answer is kept from before."""

        def say(request: Asked) -> Answer:
            messages = request.body["messages"]
            told = "".join(one["content"] for one in messages if one["role"] == "system")
            self.prompts.append(messages[-1]["content"])
            return chat_whole(answer(told, messages[-1]["content"]))

        self.prompts.clear()
        self.provider.requests.clear()
        self.provider.hung_up.clear()
        self.provider.asked.clear()
        self.provider.answers[:] = [say]
        await self.rig.run("DELETE FROM librarian_answer_t")

    def caller(
        self, settings: LibrarianSettings, subject: str = "ann", **identity: Any
    ) -> WingCaller:
        shelves, screen = (
            LibraryAccess(lambda: self.rig.parts.library),
            identity.pop("screen", PLAIN),
        )
        questions = QuestionOperations(
            self.rig.database.pool, self.models, settings, shelves, screen=screen
        )
        operations = {one.id: one for one in questions.operations}
        return WingCaller("librarian", operations, identity_of(subject, SCOPES, **identity))

    async def shown_texts(self) -> list[Any]:
        """What models were shown by the last question."""
        rows = await self.rig.rows(
            "SELECT shown FROM librarian_question_t ORDER BY created_ts DESC LIMIT 1"
        )
        return list(json.loads(rows[0][0]))


@asynccontextmanager
async def librarian(rig: KnowledgeRig, files: Mapping[str, str]) -> AsyncIterator[Librarian]:
    """Ann has the files in `code`, which Bo may read, and Cy has a collection of the same name."""
    ann = rig.caller()
    await ann("put_collection", collection="code", kind="code", grants={"user:bo": "read"})
    for path, text in files.items():
        await ann.add(text, collection="code", path=path)
    async with providing(Answer()) as provider, scripted_models(provider.url) as models:
        yield Librarian(rig, models, provider)


def scripted_models(url: str) -> ConfiguredModels:
    """The models of a gateway whose provider is a script."""
    scripted = Strategy(url=url, needs_key=False, model="m", price=Price(input=1.0, output=1.0))
    settings = replace(
        SETTINGS.models, strategies={"scripted": scripted}, strategy="scripted", backoff_s=0.001,
        retries=0,
    )  # fmt: skip
    return ConfiguredModels(settings)


@asynccontextmanager
async def shared_documents(cluster: Cluster, databases: Recycling) -> AsyncIterator[KnowledgeRig]:
    """Documents for the tests of a module."""
    with contextmanager(lend_database)(cluster, databases) as settings:
        async with Database.open(settings, wait=True) as database, open_rig(database) as rig:
            yield rig


@asynccontextmanager
async def share_librarian(
    cluster: Cluster, databases: Recycling, files: Mapping[str, str]
) -> AsyncIterator[Librarian]:
    """A librarian for the tests of a module."""
    async with shared_documents(cluster, databases) as rig, librarian(rig, files) as found:
        yield found


def blocks(*codes: str) -> Script:
    """A model that writes these blocks of code, one an answer, the last one again and again, and
    answers "sub:" and the prompt to what its code asks."""
    left: Sequence[str] = list(codes)

    def answer(results: str, prompt: str) -> str:
        if not results:
            return f"sub:{prompt}"
        place = min(answer.asked, len(left) - 1)  # type: ignore[attr-defined]
        answer.asked += 1  # type: ignore[attr-defined]
        return f"I look.\n```repl\n{left[place]}\n```"

    answer.asked = 0  # type: ignore[attr-defined]
    return answer
