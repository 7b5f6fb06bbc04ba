"""What happened: records, chained, written, kept when the database is away, read again."""
