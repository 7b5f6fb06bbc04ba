"""`toolgate code run`: a program over tools, at a running gateway."""

from pathlib import Path
from typing import IO, Any

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED
from gateway.cli.common.options import json_option
from gateway.cli.common.output import err, note, print_json, print_rows, say
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import gateway_options, running_gateway

ROOT = "/code/v1"
COLUMNS = ("run", "tool", "state", "calls", "pending", "started")


@click.command(name="run")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--writing", is_flag=True, help="Let it call tools that change something.")
@click.option("--time", "time_s", type=float, metavar="SECONDS", help="Most seconds.")
@click.option("--calls", type=click.IntRange(1), metavar="N", help="Most calls.")
@json_option
@gateway_options(key_required=False)
@settings_option
def run_file(
    settings: Settings,
    *,
    file: IO[str],
    writing: bool,
    time_s: float | None,
    calls: int | None,
    as_json: bool,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Run a program over tools.

    FILE is the program (-: standard input), whose calls of tools are yours. It is JavaScript if its
    name ends in .js, else Python.

    Its output and its result are printed; an error, with the calls that were made, goes to standard
    error.

    \b
    Example:
      echo 'len(tools.listPets(limit=50)["pets"])' | toolgate code run -
    """
    limits: dict[str, Any] = {"time_s": time_s, "calls": calls}
    if Path(file.name).suffix in (".js", ".mjs"):
        limits["language"] = "javascript"
    request = {"code": file.read(), **{name: value for name, value in limits.items() if value}}
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    end = run(gateway.call("code_run_writing" if writing else "code_run", request)).value
    if as_json:
        print_json(end)
    else:
        _print_end(end)
    if end["state"] == "failed":
        raise click.exceptions.Exit(FAILED)


@click.command(name="runs")
@json_option
@gateway_options(key_required=False)
@settings_option
def list_runs(
    settings: Settings, *, as_json: bool, key_file: IO[str] | None, url: str | None
) -> None:
    """List your runs of programs that wait, or go on after a failure.

    \b
    Example:
      toolgate code runs
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    listed = run(gateway.call("code_list_runs", {})).value
    if as_json:
        print_json(listed)
    elif listed["runs"]:
        print_rows(COLUMNS, [[str(entry[name]) for name in COLUMNS] for entry in listed["runs"]])
    else:
        note("There are no runs.")


def _print_end(end: dict[str, Any]) -> None:
    if "output" in end:
        say(end["output"].removesuffix("\n"))
    if end.get("result") is not None:
        print_json(end["result"])
    if end["state"] in ("paused", "running"):
        state = "waits for an approval" if end["state"] == "paused" else "goes on"
        err.print(f"The run {end['run']} {state}; toolgate code runs lists it.", highlight=False)
    if end["state"] == "failed":
        call_texts = [
            f"{call['tool']} ({'ok' if call['ok'] else 'failed'})" for call in end.get("calls", ())
        ]
        calls = f"\nCalls: {', '.join(call_texts)}" if call_texts else ""
        err.print(f"{end['error']}{calls}", markup=False, highlight=False)
