"""Who may do what: rules, decided, and approvals, asked for. Knows no transport."""
