"""One serving process: the gateway under uvicorn, with signal handling."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from msgspec import Struct

from config.document import SettingsError
from config.load import load
from config.logging import configure
from config.reload import needing_restart
from config.settings import Settings
from gateway.app import Gateway
from gateway.cli.common.output import out, remark
from schemas.errors import ToolgateError

GC_THRESHOLD = 20_000  # objects; the default of 700 is less than one batch allocates

log = logging.getLogger("toolgate.serve")

STOPPING = (signal.SIGINT, signal.SIGTERM)


class ServingProcess:
    """Lifecycle of one gateway process."""

    def __init__(
        self, settings: Settings, listener: socket.socket, config_file: str | None
    ) -> None:
        self._gateway = Gateway(settings)
        self._listener = listener
        self._config_file = config_file
        self._server = UvicornServer(self._uvicorn_config(settings), self._gateway)
        self._reload_asked = asyncio.Event()
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # ignored, as under nohup
        self._terminal = has_terminal() and not ignored

    async def run(self) -> str | None:
        """Serve until a signal; returns the reason if the gateway never became ready."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        logging.getLogger("uvicorn.error").addFilter(told_already)
        beside = [asyncio.create_task(self._announce()), asyncio.create_task(self._reloads())]
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            for task in beside:
                task.cancel()
        log.info("stopped")
        return self._gateway.feed.state.failure

    def _uvicorn_config(self, settings: Settings) -> uvicorn.Config:
        return uvicorn.Config(
            self._gateway.app(),
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

    async def _announce(self) -> None:
        """Print the address once the gateway is ready; stop it when it never will be."""
        feed = self._gateway.feed
        await feed.settled.wait()
        if feed.state.failure:
            self._server.should_exit = True
            return
        await self._server.listening.wait()
        gc.collect()
        gc.freeze()  # exempts current objects from garbage collection
        gc.set_threshold(GC_THRESHOLD)
        mcp, rpc = self._gateway.settings.mcp.path, self._gateway.settings.rpc.path
        base = address(self._listener)
        tools = len(self._gateway.catalogs.of(self._gateway.principal.tenant).tools)
        out.print(  # unbuffered, for a reader of the first line only
            f"Toolgate is ready: {base}{mcp}\n"
            f"{tools} tools · JSON-RPC at {base}{rpc} · 2024-11-05 clients at {base}{mcp}/sse"
        )
        if not tools:
            remark("Another terminal: toolgate import openapi YOUR-API.yaml --name api")

    def _hang_up(self) -> None:
        """SIGHUP: reload the settings; stop instead if the terminal was closed."""
        if self._terminal and not has_terminal():
            self._server.handle_exit(signal.SIGHUP, None)
        else:
            self._reload_asked.set()

    async def _reloads(self) -> None:
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            await self._reload()

    async def _reload(self) -> None:
        """Apply settings that need no restart; name those that need one."""
        try:
            settings = load(self._config_file, os.environ)
        except SettingsError as error:
            log.error("settings_rejected", extra={"reason": str(error)})
            return
        before = self._gateway.settings
        changed = [name for name in settings.__struct_fields__ if differs(before, settings, name)]
        try:
            await self._gateway.reconfigure(settings)
        except ToolgateError as error:  # a Python service fails to load; no change
            log.error("settings_rejected", extra={"reason": str(error)})
            return
        configure(settings.logging)
        log.info("settings_reloaded", extra={"changed": changed})
        if names := needing_restart(before, settings):
            log.warning("restart_needed", extra={"changed": names})


class UvicornServer(uvicorn.Server):
    """uvicorn, with streams that close on shutdown instead of delaying it."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            log.info("listening", extra={"url": address(listener)})
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
        if self.should_exit:
            log.warning("calls_cut_off", extra={"count": len(self.server_state.tasks)})
            for task in self.server_state.tasks:
                task.cancel()
            return
        log.info("stopping", extra={"signal": signal.Signals(sig).name})
        self._gateway.drain()
        super().handle_exit(sig, frame)


def told_already(record: logging.LogRecord) -> bool:
    """Log filter: drops uvicorn's traceback for every call that shutdown cancelled."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def differs(before: Struct, after: Struct, name: str) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def has_terminal() -> bool:
    """Whether there is a controlling terminal; false once it was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
