-- Deliveries of a webhook, the newest first, without reading those of others.
CREATE INDEX outbox_webhook_ix ON outbox_t (host_id, target, seq) WHERE kind = 'webhook';
