"""Commands of access control: tokens, keys, policy, approvals, secrets."""
