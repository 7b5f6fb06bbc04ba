"""A program of Python or JavaScript inside the jail, that calls tools of the host, several at once.

A frame is its length in 4 bytes, big-endian, and JSON. The host sends the options, with the code.
This side asks (`{"ask": number, "do": ..., ...}`), and gets `{"id": number, "value": ...}` or
`{"id": number, "error": {...}}`, in any order; at its end it sends `{"end": state, ...}`.

Nothing here protects the host, which checks what it gets: code may do with this process what it
likes. The event loop has no sockets, which the filter refuses, and a clock of its own, so that a
sleep takes no time. Random numbers, hashes and the clock are the same in each run.
"""

import sys

if __name__ == "__main__":  # asyncio would load it: 10 ms, for sockets that the filter refuses
    sys.modules["ssl"] = None  # type: ignore[assignment]

import ast
import asyncio
import asyncio.base_events
import base64
import datetime
import inspect
import json
import operator
import time
import traceback
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any

from gateway.sandbox.jail_pipes import Output, Pipes, excess, freeze, take_pipes
from gateway.sandbox.javascript import JavaScriptRun

NAME = "program"
SPINS = 1000  # turns of the loop without an answer, behind which it waits for one
ERROR = 4000  # characters of a message
NO_MEMORY = "more memory than a run has (code.memory_bytes)"


