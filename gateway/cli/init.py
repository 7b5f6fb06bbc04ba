"""`toolgate init`: a settings file to begin with."""

from pathlib import Path

import click

from gateway.cli.common.failure import fail

USUAL = Path("toolgate.yaml")
STARTER = """\
# Toolgate settings. Every key is optional; `toolgate config show` prints what is in effect.
# ${NAME} and ${NAME:-default} take values from the environment.

server:
  port: 8765

# "embedded" needs nothing installed; or name a PostgreSQL 16+ with pgvector:
# database:
#   url: postgresql://toolgate:${DB_PASSWORD}@db.example.com/toolgate

# APIs to serve, by a name of your choice. They are imported when the gateway starts.
sources: {}
#  petshop:
#    openapi: petshop.yaml                   # path or URL of the OpenAPI description
#    base_url: https://petshop.example.com   # where calls go
#    credentials:                            # by the names of its security schemes
#      api_key: {value: "${PETSHOP_KEY}"}
#    headers:                                # sent with every call
#      X-Client: toolgate
#    exclude: ["tag:internal", "DELETE *"]
"""


@click.command()
@click.argument("path", default=USUAL, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(path: Path, force: bool) -> None:
    """Write a commented settings file to PATH [default: toolgate.yaml].

    Nothing needs one: all settings have defaults.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        fail(f"{path} exists already; use --force to overwrite it")
    except OSError as error:
        fail(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
    option = "" if path == USUAL else f" -c {path}"
    click.echo(f"Wrote {path}. Name your APIs in it, then: toolgate serve{option}")
    click.echo(f"Or import one now: toolgate import openapi YOUR-API.yaml --name api{option}")
