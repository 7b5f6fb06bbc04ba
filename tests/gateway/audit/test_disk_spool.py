"""Records on disk: in order, as often as asked for, and left to the next process."""

import os
import resource
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.audit.disk_spool import Spool, SpoolFull
from gateway.audit.records import Chain
from tests.gateway.audit.conftest import NOON, entry


@pytest.fixture
def chain():
    return Chain(entry().host_id, node="node", started=NOON, key=b"")


def open_spool(directory, chain_id="own", limit_bytes=1 << 20):
    spool = Spool(directory, limit_bytes, chain_id)
    spool.open()
    return spool


def empty_spool(spool, most=2):
    """All batches, as (header, sequences)."""
    found = []
    while batch := spool.batch(most):
        found.append((batch.header, [line.sequence for line in batch.lines]))
        spool.acknowledge()
    return found


def test_spooled_lines_are_read_back_unchanged(spool, chain):
    disk, lines = open_spool(spool), chain.link(entry(n) for n in range(5))
    disk.append(chain.header, lines[:3])
    disk.append(chain.header, lines[3:])
    batch = disk.batch(10)
    assert batch.lines == [replace(line, entry=None) for line in lines]
    assert disk.batch(10) is batch  # until somebody says that it is stored
    disk.acknowledge()
    assert disk.batch(10) is None
    assert disk.empty
    disk.close()
    assert not spool.exists()


def test_lines_appended_while_reading_come_later(spool, chain):
    disk, lines = open_spool(spool), chain.link(entry(n) for n in range(6))
    disk.append(chain.header, lines[:3])
    assert len(disk.batch(2).lines) == 2
    disk.append(chain.header, lines[3:])
    assert [numbers for _, numbers in empty_spool(disk)] == [[1, 2], [3], [4, 5], [6]]


def test_the_next_process_adopts_spools_of_ended_processes(spool, chain):
    first = open_spool(spool, chain.id)
    first.append(chain.header, chain.link([entry(1)]))
    beside = open_spool(spool, "beside")
    assert beside.empty  # its process lives
    first.close()
    later = open_spool(spool, "later")
    assert empty_spool(later) == [(chain.header, [1])]


def test_half_a_line_of_a_killed_process_is_left_out(spool, chain, caplog):
    first = open_spool(spool, chain.id)
    first.append(chain.header, chain.link([entry(1), entry(2)]))
    first.close()
    [file] = spool.glob("*.jsonl")
    os.truncate(file, file.stat().st_size - 5)
    assert empty_spool(open_spool(spool)) == [(chain.header, [1])]
    assert [record.msg for record in caplog.records] == ["audit_spool_torn"]


def test_the_spool_respects_its_size_limit(spool, chain):
    disk, lines = open_spool(spool, limit_bytes=2000), chain.link(entry(n) for n in range(8))
    disk.append(chain.header, lines[:2])
    with pytest.raises(SpoolFull):
        disk.append(chain.header, lines[2:])
    assert empty_spool(disk, 10) == [(chain.header, [1, 2])]
    assert disk.has_room(1900)


def test_a_full_disk_leaves_neither_files_nor_descriptors(spool, chain):
    disk, lines = open_spool(spool), chain.link(entry(n) for n in range(2))

    def fail() -> tuple[int, list[str]]:
        with pytest.raises(OSError, match="File too large"):
            disk.append(chain.header, lines)
        return len([*Path("/dev/fd").iterdir()]), sorted(path.name for path in spool.iterdir())

    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))  # files may be made, and stay empty
    try:
        assert fail() == fail()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    disk.append(chain.header, lines)
    assert [numbers for _, numbers in empty_spool(disk)] == [[line.sequence for line in lines]]


def test_a_directory_that_cannot_be_used_has_no_room(tmp_path):
    (tmp_path / "file").write_text("")
    disk = Spool(tmp_path / "file" / "spool", 1000, "own")
    with pytest.raises(OSError, match="Not a directory"):
        disk.open()
    assert not disk.has_room()


def test_nothing_is_left_where_nothing_waits(spool, chain):
    open_spool(spool).close()
    assert not spool.exists()
    spool.mkdir()
    (spool / "dead.lock").touch()  # of a process that was killed
    open_spool(spool).close()
    assert not spool.exists()
