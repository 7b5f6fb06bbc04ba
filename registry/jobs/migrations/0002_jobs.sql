-- Jobs: long work of operations. Written by registry/jobs/store.py.

-- Without foreign keys: a tenant may have jobs before it has sources.
CREATE TABLE job_t (
    host_id            uuid NOT NULL,
    job_id             uuid NOT NULL DEFAULT gen_random_uuid(),
    operation          varchar(128) NOT NULL,
    principal_id       text NOT NULL,
    principal          json NOT NULL,
    request            json NOT NULL,
    once_key           bytea CHECK (length(once_key) = 32),
    lock               text NOT NULL DEFAULT '',
    state              varchar(16) NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'running', 'succeeded', 'failed', 'cancelled')),
    attempt            integer NOT NULL DEFAULT 0,
    failures           integer NOT NULL DEFAULT 0,
    queue_id           bigint,
    beat_ts            timestamptz NOT NULL DEFAULT current_timestamp,
    done               bigint NOT NULL DEFAULT 0,
    total              bigint,
    note               text NOT NULL DEFAULT '',
    result             json,
    problem            json,
    location           text NOT NULL DEFAULT '',
    cancel_ts          timestamptz,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    started_ts         timestamptz,
    ended_ts           timestamptz,
    PRIMARY KEY (host_id, job_id)
);
-- The queue has ids of jobs alone.
CREATE INDEX job_id_ix ON job_t (job_id);
CREATE INDEX job_host_ix ON job_t (host_id, created_ts, job_id);
CREATE UNIQUE INDEX job_once_ux ON job_t (host_id, once_key) WHERE state = 'waiting';
CREATE INDEX job_open_ix ON job_t (queue_id) WHERE ended_ts IS NULL;
CREATE INDEX job_ended_ix ON job_t (ended_ts) WHERE ended_ts IS NOT NULL;
COMMENT ON TABLE procrastinate_jobs IS 'Entries of the queue: which job starts next.';
COMMENT ON TABLE procrastinate_events IS 'What befell entries that are still there.';
COMMENT ON TABLE procrastinate_periodic_defers IS 'Ticks of schedules, so that none comes twice.';
COMMENT ON TABLE procrastinate_workers IS 'Processes that run jobs, and their last heartbeat.';
COMMENT ON TABLE job_t IS
    'Jobs, whose state this table has; procrastinate''s tables only say which one runs next.';
COMMENT ON COLUMN job_t.principal IS 'The caller, under whose identity the job runs.';
COMMENT ON COLUMN job_t.request IS
    'Parameters, decoded again when the job starts, and null once it has ended: documents are large, '
    'and URLs may have tokens. Like results it is json, not jsonb, which refuses some texts.';
COMMENT ON COLUMN job_t.once_key IS
    'SHA-256 of the request and its caller, where an equal one is not to wait twice.';
COMMENT ON COLUMN job_t.attempt IS
    'Number of starts. A worker writes only while it is the one that it drew, so that one which '
    'was taken for dead cannot disturb its successor.';
COMMENT ON COLUMN job_t.failures IS
    'Starts that failed or whose worker died; those that a shutdown ended do not count.';
COMMENT ON COLUMN job_t.queue_id IS 'procrastinate_jobs.id; that row goes when the job has ended.';
COMMENT ON COLUMN job_t.beat_ts IS
    'Last sign of life of the worker of a running job: without one for long, another takes it over.';
COMMENT ON COLUMN job_t.cancel_ts IS 'When the cancellation of a running job was requested.';
