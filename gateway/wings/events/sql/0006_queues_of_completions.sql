-- Completions that wait, in a queue for each webhook and one for all others, so that a claim passes
-- over the rows of webhooks that have no free place. Nothing looks for them by time alone any more.
CREATE INDEX outbox_queue_ix
    ON outbox_t (host_id, (CASE kind WHEN 'webhook' THEN target ELSE '' END), due_ts)
    WHERE status = 'PENDING';
DROP INDEX outbox_due_ix;
