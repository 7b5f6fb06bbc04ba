"""Authorization: policy rules and approvals. Knows no transport."""
