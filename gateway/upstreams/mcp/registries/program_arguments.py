"""Arguments of a server.json as elements of a command line: no shell sees them, none is split.

Arguments of a runtime (docker, npx) reach beyond the program: those that are not known to be
harmless are refused unless they are allowed by name.
"""

from collections.abc import Collection, Iterator, Sequence

from gateway.upstreams.mcp.registries.server_inputs import Inputs, Value
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import Argument, NamedArgument

# Of docker run: flags that take nothing from the machine. Mounts, devices, privileges, networks,
# environment files and all others are refused, and of npx and uvx all but --yes: their -i and -w
# name an index and a further package.
_PLAIN = frozenset({"-i", "--interactive", "--rm", "--init", "--read-only"})
_YES = frozenset({"-y", "--yes"})
_WITH_VALUE = frozenset(
    {"--cap-drop", "--cpus", "-m", "--memory", "--pids-limit", "--platform", "-u", "--user"}
    | {"-w", "--workdir"}
)
_ENVIRONMENT = frozenset({"-e", "--env"})
DEFAULTS = frozenset({"-i", "--interactive", "--rm", *_YES})  # always given


class Arguments:
    """Arguments of runtimes. Variables that they set become environment, which is not visible in
    lists of processes."""

    def __init__(self, inputs: Inputs, allow: Collection[str]) -> None:
        self._inputs = inputs
        self._allow = allow
        self.environment: dict[str, Value] = {}

    @property
    def allow(self) -> Collection[str]:
        return self._allow

    def of_runtime(self, arguments: Sequence[Argument], *, in_container: bool) -> tuple[str, ...]:
        """Raises ImportRejected for one that is not allowed."""
        values = [part for each in arguments for part in _parts(self._inputs, each)]
        words: list[str] = []
        at = 0
        while at < len(values):
            flag, equals, text = values[at].text.partition("=")
            after = values[at + 1] if at + 1 < len(values) else None
            follows = not equals and after is not None and not after.text.startswith("-")
            if in_container and flag in _ENVIRONMENT:
                self._set_variable(flag, Value(text, values[at].is_secret) if equals else after)
                at += 1 if equals else 2
                continue
            takes = self._takes(flag, in_container=in_container)
            _check_open(values[at], flag)
            words.append(values[at].text)
            if takes and follows and after is not None:
                _check_open(after, flag)
                words.append(after.text)
                at += 1
            at += 1
        return tuple(word for word in words if word not in DEFAULTS)

    def _takes(self, flag: str, *, in_container: bool) -> bool:
        """Whether a value may follow the flag. Raises ImportRejected for one that is refused."""
        if flag in (_PLAIN if in_container else _YES):
            return False
        if in_container and flag in _WITH_VALUE:
            return True
        if flag.startswith("-") and flag in self._allow:
            return True
        raise ImportRejected(
            f"It asks its runtime for {flag[:100]!r}, which may reach beyond the program: refused "
            f"unless it is allowed, as by --allow={flag[:100]}."
        )

    def _set_variable(self, flag: str, value: Value | None) -> None:
        name, equals, text = (value.text if value else "").partition("=")
        if not equals:
            raise ImportRejected(f"{flag}: expected NAME=value, found {name[:100]!r}.")
        self.environment[name] = Value(text, value is not None and value.is_secret)


def program_arguments(inputs: Inputs, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """The arguments of the program itself. Raises ImportRejected for secrets, which others of the
    machine would see."""
    values = [part for each in arguments for part in _parts(inputs, each)]
    for value in values:
        _check_open(value, "an argument")
    return tuple(value.text for value in values)


def _parts(inputs: Inputs, argument: Argument) -> Iterator[Value]:
    """One element for a positional argument; for a named one its flag, and its value if any."""
    if not isinstance(argument, NamedArgument):
        name = argument.value_hint or "argument"
        value = inputs.read(name, argument, f"argument {name}")
        yield from () if value is None else (value,)
        return
    flag, where = argument.name, f"argument {argument.name}"
    if not flag.startswith("-") or any(
        letter.isspace() or not letter.isprintable() for letter in flag
    ):
        raise ImportRejected(f"{flag[:100]!r} is no flag of a command.")
    is_bare = argument.value is None and not _is_asked(argument)
    value = None if is_bare else inputs.read(flag.lstrip("-") or flag, argument, where)
    if is_bare or value is not None:
        yield Value(flag)
    if value is not None:
        yield value


def _is_asked(argument: NamedArgument) -> bool:
    """Whether a flag takes a value: one that nothing describes stands alone."""
    facts = (argument.default, argument.choices, argument.placeholder, argument.is_secret)
    return (
        any(facts)
        or argument.is_required
        or argument.format != "string"
        or (bool(argument.description))
    )


def _check_open(value: Value, where: str) -> None:
    if value.is_secret:
        raise ImportRejected(
            f"{where} has a secret in it, which everyone on the machine could read in the list of "
            "processes: not supported."
        )
