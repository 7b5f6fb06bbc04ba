"""Scripts that behave, and scripts that do their worst: all of them really run."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from msgspec.structs import replace

from config.load import load
from gateway.sandbox import jail_launcher as jail
from gateway.sandbox import script_runner
from gateway.sandbox.script_runner import Sandbox, ScriptFailed
from schemas.binding import Language

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="scripts are run on Linux only"),
]

SETTINGS = replace(load(None, {}).scripts, enabled=True, time_s=60)
SECRET = "hunter2-of-the-gateway"
ROOT = Path(script_runner.__file__).parents[3]


_missing: dict[Language, str | None] = {}


async def needs(language: Language) -> None:
    """Skip where the machine has no namespaces: refusing is all that it can do (see below)."""
    if language not in _missing:
        _missing[language] = await Sandbox(lambda: SETTINGS).missing(language)
    if _missing[language] is not None:
        pytest.skip(f"scripts in {language}: {_missing[language]}")


@pytest.fixture(autouse=True)
async def require_sandbox(anyio_backend: str) -> None:
    await needs("python")


@pytest.fixture(params=["python", "javascript"])
async def language(request: pytest.FixtureRequest) -> Language:
    await needs(request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a script did, no process of it is there afterwards."""
    before = {one.pid for one in psutil.Process().children(recursive=True)}
    yield
    after = {one.pid for one in psutil.Process().children(recursive=True)}
    assert after <= before


async def result(
    source: str, arguments: Any = None, language: Language = "python", **limits: Any
) -> Any:
    settings = replace(SETTINGS, **limits)
    with anyio.fail_after(100):
        return msgspec.json.decode(
            await Sandbox(lambda: settings).run(language, source, arguments or {})
        )


async def failure(source: str, language: Language = "python", **limits: Any) -> str:
    with pytest.raises(ScriptFailed) as failed:
        await result(source, {}, language, **limits)
    return str(failed.value)


async def outcome(source: str, arguments: Any = None, language: Language = "python") -> Any:
    """Its answer, or "failed"."""
    try:
        return await result(source, arguments, language)
    except ScriptFailed:
        return "failed"


ECHO: dict[Language, str] = {
    "python": "def main(arguments):\n    print('noise')\n    return {'got': arguments}",
    "javascript": "async function main(given) { console.log('noise'); return {got: given} }",
}


async def test_scripts_get_their_arguments_and_answer(language: Language) -> None:
    arguments = {"text": "Grüße \u2028 \U0001f40d", "n": [1, 2.5, None, True]}
    assert await result(ECHO[language], arguments, language) == {"got": arguments}


@pytest.mark.parametrize(
    ("language", "source", "told"),
    [
        ("python", "def main(arguments):\n    return 1 / 0", "line 2: ZeroDivisionError"),
        ("python", "def main(arguments:", "SyntaxError"),
        ("python", "x = 1", "the script defines no main(arguments)"),
        ("python", "def main(arguments):\n    return {1, 2}", "not JSON serializable"),
        ("python", "def main(arguments):\n    return float('nan')", "Out of range float"),
        ("python", "def main(arguments):\n    raise SystemExit(3)", "SystemExit"),
        ("python", "import os\ndef main(arguments):\n    os._exit(3)", "exit code 3"),
        ("python", "def main(arguments):\n    return main(arguments)", "RecursionError"),
        ("javascript", "function main() {\n  null.x }", "line 2: TypeError"),
        ("javascript", "function main() { throw 5 }", "failed: 5"),
        ("javascript", "var x = 1", "the script defines no main(arguments)"),
        ("javascript", "function main() { process.exit(4) }", "exit code 4"),
        ("javascript", "function main() { return 5n }", "BigInt"),
    ],
    ids=lambda value: None if len(str(value)) > 12 else str(value),
)
async def test_failures_of_scripts_are_reported(language: Language, source: str, told: str) -> None:
    await needs(language)
    assert told in await failure(source, language)


LOOPS: dict[Language, str] = {
    "python": "def main(arguments):\n    while True: pass",
    "javascript": "function main() { for (;;); }",
}
SLEEPS = "import time\ndef main(arguments):\n    time.sleep(1000)"
IGNORES = """
import signal, time
def main(arguments):
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: time.sleep(1)
"""


async def test_an_endless_loop_ends(language: Language) -> None:
    assert "did not answer within 1 s" in await failure(LOOPS[language], language, time_s=1)


@pytest.mark.parametrize("source", [SLEEPS, IGNORES], ids=["sleeps", "ignores signals"])
async def test_waiting_scripts_are_ended(source: str) -> None:
    assert "did not answer within 1 s" in await failure(source, time_s=1)


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


