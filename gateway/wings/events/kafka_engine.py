"""Kafka as wake-ups and as topics: the journal decides, Kafka only says what is new.

Completions go to the topics of the settings, and commands come from one of them, if there is a
principal to make their calls for. Ids of what was accepted go to a topic that every gateway
follows from its end. Whatever Kafka loses of these is found by polling the journal.
"""

import importlib
import logging
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from gzip import BadGzipFile
from traceback import walk_tb
from typing import Any

import anyio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch

from config.events import EventKafka
from gateway.wings.events.wakeups import Work
from registry.database.postgres import is_uuid
from schemas.cloudevents import CLOUD_EVENT
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.events")

RETRY_S = 1.0
SEND_S = 10.0  # longest wait for the broker to have an event
AWAY = (KafkaError, OSError, TimeoutError)
UNREADABLE = (UnsupportedCodecError, BadGzipFile)  # of AWAY, but the record's fault
STEP_MS = 1000  # longest wait for a record of one partition
XERIAL = b"\x82SNAPPY\0"  # begins a stream of blocks
LATER = frozenset({408, 425, 429, 502, 503, 504})  # statuses of commands that wait for the gateway

Handle = Callable[[AIOKafkaConsumer, "ConsumerRecord[Any, Any]"], Awaitable[None]]
Take = Callable[[Mapping[str, str], bytes], Awaitable[tuple[int, str]]]
"""Takes a command, by the headers and the body of its event: a status of HTTP, and the reason of a
refusal."""


class BatchTooLarge(ValueError):
    """A batch of records that unpacks to more than events.kafka.batch_bytes."""


def bound_unpacking(limit_bytes: int) -> None:
    """Have aiokafka unpack batches up to a limit, which it has none of: a megabyte becomes a
    gigabyte. It has no seam for that but the names that its readers of batches call."""
    unpack: Mapping[str, Callable[[bytes, int], bytes]] = {
        "gzip_decode": _unpack_gzip,
        "snappy_decode": _unpack_snappy,
        "lz4_decode": partial(_unpack_frames, "lz4"),
        "zstd_decode": partial(_unpack_frames, "zstd"),
    }
    for reader in (DefaultRecordBatch, LegacyRecordBatch):
        names = vars(importlib.import_module(reader.__module__))
        for name in unpack.keys() & names.keys():
            names[name] = partial(_call_bounded, unpack[name], limit_bytes)


def _call_bounded(
    unpack: Callable[[bytes, int], bytes], limit_bytes: int, payload: bytes | memoryview
) -> bytes:
    return unpack(bytes(payload), limit_bytes)


def _too_large(limit_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"a batch unpacks to more than {limit_bytes} bytes (events.kafka.batch_bytes)"
    )


def _unpack_gzip(payload: bytes, limit_bytes: int) -> bytes:
    unpacked = bytearray()
    while payload:  # members, one behind the other
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            unpacked += member.decompress(payload, limit_bytes + 1 - len(unpacked))
        except zlib.error as error:
            raise BadGzipFile(str(error)) from error
        if len(unpacked) > limit_bytes:
            raise _too_large(limit_bytes)
        if not member.eof:
            raise BadGzipFile("the batch ends within its gzip")
        payload = member.unused_data
    return bytes(unpacked)


def _cramjam() -> Any:
    """The optional library that aiokafka has for all codecs but gzip."""
    return importlib.import_module("cramjam")


def _unpack_snappy(payload: bytes, limit_bytes: int) -> bytes:
    """Blocks of snappy, each of which begins with its unpacked size."""
    snappy, unpacked = _cramjam().snappy, bytearray()
    for block in _snappy_blocks(payload):
        try:
            size = snappy.decompress_raw_len(block)
            if len(unpacked) + size > limit_bytes:
                raise _too_large(limit_bytes)
            unpacked += bytes(snappy.decompress_raw(block))
        except _cramjam().DecompressionError as error:
            raise BadGzipFile(str(error)) from error
    return bytes(unpacked)


