"""One call of an agent: its message, the events and states that follow, and what they come to.

state                   what follows
working                 events of the stream, then polling with backoff, until the call's time is
                        up; status texts are progress and log of the call
INPUT_REQUIRED          a form, if the client can show it; else the result says what is asked
AUTH_REQUIRED           an address to open, if the client can; else the result names it

What an agent says is a stranger's text: it names no address that the gateway would open, and it is
never asked of people in a form where it looks like a request for credentials.
"""

import hashlib
import re
import uuid
from asyncio import get_running_loop, sleep
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from config.networks import is_unencrypted
from gateway.audit.argument_masking import is_secret_name
from gateway.context import Context
from gateway.http_client.http1 import ConnectFailed
from gateway.operations.job_declarations import Job
from gateway.protocol.client_features import ELICIT, RefusalReason, for_client, for_server
from gateway.upstreams.a2a.agent_client import Agent, AgentClient, AgentMisbehaved, AgentRefused
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.link_and_handlers import MESSAGE, SEVERITY, wanted_level
from schemas.a2a.model import (
    HOPS,
    INTERRUPTED,
    TERMINAL,
    Artifact,
    Message,
    Part,
    Role,
    SendConfiguration,
    SendRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
)
from schemas.errors import ClientRequestFailed, MethodNotFound, Unavailable
from schemas.jsonrpc import Notification, encode
from schemas.mcp.revisions import V2025_11_25

FORM_BYTES = 16_384  # of a schema that people are asked by
FORM_FIELDS = 20
TEXT_CHARACTERS = 2_000  # characters of a question, or of a line of the log
LEVEL = "info"
PLAIN_TYPES = frozenset({"string", "number", "integer", "boolean"})
URL_LENGTH = 2_048
IDENTIFIER = 256  # characters of an id that an agent gives
FASTER = 1.5  # growth of the pauses between polls
_HOST = re.compile(
    r"([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?", re.I
)  # as readers see it
_URL = re.compile(r"https?://[^\s<>\"'`]+")


Json = dict[str, Any]


