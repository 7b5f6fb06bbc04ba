"""Authorization: policy rules and approvals. It knows no transport."""