class ToolError(Exception):
    """A call that failed, or was refused. `retryable`: the same call may succeed later."""

    def __init__(self, message: str, tool: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message, self.tool = message, tool
        self.code = facts.get("code")
        self.data = facts.get("data")
        self.retryable = bool(facts.get("retryable"))
        self.retry_after, self.url = facts.get("retry_after"), facts.get("url")


class Denied(ToolError):
    """The caller, or this program, may not call the tool."""


class Invalid(ToolError):
    """The arguments are not as the schema of the tool has them."""


class NotFound(ToolError):
    """There is no such tool; the message has similar names."""


class RateLimited(ToolError):
    """A limit was reached; `retry_after` seconds later there is room."""


class ApprovalNeeded(ToolError):
    """A person has to approve the call first."""


class ConnectionNeeded(ToolError):
    """The caller has to connect an account of theirs first, at `url`."""


class OutcomeUnknown(ToolError):
    """The run was interrupted during the call: it may have been carried out, or not."""


class LimitReached(ToolError):
    """A limit of this run is used up, such as that of its calls."""


ERRORS = {
    kind.__name__: kind
    for kind in (ToolError, Denied, Invalid, NotFound, RateLimited, ApprovalNeeded,
                 ConnectionNeeded, OutcomeUnknown, LimitReached)
}  # fmt: skip


class Returned(BaseException):
    """A `return` outside functions."""


class Host(Pipes):
    """The pipes to the host, and the calls whose answers have not come."""

    def __init__(self, source: int, target: int) -> None:
        super().__init__(source, target)
        self.limit = 0  # bytes of the arguments of a call, and of the result
        self._number = 0
        self.open: dict[int, Call] = {}
        self.calls: list[Call] = []
        self.is_async = False  # the program awaits: calls begin at once, and end where awaited
        self.gathers = 0  # depth of `tools.all`

    def write(self, value: Any) -> None:
        self.send(encode(value))

    def ask(self, do: str, **members: Any) -> Any:
        """The call; its value, where the program does not await and nothing gathers calls. Raises
        TypeError and ValueError for members that JSON does not have."""
        text = encode(members)  # may wait for other calls, and may fail: then nothing is asked
        if error := excess("the call", text, self.limit):
            raise LimitReached(error, str(members.get("name", do)))
        with self.lock:
            self._number += 1
            call = self.open[self._number] = Call(self, str(members.get("name", do)), do)
            self.calls.append(call)
            self.send(f'{{"ask": {self._number}, "do": "{do}", {text[1:]}')
        return call if self.is_async or self.gathers else call.value()

    def take(self) -> None:
        """Wait for one answer. One that Python cannot read is the failure of its call."""
        data = self.read_bytes()
        try:
            frame = json.loads(data)
        except (ValueError, RecursionError) as error:
            number = int(data[len(b'{"id":') : data.index(b",")])
            text = f"The answer cannot be read: {error}"
            frame = {"id": number, "error": {"kind": "ToolError", "message": text}}
        self.open.pop(frame["id"]).settle(frame)

    def settle(self, call: "Call") -> None:
        with self.lock:
            while call.answer is None:
                self.take()


class Call:
    """A call that has begun. It is awaited, or used like its value, for which it waits."""

    def __init__(self, host: Host, name: str, do: str) -> None:
        self._host, self._name, self._do = host, name, do
        self._future: asyncio.Future[None] | None = None
        self.answer: dict[str, Any] | None = None
        self.is_used = False  # something waits for it, and sees how it fails

    def settle(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def value(self) -> Any:
        """The value, waited for. Raises ToolError."""
        self.is_used = True
        self._host.settle(self)
        error = self.answer.get("error") if self.answer else None
        if error is not None:
            facts = {
                name: value for name, value in error.items() if name not in ("kind", "message")
            }
            raise ERRORS.get(error["kind"], ToolError)(error["message"], self._name, **facts)
        value = self.answer["value"] if self.answer else None
        return contents_of(value) if self._do == "read" else value

    def __await__(self) -> Generator[Any, None, Any]:
        self.is_used = True
        if self.answer is None:
            self._future = self._future or asyncio.get_running_loop().create_future()
            yield from asyncio.shield(self._future)
        return self.value()

    async def wait(self) -> Any:
        return await self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value(), name)

    def __repr__(self) -> str:
        return repr(self.value())

    __hash__ = object.__hash__


def contents_of(value: Any) -> str | bytes:
    """Text or bytes of a resource."""
    return base64.b64decode(value["blob"]) if "blob" in value else str(value["text"])


def _forward(name: str) -> Callable[..., Any]:
    def method(call: Call, *arguments: Any) -> Any:
        return getattr(operator, name)(call.value(), *map(settle, arguments))

    return method


def _applying(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(call: Call, *arguments: Any) -> Any:
        return function(call.value(), *arguments)

    return method


for _name in ("getitem", "setitem", "delitem", "contains", "eq", "ne", "lt", "le", "gt", "ge",
              "add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "index"):  # fmt: skip
    setattr(Call, f"__{_name}__", _forward(_name))
for _name, _function in (("len", len), ("iter", iter), ("bool", bool), ("str", str), ("int", int),
                         ("float", float), ("format", format), ("reversed", reversed)):  # fmt: skip
    setattr(Call, f"__{_name}__", _applying(_function))


def settle(value: Any) -> Any:
    if isinstance(value, Gathered):
        return value.values()
    return value.value() if isinstance(value, Call) else value


def plain(value: Any) -> Any:
    """A value that JSON does not have, as one that it has."""
    if isinstance(value, Call):
        return value.value()
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return str(value)


def encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)


_refuse = json.JSONEncoder.default


def _encode_call(encoder: json.JSONEncoder, value: Any) -> Any:
    return value.value() if isinstance(value, Call) else _refuse(encoder, value)


class ToolFunction:
    """A tool as a function of its arguments."""

    def __init__(self, host: Host, name: str, *, exact: bool) -> None:
        self._host, self.name, self._exact = host, name, exact

    def __call__(self, *values: Any, **arguments: Any) -> Any:
        if values and (len(values) > 1 or not isinstance(settle(values[0]), dict)):
            text = f"{self.name}: expected arguments by name, as in tools.{self.name}(limit=3)"
            raise Invalid(text, self.name)
        call_arguments = {**(settle(values[0]) if values else {}), **arguments}
        return self._host.ask("call", name=self.name, exact=self._exact, arguments=call_arguments)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


class Pages(list[Any]):
    """Pages that have come, for programs that await them, too."""

    def __await__(self) -> Generator[Any, None, "Pages"]:
        yield from ()
        return self

    async def __aiter__(self) -> AsyncIterator[Any]:
        for page in self:
            yield page


class Gathered:
    """Calls that run together."""

    def __init__(self, calls: Iterable[Any], *, errors: bool) -> None:
        self._calls, self._errors = list(calls), errors

    def values(self) -> list[Any]:
        return [self._value(call) for call in self._calls]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        waiting = [call for call in self._calls if isinstance(call, Awaitable)]
        values = iter((yield from asyncio.gather(*waiting, return_exceptions=True).__await__()))
        self._calls = [
            next(values) if isinstance(call, Awaitable) else call for call in self._calls
        ]
        return self.values()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __getitem__(self, place: Any) -> Any:
        return self.values()[place]

    def __len__(self) -> int:
        return len(self._calls)

    def _value(self, call: Any) -> Any:
        try:
            value = settle(call)
        except ToolError as error:
            value = error
        if isinstance(value, BaseException) and not (self._errors and isinstance(value, ToolError)):
            raise value
        return value


class Tools:
    """The tools that the caller may use: `tools.NAME(argument=value)`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getattr__(self, name: str) -> ToolFunction:
        if name.startswith("__"):
            raise AttributeError(name)
        return ToolFunction(self._host, name, exact=False)

    def __getitem__(self, name: str) -> ToolFunction:
        return ToolFunction(self._host, name, exact=True)

    def call(self, name: str, arguments: Any = None, /, **more: Any) -> Any:
        """Call a tool by its exact name."""
        return self[name](settle(arguments) or {}, **more)

    def all(self, calls: Any, *, errors: bool = False) -> Any:
        """The values of calls that run together, in their order. `errors`: those that fail give
        their error."""
        if callable(calls):  # as `rewrite` made it
            self._host.gathers += 1
            try:
                calls = list(calls())
            finally:
                self._host.gathers -= 1
        gathered = Gathered(calls, errors=errors)
        return gathered if self._host.is_async else gathered.values()

    def pages(self, tool: Any, arguments: Any = None, /, *, limit: int = 20, **more: Any) -> Pages:
        """The answers of a tool, page by page, `limit` of them at most."""
        name = tool.name if isinstance(tool, ToolFunction) else str(tool)
        call_arguments = {**(settle(arguments) or {}), **more}
        pages, following = Pages(), call_arguments
        exact = not isinstance(tool, ToolFunction)
        while following is not None and len(pages) < limit:
            page = self._host.ask("page", name=name, exact=exact, arguments=following)
            page = settle(page)
            pages.append(page["value"])
            following = page.get("next")
        return pages

    def search(self, text: str, limit: int = 5) -> Any:
        """Find tools by meaning: their names and signatures."""
        return self._host.ask("search", text=str(text), limit=limit)

    def read(self, uri: str) -> Any:
        """Read a resource, or a file that an answer links to: text or bytes."""
        return self._host.ask("read", uri=str(uri))

    def describe(self, *names: str) -> Any:
        """Signatures of tools."""
        return self._host.ask(
            "describe", names=[str(getattr(name, "name", name)) for name in names]
        )


class _Selector:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._spins = 0
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        """Wait for an answer; where none is to come, the time of the next timer comes at once."""
        self._spins = self._spins + 1 if timeout == 0 else 0
        if self._host.open and (timeout != 0 or self._spins > SPINS):
            self._spins = 0
            self._host.take()
        elif timeout:
            self.now += timeout
        elif timeout is None:
            raise RuntimeError("the program waits for something that nothing will do")
        return []

    def close(self) -> None:
        pass


class Loop(asyncio.base_events.BaseEventLoop):
    """An event loop whose only events are the answers of the host."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._selector = _Selector(host)

    def time(self) -> float:
        return self._selector.now

    def create_task(self, coro: Any, **more: Any) -> Any:
        return super().create_task(coro.wait() if isinstance(coro, Call) else coro, **more)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # noqa: ARG002
        """The outcome of a function, which runs at once: a thread could not wake this loop."""
        outcome = self.create_future()
        try:
            outcome.set_result(settle(func(*args)))
        except Exception as error:
            outcome.set_exception(error)
        return outcome

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Rewriting(ast.NodeTransformer):
    """`return` outside functions ends the program; calls within `tools.all(...)` run together."""

    depth = 0

    def visit_Return(self, node: ast.Return) -> Any:
        self.generic_visit(node)
        if self.depth:
            return node
        value = node.value or ast.Constant(None)
        call = ast.Call(ast.Name("__return__", ast.Load()), [value], [])
        return ast.copy_location(ast.Expr(call), node)

    def _visit_function(self, node: Any) -> Any:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815

    def visit_Expr(self, node: ast.Expr) -> Any:
        """A call whose value nobody takes is waited for: its error is raised there."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Call):
            call = ast.Call(ast.Name("__settle__", ast.Load()), [node.value], [])
            node.value = ast.copy_location(call, node.value)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        """A handler of everything must not catch a `return`."""
        self.generic_visit(node)
        if not self.depth:
            call = ast.Call(ast.Name("__handle__", ast.Load()), [], [])
            node.body.insert(0, ast.copy_location(ast.Expr(call), node))
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(ast.Name("tools"), "all"), [argument]) if not any(
                isinstance(part, ast.Await | ast.Starred | ast.NamedExpr)
                for part in ast.walk(argument)
            ):
                empty = ast.arguments([], [], None, [], [], None, [])
                node.args = [ast.copy_location(ast.Lambda(empty, argument), argument)]
        return node


def rewrite(code: str) -> tuple[ast.Module, bool]:
    """The program, whose last expression is its result, and whether it awaits anything."""
    tree = ast.parse(code.removeprefix("\ufeff"), NAME)
    awaits = any(
        isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.AsyncFunctionDef)
        for node in ast.walk(tree)
    )
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        call = ast.Call(ast.Name("__last__", ast.Load()), [last.value], [])
        tree.body[-1] = ast.copy_location(ast.Expr(ast.copy_location(call, last)), last)
    return ast.fix_missing_locations(Rewriting().visit(tree)), awaits


class Run:
    """One program."""

    def __init__(self, host: Host, limit: int) -> None:
        self._host = host
        self._output = Output(limit)
        self._loop = Loop(host)
        self._last: Any = None
        self._given: list[Any] = []
        asyncio.set_event_loop(self._loop)
        asyncio.run = asyncio.runners.run = self._run_main
        asyncio.new_event_loop = asyncio.events.new_event_loop = lambda: self._loop
        time.sleep = lambda _s: None
        json.JSONEncoder.default = _encode_call  # type: ignore[method-assign,assignment]

    def run(self, code: str, files: list[str]) -> dict[str, Any]:
        """The last frame."""
        sys.stdout = sys.stderr = self._output
        end: dict[str, Any] = {"end": "completed"}
        try:
            self._execute(code, files)
            end["result"] = self._result()
            self._finish_calls()
        except BaseException as error:
            end = {"end": "failed", "error": error_text(error, code)}
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        return {**end, "output": self._output.text}

    def _execute(self, code: str, files: list[str]) -> None:
        tree, self._host.is_async = rewrite(code)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = compile(tree, NAME, "exec", flags, dont_inherit=True)
        space = {
            "__name__": "__main__", "__last__": self._keep_last, "__return__": self._return,
            "__settle__": settle, "__handle__": self._handle,
            "tools": Tools(self._host), "result": self._given.append, "asyncio": asyncio,
            "json": json, "files": files, **ERRORS,
        }  # fmt: skip
        try:
            ended = eval(compiled, space)  # noqa: S307 - that is what we are here for
            if inspect.iscoroutine(ended):
                self._loop.run_until_complete(ended)
        except* Returned:  # which a group of tasks puts into a group
            pass

    def _result(self) -> Any:
        value = self._given[-1] if self._given else self._last
        if isinstance(value, Call | Gathered) or not isinstance(value, Awaitable):
            value = settle(value)
        elif not isinstance(value, Pages):
            value = self._loop.run_until_complete(asyncio.ensure_future(value, loop=self._loop))
        text = encode(value)
        if error := excess("the result", text, self._host.limit):
            raise LimitReached(error)
        return json.loads(text)

    def _finish_calls(self) -> None:
        """Wait for all calls. Raises the ToolError of the first that failed and nothing used."""
        for call in self._host.calls:
            if call.is_used:
                self._host.settle(call)
            else:
                call.value()

    def _keep_last(self, value: Any) -> None:
        self._last = value

    def _return(self, value: Any) -> None:
        self._given.append(value)
        raise Returned

    def _handle(self) -> None:
        if isinstance(error := sys.exception(), Returned):
            raise error

    def _run_main(self, main: Any, **_: Any) -> Any:
        return self._loop.run_until_complete(main)


def error_text(error: BaseException, code: str) -> str:
    """The error, below the lines of the program that led to it; of a group, that of its first."""
    if isinstance(error, BaseExceptionGroup):
        return error_text(error.exceptions[0], code)
    lines = code.split("\n")
    numbers = [
        frame.lineno or 0
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == NAME
    ]
    if isinstance(error, SyntaxError):
        numbers = [error.lineno or 0]
    where = "".join(
        f"line {number}: {lines[number - 1].strip()[:200]}\n"
        for number in list(dict.fromkeys(numbers))[-5:]
        if 0 < number <= len(lines)
    )
    kind = type(error).__name__
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        text = text or (NO_MEMORY if isinstance(error, MemoryError) else "")
    except Exception as failed:
        text = f"its text failed with {type(failed).__name__}"
    tool = f" [{error.tool[:100]}]" if isinstance(error, ToolError) and error.tool else ""
    return f"{where}{kind}{tool}: {text}"[:ERROR]


def main() -> None:
    del sys.modules["ssl"]  # programs may import it
    host = Host(*take_pipes())
    host.write({"ready": True})
    options = host.read()
    host.limit = options["limit"]
    freeze(options["seed"], options["clock"])
    if options["language"] == "javascript":
        host.send(JavaScriptRun(host, options, list(ERRORS)).run(options["code"]))
    else:
        host.write(Run(host, options["output"]).run(options["code"], options["files"]))
    host.read()  # the host ends this process


if __name__ == "__main__":
    main()