class Conversation:
    """The state of one call. `context_id` and `task_id` are the agent's own; "": none yet."""

    def __init__(
        self, client: AgentClient, agent: Agent, context: Context, job: Job, *, patience_s: float
    ) -> None:
        """`patience_s`: how long the call may wait for the agent, people's answers not counted."""
        self.context_id = ""
        self.task_id = ""
        self.answered_key = ""  # key of the question that the message answers
        self.status: TaskStatus | None = None
        self.artifacts: dict[str, list[Part]] = {}  # their parts, by id
        self.reply: Message | None = None  # instead of a task
        self.question: Json | None = None  # params of an elicitation that the result has to make
        self.agent = agent
        self._client = client
        self._context = context
        self._job = job
        self._limits = client.limits
        self._until = get_running_loop().time() + patience_s
        self._events = 0
        self._answered: set[str] = set()  # questions that people have answered

    @property
    def is_settled(self) -> bool:
        """Whether nothing comes by waiting."""
        if self.reply is not None:
            return True
        status = self.status
        if status is None or _key(status) in self._answered:
            return False
        return status.state in TERMINAL | INTERRUPTED

    @property
    def question_key(self) -> str:
        """Key of the question at which the task waits; "": it does not."""
        status = self.status
        return _key(status) if status is not None and status.state in INTERRUPTED else ""

    @property
    def is_running(self) -> bool:
        """Whether the agent has a task that has not ended."""
        return bool(self.task_id) and not (self.status and self.status.state in TERMINAL)

    async def follow(self, message: Message | None, *, is_opened: bool = False) -> None:
        """Send a message, or only look at the task, and wait for the agent. `is_opened`: a person
        has opened the address that it waits for. Raises UpstreamFailed and AgentRefused."""
        if message is not None:
            # An agent may show the task as it was before the answer first, as that of @a2a-js/sdk
            self._answered.add(self.answered_key)
            await self._send(message)
        elif self.task_id:
            await self._take_task(await self._client.task(self.agent, self.task_id))
        if is_opened and self.status is not None and self.status.state is TaskState.AUTH_REQUIRED:
            self._answered.add(_key(self.status))
        for _ in range(self._limits.mcp_client_requests):
            await self._wait()
            answer = await self._ask_person()
            if answer is None:
                return
            if isinstance(answer, Message):
                await self._send(answer)

    def message(self, parts: tuple[Part, ...], message_id: str = "") -> Message:
        """A message to the agent, in the call's task and context."""
        return Message(
            message_id or uuid.uuid4().hex,
            Role.USER,
            parts,
            context_id=self.context_id,
            task_id=self.task_id,
            metadata={HOPS: self._context.agent_hops + 1},
        )

    async def take(self, event: StreamResponse) -> bool:
        """Take an event; returns whether more are wanted."""
        self._events += 1
        if event.message is not None:
            self.reply = event.message
            self.context_id = _identifier(event.message.context_id) or self.context_id
        if event.task is not None:
            await self._take_task(event.task)
        if (update := event.status_update) is not None:
            self._check_ids(update.task_id, update.context_id)
            await self._take_status(update.status)
        if (chunk := event.artifact_update) is not None:
            self._check_ids(chunk.task_id, chunk.context_id)
            self._take_artifact(chunk.artifact, append=chunk.append)
        return not self.is_settled

    async def _take_task(self, task: Task) -> None:
        self._check_ids(task.id, task.context_id)
        if task.artifacts:  # all of them, so that those of many polls do not pile up
            self.artifacts = {each.artifact_id: list(each.parts) for each in task.artifacts}
        await self._take_status(task.status)

    async def _take_status(self, status: TaskStatus) -> None:
        is_new = self.status is None or _key(status) != _key(self.status)
        self.status = status
        text = text_of(status.message.parts) if status.message else ""
        self._job.progress(self._events, note=text or status.state.name.lower().replace("_", " "))
        if is_new and text and status.state not in TERMINAL | INTERRUPTED:
            await self._log(text)

    async def _log(self, text: str) -> None:
        """Send a client that wants log messages what the agent says of its work."""
        peer, least_level = self._context.peer, wanted_level(self._context)
        if peer is None or least_level is None or SEVERITY[LEVEL] < least_level:
            return
        params = {"level": LEVEL, "logger": self.agent.source.name, "data": plain_text(text)}
        with suppress(Unavailable):  # the client has left, and the call goes on
            await peer.notify(encode(Notification(MESSAGE, params)))

    def _take_artifact(self, artifact: Artifact, *, append: bool) -> None:
        if append:
            self.artifacts.setdefault(artifact.artifact_id, []).extend(artifact.parts)
        else:
            self.artifacts[artifact.artifact_id] = list(artifact.parts)
        self._job.progress(self._events, note=text_of(artifact.parts))

    def _check_ids(self, task_id: str, context_id: str) -> None:
        """Raises UpstreamFailed for what is about another task than the call's."""
        task_id, context_id = _identifier(task_id), _identifier(context_id)
        if not task_id or self.task_id not in ("", task_id):
            raise AgentMisbehaved(f"{self.agent.source.name} answered about another task")
        self.task_id, self.context_id = task_id, context_id or self.context_id

    async def _send(self, message: Message) -> None:
        try:
            await self._try(message)
        except UpstreamFailed as error:
            is_final = isinstance(error, AgentMisbehaved)
            if is_final or isinstance(error.__cause__, ConnectFailed):  # nothing was sent
                raise
            earlier_task = await self._look_up(message, error)
            if earlier_task is not None:
                await self._take_task(earlier_task)
            elif error.late:
                raise
            else:
                await self._try(message)  # of the same id, by which the agent knows it

    async def _try(self, message: Message) -> None:
        """Raises UpstreamFailed only where the task is not known from what came before."""
        before = self._events
        immediate = not self.agent.binding.streams
        request = SendRequest(message, SendConfiguration(return_immediately=immediate))
        try:
            if immediate:
                await self.take(await self._client.send(self.agent, request))
            else:
                await self._client.stream(self.agent, request, self.take)
            if self._events == before:
                raise UpstreamFailed(f"{self.agent.source.name} ended its answer without content")
        except UpstreamFailed as error:
            is_unknown = self._events == before or not self.task_id
            if is_unknown or isinstance(error, AgentMisbehaved):
                raise

    async def _look_up(self, message: Message, error: UpstreamFailed) -> Task | None:
        """The task of a message whose answer was lost. Raises `error` where the agent cannot say:
        then the message is not repeated."""
        try:
            return await self._client.find(self.agent, message.message_id, message.context_id)
        except (UpstreamFailed, AgentRefused):
            text = f"{error}; whether the agent has begun is unknown"
            raise UpstreamFailed(text, error.late, error.down) from error

    async def _wait(self) -> None:
        """Poll the task until the agent has settled it, or the call's time is up."""
        loop, pause_s = get_running_loop(), self._limits.a2a_poll_s
        while self.task_id and not self.is_settled:
            left_s = self._until - loop.time()
            if left_s <= 0:
                return
            await sleep(min(pause_s, left_s))
            pause_s = min(pause_s * FASTER, self._limits.a2a_poll_max_s)
            self._events += 1
            await self._take_task(await self._client.task(self.agent, self.task_id))

    async def _ask_person(self) -> Message | bool | None:
        """The answer of a person to the agent's question; True: they have opened its address. None:
        there is no question, or nobody to ask."""
        status = self.status
        if self.reply or status is None or status.message is None or not self.is_settled:
            return None
        began = get_running_loop().time()
        if status.state is TaskState.INPUT_REQUIRED and (form := form_of(status.message)):
            answer = await self._elicit(
                {"message": _question_text(status.message), "requestedSchema": form}
            )
            content = None if answer is None else answer.get("content")
            if not isinstance(content, dict):
                return None
            part: Any = Part(data=content)
        elif status.state is TaskState.AUTH_REQUIRED and (url := address_of(status.message)):
            text = f"Log in at {urlsplit(url).netloc}: {_question_text(status.message)}"
            if await self._elicit({"mode": "url", "url": url, "message": text}) is None:
                return None
            part = None
        else:
            return None
        self._until += get_running_loop().time() - began
        self._answered.add(_key(status))
        return True if part is None else self.message((part,))

    async def _elicit(self, question: dict[str, Any]) -> Mapping[str, Any] | None:
        """The accepted answer of the client; None: there is none."""
        context = self._context
        asker = self.agent.source.name
        capabilities = dict(context.capabilities)
        params = for_client(ELICIT, question, context.revision, capabilities, asker=asker)
        if isinstance(params, RefusalReason):
            return None
        if context.revision.result_type:
            self.question = params
        try:
            answer = for_server(ELICIT, question, await context.ask(ELICIT, params), V2025_11_25)
        except (ClientRequestFailed, MethodNotFound):
            return None
        return answer if isinstance(answer, dict) and answer.get("action") == "accept" else None


