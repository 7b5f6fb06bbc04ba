-- Runs of programs that wait for approvals, with the answers that their calls have had.

CREATE TABLE code_run_t (
    host_id     uuid NOT NULL,
    run_id      uuid NOT NULL,
    principal   text COLLATE "C" NOT NULL,
    state       text NOT NULL DEFAULT 'paused' CHECK (state IN ('paused', 'running')),
    record      bytea NOT NULL,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    expires_ts  timestamptz NOT NULL,
    PRIMARY KEY (host_id, run_id)
);
COMMENT ON COLUMN code_run_t.state IS
    'running: somebody goes on with it; a process that was killed leaves it so, and nobody repeats it';
COMMENT ON COLUMN code_run_t.record IS 'the program, and its answers in their order, as MessagePack';
CREATE INDEX code_run_owner_idx ON code_run_t (host_id, principal);
CREATE INDEX code_run_expiry_idx ON code_run_t (expires_ts);
