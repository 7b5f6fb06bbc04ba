"""Questions of servers (elicitation) during a task, which its client answers by a message.

The call stays open meanwhile. If its process ends, the call is made again where that is allowed,
and a question that was answered before is not asked again.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec import UNSET

from gateway.protocol.form_answers import FORM_BYTES, find_misfit, is_askable
from gateway.wings.a2a.task_runner import TaskWork
from registry.database.leases import LeaseLost
from registry.database.postgres import AWAY
from schemas.a2a.errors import InvalidParameters
from schemas.a2a.model import Message, Part, Role, Task, TaskState
from schemas.untrusted_json import mapping

Json = dict[str, Any]
DECLINE: Json = {"action": "decline"}
REFUSALS = (DECLINE, {"action": "cancel"})
ANSWER_EXPECTED = 'Expected data of the schema of the question, or {"action": "decline"}'


class ClientAsker:
    """Asks the client of a task, one question at a time."""

    def __init__(self, work: TaskWork) -> None:
        self._work = work
        self._turn = anyio.Lock()
        self._answered = list(_answered_questions(work.task)) if work.row.attempt > 1 else []

    async def __call__(self, params: Json) -> Json:
        """The result of an elicitation; a question that nobody answers in time is declined."""
        schema, text = params.get("requestedSchema"), str(params.get("message", ""))
        if not isinstance(schema, dict) or not is_askable(schema):
            return DECLINE
        part, text = Part(data={"schema": schema}), text[:FORM_BYTES] or "Input is required."
        async with self._turn:
            try:
                answer = self._former_answer(part, text) or await self._ask(part, text)
            except (LeaseLost, *AWAY):  # nobody can answer any more
                return DECLINE
        return DECLINE if answer is None else read_answer(schema, answer)

    def _former_answer(self, part: Part, text: str) -> Message | None:
        for pair in self._answered:
            question, answer = pair
            if question.parts == (Part(text=text), part):
                self._answered.remove(pair)
                return answer
        return None

    async def _ask(self, part: Part, text: str) -> Message | None:
        work, former = self._work, self._work.message
        await work.status(TaskState.INPUT_REQUIRED, text, part)
        try:
            with anyio.move_on_after(work.settings.answer_s):
                return await work.wait_for_message(former)
        finally:
            if work.message == former and not work.is_cancelled:
                with anyio.CancelScope(shield=True), suppress(LeaseLost, *AWAY):
                    await work.status(TaskState.WORKING)
        return None if work.message == former else work.message  # it may have come just then


def question_schema(message: Message | None) -> Json | None:
    """The schema of the answer that a message asks for."""
    parts = () if message is None or message.role is not Role.AGENT else message.parts
    schemas = (part.data.get("schema") for part in parts if isinstance(part.data, dict))
    return next((schema for schema in schemas if isinstance(schema, dict)), None)


def read_answer(schema: Json, message: Message) -> Json:
    """The result of an elicitation that a message gives: by a data part, or by text that is JSON or
    the only field of the form. Raises InvalidParameters."""
    fields = mapping(schema.get("properties"))
    content = _content_of(message, fields)
    if content in REFUSALS and "action" not in fields:
        return dict(content)
    if not isinstance(content, dict):
        raise InvalidParameters(ANSWER_EXPECTED)
    try:
        misfit = find_misfit(schema, content)
    except ValueError as error:
        raise InvalidParameters(f"The answer cannot be checked: {error}") from error
    if misfit:
        raise InvalidParameters(f"{misfit}. {ANSWER_EXPECTED}")
    return {"action": "accept", "content": content}


def _content_of(message: Message, fields: Json) -> Any:
    data = [part.data for part in message.parts if part.data is not UNSET]
    if data:
        return data[0] if len(data) == 1 else None
    text = "".join(part.text for part in message.parts if isinstance(part.text, str))
    if len(fields) != 1:
        return _read_json(text)
    [(name, field)] = fields.items()
    value = text if mapping(field).get("type", "string") == "string" else _read_json(text)
    return {name: value}


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _answered_questions(task: Task) -> Iterator[tuple[Message, Message]]:
    """Questions in the history of a task, with the messages that answered them."""
    for question, answer in zip(task.history, task.history[1:], strict=False):
        if answer.role is Role.USER and question_schema(question) is not None:
            yield question, answer
