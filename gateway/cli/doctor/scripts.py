"""The checks of `toolgate doctor` for functions and scripts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from config.settings import Scripts
from gateway.cli.doctor.local import Check
from gateway.functions import load_function
from gateway.upstreams.sandbox.runs import Sandbox
from schemas.binding import Language, ScriptBinding
from schemas.errors import ToolgateError
from schemas.tool import Tool


def functions(targets: Mapping[str, str]) -> Iterator[Check]:
    """Whether each function of the settings can be loaded."""
    for name, target in targets.items():
        try:
            function = load_function(target)
        except ToolgateError as error:
            yield Check("function", "failed", f"{name}: {error}")
            continue
        takes = "" if function.schema else "; its annotations do not say what it takes"
        yield Check("function", "ok", f"{name}: {target}{takes}")


def unused_scripts(settings: Scripts, tools: Sequence[Tool]) -> Iterator[Check]:
    """Tools that nobody is shown, because scripts are switched off."""
    count = sum(isinstance(tool.binding, ScriptBinding) for tool in tools)
    if count and not settings.enabled:
        some = "1 script tool" if count == 1 else f"{count} script tools"
        yield Check("scripts", "warning", f"{some}, scripts are off (scripts.enabled)")


async def scripts(settings: Scripts) -> list[Check]:
    """Whether scripts can be run here, and safely; nothing where they are switched off."""
    if not settings.enabled:
        return []
    sandbox = Sandbox(lambda: settings)
    checks = []
    for language in get_args(Language):
        missing = await sandbox.missing(language)
        told = f"{language} {missing or 'runs in a sandbox'}"
        checks.append(Check("scripts", "warning" if missing else "ok", told))
    return checks
