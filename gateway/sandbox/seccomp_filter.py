"""Seccomp filter program: the system calls that jailed code may not make. Pure.

A deny list rather than an allow list: interpreters and C libraries need about a hundred calls,
others with each release. All calls from number 424 on, which is the same on all machines, fail with
ENOSYS; C libraries fall back to older calls.
"""

import struct
from dataclasses import dataclass

# linux/bpf_common.h, linux/seccomp.h, linux/audit.h
_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data

_CLONE_THREAD = 0x00010000
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG: without it, code would outlive a gateway that is killed
_TOO_NEW = 424  # pidfd_send_signal; io_uring, clone3, memfd_secret and more follow it


@dataclass(frozen=True, slots=True)
class Machine:
    """System call numbers of one architecture."""

    architecture: int  # AUDIT_ARCH_*
    clone: int
    prctl: int
    refused: dict[str, int]


MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        56,
        157,
        {
            "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "bind": 49, "listen": 50,
            "socketpair": 53, "accept4": 288, "fork": 57, "vfork": 58, "shmget": 29, "shmat": 30,
            "semget": 64, "msgget": 68, "mq_open": 240, "memfd_create": 319, "ptrace": 101,
            "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "mount": 165,
            "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308,
            "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171,
            "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
            "finit_module": 313, "kexec_load": 246, "kexec_file_load": 320, "quotactl": 179,
            "acct": 163, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "syslog": 103,
            "personality": 135, "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321,
            "perf_event_open": 298, "userfaultfd": 323, "name_to_handle_at": 303,
            "open_by_handle_at": 304, "execveat": 322, "fanotify_init": 300, "lookup_dcookie": 212,
        },
    ),
    "aarch64": Machine(
        0xC00000B7,
        220,
        167,
        {
            "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202,
            "connect": 203, "sendto": 206, "accept4": 242, "shmget": 194, "shmat": 196,
            "semget": 190, "msgget": 186, "mq_open": 180, "memfd_create": 279, "ptrace": 117,
            "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "mount": 40,
            "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268,
            "swapon": 224, "swapoff": 225, "reboot": 142, "sethostname": 161, "setdomainname": 162,
            "init_module": 105, "delete_module": 106, "finit_module": 273, "kexec_load": 104,
            "kexec_file_load": 294, "quotactl": 60, "acct": 89, "settimeofday": 170,
            "clock_settime": 112, "adjtimex": 171, "syslog": 116, "personality": 92,
            "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
            "userfaultfd": 282, "name_to_handle_at": 264, "open_by_handle_at": 265,
            "execveat": 281, "fanotify_init": 262, "lookup_dcookie": 18,
        },
    ),
}  # fmt: skip


def program(machine: Machine) -> bytes:
    """An array of struct sock_filter, the argument of prctl(PR_SET_SECCOMP).

    A call of another architecture (32 bits on a 64-bit machine) kills the process: its numbers
    would mean other calls. Threads may be created, processes not.
    """
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, machine.architecture, skipped_if_not=0, skipped_if=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        # with x32, the numbers of which begin at 2**30
        _line(_AT_LEAST, _TOO_NEW, skipped_if_not=1),
        _line(_RETURN, _ERRNO | _ENOSYS),
    ]
    for number in sorted(machine.refused.values()):
        lines += [_line(_EQUAL, number, skipped_if_not=1), _line(_RETURN, _ERRNO | _EPERM)]
    lines += [
        _line(_EQUAL, machine.prctl, skipped_if_not=4),
        _line(_LOAD, _FIRST_ARGUMENT),
        _line(_EQUAL, _PARENT_DEATH, skipped_if_not=1),
        _line(_RETURN, _ERRNO | _EPERM),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, machine.clone, skipped_if_not=3),
        _line(_LOAD, _FIRST_ARGUMENT),
        _line(_HAS_BITS, _CLONE_THREAD, skipped_if=1),
        _line(_RETURN, _ERRNO | _EPERM),
        _line(_RETURN, _ALLOW),
    ]
    return b"".join(lines)


def _line(code: int, value: int, *, skipped_if: int = 0, skipped_if_not: int = 0) -> bytes:
    """One instruction, and how many after it a jump leaves out."""
    return struct.pack("=HBBI", code, skipped_if, skipped_if_not, value)
