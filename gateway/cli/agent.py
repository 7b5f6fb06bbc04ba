"""`toolgate agent chat`: a conversation in the terminal, with the agent of a running gateway."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import IO, Any

import aiohttp
import anyio
import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.output import err, remark, stream
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import one_line
from gateway.cli.running.client import RunningGateway, gateway_options, running_gateway
from gateway.http_client.sse_parser import ServerEvent, SseParser
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json, encode

ROOT = "/agent/v1"
EVENT_BYTES = 1 << 26
TEXT_LIMIT = 200  # characters of arguments and results
POLL_S = 1.0  # while a run waits for an approval
BYE = ("exit", "quit", "/exit", "/quit")

Json = dict[str, Any]


@click.command()
@click.option("--message", metavar="TEXT", help="Send one message, print the answer, and end.")
@click.option("--conversation", metavar="ID", help="Go on with a conversation.")
@click.option("--strategy", metavar="NAME", default="", help="Model to ask.")
@click.option(
    "--approver-key-file", metavar="FILE", type=click.File("r"),
    help="Key of a person who may approve; then calls that need it are asked about here.",
)  # fmt: skip
@gateway_options(key_required=False)
@settings_option
def chat(
    settings: Settings,
    *,
    message: str | None,
    conversation: str | None,
    strategy: str,
    approver_key_file: IO[str] | None,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Chat with the agent of a running gateway. Calls of tools are shown; an empty line ends.

    \b
    Example:
      toolgate agent chat --message "Which pets are there?"
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    approver = None
    if approver_key_file is not None:
        approver = running_gateway(settings, ROOT, url=url, key_file=approver_key_file)
    run(Chat(gateway, approver, strategy).talk(conversation, message))


class Chat:
    def __init__(
        self, gateway: RunningGateway, approver: RunningGateway | None, strategy: str
    ) -> None:
        self._gateway = gateway
        self._approver = approver
        self._strategy = strategy
        self._in_line = False  # words of the answer were printed
        self._begun: dict[str, str] = {}  # tools and arguments, whole, by the id of the call

    async def talk(self, conversation: str | None, message: str | None) -> None:
        if conversation is None:
            body = {"strategy": self._strategy} if self._strategy else {}
            answer = await self._gateway.call("agent_create_conversation", body)
            conversation = answer.value["id"]
        remark(f"Conversation {conversation}")
        for text in [message] if message else _lines():
            await self._turn(conversation, text)

    async def _turn(self, conversation: str, text: str) -> None:
        path = f"/conversations/{conversation}/messages"
        body: Json | None = {"content": text}
        last, run_id = 0, ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as http:
            while True:
                state = ""
                async for event in self._events(http, path, body, last):
                    last = max(last, event["number"])
                    state = await self._show(event)
                if state == "ended":
                    return
                run_id = run_id or await self._active(conversation)
                path, body = f"/runs/{run_id}/events", None
                await anyio.sleep(POLL_S)

    async def _events(
        self, http: aiohttp.ClientSession, path: str, body: Json | None, last: int
    ) -> AsyncIterator[Json]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
        if self._gateway.key is not None:
            headers["Authorization"] = f"Bearer {self._gateway.key}"
        data = None if body is None else encode(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        method, url = "GET" if data is None else "POST", f"{self._gateway.url}{ROOT}{path}"
        parser = SseParser(EVENT_BYTES)
        try:
            async with http.request(method, url, data=data, headers=headers) as response:
                if response.status != 200:
                    fail(
                        f"{self._gateway.url}: {response.status} {_problem(await response.read())}"
                    )
                async for chunk in response.content.iter_any():
                    for event in parser.feed(chunk):
                        yield {**_data(event), "type": event.name, "number": _number(parser)}
        except aiohttp.ClientError as error:
            if last:  # the run goes on, and so does its stream
                return
            fail(f"no gateway answers at {self._gateway.url} ({type(error).__name__})")

    async def _active(self, conversation: str) -> str:
        answer = await self._gateway.call(
            "agent_get_conversation", {}, {"conversation": conversation}
        )
        if not answer.value.get("run"):
            fail("the run has ended, but its end was not seen")
        return str(answer.value["run"])

    async def _show(self, event: Mapping[str, Any]) -> str:
        """Print an event; "ended" for the last one."""
        match event["type"]:
            case "ResponseChunk":
                self._in_line = True
                stream(event["text"])
                return ""
            case "ToolCallStart":
                written = f"{event['tool']} {encode(event['arguments']).decode()}"
                self._begun[event["tool_call_id"]] = written
                self._note(f"-> {event['tool']} {_short(event['arguments'])}")
            case "ToolCallResult":
                mark = "!!" if event["is_error"] else "<-"
                self._note(f"{mark} {event['tool']} {_short(event['text'])}")
            case "StatusUpdate" if event["status"] == "waiting_for_approval":
                await self._ask(event)
            case "StatusUpdate":
                self._note(f".. {event['status']} {event['phase']}")
            case "Completed":
                self._end_line()
                if event.get("stopped"):
                    self._note(f".. {event['state']}: {event['stopped']}")
                return "ended"
            case "Error":
                fail(f"{event['code']}: {event['message']}")
        return ""

    async def _ask(self, event: Mapping[str, Any]) -> None:
        approval = event["approval"]
        call = self._begun.get(event["tool_call_id"])
        if self._approver is None or call is None:
            self._note(f".. waits for an approval: toolgate approvals approve {approval}")
            return
        self._end_line()
        err.print(one_line(f"Approval {approval}: {call}"))
        approve = click.confirm("Approve this call?", default=False, err=True)
        await self._approver.call("agent_decide", {"approve": approve}, {"approval": approval})

    def _note(self, text: str) -> None:
        self._end_line()
        err.print(one_line(text), style="dim")

    def _end_line(self) -> None:
        if self._in_line:
            stream("\n")
        self._in_line = False


def _lines() -> Iterator[str]:
    """Lines of the user, up to an empty line or the end of the input."""
    while True:
        if sys.stdin.isatty():
            err.print("> ", end="")
        line = sys.stdin.readline().strip()
        if not line or line in BYE:
            return
        yield line


def _data(event: ServerEvent) -> Json:
    data: Json = decode_json(event.data)
    return data


def _number(parser: SseParser) -> int:
    return int(parser.last_id) if parser.last_id.isdigit() else 0


def _problem(body: bytes) -> str:
    try:
        return one_line(str(decode_json(body).get("detail", "")))
    except (ParseError, AttributeError):
        return "without JSON: is it a gateway with the agent?"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}..."
