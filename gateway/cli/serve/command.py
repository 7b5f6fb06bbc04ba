"""`toolgate serve`: the gateway in the foreground, as one process or as a supervisor of several."""

import asyncio
import logging
import os
import resource
import socket
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import IO

import click
import uvloop

from config.load import load
from config.logging import configure
from config.settings import Settings
from config.yaml_document import SettingsError
from gateway.cli.common.failure import NO_DATABASE, USAGE, CommandFailure, fail
from gateway.cli.common.options import CONFIG_FILE
from gateway.cli.common.settings import settings_option
from gateway.cli.running.connect import carry, key_of_client, own_streams
from gateway.cli.serve.exposure import ANY_AUDIENCE, OPEN, check_exposure, takes_any_audience
from gateway.cli.serve.process import Client, ServingProcess
from gateway.cli.serve.supervisor import Supervisor, inherited_listener
from gateway.cli.serve.worker_channel import MODEL, WorkerLink, serve_model
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.serve")

BACKLOG = 2048


@click.command()
@click.option("--host", help="Address to listen on [default: server.host].")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="TCP port, 0 for a free one [default: server.port].",
)
@click.option(
    "--workers",
    metavar="N|auto",
    help="Worker processes; auto: one for each CPU core [default: server.workers].",
)
@click.option(
    "--stdio", is_flag=True, help="Serve one client on standard input and output instead."
)
@click.option(
    "--key-file",
    metavar="FILE",
    type=click.File("r"),
    help="With --stdio: file with the client's API key or token.",
)
@settings_option
@click.pass_context
def serve(
    ctx: click.Context,
    settings: Settings,
    host: str | None,
    port: int | None,
    workers: str | None,
    stdio: bool,
    key_file: IO[str] | None,
) -> None:
    """Serve the tools to MCP clients and over JSON-RPC, until Ctrl-C.

    The first line on standard output is the address, printed as soon as calls are answered; the
    log goes to standard error. /health, /ready and /metrics answer earlier.

    \b
    SIGTERM, Ctrl-C  let running calls finish (server.drain_s), then stop;
                     Ctrl-C again stops at once
    SIGHUP           reads the settings and the files with keys again: sources,
                     toolsets, profiles, policy, guardrails, limits, upstream and
                     logging change without a restart, and so does the certificate
                     in the files of server.tls; the log names what does not, and
                     a file with a mistake changes nothing
    SIGUSR2          with several workers: starts the program anew on the same
                     port, as after an update, then drains the old workers

    \b
    Examples:
      toolgate serve --port 9000
      toolgate serve --workers auto
      toolgate serve --stdio              as an MCP client's configuration has it
      TOOLGATE_DATABASE__URL=postgresql://db.example.com/toolgate toolgate serve
    """
    if stdio:
        if host or port is not None or workers:
            fail("--stdio serves one client and listens nowhere: leave the others out", USAGE)
        key = _client_key(settings, key_file)
        serve_stdio(_with_workers("1", ctx.meta[CONFIG_FILE]), ctx.meta[CONFIG_FILE], key)
        return
    if key_file is not None:
        fail("--key-file is for --stdio: clients of a network send their own keys", USAGE)
    if workers is not None:
        settings = _with_workers(workers, ctx.meta[CONFIG_FILE])
    host = host or settings.server.host
    check_exposure(host, settings.auth)
    listener = inherited_listener() or _listen(host, settings.server.port if port is None else port)
    configure(settings.logging)
    if settings.server.processes == 1:
        _serve(settings, listener, ctx.meta[CONFIG_FILE])
    else:
        _prepare(settings)
        work = partial(_work, listener, ctx.meta[CONFIG_FILE])
        ctx.exit(Supervisor(settings, listener, ctx.meta[CONFIG_FILE], work).run())


def _client_key(settings: Settings, key_file: IO[str] | None) -> str | None:
    """The key or token of the client of --stdio."""
    if settings.auth.mode != "none" and key_file is None:
        fail(
            f"auth.mode is {settings.auth.mode}: name the client's API key or token with "
            "--key-file, or set auth.mode: none for a client that may do everything",
            USAGE,
        )
    return key_of_client(key_file)


def serve_stdio(settings: Settings, config_file: str | None, key: str | None) -> None:
    """Serve one client on standard input and output, by way of a private socket."""
    streams = own_streams()
    configure(settings.logging)
    with tempfile.TemporaryDirectory(prefix="toolgate-stdio-") as directory:  # ours alone
        path = str(Path(directory) / "gateway.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(BACKLOG)

        async def client() -> None:
            url = f"http://localhost{settings.mcp.path}"
            await carry(url, streams, key=key, socket=path)

        _serve(settings, listener, config_file, client=client)


def _with_workers(workers: str, config_file: str | None) -> Settings:
    """The settings with `--workers`, also for all later loads in this process."""
    os.environ["TOOLGATE_SERVER__WORKERS"] = workers
    try:
        return load(config_file, os.environ)
    except SettingsError as error:
        fail(str(error), USAGE)


def _work(
    listener: socket.socket, config_file: str | None, settings: Settings, link: WorkerLink
) -> int:
    """Serve as one of several workers; returns the exit code."""
    if link.slot == MODEL:
        listener.close()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_model(settings, link))
        return 0
    try:
        _serve(settings, listener, config_file, link)
    except CommandFailure as failure:
        failure.show()
        return failure.exit_code
    return 0


def _serve(
    settings: Settings,
    listener: socket.socket,
    config_file: str | None,
    link: WorkerLink | None = None,
    client: Client | None = None,
) -> None:
    try:
        serving = ServingProcess(settings, listener, config_file, link=link, client=client)
    except ToolgateError as error:  # of a file that the settings name
        listener.close()
        fail(str(error), USAGE)
    if link is None:
        _prepare(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        failure = runner.run(serving.run())
    if failure:
        fail(failure, NO_DATABASE)
    _leave_threads_behind()


def _leave_threads_behind() -> None:
    """Exit without joining threads: actions there cannot be cancelled, and might never end."""
    threads = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if any(not thread.daemon for thread in threads):
        log.warning("python_calls_aborted", extra={"threads": len(threads)})
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it responses take 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        fail(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}. "
            "Is a gateway running already? Choose another port with --port or server.port "
            "(0 takes a free one)"
        )
    listener.set_inheritable(False)
    return listener


def _prepare(settings: Settings) -> None:
    """Warn of what is open to more than it should be, and raise the limit of open files, which
    workers inherit."""
    if settings.auth.mode == "none" and settings.auth.allow_public:
        log.warning("gateway_unauthenticated", extra={"hint": OPEN})
    if takes_any_audience(settings.auth):
        log.warning("token_audience_unchecked", extra={"hint": ANY_AUDIENCE})
    _raise_file_limit()


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: streams and connections need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.info("open_file_limit_raised", extra={"before": soft, "now": hard})
