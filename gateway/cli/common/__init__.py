"""Parts that commands share: options, output, failures, the way to the database."""