def text_of(parts: Iterable[Part]) -> str:
    """The texts of parts; chunks of one text follow each other without a separator."""
    return "".join(part.text for part in parts if isinstance(part.text, str))


def form_of(message: Message) -> Json | None:
    """The form in a question: the `schema` of its data part, where a client can show it and it asks
    for nothing that looks like a credential."""
    schemas = (schema_of(part) for part in message.parts)
    schema = next((schema for schema in schemas if schema is not None), {})
    fields = schema.get("properties")
    if not isinstance(fields, dict) or not 0 < len(fields) <= FORM_FIELDS:
        return None
    if len(encode(schema)) > FORM_BYTES or asks_for_secrets(schema):
        return None
    is_flat = all(
        isinstance(field, dict) and field.get("type") in PLAIN_TYPES for field in fields.values()
    )
    return schema if is_flat and schema.get("type") == "object" else None


def schema_of(part: Part) -> Json | None:
    """The schema that a data part asks for an answer by."""
    schema = part.data.get("schema") if isinstance(part.data, dict) else None
    return schema if isinstance(schema, dict) else None


def asks_for_secrets(schema: Json) -> bool:
    """Whether a form has a field that looks like a credential."""
    fields = schema.get("properties")
    return isinstance(fields, dict) and any(map(_is_secret_field, fields, fields.values()))


def _is_secret_field(name: str, field: Any) -> bool:
    if not isinstance(field, dict):
        return is_secret_name(name)
    texts = (name, field.get("title", ""), field.get("description", ""))
    return field.get("format") == "password" or any(
        is_secret_name(str(text).replace(" ", "")) for text in texts
    )


def address_of(message: Message) -> str | None:
    """The first address in a message at which a person may be sent to log in."""
    urls = [part.url for part in message.parts if isinstance(part.url, str)]
    urls += _URL.findall(text_of(message.parts)[:100_000])
    return next((url for url in urls if is_openable(url) and not is_unencrypted(url)), None)


def is_openable(url: str) -> bool:
    """Whether a person or client may be shown the URL as a link: of the web, with a host in plain
    sight, not behind credentials nor in letters that look like others."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_plain = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.netloc) is not None
    return is_plain and len(url) <= URL_LENGTH and url.isprintable() and " " not in url


def _question_text(message: Message) -> str:
    return plain_text(text_of(message.parts)) or "The agent asks for input"


def plain_text(text: str, limit: int = TEXT_CHARACTERS) -> str:
    """Text for people: without characters that hide or reorder what stands there."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text[:limit])


def _identifier(text: str) -> str:
    """Raises UpstreamFailed."""
    if len(text) > IDENTIFIER:
        raise AgentMisbehaved("The agent gave an id that is too long")
    if unquote(unquote(text)) in (".", ".."):  # of HTTP+JSON, which proxies may decode once more
        raise AgentMisbehaved(f"The agent gave {text!r}, which is no id of a task")
    return text


def _key(status: TaskStatus) -> str:
    """Key of one state of a task, by which an answered question is known."""
    message_id = status.message.message_id if status.message else ""
    return hashlib.sha256(encode([status.state, message_id, status.timestamp])).hexdigest()[:16]
