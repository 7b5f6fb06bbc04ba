"""Disk spool of audit records that wait for the database. Blocking; two threads may use it.

    CHAIN.lock             locked by the process that writes the chain; released when it exits\\n
CHAIN-NUMBER.jsonl     the header of the chain, then a record with its hash in each line

Appended records are on disk (fsync) when `append` returns. A file is deleted when all of it is in
the database, and the directory when it is empty. Files of dead processes are adopted by the next
process at its start.
"""

import errno
import fcntl
import logging
import os
import threading
from contextlib import suppress
from datetime import datetime
from io import BufferedReader
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.audit.records import Line, with_hash

log = logging.getLogger("toolgate.audit")

FILE_BYTES = 16 << 20
_TAIL = len(b',"hash":"') + 64 + len(b'"}')


class SpoolFull(Exception):
    """The spool has reached its size limit."""


class _Written(Struct):
    sequence: int
    recorded_ts: datetime
    hash: str


_entry_decoder = msgspec.json.Decoder(_Written)


class Batch(Struct):
    header: bytes
    lines: list[Line] = []


class Spool:
    def __init__(self, directory: Path, limit_bytes: int, chain_id: str) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._chain_id = chain_id
        self._turn = threading.Lock()
        self._locks: dict[str, int] = {}  # descriptors, by chain that this process may read
        self._files: list[Path] = []  # oldest first; the last one may be open for writing
        self._sizes: dict[Path, int] = {}
        self._number = 0
        self._writing: int | None = None  # descriptor
        self._reading: BufferedReader | None = None
        self._batch: Batch | None = None
        self._header = b""
        self._usable = False

    def open(self) -> None:
        """Adopt files of dead processes. Raises OSError for an unusable directory."""
        there = next(
            folder for folder in (self._directory, *self._directory.parents) if folder.exists()
        )
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))
        chains = {path.stem for path in self._directory.glob("*.lock")}
        chains |= {path.name.rpartition("-")[0] for path in self._directory.glob("*.jsonl")}
        for chain_id in sorted(chains):
            if self._lock(chain_id):
                self._adopt(chain_id)
        self._usable = True

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(self._sizes.values())

    @property
    def empty(self) -> bool:
        return not self._files

    def has_room(self, size: int = 0) -> bool:
        return self._usable and self.size + size < self._limit_bytes

    def append(self, header: bytes, lines: list[Line]) -> None:
        """Append records, all or none. Raises SpoolFull and OSError."""
        data = b"".join(with_hash(line) + b"\n" for line in lines)
        with self._turn:
            if not self.has_room(len(data)):
                raise SpoolFull
            if self._writing is None:
                self._writing = self._begin(header)
            path = self._files[-1]
            try:
                _write(self._writing, data)
            except OSError:
                os.ftruncate(self._writing, self._sizes[path])
                raise
            self._sizes[path] += len(data)
            if self._sizes[path] >= FILE_BYTES:
                self._end()

    def turn_to(self, chain_id: str) -> None:
        """Append records of another chain from now on."""
        with self._turn:
            self._end()
            self._chain_id = chain_id

    def batch(self, limit: int) -> Batch | None:
        """The oldest records, at limit `limit`; the same ones until `stored`; None: empty."""
        with self._turn:
            while self._batch is None and self._files:
                if self._reading is None:
                    if len(self._files) == 1:
                        self._end()
                    self._reading = self._files[0].open("rb")
                    self._header = self._reading.readline().rstrip(b"\n")
                lines = self._read(self._reading, limit)
                if lines:
                    self._batch = Batch(self._header, lines)
                else:
                    self._forget()
            return self._batch

    def acknowledge(self) -> None:
        """Acknowledge the batch: the database has it."""
        with self._turn:
            self._batch = None

    def close(self) -> None:
        """Release files and locks; remaining files are adopted by the next process."""
        with self._turn:
            self._end()
            if self._reading is not None:
                self._reading.close()
                self._reading = None
            remaining = {path.name.rpartition("-")[0] for path in self._files}
            for chain_id, lock in self._locks.items():
                if chain_id not in remaining:
                    self._lock_file(chain_id).unlink(missing_ok=True)
                os.close(lock)
            self._locks.clear()
            with suppress(OSError):  # not empty: has files of other processes
                self._directory.rmdir()

    def _adopt(self, chain_id: str) -> None:
        for path in sorted(self._directory.glob(f"{chain_id}-*.jsonl")):
            self._files.append(path)
            self._sizes[path] = path.stat().st_size

    def _begin(self, header: bytes) -> int:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._chain_id not in self._locks and not self._lock(self._chain_id):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(self._directory))
        self._number += 1
        path = self._directory / f"{self._chain_id}-{self._number:08}.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            _write(descriptor, header + b"\n")
        except OSError:  # each retry on a full disk would leave a file and a descriptor
            os.close(descriptor)
            path.unlink()
            raise
        self._files.append(path)
        self._sizes[path] = len(header) + 1
        return descriptor

    def _end(self) -> None:
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None

    def _read(self, file: BufferedReader, limit: int) -> list[Line]:
        lines: list[Line] = []
        while len(lines) < limit and (raw := file.readline()):
            try:
                written = _entry_decoder.decode(raw)
                hash_ = bytes.fromhex(written.hash)
            except (msgspec.DecodeError, ValueError):  # torn write of a killed process
                log.warning("audit_spool_torn", extra={"file": file.name, "bytes": len(raw)})
                continue
            text = raw.rstrip(b"\n")[:-_TAIL] + b"}"
            lines.append(Line(written.sequence, written.recorded_ts, hash_, text))
        return lines

    def _forget(self) -> None:
        """Delete the oldest file, which is in the database."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        path = self._files.pop(0)
        del self._sizes[path]
        path.unlink(missing_ok=True)

    def _lock(self, chain_id: str) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self._lock_file(chain_id), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # its process is alive
            os.close(descriptor)
            return False
        self._locks[chain_id] = descriptor
        return True

    def _lock_file(self, chain_id: str) -> Path:
        return self._directory / f"{chain_id}.lock"


def _write(descriptor: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
    os.fsync(descriptor)
