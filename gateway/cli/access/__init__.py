"""Commands about callers: tokens, keys, policy, approvals, secrets."""
