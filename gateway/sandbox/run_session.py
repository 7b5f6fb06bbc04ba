"""Session of Python inside the jail: cells of code come in frames, and share their variables.

A frame is its length in 4 bytes, big-endian, and JSON. The host sends the options first, then cells
(`{"run": code}`). While a cell runs, this side asks (`{"ask": name, "arguments": [...]}`) and gets
`{"value": ...}` or `{"error": text}`; at its end it sends `{"output": ..., ...}`.

Nothing here protects the host, which checks what it gets: code may do with this process what it
likes. The random numbers, the hashes and the clock are the same in each session, so that a session
can be replayed.
"""

import ast
import json
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from gateway.sandbox.jail_pipes import Output, Pipes, freeze, take_pipes

STACK_BYTES = 1 << 20  # of a thread: more would fill the address space


class Done(BaseException):
    """The cell has given its final answer."""


class LibraryError(Exception):
    """The host refuses what was asked for."""


class Channel(Pipes):
    """The pipes to the host, one exchange at a time."""

    def write(self, value: Any) -> None:
        self.send(json.dumps(value, ensure_ascii=False, allow_nan=False))

    def ask(self, name: str, *arguments: Any) -> Any:
        with self.lock:
            self.write({"ask": name, "arguments": arguments})
            answer = self.read()
        if "error" in answer:
            raise LibraryError(answer["error"])
        return answer["value"]


class LibraryNames:
    """The documents that the caller may read."""

    def __init__(self, channel: Channel) -> None:
        self._ask = channel.ask

    def search(self, q: str, k: int = 10, filter: str = "") -> Any:  # noqa: A002 - the design's name
        return self._ask("search", q, k, filter)

    def grep(self, re2: str, glob: str = "", limit: int = 100) -> Any:
        return self._ask("grep", re2, glob, limit)

    def files(self, glob: str = "", after: str = "") -> Any:
        return self._ask("files", glob, after)

    def read(self, path: str, a: int | None = None, b: int | None = None) -> Any:
        return self._ask("read", path, a, b)

    def symbols(self, name: str = "", kind: str = "", glob: str = "", inherits: str = "") -> Any:
        return self._ask("symbols", name, kind, glob, inherits)

    def refs(self, symbol: str) -> Any:
        return self._ask("refs", symbol)

    def neighbors(self, entity: str) -> Any:
        return self._ask("neighbors", entity)


class CellNamespace(dict[str, Any]):
    """Variables of the cells. `context` is fetched when it is first used."""

    channel: Channel

    def __missing__(self, name: str) -> Any:
        if name != "context":
            raise KeyError(name)
        self[name] = self.channel.ask("context")
        return self[name]


class Cells:
    def __init__(self, channel: Channel, output_limit: int) -> None:
        self._channel = channel
        self._limit = output_limit
        self._final: list[Any] = []
        self._space = CellNamespace({"__name__": "cell", "answer": {"content": "", "ready": False}})
        self._space.channel = channel
        self._names = {
            "llm_query": self._query("llm_query"), "llm_query_batched": self._batch("llm_query"),
            "rlm_query": self._query("rlm_query"), "rlm_query_batched": self._batch("rlm_query"),
            "lib": LibraryNames(channel), "FINAL": self._give, "FINAL_VAR": self._give_variable,
            "SHOW_VARS": self._variables, "LibraryError": LibraryError,
        }  # fmt: skip

    def run(self, code: str) -> dict[str, Any]:
        """Run a cell. The names of the host are set again before each."""
        self._final.clear()
        self._space.update(self._names)
        output, failed = Output(self._limit), False
        sys.stdout = sys.stderr = output
        try:
            exec(compile(ast.parse(code, "cell"), "cell", "exec"), self._space)  # noqa: S102 - that is what we are here for
        except Done:
            pass
        except BaseException as error:
            output.write(_error_text(error))
            failed = True
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        return {"output": output.text, "failed": failed, **self._answer_members()}

    def _answer_members(self) -> dict[str, Any]:
        answer = self._space.get("answer")
        content = answer.get("content") if isinstance(answer, dict) else None
        partial = content if isinstance(content, str) else ""
        if isinstance(answer, dict) and answer.get("ready") is True and not self._final:
            self._final.append(content)
        return {"partial": partial[: self._limit], "final": self._final[:1]}

    def _query(self, name: str) -> Any:
        def query(prompt: str, model: str | None = None) -> str:
            return str(self._channel.ask(name, [str(prompt)], model)[0])

        return query

    def _batch(self, name: str) -> Any:
        def query(prompts: Sequence[str], model: str | None = None) -> list[str]:
            return list(self._channel.ask(name, list(map(str, prompts)), model))

        return query

    def _give(self, text: Any = "", findings: Any = ()) -> None:
        if isinstance(text, dict) and not isinstance(text.get("answer"), str):
            raise TypeError(
                "FINAL expects a text, as in FINAL('It is so.', findings=[...]); found a dict with "
                f"{', '.join(map(repr, list(text)[:8])) or 'no members'} and no text as 'answer'"
            )
        value = {"answer": text, "findings": list(findings)} if findings else text
        self._final.append(json.loads(json.dumps(value, default=str)))
        raise Done

    def _give_variable(self, name: str) -> None:
        self._give(self._space[name.strip("\"' ")])

    def _variables(self) -> str:
        hidden = {*self._names, "answer", "__builtins__", "__name__"}
        type_names = {k: type(v).__name__ for k, v in self._space.items() if k not in hidden}
        text = json.dumps(type_names)
        sys.stdout.write(f"{text}\n")
        return text


def _error_text(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "cell"]  # fmt: skip  # noqa: E501
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"\nline {line}: {type(error).__name__}: {error}"[:4000]


def main() -> None:
    threading.stack_size(STACK_BYTES)
    channel = Channel(*take_pipes())
    options = channel.read()
    freeze(options["seed"], options["clock"])
    cells = Cells(channel, options["output"])
    with channel.lock:
        channel.write({"ready": True})
        while True:
            cell = channel.read()["run"]
            channel.lock.release()
            done = cells.run(cell)
            channel.lock.acquire()
            channel.write(done)


if __name__ == "__main__":
    main()
