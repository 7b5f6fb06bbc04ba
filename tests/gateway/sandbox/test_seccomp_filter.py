"""The seccomp program: read as the kernel does, call by call."""

import struct

import pytest

from gateway.sandbox.seccomp_filter import MACHINES, Machine, program

ALLOWED, KILLED, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
SIGCHLD, THREAD = 17, 0x10000 | 0x100


def verdict(machine: Machine, number: int, argument: int = 0, architecture: int = 0) -> int:
    """What `program` says to a call; a small interpreter of classic BPF."""
    data = struct.pack(
        "=iIQ6Q", number, architecture or machine.architecture, 0, argument, *[0] * 5
    )
    lines = list(struct.iter_unpack("=HBBI", program(machine)))
    held, at = 0, 0
    while True:
        code, jump_true, jump_false, value = lines[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
            continue
        holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
        at += jump_true if holds else jump_false


@pytest.mark.parametrize("name", MACHINES)
def test_calls_by_machine(name: str) -> None:
    machine = MACHINES[name]
    for number in range(424):
        refused = number in machine.refused.values()
        if number != machine.clone:
            assert verdict(machine, number) == (EPERM if refused else ALLOWED), number
    assert verdict(machine, machine.clone, SIGCHLD) == EPERM
    assert verdict(machine, machine.clone, THREAD) == ALLOWED
    assert verdict(machine, machine.prctl, 1) == EPERM  # PR_SET_PDEATHSIG
    assert {verdict(machine, number) for number in range(424, 500)} == {ENOSYS}
    assert verdict(machine, 0x40000000 | 41) == ENOSYS  # x32: the same calls by other numbers
    assert verdict(machine, 1, architecture=0x40000003) == KILLED  # 32 bits


@pytest.mark.parametrize("name", MACHINES)
def test_syscall_numbers_match_the_kernel(name: str) -> None:
    """Spot checks against asm/unistd.h, of what would hurt most."""
    known = {
        "x86_64": {"socket": 41, "ptrace": 101, "fork": 57, "unshare": 272, "mount": 165},
        "aarch64": {"socket": 198, "ptrace": 117, "unshare": 97, "mount": 40, "bpf": 280},
    }[name]
    assert known.items() <= MACHINES[name].refused.items()