def _snappy_blocks(payload: bytes) -> Iterator[bytes]:
    """The blocks of the stream that the Java library writes (xerial), or the only one."""
    if not payload.startswith(XERIAL):
        yield payload
        return
    start = len(XERIAL) + 8  # two versions
    while start < len(payload):
        end = start + 4 + int.from_bytes(payload[start : start + 4], "big")
        yield payload[start + 4 : end]
        start = end


def _unpack_frames(codec: str, payload: bytes, limit_bytes: int) -> bytes:
    """Frames of lz4 or zstd, in memory of a size that is settled before."""
    cramjam, unpacked = _cramjam(), bytearray(limit_bytes)
    try:
        size = getattr(cramjam, codec).decompress_into(payload, unpacked)
    except cramjam.DecompressionError as error:
        if "write whole buffer" in str(error):
            raise _too_large(limit_bytes) from error
        raise BadGzipFile(str(error)) from error
    return bytes(memoryview(unpacked)[:size])


def _offset_behind(error: Exception, offset: int) -> int:
    """The offset behind what cannot be read. Of a batch that cannot be unpacked no record can be,
    and each of them would cost as much again: its end stands in a frame of aiokafka's reader."""
    if isinstance(error, BatchTooLarge | UnsupportedCodecError | BadGzipFile):
        for frame, _ in walk_tb(error.__traceback__):
            batch = frame.f_locals.get("next_batch")
            if batch is not None:
                return max(offset + 1, int(batch.next_offset))
    return offset + 1