async def test_a_call_that_is_given_up_leaves_nothing() -> None:
    before = children()  # a database of other tests, say
    sandbox = Sandbox(lambda: SETTINGS)
    running = asyncio.create_task(sandbox.run("python", SLEEPS, {}))
    started: set[psutil.Process] = set()
    with anyio.fail_after(60):
        while len(started) < 2:  # the launcher, and the script; nothing tells us
            await asyncio.sleep(0.01)
            started = children() - before
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while any(one.is_running() for one in started):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


OUTLIVES = """
import ctypes
def main(arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    return [libc.prctl(1, 0, 0, 0, 0), ctypes.get_errno()]
"""


async def test_scripts_cannot_outlive_their_parent() -> None:
    assert await result(OUTLIVES) == [-1, 1]  # EPERM


FORKS = """
import os
def main(arguments):
    children = 0
    try:
        while True:
            if os.fork() == 0:
                while True: pass
            children += 1
    except OSError as error:
        return [children, type(error).__name__]
"""


async def test_a_fork_bomb_does_not_go_off() -> None:
    assert await result(FORKS) == [0, "PermissionError"]


async def test_no_other_program_is_started() -> None:
    source = """
import subprocess
def main(arguments):
    return subprocess.run(["/lib64/ld-linux-x86-64.so.2"], capture_output=True).returncode
"""
    assert "Error" in await failure(source)


async def test_threads_are_let_be() -> None:
    source = """
import threading
def main(arguments):
    found = []
    threads = [threading.Thread(target=found.append, args=(n,)) for n in range(4)]
    for one in threads: one.start()
    for one in threads: one.join()
    return sorted(found)
"""
    assert await result(source) == [0, 1, 2, 3]


THREADS = """
import threading, time
def main(arguments):
    while True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
"""


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("python", "def main(arguments):\n    return len(bytearray(10**9))"),
        ("python", "def main(arguments):\n    x = []\n    while True: x.append(' ' * 10**6)"),
        ("python", THREADS),
        ("javascript", "function main() { const x = []; for (;;) x.push(Array(999).fill(1.5)) }"),
        ("javascript", "function main() { const x = []; for (;;) x.push(Buffer.alloc(9e7, 1)) }"),
    ],
    ids=["at once", "bit by bit", "threads", "javascript", "javascript buffers"],
)
async def test_memory_has_an_end(language: Language, source: str) -> None:
    await needs(language)
    told = await failure(source, language, memory_bytes=2**28)
    assert "memory" in told or "can't start new thread" in told


@pytest.mark.parametrize(
    "call",
    [
        "socket.create_connection(('127.0.0.1', arguments['port']), 5)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "socket.socketpair()",
        "socket.getaddrinfo('example.com', 80)",
    ],
)
async def test_there_is_no_network(call: str) -> None:
    """Not to us either: `listener` stands for the gateway, and for its database."""
    source = f"import socket\ndef main(arguments):\n    {call}\n    return 'connected'"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(ScriptFailed, match=r"PermissionError|gaierror"),
    ):
        await result(source, {"port": listener.getsockname()[1]})


async def test_javascript_has_no_network() -> None:
    await needs("javascript")
    source = """
    function main({port}) {
      const net = process.getBuiltinModule?.("net") ?? process.binding("tcp_wrap");
      return new Promise((resolve) => {
        const socket = net.connect(port, "127.0.0.1", () => resolve("connected"));
        socket.on("error", (error) => resolve(error.code));
      });
    }
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = {"port": listener.getsockname()[1]}
        assert await outcome(source, port, "javascript") in ("EPERM", "EACCES", "failed")


READS = """
def main(arguments):
    found = {}
    for path in arguments["paths"]:
        try:
            with open(path, "rb") as file: found[path] = len(file.read(100))
        except OSError as error: found[path] = type(error).__name__
    return found
"""


async def test_files_of_the_gateway_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "toolgate.yaml"
    settings.write_text(SECRET)
    monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
    there = [
        "/etc/passwd", "/etc/hostname", "/proc/1/environ", "/proc/self/environ",
        f"/proc/{os.getpid()}/environ", "/sys/kernel/ostype", "/root/.bashrc", "/dev/sda",
        "/dev/mem", str(settings), str(Path(script_runner.__file__)), msgspec.__file__,
    ]  # fmt: skip
    found = await result(READS, {"paths": there})
    assert set(found.values()) == {"FileNotFoundError"}, found


async def test_its_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
    source = """
import os
def main(arguments):
    return [dict(os.environ), os.getppid(), os.getpid(), os.getuid() == 0, os.listdir("/"),
        sorted(os.listdir("/dev")), os.uname().nodename]
