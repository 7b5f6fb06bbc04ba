"""Clusters that are copied, beside those that `initdb` makes."""

import sys
from pathlib import Path

import psycopg
import pytest

from registry.database.embedded_server import Embedded
from tests.clusters import without_copies
from tests.fixtures_database import Cluster, settings_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="clusters are copied on Linux only")

SYSTEM = "SELECT system_identifier FROM pg_control_system()"


def system_identifier(url: str) -> int:
    with psycopg.connect(url) as connection:
        [identifier] = connection.execute(SYSTEM).fetchone() or ()
    return int(identifier)


def cluster_files(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, user and group of each file, by its path."""
    return {
        str(path.relative_to(folder)): (state.st_mode, state.st_uid, state.st_gid)
        for path in [folder, *folder.rglob("*")]
        for state in [path.stat()]
        if path.parent.name != "pg_wal" and path.suffix not in {".opts", ".pid"}
    }


def test_a_copy_has_the_files_of_a_new_cluster(scratch: Path) -> None:
    (scratch / "clusters").mkdir()
    copied, made = (settings_for(scratch / "clusters" / name) for name in ("copied", "made"))
    Embedded(copied)._initialise()
    with without_copies():
        Embedded(made)._initialise()
    assert cluster_files(Embedded(copied)._directory.cluster) == cluster_files(
        Embedded(made)._directory.cluster
    )


def test_servers_of_copies_differ_from_that_of_the_session(scratch: Path, cluster: Cluster) -> None:
    embedded = Embedded.start(settings_for(scratch / "another"))
    try:
        assert system_identifier(embedded.url) != system_identifier(cluster.url("postgres"))
    finally:
        embedded.stop()


def test_a_refused_option_is_named_by_initdb(scratch: Path) -> None:
    installation = Embedded(settings_for(scratch / "refused"))._installation
    done = installation.run(
        "initdb", "--pgdata", str(scratch / "none"), "--encoding", "UTF9", timeout_s=60
    )
    assert (done.returncode, "UTF9" in done.stdout) == (1, True)
