"""One serving process: the gateway under uvicorn, with signal handling."""

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import anyio
import msgspec
import uvicorn
from msgspec import Struct
from prometheus_client.openmetrics.exposition import generate_latest
from starlette.types import ASGIApp

from config.load import load
from config.logging import configure
from config.reload import needing_restart
from config.settings import Settings
from config.yaml_document import SettingsError
from gateway.admin.resources.status import Restarted
from gateway.admin.worker_peers import Answers
from gateway.app.gateway import Gateway
from gateway.cli.common.output import out, remark
from gateway.cli.common.tls import ListenerCertificate
from gateway.cli.serve.lightrag_port import LightRagPort, lightrag_listener
from gateway.cli.serve.worker_channel import WorkerLink, of_worker
from gateway.state.background_tasks import wait_for_first
from schemas.errors import ToolgateError

GC_THRESHOLD = 20_000  # objects; the default of 700 is less than one batch allocates

log = logging.getLogger("toolgate.serve")

READY_PIPE = "GATEWAY_READY_FD"  # environment of a replacement: to tell that it is ready
QUIET_LOOKS = 5  # until what was accepted has its protocol, and what was read its call
LOOKS, LOOK_EVERY_S = 250, 0.02  # for requests on connections that were accepted just before

EXAMINE_S = 60.0

STOPPING = (signal.SIGINT, signal.SIGTERM)

Client = Callable[[], Awaitable[None]]
"""Carries the messages of the client that started the process, until it ends."""


