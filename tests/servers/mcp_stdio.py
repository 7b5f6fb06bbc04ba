"""MCP servers over standard input and output, each with one habit: `python -I mcp_stdio.py HABIT`.

Only what Python brings, so that one starts in no time.
"""

import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

OLD, MODERN = "2025-06-18", "2026-07-28"


def say(message: Any) -> None:
    text = message if isinstance(message, str) else json.dumps(message)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def reply(id_: Any, **members: Any) -> None:
    say({"jsonrpc": "2.0", "id": id_, "result": members})


def tell(method: str, **params: Any) -> None:
    say({"jsonrpc": "2.0", "method": method, "params": params})


def refuse(id_: Any, code: int = -32601) -> None:
    say({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": "no"}})


def answer_opening(message: Any, habit: str) -> bool:
    """Answer what comes first; whether it was that."""
    method, id_ = message.get("method"), message.get("id")
    if method == "initialize":
        if habit == "modern":
            refuse(id_, -32022)
        else:
            server = {"name": habit, "version": "1"}
            reply(id_, protocolVersion=OLD, capabilities={"tools": {}}, serverInfo=server)
    elif method == "server/discover":
        if habit in ("modern", "both"):
            reply(id_, supportedVersions=[MODERN], capabilities={"tools": {}})
        elif habit == "dies-at-discover":
            sys.exit(1)
        elif habit != "silent-at-discover":
            refuse(id_)
    else:
        return id_ is None
    return True


def environment(id_: Any, _: Any) -> None:
    reply(id_, environment=dict(os.environ), pid=os.getpid(), group=os.getpgid(0))


def files(id_: Any, _: Any) -> None:
    """Which are open, and how many may be."""
    there = []
    for number in range(3, 512):
        try:
            os.fstat(number)
        except OSError:
            continue
        there.append(number)
    reply(id_, open=there, most=resource.getrlimit(resource.RLIMIT_NOFILE))


def end(_id: Any, _params: Any) -> None:
    os._exit(3)


def answer_and_exit(id_: Any, _: Any) -> None:
    reply(id_, said="goodbye")
    os._exit(0)


def garbage(id_: Any, _: Any) -> None:
    say("this is a log line")
    say('{"jsonrpc": "2.0", "id": 999, "result": {}}')
    say(json.dumps([1, 2]))
    reply(id_)


def progress(id_: Any, params: Any) -> None:
    token = params["_meta"]["progressToken"]
    for told in (token, "foreign", token):
        tell("notifications/progress", progressToken=told, progress=1)
    tell("notifications/message", level="info", data="unattributed")
    reply(id_)


def flood(id_: Any, _: Any) -> None:
    for number in range(5000):
        tell("notifications/message", level="info", data=number)
    reply(id_)


def stderr(id_: Any, _: Any) -> None:
    sys.stderr.write("x" * 10_000 + "\n" + "line\n" * 5000)
    sys.stderr.flush()
    reply(id_)


def long(id_: Any, params: Any) -> None:
    reply(id_, long="x" * params["arguments"]["size"])


def memory(id_: Any, params: Any) -> None:
    try:
        reply(id_, held=len(bytearray(params["arguments"]["size"])))
    except MemoryError:
        reply(id_, held=0)


def reserve(id_: Any, params: Any) -> None:
    try:
        mmap.mmap(-1, params["arguments"]["size"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANON, prot=0)
        reply(id_, reserved=True)
    except OSError:
        reply(id_, reserved=False)


def fork(id_: Any, _: Any) -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)"])
    reply(id_, child=child.pid)


def fork_and_exit(id_: Any, _: Any) -> None:
    fork(id_, None)
    os._exit(0)


def never(_id: Any, _params: Any) -> None:
    pass


def echo(id_: Any, params: Any) -> None:
    reply(id_, echo=params)


TOOLS = {
    "environment": environment,
    "files": files,
    "exit": end,
    "answer-and-exit": answer_and_exit,
    "garbage": garbage,
    "progress": progress,
    "flood": flood,
    "stderr": stderr,
    "long": long,
    "memory": memory,
    "reserve": reserve,
    "fork": fork,
    "fork-and-exit": fork_and_exit,
    "never": never,
}


def serve(habit: str) -> None:
    asked: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if method is None and asked is not None:
            reply(asked, got=message)
            asked = None
        elif method == "notifications/cancelled":
            tell("notifications/message", level="info", data=message["params"]["requestId"])
        elif answer_opening(message, habit):
            continue
        elif method == "ask":
            asked = id_
            say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        elif method == "subscriptions/listen":
            meta = {"io.modelcontextprotocol/subscriptionId": id_}
            tell("notifications/subscriptions/acknowledged", notifications={}, _meta=meta)
            tell("notifications/tools/list_changed", _meta=meta)
        else:
            TOOLS.get(message["params"].get("name"), echo)(id_, message["params"])


def main(habit: str) -> None:
    if habit == "exits":
        sys.exit(4)
    if habit == "deaf":
        time.sleep(600)
    if habit == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve(habit)
    if habit == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "handshake")
