"""Audit log: hash-chained records, batched writes, a disk spool for outages, queries, checks."""
