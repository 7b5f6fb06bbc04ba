"""What `make clean` runs first: removes what the examples left behind, and names it.

That is their databases, each in a directory of its own, which `database.instance` names, with the
audit records beside it that waited for the database.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml
from msgspec.structs import replace

from config.load import load
from registry.database.embedded_server import directory_of, is_running

EXAMPLES = Path(__file__).resolve().parent


def main() -> None:
    for directory in directories():
        if is_running(directory):
            print(f"left: {directory}, whose database runs")
            continue
        for path in (directory, directory.with_name(f"{directory.name}-audit")):
            if path.exists():
                shutil.rmtree(path)
                print(f"removed: {path}")


def directories() -> Iterator[Path]:
    """The data directories of the examples."""
    usual = load(str(EXAMPLES / "petshop" / "toolgate.yaml"), {}).database
    for file in sorted(EXAMPLES.glob("*/toolgate.yaml")):
        instance = yaml.safe_load(file.read_text(encoding="utf-8"))["database"]["instance"]
        yield directory_of(replace(usual, data_dir="", instance=instance))


if __name__ == "__main__":
    main()
