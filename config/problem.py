"""Problems of settings, with human-readable messages that name the correction."""

from collections.abc import Callable
from dataclasses import dataclass

from schemas.errors import ToolgateError

KeyPath = tuple[str, ...]  # ("server", "port")
Where = Callable[..., str]  # location of the first of these key paths that is not at its default


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `where` is file:line or the name of an environment variable."""

    where: str
    path: str  # server.port; "" for the whole file
    text: str  # "expected a TCP port from 0 to 65535, found 99999"
    suggestion: str | None = None  # the name that was probably meant

    def __str__(self) -> str:
        subject = f"{self.where}: {self.path}" if self.path else self.where
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{subject}: {self.text}{hint}"


class SettingsError(ToolgateError):
    """The settings cannot be used. Lists every problem that was found; shows no secret."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join([f"{count} in the settings:", *map(str, problems)]))


def dotted(path: KeyPath) -> str:
    return ".".join(path)
