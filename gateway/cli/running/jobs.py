"""`toolgate jobs`: jobs of a running gateway."""

import asyncio
from typing import Any

import click

from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.lazy import import_later
from gateway.cli.common.output import err, print_json
from gateway.cli.common.text import one_line
from gateway.cli.running.client import OperationClient, RunningGateway, gateway_option

POLL_S = 0.5

progress_bar = import_later("gateway.cli.common.progress:progress_bar")  # few commands have jobs

Json = dict[str, Any]


@click.command()
@click.argument("job")
@gateway_option
def wait(gateway: RunningGateway, *, job: str) -> None:
    """Wait for the end of a job and print it as JSON.

    The command fails if the job failed. Ctrl-C stops waiting; the job continues.
    """
    finish(run(wait_for_job(gateway, job)))


async def wait_for_job(
    gateway: OperationClient,
    job: str,
    *,
    cancels: bool = False,
    names: tuple[str, str] = ("getJob", "cancelJob"),
) -> Json:
    """The job after its end, with its progress on standard error. `cancels`: an interrupt cancels
    it. `names`: of the operations that show and cancel it."""
    try:
        with progress_bar() as bar:
            task, last_progress = bar.add_task(job, total=None), ""
            while True:
                job_view: Json = (await gateway.call(names[0], {"job": job})).value
                if "ended" in job_view:
                    return job_view
                bar.update(task, completed=job_view.get("done", 0), total=job_view.get("total"))
                if not err.is_terminal and last_progress != (last_progress := _progress(job_view)):
                    err.print(one_line(f"{job_view['state']} {last_progress}"))
                await asyncio.sleep(POLL_S)
    except asyncio.CancelledError:
        if cancels:
            await gateway.call(names[1], {"job": job})
        raise


def finish(job: Json) -> None:
    """Print an ended job; fail if the job failed."""
    print_json(job)
    if job["state"] == "failed":
        fail(one_line(job.get("problem", {}).get("detail", "the job failed")))


def _progress(job: Json) -> str:
    """The progress of a job, such as `3/10 pets`."""
    done, total = job.get("done", 0), job.get("total")
    counted = f"{done}/{total}" if total is not None else str(done) if done else ""
    return " ".join(filter(None, (counted, job.get("note", ""))))