class KafkaEngine:
    def __init__(self, settings: EventKafka, *, attempts: int, work: Work, take: Take) -> None:
        """`attempts`: of a command that ends in an internal error."""
        bound_unpacking(settings.batch_bytes)
        self._settings = settings
        self._attempts = attempts
        self._accepted = f"{settings.group}-invocations"  # topic
        self._work = work
        self._take = take
        self._producer: AIOKafkaProducer | None = None  # None: not connected
        self._unsent: list[tuple[str, str]] = []
        self._wake = anyio.Event()

    @property
    def _options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "bootstrap_servers": ",".join(settings.servers),
            "security_protocol": settings.security,
            "ssl_context": ssl.create_default_context() if "SSL" in settings.security else None,
            "sasl_mechanism": settings.mechanism,
            "sasl_plain_username": settings.username or None,
            "sasl_plain_password": settings.password or None,
        }

    def announce(self, host_id: str, invocation_id: str) -> None:
        """Tell workers soon. Called after the commit."""
        self._unsent.append((host_id, invocation_id))
        self._wake.set()

    async def publish(self, host_id: str, topic: str, event: bytes) -> None:
        """Append an event to a topic; those of a tenant stay in order. Raises Unavailable."""
        kind = [("content-type", CLOUD_EVENT.encode())]
        await self._append(topic, event, host_id.encode(), kind)

    async def _append(
        self, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        if self._producer is None:
            raise Unavailable("Kafka does not answer")
        try:
            with anyio.fail_after(SEND_S):
                await self._producer.send_and_wait(topic, value, key=key, headers=headers)
        except AWAY as error:
            raise Unavailable("Kafka does not answer") from error

    async def send(self) -> None:
        """Send what was accepted, until cancelled; what fails is found by polling."""
        while True:
            producer = AIOKafkaProducer(acks="all", **self._options)
            try:
                await producer.start()
                self._producer = producer
                await self._send_to(producer)
            except AWAY:
                log.warning("kafka_unavailable", extra={"unsent": len(self._unsent)})
                await anyio.sleep(RETRY_S)
            finally:
                self._producer = None
                await _stop(producer)

    async def _send_to(self, producer: AIOKafkaProducer) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            entries, self._unsent = self._unsent, []
            for host_id, id_ in entries:
                await producer.send(self._accepted, id_.encode(), key=host_id.encode())
            with anyio.fail_after(SEND_S):
                await producer.flush()

    async def read(self) -> None:
        """Wake for what others have accepted, and take commands, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, self._accepted, {}, self._on_wakeup)
            if self._settings.principal:  # one gateway reads each, and goes on where another was
                options = {"group_id": self._settings.group, "auto_offset_reset": "earliest"}
                group.start_soon(self._read, self._settings.commands, options, self._take_command)

    async def _read(self, topic: str, more: Mapping[str, str], handle: Handle) -> None:
        while True:
            consumer = AIOKafkaConsumer(topic, enable_auto_commit=False, **more, **self._options)
            try:
                await consumer.start()
                self._work("")  # anything may have come before
                while True:
                    try:
                        record = await consumer.getone()
                    except Exception as error:
                        if _is_away(error):
                            raise
                        await self._step_over(consumer, handle)
                    else:
                        await handle(consumer, record)
            except AWAY as error:
                extra = {"topic": topic, "reason": str(error)[:300]}
                log.warning("kafka_unavailable", extra=extra)
                await anyio.sleep(RETRY_S)
            finally:
                await _stop(consumer)

    async def _step_over(self, consumer: AIOKafkaConsumer, handle: Handle) -> None:
        """Pass over what cannot be read, which would come first again for ever: one record, or a
        batch that cannot be unpacked. Its partition is the one that cannot be read alone."""
        for partition in sorted(consumer.assignment()):
            offset = await consumer.position(partition)
            try:
                records = await consumer.getmany(partition, timeout_ms=STEP_MS, max_records=1)
            except Exception as error:
                if _is_away(error):
                    raise
                extra = {"topic": partition.topic, "offset": offset, "reason": str(error)[:300]}
                log.warning("record_unreadable", extra=extra)
                consumer.seek(partition, _offset_behind(error, offset))
            else:
                for record in records.get(partition, ()):
                    await handle(consumer, record)

    async def _on_wakeup(
        self, _consumer: AIOKafkaConsumer, record: "ConsumerRecord[Any, Any]"
    ) -> None:
        host_id = (record.key or b"").decode(errors="replace")
        if is_uuid(host_id):
            self._work(host_id)

    async def _take_command(
        self, consumer: AIOKafkaConsumer, record: "ConsumerRecord[Any, Any]"
    ) -> None:
        """Take a command, before those that follow it. It is committed when it is in the journal,
        or among the dead letters."""
        if (reason := await self._refusal(record)) is not None:
            extra = {"topic": record.topic, "offset": record.offset, "reason": reason[:300]}
            log.warning("command_refused", extra=extra)
            await self._bury(record, reason)
        await consumer.commit()

    async def _refusal(self, record: "ConsumerRecord[Any, Any]") -> str | None:
        """The reason why a command cannot be taken; None: it was. One that has to wait for the
        gateway comes again until it need not."""
        headers = {
            name.lower().replace("ce_", "ce-", 1): (value or b"").decode(errors="replace")
            for name, value in record.headers
        }
        failures = 0
        while True:
            try:
                status, reason = await self._take(headers, record.value or b"")
            except Exception:  # it would come again first of all, for ever
                log.exception("command_failed")
                status, reason = 500, "Internal error"
            if status < 400:
                return None
            failures += status >= 500 and status not in LATER
            if status not in LATER and (status < 500 or failures >= self._attempts):
                return reason
            await anyio.sleep(RETRY_S)

    async def _bury(self, record: "ConsumerRecord[Any, Any]", reason: str) -> None:
        """Append a refused command to the topic of dead letters, as it came, with the reason. Of
        one that is too large with it, key and reason are kept."""
        topic, value = self._settings.dead_letters, record.value or b""
        headers = [(name, value or b"") for name, value in record.headers]
        why = ("toolgate-reason", reason[:1000].encode(errors="replace"))
        while topic:
            try:
                await self._append(topic, value, record.key, [*headers, why])
            except Unavailable as error:
                if isinstance(error.__cause__, MessageSizeTooLargeError) and (value or headers):
                    value, headers = b"", []
                    continue
                log.warning("dead_letter_pending", extra={"topic": topic, "offset": record.offset})
                await anyio.sleep(RETRY_S)
            else:
                break

    async def close(self) -> None:
        """Nothing is to be closed: connections end with the tasks."""


def _is_away(error: Exception) -> bool:
    """Whether it is the broker's; others are aiokafka's for bytes that it cannot read, of any type,
    as for a header's name that is no UTF-8."""
    return isinstance(error, AWAY) and not isinstance(error, UNREADABLE)


async def _stop(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(SEND_S):
        await client.stop()
