-- Tasks of agents that are served by A2A, their events, and the webhooks that these are sent to.

CREATE TABLE a2a_task_t (
    host_id            uuid NOT NULL,
    task_id            uuid NOT NULL DEFAULT gen_random_uuid(),
    agent              text COLLATE "C" NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    context_id         text COLLATE "C" NOT NULL,
    message_key        bytea NOT NULL,
    caller             jsonb NOT NULL,
    work               text NOT NULL CHECK (work IN ('queued', 'running', 'waiting', 'asking', 'ended')),
    state              text NOT NULL,
    task               bytea NOT NULL,
    number             integer NOT NULL DEFAULT 0,
    reply              bytea,
    run                text NOT NULL DEFAULT '',
    approval           uuid,
    cancel             boolean NOT NULL DEFAULT false,
    attempt            integer NOT NULL DEFAULT 0,
    node               text,
    lease_until        timestamptz,
    status_ts          timestamptz NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, task_id)
);
COMMENT ON COLUMN a2a_task_t.message_key IS 'SHA-256 of the first message';
COMMENT ON COLUMN a2a_task_t.caller IS 'its principal and toolset, without a token';
COMMENT ON COLUMN a2a_task_t.work IS 'waiting: for an approval; asking: for a message of the client';
COMMENT ON COLUMN a2a_task_t.state IS 'of A2A 1.0; the task has it, too';
COMMENT ON COLUMN a2a_task_t.task IS 'the task as JSON of A2A 1.0, after event number';
COMMENT ON COLUMN a2a_task_t.reply IS 'the message that was the answer, instead of a task';
COMMENT ON COLUMN a2a_task_t.run IS 'of the agent wing';
COMMENT ON COLUMN a2a_task_t.attempt IS 'grows with each process that takes it up';
CREATE INDEX a2a_task_list_idx ON a2a_task_t (host_id, owner, agent, status_ts DESC, task_id DESC);
CREATE INDEX a2a_task_message_idx ON a2a_task_t (host_id, owner, agent, message_key);
CREATE INDEX a2a_task_open_idx ON a2a_task_t (host_id, owner) WHERE work <> 'ended';
CREATE INDEX a2a_task_due_idx ON a2a_task_t (work, lease_until)
    WHERE work IN ('queued', 'running', 'waiting');
CREATE INDEX a2a_task_old_idx ON a2a_task_t (status_ts) WHERE work = 'ended';

CREATE TABLE a2a_event_t (
    host_id            uuid NOT NULL,
    task_id            uuid NOT NULL,
    number             integer NOT NULL,
    data               bytea NOT NULL,       -- StreamResponse as JSON of A2A 1.0
    PRIMARY KEY (host_id, task_id, number),
    FOREIGN KEY (host_id, task_id) REFERENCES a2a_task_t ON DELETE CASCADE
);

CREATE TABLE a2a_push_t (
    host_id            uuid NOT NULL,
    task_id            uuid NOT NULL,
    config_id          text COLLATE "C" NOT NULL,
    version            text NOT NULL,        -- of A2A, that its client spoke
    config             bytea NOT NULL,       -- with its credentials encrypted
    sent               integer NOT NULL,     -- events up to this number
    due_ts             timestamptz,          -- null: nothing is to be sent
    since_ts           timestamptz,          -- of the first attempt to send the next event
    attempt            integer NOT NULL DEFAULT 0,
    error              text NOT NULL DEFAULT '',
    fence              bigint NOT NULL DEFAULT 0,
    lease_ts           timestamptz,
    PRIMARY KEY (host_id, task_id, config_id),
    FOREIGN KEY (host_id, task_id) REFERENCES a2a_task_t ON DELETE CASCADE
);
CREATE INDEX a2a_push_due_idx ON a2a_push_t (due_ts) WHERE due_ts IS NOT NULL;
