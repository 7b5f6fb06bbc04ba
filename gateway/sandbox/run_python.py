"""Runner of Python tools inside the jail: the source comes on stdin, the result alone goes to
stdout. The output of the source goes to stderr."""

import json
import os
import sys
import traceback
from typing import Any


def answer(source: str, arguments: Any) -> dict[str, Any]:
    """Run the source: the return value of its `main`, or an error text with the line number."""
    space: dict[str, Any] = {"__name__": "tool"}
    try:
        exec(compile(source, "tool", "exec"), space)  # noqa: S102 - that is what we are here for
        if not callable(space.get("main")):
            return {"error": "the script defines no main(arguments)"}
        return {"answer": json.loads(json.dumps(space["main"](arguments), allow_nan=False))}
    except BaseException as error:
        return {"error": error_text(error)}


def error_text(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == "tool"]  # fmt: skip
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if line is None else f"line {line}: {text}"


if __name__ == "__main__":
    out = os.dup(1)
    os.dup2(2, 1)
    script = json.loads(sys.stdin.buffer.read())
    data = json.dumps(answer(script["source"], script["arguments"])).encode()
    while data:
        data = data[os.write(out, data) :]
    os._exit(0)  # also ends its threads
