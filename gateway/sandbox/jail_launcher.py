"""Launcher program for Linux: sets up the isolation and execs a command in it.

`python -I -S jail_launcher.py PLAN`, PLAN the members of `_Plan` in script_runner.py, by marshal
and base64. Imports little of the standard library, since each start waits for it: json, pathlib and
typing take longer than all others. Two processes: this one waits, the other enters the isolation
and execs the command; it is the first process of its PID namespace, so all other processes in there
end with it.

Exit code: that of the command, 128 + the number of the signal that ended it, or REFUSED when a
layer could not be set up; then no command was started, and stderr names the layer.
"""

from __future__ import annotations

import binascii
import ctypes
import marshal
import os
import resource
import signal
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

REFUSED = 97

NOBODY = 65534
NEW_ROOT = "/proc"  # a directory that always exists, and whose content is not wanted inside

# sched.h, sys/mount.h, sys/prctl.h, linux/fcntl.h
NEW_MOUNTS, NEW_UTS, NEW_IPC = 0x20000, 0x4000000, 0x8000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
WALLS = NEW_MOUNTS | NEW_UTS | NEW_IPC | NEW_PIDS | NEW_NETWORK
NO_SUID, NO_DEVICES, BIND, DETACH, RECURSIVE, PRIVATE = 2, 4, 4096, 2, 16384, 1 << 18
ATTR_READ_ONLY, ATTR_NO_SUID, ATTR_NO_DEVICES, AT_RECURSIVE = 1, 2, 4, 0x8000
PARENT_DEATH, SET_SECCOMP, NO_NEW_PRIVILEGES, FILTER = 1, 22, 38, 2
AT_CWD = -100
MOUNT_SETATTR = 442  # the same number on all machines; Linux 5.12
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
libc.syscall.restype = ctypes.c_long


class IsolationFailure(Exception):
    """A layer of isolation that could not be set up."""


def main() -> int:
    plan = marshal.loads(binascii.a2b_base64(sys.argv[1]))  # noqa: S302 - of the gateway
    _die_with_parent()
    if os.getppid() != plan["parent"]:
        return REFUSED
    try:
        mapped = _unshare()
    except IsolationFailure as wall:
        return _refuse(wall)
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        try:
            _enter(plan, mapped, ready)
        except (IsolationFailure, OSError, ValueError) as wall:
            _refuse(wall)
        os._exit(REFUSED)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    for number in (0, 1):
        os.close(number)  # only the command holds them: EOF comes when it ends
    if plan["tells"]:
        os.write(2, b"%d\n" % child)
    os.write(go, b"!")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _unshare() -> bool:
    """Leave the namespaces of the gateway; returns whether that took a user namespace."""
    if os.geteuid() == 0 and libc.unshare(WALLS) == 0:
        return False
    user, group = os.geteuid(), os.getegid()
    _check(libc.unshare(NEW_USER | WALLS), "user, mount, PID, network and IPC namespaces")
    try:
        _write("/proc/self/setgroups", "deny")
        # not as root: the command then has no capabilities, and cannot gain any
        _write("/proc/self/uid_map", f"{NOBODY} {user} 1")
        _write("/proc/self/gid_map", f"{NOBODY} {group} 1")
    except OSError as error:
        raise IsolationFailure(f"user namespaces: {error.strerror}") from error
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _enter(plan: dict[str, Any], mapped: bool, ready: int) -> NoReturn:
    """Enter the isolation. Raises Wall, and OSError for a command that cannot be started."""
    _die_with_parent()
    libc.sethostname(b"tool", 4)
    _furnish(plan)
    for name, value in plan["limits"].items():
        _limit(getattr(resource, name), value)
    if not mapped:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _die_with_parent()  # changing users has cleared it
    if os.read(ready, 1) != b"!":  # the parent is dead already
        os._exit(REFUSED)
    os.closerange(3, 2**16)
    _check(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    _filter(plan["filter"])
    os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - no shell


def _limit(number: int, value: int) -> None:
    _, hard = resource.getrlimit(number)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(number, (value, value))


def _furnish(plan: dict[str, Any]) -> None:
    """Set up a read-only root directory with only what the command needs."""
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    _mount("none", NEW_ROOT, "tmpfs", NO_SUID | NO_DEVICES, options="size=1m,mode=755")
    for link, target in plan["links"].items():
        inside = NEW_ROOT + link
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        os.symlink(target, inside)
    for target, path in [*((path, path) for path in plan["paths"]), *plan["files"].items()]:
        inside = NEW_ROOT + target
        if os.path.isdir(path):
            os.makedirs(inside, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            os.close(os.open(inside, os.O_WRONLY | os.O_CREAT, 0o644))
        _mount(path, inside, None, BIND | RECURSIVE)
        device = 0 if path.startswith("/dev/") else ATTR_NO_DEVICES
        _set(inside, ATTR_READ_ONLY | ATTR_NO_SUID | device, AT_RECURSIVE)
    for path in plan["hidden"]:
        _mount("none", NEW_ROOT + path, "tmpfs", NO_SUID | NO_DEVICES, options="size=4k,mode=555")
        _set(NEW_ROOT + path, ATTR_READ_ONLY, 0)
    os.chdir(NEW_ROOT)
    number = ctypes.c_long(PIVOT_ROOT[os.uname().machine])
    _check(libc.syscall(number, b".", b"."), "pivot_root")  # pivot_root(2), NOTES
    _check(libc.umount2(b".", DETACH), "umount")
    os.chdir("/")
    _set("/", ATTR_READ_ONLY, 0)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, *, options: str | None = None
) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(libc.mount(*arguments, ctypes.c_ulong(flags), data), f"mount of {source} on {target}")


def _set(path: str, attributes: int, how: int) -> None:
    structure = struct.pack("=QQQQ", attributes, 0, 0, 0)  # struct mount_attr
    number, where, flags, size = map(ctypes.c_long, (MOUNT_SETATTR, AT_CWD, how, len(structure)))
    done = libc.syscall(number, where, path.encode(), flags, structure, size)
    _check(done, "read-only mounts (mount_setattr, Linux 5.12)")


def _filter(instructions: bytes) -> None:
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    structure = struct.pack(
        "@HP", len(instructions) // 8, ctypes.addressof(buffer)
    )  # struct sock_fprog
    passed = ctypes.create_string_buffer(structure, len(structure))
    done = libc.prctl(SET_SECCOMP, FILTER, ctypes.addressof(passed), 0, 0)
    _check(done, "seccomp filters")


def _die_with_parent() -> None:
    libc.prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


def _check(done: int, step: str) -> None:
    if done == -1:
        raise IsolationFailure(f"{step}: {os.strerror(ctypes.get_errno())}")


def _refuse(wall: Exception) -> int:
    sys.stderr.write(f"{wall}\n")
    sys.stderr.flush()
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
