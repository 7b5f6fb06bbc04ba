"""`toolgate costs`: sums as a table, and as CSV on its lines."""

import psycopg

from config.settings import DatabaseSettings
from tests.fixtures_database import HOST
from tests.gateway.cli.conftest import Toolgate


def test_costs_are_shown_and_exported(
    toolgate: Toolgate, database_settings: DatabaseSettings
) -> None:
    ran = toolgate("costs", "show")
    assert (ran.code, ran.out) == (0, ""), ran.err
    with psycopg.connect(database_settings.url) as connection:
        connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, 'x') ON CONFLICT DO NOTHING", [HOST]
        )
        connection.execute(
            "INSERT INTO cost_t VALUES (%s, (now() AT TIME ZONE 'UTC')::date, 'model', 'ada', '',"
            " 'a/m', 'USD', 1, 2, 3, 4500000)",
            [HOST],
        )
    shown = toolgate("costs", "show", "--by", "caller,model", "--since", "7d")
    assert shown.out.splitlines()[-1].split() == [
        "-", "ada", "-", "a/m", "1", "2", "3", "0", "0", "USD:", "4.5",
    ]  # fmt: skip
    exported = toolgate("costs", "export", "--by", "caller")
    titles, row = exported.out.splitlines()
    assert titles.startswith("caller,requests,input_tokens,")
    assert row == "ada,1,2,3,0,0,0,4.5"
