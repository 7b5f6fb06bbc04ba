-- Tenants with completions to be sent, and the first of each, without reading those of others.
CREATE INDEX outbox_tenant_ix ON outbox_t (host_id, due_ts) WHERE status = 'PENDING';
