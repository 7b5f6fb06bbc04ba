"""Questions of servers (elicitation) during a task of MCP, which its client answers at any node:

    tasks/get     {"status": "input_required", "inputRequests": {"form-1-5f2c...": {...}}}
    tasks/update  {"inputResponses": {"form-1-5f2c...": {"action": "accept", "content": {...}}}}

The call stays open meanwhile, and takes no place of `events.concurrency`. If its process ends, and
the call is made again, it finds the answers that were given.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import msgspec

from config.events import EventsSettings
from gateway.context import Asker
from gateway.operations.stored_callers import StoredCaller
from gateway.protocol.client_features import ELICIT
from gateway.protocol.form_answers import find_misfit, is_askable
from gateway.wings.events.invocation_journal import Delivery
from gateway.wings.events.wakeups import DATABASE_ERRORS
from registry.database.postgres import RESYNC, Notice, Pool
from registry.database.tables import Tables
from schemas.errors import InvalidParams

ASKED = "asked:"  # a notice, with the tenant and the id of the invocation
ANSWERED = "answered:"  # a notice, with the id of the invocation
LOOK_S = 5.0  # interval of looking for a question or an answer whose notice was lost
ACTIONS = ("accept", "decline", "cancel")

Json = dict[str, Any]
CANCELLED: Json = {"action": "cancel"}  # nobody has chosen anything


class QuestionStore(Tables):
    """All methods raise psycopg.OperationalError and PoolTimeout."""

    async def ask(self, delivery: Delivery, principal: str, key: str, question: Json) -> bool:
        """Store a question, unless a former attempt has; False: the delivery is no longer its
        worker's."""
        values = {
            "host": delivery.host_id,
            "id": delivery.invocation_id,
            "fence": delivery.fence,
            "key": key,
            "principal": principal,
            "question": msgspec.json.encode(question).decode(),
        }
        row = await self._fetch_first(
            """
            WITH held AS (
                SELECT host_id, invocation_id FROM invocation_t
                WHERE host_id = %(host)s AND invocation_id = %(id)s AND fence = %(fence)s
                    AND status = 'DISPATCHED'),
            asked AS (
                INSERT INTO invocation_question_t
                    (host_id, invocation_id, question_key, principal_id, question)
                SELECT host_id, invocation_id, %(key)s, %(principal)s, %(question)s::json FROM held
                ON CONFLICT DO NOTHING)
            SELECT count(*) > 0 FROM held
            """,
            values,
        )
        return row is not None and bool(row[0])

    async def answer_to(self, delivery: Delivery, key: str) -> Json | None:
        row = await self._fetch_first(
            "SELECT answer FROM invocation_question_t WHERE host_id = %s AND invocation_id = %s"
            " AND question_key = %s",
            [delivery.host_id, delivery.invocation_id, key],
        )
        return None if row is None else row[0]

    async def open_questions(self, host_id: str, ids: Sequence[str]) -> dict[str, dict[str, Json]]:
        """Questions without an answer, by invocation and key."""
        rows = await self._fetch(
            "SELECT invocation_id::text, question_key, question FROM invocation_question_t"
            " WHERE host_id = %s AND invocation_id = ANY (%s::uuid[]) AND answer IS NULL"
            " ORDER BY asked_ts, question_key",
            [host_id, list(ids)],
        )
        questions: dict[str, dict[str, Json]] = {}
        for id_, key, question in rows:
            questions.setdefault(id_, {})[key] = question
        return questions

    async def answer(self, host_id: str, id_: str, answers: Mapping[str, Json]) -> int:
        """Store the first answer to each question; how many are."""
        return await self._execute(
            "UPDATE invocation_question_t q SET answer = a.value::json"
            " FROM unnest(%(keys)s::text[], %(answers)s::text[]) AS a(key, value)"
            " WHERE q.host_id = %(host)s AND q.invocation_id = %(id)s AND q.question_key = a.key"
            " AND q.answer IS NULL",
            {
                "host": host_id,
                "id": id_,
                "keys": list(answers),
                "answers": [msgspec.json.encode(answer).decode() for answer in answers.values()],
            },
        )

    async def withdraw(self, delivery: Delivery, key: str) -> None:
        """Ask a question no longer, unless it has an answer, or a later attempt asks it."""
        await self._execute(
            "DELETE FROM invocation_question_t q USING invocation_t i"
            " WHERE q.host_id = %(host)s AND q.invocation_id = %(id)s AND q.question_key = %(key)s"
            " AND q.answer IS NULL AND i.host_id = q.host_id AND i.invocation_id = q.invocation_id"
            " AND i.fence = %(fence)s",
            {
                "host": delivery.host_id,
                "id": delivery.invocation_id,
                "key": key,
                "fence": delivery.fence,
            },
        )


