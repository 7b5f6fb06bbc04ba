"""`toolgate completion`: completion for the shell in use."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "fish", "zsh")


@click.command(short_help="Complete commands in your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands and options of toolgate.

    \b
    To have it in every new shell:
      bash  echo 'eval "$(toolgate completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(toolgate completion zsh)"' >> ~/.zshrc
      fish  toolgate completion fish > ~/.config/fish/completions/toolgate.fish
    """
    writer = get_completion_class(shell)
    if writer is None:
        raise click.UsageError(f"{shell} is not known to this version of click")
    click.echo(writer(ctx.find_root().command, {}, "toolgate", "_TOOLGATE_COMPLETE").source())
