"""Parts that commands share: options, output, failures, database access."""
