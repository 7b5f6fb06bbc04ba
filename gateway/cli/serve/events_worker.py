"""A gateway that serves no requests: `toolgate worker --events`.

It has the tools and their upstreams, so it runs invocations, and jobs and embeddings besides.
"""

import asyncio
import os
import signal

from msgspec.structs import replace

from config.settings import Settings
from gateway.app.gateway import Gateway
from gateway.cli.common.output import out
from gateway.state.background_tasks import wait_for_first

STOPPING = (signal.SIGINT, signal.SIGTERM)


async def run_events_worker(settings: Settings, workers: int | None) -> str | None:
    """Run until a signal; the reason if it never became ready. A second signal ends the process."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopped.is_set():
            os._exit(1)
        stopped.set()

    for number in STOPPING:
        loop.add_signal_handler(number, stop)
    gateway = Gateway(of_worker(settings, workers), has_network_clients=False)
    app = gateway.app()
    async with gateway.lifespan(app):
        await wait_for_first(gateway.feed.settled.wait(), stopped.wait())
        if (reason := gateway.feed.state.failure) is not None:
            return reason
        if not stopped.is_set():
            out.print("Worker is ready: events")
        await stopped.wait()
    return None


def of_worker(settings: Settings, workers: int | None) -> Settings:
    """The settings of a process that is there to work."""
    embedding, jobs, events = settings.embedding, settings.jobs, settings.events
    most = workers or max(embedding.workers, 1)
    return replace(
        settings,
        embedding=replace(embedding, workers=most),
        jobs=replace(jobs, concurrency=max(jobs.concurrency, 1)),
        events=replace(events, concurrency=max(events.concurrency, 1)),
    )
