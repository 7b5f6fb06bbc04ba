-- Conversations with the agent, their runs, and the steps of a run. A run is one message of a user
-- and what follows from it; its messages are folded from its steps. Steps are written once.

CREATE TABLE agent_conversation_t (
    host_id            uuid NOT NULL,
    conversation_id    uuid NOT NULL DEFAULT gen_random_uuid(),
    owner              text COLLATE "C" NOT NULL,
    title              text NOT NULL DEFAULT '',
    strategy           text NOT NULL DEFAULT '',
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    update_ts          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, conversation_id)
);
CREATE INDEX agent_conversation_owner_idx
    ON agent_conversation_t (host_id, owner, update_ts DESC, conversation_id);
CREATE INDEX agent_conversation_idle_idx ON agent_conversation_t (update_ts);

CREATE TABLE agent_run_t (
    host_id            uuid NOT NULL,
    run_id             uuid NOT NULL DEFAULT gen_random_uuid(),
    conversation_id    uuid NOT NULL,
    turn               bigint NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    caller             jsonb NOT NULL,       -- its principal and toolset, without a token
    content            text NOT NULL,        -- the user's message
    strategy           text NOT NULL,
    streams            boolean NOT NULL,     -- PROGRESSIVE; else FINAL_ONLY
    history            jsonb NOT NULL DEFAULT '[]',  -- messages before, of a client that keeps them
    state              text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running',
        'waiting', 'completed', 'failed', 'cancelled', 'exhausted')),
    stopped            text NOT NULL DEFAULT '',   -- why a run ended, if not by an answer
    error              text NOT NULL DEFAULT '',
    answer             text NOT NULL DEFAULT '',
    approvals          uuid[] NOT NULL DEFAULT '{}',  -- what it waits for
    cancel             boolean NOT NULL DEFAULT false,
    attempt            integer NOT NULL DEFAULT 0,    -- grows with each process that takes it up
    node               text,
    lease_until        timestamptz,          -- of a run that waits: when its approvals have expired
    iterations         integer NOT NULL DEFAULT 0,
    tokens             bigint NOT NULL DEFAULT 0,
    money              double precision NOT NULL DEFAULT 0,
    seconds            double precision NOT NULL DEFAULT 0,
    calls              bigint NOT NULL DEFAULT 0,
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    update_ts          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, run_id),
    FOREIGN KEY (host_id, conversation_id) REFERENCES agent_conversation_t ON DELETE CASCADE,
    UNIQUE (host_id, conversation_id, turn)
);
-- one run of a conversation at a time
CREATE UNIQUE INDEX agent_run_active_idx ON agent_run_t (host_id, conversation_id)
    WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX agent_run_open_idx ON agent_run_t (host_id, owner)
    WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX agent_run_due_idx ON agent_run_t (state, lease_until)
    WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX agent_run_approvals_idx ON agent_run_t USING gin (approvals)
    WITH (fastupdate = off) WHERE state = 'waiting';
CREATE INDEX agent_run_owner_idx ON agent_run_t (host_id, owner, created_ts);

CREATE TABLE agent_step_t (
    host_id            uuid NOT NULL,
    run_id             uuid NOT NULL,
    number             integer NOT NULL,
    kind               text NOT NULL,
    data               bytea NOT NULL,       -- JSON, verbatim: signatures of providers cover it
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, run_id, number),
    FOREIGN KEY (host_id, run_id) REFERENCES agent_run_t ON DELETE CASCADE
);

-- What the runs of an owner used on a day (UTC). It outlives conversations: budgets count what was
-- deleted, too.
CREATE TABLE agent_usage_t (
    host_id            uuid NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    day                date NOT NULL,
    tokens             bigint NOT NULL,
    money              double precision NOT NULL,
    seconds            double precision NOT NULL,
    calls              bigint NOT NULL,
    PRIMARY KEY (host_id, owner, day)
);
CREATE INDEX agent_usage_day_idx ON agent_usage_t (day);

-- Traffic with providers, for `agent.transcripts`.
CREATE TABLE agent_exchange_t (
    host_id            uuid NOT NULL,
    run_id             uuid NOT NULL,
    number             bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    data               bytea NOT NULL,
    PRIMARY KEY (host_id, run_id, number),
    FOREIGN KEY (host_id, run_id) REFERENCES agent_run_t ON DELETE CASCADE
);
