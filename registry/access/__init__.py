"""Access data in the registry: keys, policies, approvals, revocations, secrets."""
