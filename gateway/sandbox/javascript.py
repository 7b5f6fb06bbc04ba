"""A program of JavaScript inside the jail, in QuickJS, which is loaded into this process.

`program.js` has what the program sees. This side carries its asks to the host and their answers
back, and lets the time of its timers come when nothing else is to come.
"""

import json
import os
import resource
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from gateway.sandbox.jail_pipes import Output, Pipes, excess

ENGINE = "/quickjs.so"  # where the jail has it
PRELUDE_LINE = (
    1 << 17
)  # of `program.js`, beyond those of programs: by lines, errors tell them apart
SPARE_BYTES = 64 << 20  # of the memory, for Python and for frames


class JavaScriptRun:
    """One program."""

    def __init__(self, pipes: Pipes, options: dict[str, Any], errors: Sequence[str]) -> None:
        """`errors`: names of the classes of errors."""
        self._pipes = pipes
        self._output = Output(options["output"])
        self._number = self._open = 0
        self._end = ""  # the last frame, as JSON
        self._limit = options["limit"]
        context = load_engine().Context()
        for name, function in (
            ("ask", self._ask), ("print", self._print), ("end", self._finish)
        ):  # fmt: skip
            context.add_callable(name, function)
        shared = {"errors": errors, "seed": options["seed"], "clock_ms": options["clock"] * 1000}
        shared |= {"line": PRELUDE_LINE, "files": options["files"]}
        context.set("shared", json.dumps(shared))
        self._tell = context.eval("\n" * PRELUDE_LINE + options["prelude"])
        memory, _ = resource.getrlimit(resource.RLIMIT_AS)
        if memory != resource.RLIM_INFINITY:
            context.set_memory_limit(max(memory - SPARE_BYTES, memory // 2))
        self._context = context

    def run(self, code: str) -> str:
        """The last frame, as JSON."""
        try:
            self._tell("start", code)
            while not self._end:
                self._step()
        except Exception as error:  # of the engine, where there is no memory for one of its own
            text = f"{type(error).__name__}: {error}"[:4000]
            self._end = json.dumps({"end": "failed", "error": text})
        if problem := excess("the result", self._end, self._limit):
            self._end = json.dumps({"end": "failed", "error": f"LimitReached: {problem}"})
        return f'{{"output": {json.dumps(self._output.text)}, {self._end[1:]}'

    def _step(self) -> None:
        """Go on with what is ready, else with the next answer, else with the next timer."""
        while not self._end and self._context.execute_pending_job():
            pass
        if not self._end and self._open:
            self._open -= 1
            self._tell("settle", self._pipes.read_bytes().decode())
        elif not self._end:
            self._tell("advance", "")

    def _ask(self, do: str, members: str) -> int:
        """Ask the host; the number of the ask. An exception would stay behind in the engine."""
        try:
            self._number += 1
            self._open += 1
            self._pipes.send(f'{{"ask": {self._number}, "do": {json.dumps(do)}, {members[1:]}')
        except BaseException:
            os._exit(1)
        return self._number

    def _print(self, text: str) -> None:
        self._output.write(json.loads(text))

    def _finish(self, end: str) -> None:
        self._end = self._end or end


def load_engine() -> Any:
    loader = ExtensionFileLoader("_quickjs", ENGINE)
    spec = spec_from_loader("_quickjs", loader)
    if spec is None:
        raise ImportError(ENGINE)
    engine = module_from_spec(spec)
    loader.exec_module(engine)
    return engine
