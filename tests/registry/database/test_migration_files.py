"""Migrations of main are never edited: a database that has one refuses to start with another."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[3]
RECORDS = Path(__file__).with_name("migrations.sha256")  # as sha256sum writes them


def test_migrations_do_not_change() -> None:
    """A change is a new migration, recorded here by `sha256sum FILE >> migrations.sha256`."""
    recorded = {path: digest for digest, path in map(str.split, RECORDS.read_text().splitlines())}
    present = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("registry", "gateway")
        for path in sorted((ROOT / folder).rglob("[0-9][0-9][0-9][0-9]_*.sql"))
    }
    assert present == recorded
