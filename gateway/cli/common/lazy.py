"""Click groups with lazy loading: until a command is used, a name and a summary stand for it."""

import gc
import importlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, partial
from typing import Any

import click

from gateway.cli.common.failure import USAGE, fail, with_example

NO_ALIASES: Mapping[str, str] = {}
UNWRITABLE = (
    "expected arguments, variables and files in UTF-8, and no half of a surrogate pair in them"
)
Commands = Mapping[str, tuple[str, str]]  # name -> "module:attribute", summary


class Group(click.Group):
    """Suggests commands for unknown ones, and shows examples beside mistakes."""

    aliases: Mapping[str, str] = NO_ALIASES  # of other programs; to the command to suggest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if ctx.parent is not None:
                raise
            raise with_example(error) from error
        except UnicodeEncodeError as error:
            unwritable = error.object[error.start]
            if not "\ud800" <= unwritable <= "\udfff":
                raise  # such as of a terminal that has few characters
            # The text itself may be a secret.
            fail(f"{ascii(unwritable)[1:-1]} in a text is no character: {UNWRITABLE}", USAGE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word, commands = args[0], self.list_commands(ctx)
        if word in commands or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if word == "help":
            return self._help(ctx, args[1:])
        alias = self.aliases.get(word.lower())
        near = [alias] if alias else get_close_matches(word.lower(), commands, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(commands)}."
        raise click.UsageError(f"There is no command {word!r}. {hint}", ctx)

    def _help(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Handles `help` and `help COMMAND`."""
        if not args:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return self.resolve_command(ctx, [*args, "--help"])


class LazyGroup(Group):
    """Lazy imports: help and completion import no command's module, a command only its own."""

    def __init__(
        self, *args: Any, lazy: Commands, aliases: Mapping[str, str] = NO_ALIASES, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = aliases
        self._targets = {name: target for name, (target, _) in lazy.items()}
        for name, (_, summary) in lazy.items():
            self.add_command(click.Command(name, short_help=summary))

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In definition order, which suits newcomers, instead of alphabetically."""
        return list(self._targets)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self._targets:
            return args[0], self.load(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> click.Command:
        command: click.Command = load(self._targets[name])
        return command


def load(target: str) -> Any:
    """The attribute of a module, "module:attribute"."""
    module, _, attribute = target.partition(":")
    # Imports leave no garbage, and looking for it takes an eighth of the time of `serve`; so would
    # the first collection after them.
    gc.disable()
    try:
        return getattr(importlib.import_module(module), attribute)
    finally:
        gc.freeze()
        gc.enable()


def import_later(target: str) -> Callable[..., Any]:
    """A function that is imported at its first call, and not again: `load` would exempt what the
    process holds by then from collection."""
    function = cache(partial(load, target))
    return lambda *args, **named: function()(*args, **named)
