-- Answers of models to parts of questions, runs of research with their steps, and what of the
-- documents was shown to models.

CREATE TABLE librarian_answer_t (
    host_id            uuid NOT NULL,
    key                bytea NOT NULL,      -- SHA-256 of model, parameters, prompt and texts
    collections        text[] COLLATE "C" NOT NULL,  -- that it comes from
    answer             text NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    used_ts            timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, key)
);

CREATE TABLE librarian_run_t (
    host_id            uuid NOT NULL,
    run_id             uuid NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    question           text NOT NULL,
    collections        text[] COLLATE "C" NOT NULL,
    request            bytea NOT NULL,      -- JSON
    state              text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'completed',
        'incomplete', 'cancelled', 'failed')),
    result             bytea,               -- JSON
    seconds            double precision NOT NULL DEFAULT 0,  -- of work, in all processes
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    update_ts          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, run_id)
);
CREATE INDEX librarian_run_owner_ix ON librarian_run_t (host_id, owner, created_ts);

CREATE TABLE librarian_step_t (
    host_id            uuid NOT NULL,
    run_id             uuid NOT NULL,
    node               text COLLATE "C" NOT NULL,  -- '': the root; '7.': the child that step 7 began
    seq                integer NOT NULL,
    kind               text NOT NULL,
    digest             text NOT NULL,       -- of what was asked
    request            text NOT NULL,       -- its beginning
    answer             bytea,               -- JSON; NULL: it has begun
    tokens             bigint NOT NULL DEFAULT 0,  -- the most that it may take, until it has ended
    cost               double precision NOT NULL DEFAULT 0,
    ms                 integer NOT NULL DEFAULT 0,
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, run_id, node, seq),
    FOREIGN KEY (host_id, run_id) REFERENCES librarian_run_t ON DELETE CASCADE
);

CREATE TABLE librarian_question_t (
    host_id            uuid NOT NULL,
    question_id        uuid NOT NULL DEFAULT gen_random_uuid(),
    created_ts         timestamptz NOT NULL DEFAULT clock_timestamp(),
    principal          text COLLATE "C" NOT NULL,
    operation          text NOT NULL,
    request_id         text NOT NULL,       -- as in the audit log
    question           text NOT NULL,
    collections        text[] COLLATE "C" NOT NULL,
    model              text NOT NULL,       -- strategy; '': none
    shown              bytea NOT NULL,      -- JSON: places that a model was shown
    PRIMARY KEY (host_id, question_id)
);
CREATE INDEX librarian_question_ix ON librarian_question_t (host_id, created_ts);