class ServingProcess:
    """Lifecycle of one gateway process."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        config_file: str | None,
        *,
        link: WorkerLink | None = None,
        client: Client | None = None,
    ) -> None:
        """`link`: to the supervisor, of one of several workers; `client`: the only one, whose end
        ends the process."""
        self._link = link
        self._client = client
        settings = self._own(settings)
        tls = settings.server.tls
        self._certificate = ListenerCertificate(tls) if tls.cert and client is None else None
        siblings = link.siblings if link else None
        self._gateway = Gateway(settings, siblings, has_network_clients=client is None)
        self._gateway.restart = self._restart
        self._gateway.examine = self._examine
        self._listener = listener
        bare = lightrag_listener(settings.knowledge, listener)
        self._listeners = [listener] if bare is None else [listener, bare]
        self._config_file = config_file
        uvicorn_config = self._uvicorn_config(settings)
        self._server = UvicornServer(uvicorn_config, self._gateway, link is not None)
        self._reload_asked = asyncio.Event()
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # ignored, as under nohup
        self._terminal = link is None and has_terminal() and not ignored

    async def run(self) -> str | None:
        """Serve until a signal; returns the reason if the gateway never became ready."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # of a worker that was forked
        logging.getLogger("uvicorn.error").addFilter(not_cancelled)
        beside = [asyncio.create_task(self._announce()), asyncio.create_task(self._reloads())]
        if self._link is not None:
            beside.append(asyncio.create_task(self._link.run(self._answers())))
            siblings = self._link.siblings
            breaker = self._gateway.access.bounds.breaker
            breaker.changed.subscribe(lambda place, state: siblings.tell(state, place))
        try:
            await self._server.serve(sockets=self._listeners)
        finally:
            for task in beside:
                task.cancel()
        log.info("stopped")
        return self._gateway.feed.state.failure

    def _own(self, settings: Settings) -> Settings:
        """The settings of this process."""
        return settings if self._link is None else of_worker(settings, self._link)

    def _answers(self) -> Answers:
        """Figures of this worker for the others."""
        gateway, breaker = self._gateway, self._gateway.access.bounds.breaker

        def follow(state: str, place: str) -> bytes:
            breaker.follow(place, state)
            return b""

        return {
            "status": lambda _: gateway.health.status.encode(),
            "figures": lambda _: gateway.console.figures.own_counts() if gateway.console else b"",
            "metrics": lambda _: generate_latest(gateway.metrics.registry),
            "open": partial(follow, "open"),
            "closed": partial(follow, "closed"),
        }

    def _uvicorn_config(self, settings: Settings) -> uvicorn.Config:
        app: ASGIApp = self._gateway.app()
        if len(self._listeners) > 1:
            port = self._listeners[1].getsockname()[1]
            app = LightRagPort(app, port, settings.knowledge.lightrag.collection)
        config = uvicorn.Config(
            app,
            http=self._gateway.access.bounds.protocol(),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # our own has the request id
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(settings.server.keep_alive_s),
            timeout_graceful_shutdown=int(settings.server.drain_s) or 1,
        )
        config.load()
        config.ssl = None if self._certificate is None else self._certificate.context
        return config

    async def _announce(self) -> None:
        """Print the address once the gateway is ready; stop it when it never will be."""
        feed = self._gateway.feed
        await feed.settled.wait()
        if feed.state.failure:
            self._server.should_exit = True
            return
        await self._server.listening.wait()
        if self._client is None:
            await self._gateway.wait_for_wings()
        gc.collect()
        gc.freeze()  # exempts current objects from garbage collection
        gc.set_threshold(GC_THRESHOLD)
        tools = len(self._gateway.catalogs.of(self._gateway.principal.tenant).tools)
        if self._link is not None:
            self._link.ready(tools)
        elif self._client is not None:
            await self._attend(self._client)
        else:
            announce(self._gateway.settings, self._listener, tools)

    async def _attend(self, client: Client) -> None:
        """Serve the only client, and end the process after it."""
        try:
            await client()
        except Exception:  # the end of a task: nothing else would tell
            log.exception("client_failed")
        self._server.handle_exit(signal.SIGTERM, None)

    def _hang_up(self) -> None:
        """SIGHUP: reload the settings; stop instead if the terminal was closed."""
        if self._terminal and not has_terminal():
            if not self._server.stopping:  # shell and kernel both tell
                self._server.handle_exit(signal.SIGHUP, None)
        else:
            self._reload_asked.set()

    async def _examine(self) -> Sequence[Mapping[str, str]]:
        """The checks of `toolgate doctor`, in a process of their own, as a user would run it."""
        file = ["--config", str(self._config_file)] if self._config_file else []
        command = [sys.executable, "-m", "gateway", "doctor", "--json", *file]
        try:
            with anyio.fail_after(EXAMINE_S):
                done = await anyio.run_process(command, check=False, stderr=subprocess.DEVNULL)
            return msgspec.json.decode(done.stdout, type=list[dict[str, str]])
        except (TimeoutError, OSError, msgspec.MsgspecError) as error:
            log.warning("doctor_failed", extra={"reason": type(error).__name__})
            return ()

    def _restart(self) -> Restarted:
        """Have the supervisor start the program anew; a single process reads its settings anew. As
        process 1 of a container the supervisor does not begin anew, either."""
        if self._link is None:
            self._reload_asked.set()
            return Restarted("settings")
        supervisor = os.getppid()
        first = supervisor == 1
        os.kill(supervisor, signal.SIGHUP if first else signal.SIGUSR2)
        return Restarted("settings" if first else "program")

    async def _reloads(self) -> None:
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            await self._reload()

    async def _reload(self) -> None:
        """Apply settings that need no restart; name those that need one."""
        try:
            settings = self._own(load(self._config_file, os.environ))
        except SettingsError as error:
            log.error("settings_rejected", extra={"reason": str(error)})
            return
        if self._link is not None:
            self._link.siblings.resize(settings.server.processes)
        before = self._gateway.settings
        changed = [name for name in settings.__struct_fields__ if differs(before, settings, name)]
        try:
            if self._certificate is not None:
                self._certificate.reload()
            await self._gateway.reconfigure(settings)
        except ToolgateError as error:  # a certificate or a Python service fails to load
            log.error("settings_rejected", extra={"reason": str(error)})
            return
        configure(settings.logging)
        log.info("settings_reloaded", extra={"changed": changed})
        if names := needing_restart(before, settings):
            log.warning("restart_required", extra={"changed": names})