"""
    environment, parent, own, root, top, devices, host = await result(source)
    assert environment.keys() <= {"LD_LIBRARY_PATH", "LC_CTYPE"}  # Python itself sets LC_CTYPE
    assert (parent, own, root, host) == (0, 1, False, "tool")
    assert not {"proc", "sys", "tmp", "home", "var"} & set(top)
    assert devices == ["null", "urandom"]


WRITES = """
import os
def main(arguments):
    tried = {}
    beside = os.path.dirname(os.__file__) + "/x"
    places = ["/x", "/tmp/x", "/dev/x", "/dev/shm/x", os.__file__, beside]
    for path in places:
        try:
            with open(path, "wb") as file: file.write(b"x")
            tried[path] = "written"
        except OSError as error: tried[path] = error.errno
    try: tried["memfd"] = os.memfd_create("x")
    except OSError as error: tried["memfd"] = error.errno
    return tried
"""


async def test_nothing_can_be_written() -> None:
    tried = await result(WRITES)
    assert set(tried.values()) <= {1, 2, 13, 30}, tried  # EPERM, ENOENT, EACCES, EROFS


async def test_descriptors_of_the_gateway_are_not_inherited(tmp_path: Path) -> None:
    source = """
import os
def main(arguments):
    found = []
    for fd in range(64):
        try: found.append((fd, os.fstat(fd).st_mode >> 12))
        except OSError: pass
    return found
"""
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        found = await result(source)
    assert [fd for fd, _ in found] == [0, 1, 2, 3]  # 3: the answer, 1 is what it prints to
    assert {kind for _, kind in found} == {1}  # pipes


SIGNALS = """
import os
def main(arguments):
    tried = []
    for pid in [os.getppid(), arguments["gateway"], 2]:
        try: os.kill(pid, 9); tried.append(0)
        except OSError as error: tried.append(error.errno)
    return tried
"""


async def test_scripts_cannot_kill_their_parent() -> None:
    source = SIGNALS.replace("os.getppid(), ", "")  # 0 would be its own group
    assert await result(source, {"gateway": os.getpid()}) == [3, 3]  # ESRCH


async def test_killing_all_visible_processes_ends_only_the_script() -> None:
    source = "import os\ndef main(arguments):\n    os.kill(0, 9)\n    os.kill(-1, 9)\n    return 1"
    # the first process of a namespace is not killed by itself
    assert await outcome(source) in (1, "failed")


CALLS = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = {"ptrace": 101, "unshare": 272, "mount": 165, "bpf": 321, "userfaultfd": 323, "keyctl": 250,
       "process_vm_readv": 310, "setns": 308, "perf": 298, "shmget": 29}
arm = {"ptrace": 117, "unshare": 97, "mount": 40, "bpf": 280, "userfaultfd": 282, "keyctl": 219,
       "process_vm_readv": 270, "setns": 268, "perf": 241, "shmget": 194}
new = {"io_uring_setup": 425, "clone3": 435, "pidfd_open": 434, "memfd_secret": 447}
def main(arguments):
    numbers = {**(x86 if platform.machine() == "x86_64" else arm), **new}
    found = {}
    for name, number in numbers.items():
        done = libc.syscall(number, 0, 0, 0, 0, 0)
        found[name] = ctypes.get_errno() if done == -1 else "done"
    return found
"""


async def test_dangerous_system_calls_are_refused() -> None:
    found = await result(CALLS)
    new = {"io_uring_setup", "clone3", "pidfd_open", "memfd_secret"}
    assert {found[name] for name in new} == {38}  # ENOSYS
    assert {errno for name, errno in found.items() if name not in new} == {1}, found  # EPERM


FLOODS = {
    "answer": "def main(arguments):\n    return 'x' * 10**7",
    "descriptor": "import os\ndef main(arguments):\n    while True: os.write(3, b'x' * 65536)",
}


@pytest.mark.parametrize("source", FLOODS.values(), ids=FLOODS)
async def test_a_flood_is_cut_off(source: str) -> None:
    assert "answered more than 100000 bytes" in await failure(source, output_bytes=100_000)


async def test_surplus_output_of_scripts_is_discarded() -> None:
    source = "def main(arguments):\n    for _ in range(300): print('x' * 9999)\n    return 7"
    assert await result(source, output_bytes=1000) == 7


@pytest.mark.parametrize(
    "garbage",
    [
        "hello",
        "{",
        "[1]",
        '{"answer": 1}{',
        '{"answer": 1, "answer": 2}',
        "\\xff",
        "[" * 5000,
        "{}",
    ],
)
async def test_garbage_is_no_answer(garbage: str) -> None:
    source = (
        f"import os\ndef main(arguments):\n    os.write(3, {garbage.encode()!r})\n    os._exit(0)"
    )
    assert "not an answer" in await failure(source)


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("python", "import os\ndef main(arguments): os._exit(0)"),
        ("javascript", "function main() { process.exit(0) }"),
    ],
    ids=["python", "javascript"],
)
async def test_nothing_is_no_answer(language: Language, source: str) -> None:
    await needs(language)
    assert await failure(source, language) == "ended without an answer"


