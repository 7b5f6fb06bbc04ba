"""Groups that load a command when it is used; until then a name and a summary stand for it."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click

Commands = Mapping[str, tuple[str, str]]  # name -> "module:attribute", summary


class LazyGroup(click.Group):
    """Help and completion need no command's module, and each command only its own imports."""

    def __init__(self, *args: Any, lazy: Commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._targets = {name: target for name, (target, _) in lazy.items()}
        for name, (_, summary) in lazy.items():
            self.add_command(click.Command(name, short_help=summary))

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order in which a newcomer needs them, not in that of the alphabet."""
        return list(self._targets)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self._targets:
            return args[0], self.load(args[0]), args[1:]
        if not args[0].startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(args[0].lower(), self._targets, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> click.Command:
        module, _, attribute = self._targets[name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