class TaskQuestions:
    """The questions that calls of this process wait for, and answers to those of all."""

    def __init__(
        self,
        pool: Pool,
        settings: EventsSettings,
        *,
        say: Callable[[str], None],
        freed: Callable[[], None],
    ) -> None:
        """`say` wakes other processes; `freed` is called when a call that waits leaves its
        place."""
        self._store = QuestionStore(pool)
        self.settings = settings
        self._say = say
        self._freed = freed
        self._answers: dict[str, anyio.Event] = {}  # by invocation
        self._waiting: Counter[tuple[str, str, int]] = Counter()  # questions of each delivery
        self._principals: dict[tuple[str, str, int], str] = {}  # of the deliveries that wait
        self._scopes: dict[tuple[str, str, int], set[anyio.CancelScope]] = {}  # of their waits

    def hear(self, notice: Notice) -> None:
        if notice is RESYNC:
            ids = list(self._answers)
        else:
            ids = [notice.removeprefix(ANSWERED)] if notice.startswith(ANSWERED) else []
        for id_ in ids:
            if (event := self._answers.pop(id_, None)) is not None:
                event.set()

    def count_waiting(self, tenant: str | None = None) -> int:
        """Deliveries that wait for an answer, of a tenant or of all."""
        return sum(tenant is None or host_id == tenant for host_id, *_ in self._waiting)

    def is_waiting(self, delivery: Delivery) -> bool:
        return delivery.key in self._waiting

    def asker(self, delivery: Delivery, caller: StoredCaller) -> Asker | None:
        """A function that answers questions of a call; None: its client cannot be asked."""
        if not (caller.shows_forms and self.settings.answer_s):
            return None
        former: Counter[str] = Counter()

        async def ask(params: Json) -> Json:
            digest = hashlib.sha256(msgspec.json.encode(params, order="deterministic")).hexdigest()
            former[digest] += 1
            key = f"form-{former[digest]}-{digest[:24]}"
            return await self._ask(delivery, caller.principal.id, key, params)

        return ask

    async def _ask(self, delivery: Delivery, principal: str, key: str, question: Json) -> Json:
        """The answer to a question; that it is cancelled if nobody answers in time."""
        if not is_askable(question.get("requestedSchema")) or self._is_too_large(question):
            return CANCELLED
        try:
            with self._place(delivery, principal) as is_free:
                if not (is_free and await self._store.ask(delivery, principal, key, question)):
                    return CANCELLED
                self._say(f"{ASKED}{delivery.host_id}:{delivery.invocation_id}")
                with anyio.move_on_after(self.settings.answer_s):
                    return await self._wait_for_answer(delivery, key)
            await self._store.withdraw(delivery, key)
            return await self._store.answer_to(delivery, key) or CANCELLED  # it came just then
        except DATABASE_ERRORS:  # nobody can answer
            return CANCELLED

    async def _wait_for_answer(self, delivery: Delivery, key: str) -> Json:
        while True:
            answered = self._answers.setdefault(delivery.invocation_id, anyio.Event())
            with suppress(*DATABASE_ERRORS):  # it may be back before the time is over
                if (answer := await self._store.answer_to(delivery, key)) is not None:
                    return answer
            with anyio.move_on_after(LOOK_S):
                await answered.wait()

    @contextmanager
    def _place(self, delivery: Delivery, principal: str) -> Iterator[bool]:
        """Wait outside `events.concurrency`; whether there is a place to wait in."""
        settings, host_id = self.settings, delivery.host_id
        own = sum(name == principal and key[0] == host_id for key, name in self._principals.items())
        if delivery.key not in self._waiting and (
            self.count_waiting() >= settings.questions
            or self.count_waiting(host_id) >= settings.tenant_questions
            or own >= settings.principal_questions
        ):
            yield False
            return
        self._waiting[delivery.key] += 1
        self._principals[delivery.key] = principal
        scope = anyio.CancelScope()
        self._scopes.setdefault(delivery.key, set()).add(scope)
        self._freed()
        try:
            with scope:
                yield True
        finally:
            self._scopes[delivery.key].discard(scope)
            self._waiting[delivery.key] -= 1
            if not self._waiting[delivery.key]:
                del self._waiting[delivery.key], self._principals[delivery.key]
                del self._scopes[delivery.key]
                self.hear(ANSWERED + delivery.invocation_id)  # another attempt may wait here

    async def open_questions(self, host_id: str, ids: Sequence[str]) -> dict[str, dict[str, Json]]:
        """Questions without an answer, by invocation and key."""
        return await self._store.open_questions(host_id, ids) if ids else {}

    async def answer(self, host_id: str, id_: str, answers: Mapping[str, Any]) -> None:
        """Take answers to open questions; other keys are ignored. Raises InvalidParams, with none
        of them taken, if one does not fit."""
        questions = (await self._store.open_questions(host_id, [id_])).get(id_, {})
        fitting = {
            key: self.check(key, questions[key], answer)
            for key, answer in answers.items()
            if key in questions
        }
        if fitting and await self._store.answer(host_id, id_, fitting):
            self._say(ANSWERED + id_)

    def check(self, key: str, question: Json, answer: Any) -> Json:
        """The answer, as the server of the question expects it. Raises InvalidParams."""
        checked = check_answer(key, question, answer)
        if self._is_too_large(checked):
            most = self.settings.payload_bytes
            text = f"expected at most {most} bytes (events.payload_bytes)"
            raise InvalidParams(f"inputResponses.{key}: {text}")
        return checked

    def _is_too_large(self, value: Json) -> bool:
        return len(msgspec.json.encode(value)) > self.settings.payload_bytes

    def end_waits(self, delivery: Delivery) -> None:
        """Cancel the questions of a call that is over: a server may have asked outside of it."""
        for scope in self._scopes.get(delivery.key, ()):
            scope.cancel()


def check_answer(key: str, question: Json, answer: Any) -> Json:
    """The answer, as the server of the question expects it. Raises InvalidParams."""
    action = answer.get("action") if isinstance(answer, dict) else None
    if action not in ACTIONS:
        text = f"an object whose action is one of {', '.join(ACTIONS)}"
        raise InvalidParams(f"inputResponses.{key}: expected {text}")
    if action != "accept":
        return {"action": action}
    content = answer.get("content")
    if not isinstance(content, dict):
        raise InvalidParams(f"inputResponses.{key}.content: expected an object")
    try:
        misfit = find_misfit(question["requestedSchema"], content)
    except ValueError as error:
        raise InvalidParams(f"inputResponses.{key}: cannot be checked: {error}") from error
    if misfit:
        raise InvalidParams(f"inputResponses.{key}.content: {misfit}")
    return {"action": action, "content": content}


def input_requests(questions: Mapping[str, Json]) -> Json:
    """Questions as the members of `inputRequests`."""
    return {key: {"method": ELICIT, "params": question} for key, question in questions.items()}