async def test_only_so_many_run_at_a_time() -> None:
    settings = replace(SETTINGS, concurrency=1, time_s=3)
    sandbox = Sandbox(lambda: settings)
    outcomes: list[str] = []

    async def run() -> None:
        with pytest.raises(ScriptFailed) as failed:
            await sandbox.run("python", SLEEPS, {})
        outcomes.append(str(failed.value))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(run)
    assert sum("did not answer" in one for one in outcomes) >= 1
    assert any("scripts.concurrency" in one for one in outcomes)


async def test_without_walls_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wall that cannot be built: as on a kernel without namespaces, or in a strict container."""
    jail = script_runner.JAIL.read_text()
    broken = tmp_path / "jail_launcher.py"
    broken.write_text(jail.replace("libc.unshare(NEW_USER | WALLS)", "libc.unshare(-1)").replace(
        "libc.unshare(WALLS)", "libc.unshare(-1)"))  # fmt: skip
    monkeypatch.setattr(script_runner, "JAIL", broken)
    told = await failure(ECHO["python"])
    assert "does not let scripts be confined: user, mount, PID, network" in told
    assert told == await Sandbox(lambda: SETTINGS).missing("python")


async def test_without_an_interpreter_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no node" in await failure(ECHO["javascript"], "javascript")


# As root without the power to make namespaces directly, the way of ordinary users is taken.
POWERLESS = """
import asyncio, ctypes, json, struct
SYS_ADMIN, BOUNDING_DROP, VERSION = 21, 24, 0x20080522
libc = ctypes.CDLL(None)
head = ctypes.create_string_buffer(struct.pack("=II", VERSION, 0), 8)
sets = ctypes.create_string_buffer(24)
libc.capget(head, sets)
libc.prctl(BOUNDING_DROP, SYS_ADMIN, 0, 0, 0)
left = [one & ~(1 << SYS_ADMIN) if n < 3 else one
        for n, one in enumerate(struct.unpack("=6I", sets.raw))]
assert libc.capset(head, ctypes.create_string_buffer(struct.pack("=6I", *left), 24)) == 0
assert libc.unshare(0x20000) == -1  # CLONE_NEWNS
from msgspec.structs import replace
from config.load import load
from gateway.sandbox.script_runner import Sandbox, ScriptFailed
sandbox = Sandbox(lambda: replace(load(None, {}).scripts, enabled=True, time_s=60))
source = '''
import os
def main(arguments):
    tried = [os.getuid() == 0, os.path.exists("/etc/passwd"), os.access(os.__file__, os.W_OK)]
    for call in (os.fork, lambda: os.setuid(0), lambda: os.chroot("/"), lambda: open("/x", "w")):
        try: call(); tried.append("done")
        except OSError as error: tried.append(error.errno)
    return tried
'''
try:
    print(bytes(asyncio.run(sandbox.run("python", source, {}))).decode())
except ScriptFailed as failed:
    print(json.dumps(str(failed)))
"""


async def test_the_way_of_ordinary_users() -> None:
    with anyio.fail_after(100):
        ran = await anyio.run_process([sys.executable, "-c", POWERLESS], stderr=None, cwd=ROOT)
    found = msgspec.json.decode(ran.stdout)
    if isinstance(found, str):
        assert "does not let scripts be confined" in found
        pytest.skip(found)
    assert found == [False, False, False, 1, 22, 1, 30]  # EPERM, EINVAL, EROFS


GATEWAY = f"""
import asyncio
from msgspec.structs import replace
from config.load import load
from gateway.sandbox.script_runner import Sandbox
sandbox = Sandbox(lambda: replace(load(None, {{}}).scripts, enabled=True, time_s=600))
asyncio.run(sandbox.run("python", {IGNORES!r}, {{}}))
"""


async def test_a_gateway_that_is_killed_takes_its_scripts_along() -> None:
    with anyio.fail_after(100):
        async with await anyio.open_process([sys.executable, "-c", GATEWAY], cwd=ROOT) as gateway:
            seen = psutil.Process(gateway.pid)
            while len(below := seen.children(recursive=True)) < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            gateway.kill()
            await gateway.wait()
        while any(map(alive, below)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def alive(process: psutil.Process) -> bool:
    """Not so when only its entry is left, for a parent to read."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_the_gateway_starts_where_the_launcher_cannot_be_loaded() -> None:
    """That is anywhere but on Linux; so its exit code stands in both."""
    loads = "import sys, gateway.app; sys.exit('gateway.sandbox.jail_launcher' in sys.modules)"
    done = await anyio.run_process([sys.executable, "-c", loads], check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert script_runner.REFUSED == jail.REFUSED
