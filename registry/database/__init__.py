"""The PostgreSQL database: embedded server, pool, migrations, rows, tenants."""
