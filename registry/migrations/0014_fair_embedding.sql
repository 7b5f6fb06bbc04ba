-- Tenants take turns in the queue of texts: a worker finds the tenants of a kind, and the first due
-- tasks of each, without reading those of others. Older workers go by the index that was there.
CREATE INDEX embedding_task_tenant_ix
    ON embedding_task_t (entity_type, host_id, next_attempt_ts, task_id);