def announce(settings: Settings, listener: socket.socket, tools: int) -> None:
    """Print the addresses, unbuffered, for a reader of the first line only, and have the program
    that this one replaces drain."""
    mcp, rpc = settings.mcp.path, settings.rpc.path
    base = address(listener, tls=bool(settings.server.tls.cert))
    workers = settings.server.processes
    served = f" · {workers} workers" if workers > 1 else ""
    out.print(
        f"Toolgate is ready: {base}{mcp}\n"
        f"{tools} tools · JSON-RPC at {base}{rpc} · 2024-11-05 clients at {base}{mcp}/sse{served}"
    )
    if settings.console.enabled:
        out.print(f"Console: {base}{settings.console.path}")
    if not tools:
        remark("Another terminal: toolgate import openapi YOUR-API.yaml --name api")
    if pipe := os.environ.pop(READY_PIPE, ""):
        with suppress(OSError):  # it may have gone
            os.write(int(pipe), b"\n")
        os.close(int(pipe))


class UvicornServer(uvicorn.Server):
    """uvicorn, with streams that close on shutdown instead of delaying it.

    One of several workers listens only while it can serve, so that connections reach the others:
    from when its catalog is loaded until it is to stop.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway, one_of_several: bool) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._one_of_several = one_of_several
        self._leaving: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self.listening = asyncio.Event()

    @property
    def stopping(self) -> bool:
        return self._stopped.is_set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self._one_of_several:
            await wait_for_first(self._gateway.feed.settled.wait(), self._stopped.wait())
        if not self.should_exit:
            await self._listen(sockets or [])
        for listener in sockets or ():
            url = address(listener, tls=self.config.ssl is not None)
            log.info("listening", extra={"url": url})
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Overrides uvicorn's, which re-raises the signal: exit code 143 for a clean stop."""
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in STOPPING:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Graceful shutdown; on a second signal, cancel what still runs."""
        if self._stopped.is_set():
            log.warning("calls_aborted", extra={"count": len(self.server_state.tasks)})
            for task in self.server_state.tasks:
                task.cancel()
            return
        log.info("stopping", extra={"signal": signal.Signals(sig).name})
        self._stopped.set()
        if self._one_of_several:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(sig, frame))
        else:
            self._drain(sig, frame)

    async def _leave(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting, serve the connections whose request is still to come, then drain."""
        for server in self.servers:
            server.close()
        quiet = 0  # looks in a row without a new connection
        for _ in range(LOOKS):
            is_new = any(map(_is_new, self.server_state.connections))
            quiet = 0 if is_new else quiet + 1
            if quiet > QUIET_LOOKS:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        self._drain(sig, frame)

    def _drain(self, sig: int, frame: FrameType | None) -> None:
        self._gateway.drain()
        super().handle_exit(sig, frame)

    async def _listen(self, sockets: list[socket.socket]) -> None:
        """Startup of uvicorn, with a limit for handshakes of TLS."""
        loop, config = asyncio.get_running_loop(), self.config
        timeout_s = self._gateway.settings.limits.header_timeout_s if config.ssl else None

        def protocol() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        for listener in sockets:
            server = await loop.create_server(
                protocol,
                sock=listener,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=timeout_s,
            )
            self.servers.append(server)


def _is_new(connection: object) -> bool:
    """Whether a connection of uvicorn has had no request yet."""
    return getattr(connection, "cycle", None) is None


def not_cancelled(record: logging.LogRecord) -> bool:
    """Log filter: drops uvicorn's traceback for every call that shutdown cancelled."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def differs(before: Struct, after: Struct, name: str) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def address(listener: socket.socket, *, tls: bool = False) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def has_terminal() -> bool:
    """Whether there is a controlling terminal; false once it was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
