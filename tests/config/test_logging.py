"""One line per event, for people or for machines."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from config.load import load
from config.logging import configure
from config.settings import LoggingSettings

NAMES = (None, "toolgate", "uvicorn")
log = logging.getLogger("toolgate.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = list(root.handlers), [logging.getLogger(name).level for name in NAMES]
    yield
    root.handlers[:] = handlers
    for name, level in zip(NAMES, levels, strict=True):
        logging.getLogger(name).setLevel(level)


def settings(*, level: str = "info", form: str = "auto", access: bool = False) -> LoggingSettings:
    env = {
        "TOOLGATE_LOGGING__LEVEL": level,
        "TOOLGATE_LOGGING__FORMAT": form,
        "TOOLGATE_LOGGING__ACCESS": str(access),
    }
    return load(None, env).logging


def test_a_machine_reads_one_object_a_line() -> None:
    stream = io.StringIO()
    configure(settings(), stream)
    log.info("tool called", extra={"request_id": "r-1", "tool": "listPets", "seconds": 0.5})
    log.warning("upstream answered", extra={"status": 503, "where": {"a": [1]}})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("ts").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "toolgate.test",
        "event": "tool called",
        "request_id": "r-1",
        "tool": "listPets",
        "seconds": 0.5,
    }
    assert (second["level"], second["status"], second["where"]) == ("warning", 503, {"a": [1]})


def test_a_person_reads_the_event_then_its_keys() -> None:
    stream = io.StringIO()
    configure(settings(form="console"), stream)
    log.info("tool called", extra={"request_id": "r-1", "tool": "list pets", "note": 'a"b\n'})
    (line,) = stream.getvalue().splitlines()
    time, rest = line.split(" ", 1)
    assert len(time) == len("12:30:01")
    assert rest == r'info    tool called request_id=r-1 tool="list pets" note="a\"b\n"'


def test_a_terminal_gets_colours_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Terminal()
    configure(settings(), coloured)
    log.info("started")
    assert coloured.getvalue().endswith("\x1b[32minfo    \x1b[0mstarted\n")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    configure(settings(), plain)
    log.info("started")
    assert plain.getvalue().endswith(" info    started\n")


@pytest.mark.parametrize("form", ["console", "json"])
def test_values_with_secret_names_are_masked(form: str) -> None:
    stream = io.StringIO()
    configure(settings(form=form), stream)
    log.info("x", extra={"access_token": "hunter2", "Authorization": "hunter2", "tokens": 12})
    assert "hunter2" not in stream.getvalue()
    assert "12" in stream.getvalue()


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_event_is_one_line_despite_line_breaks(form: str) -> None:
    stream = io.StringIO()
    configure(settings(form=form), stream)
    log.info("a\nforged line\x1b[31m")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_comes_with_its_traceback(form: str) -> None:
    stream = io.StringIO()
    configure(settings(form=form), stream)
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("failed")
    assert "ValueError: wrong" in stream.getvalue()
    assert 'raise ValueError("wrong")' in stream.getvalue().replace("\\", "")


def test_the_level_applies_to_our_loggers_and_foreign_loggers_stay_quiet() -> None:
    stream = io.StringIO()
    configure(settings(level="warning", form="console"), stream)
    log.info("hidden")
    logging.getLogger("uvicorn.error").info("Uvicorn running")
    logging.getLogger("someone.else").info("chatter")
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("error   Task exception was never retrieved")


def test_configuring_again_replaces_earlier_handlers() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(settings(), first)
    configure(settings(level="debug"), second)
    log.debug("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1
