-- Runs that go on by themselves, at any gateway: after a decision, and when their process has died.

DELETE FROM code_run_t;  -- of gateways that stored them otherwise
ALTER TABLE code_run_t
    DROP CONSTRAINT code_run_t_state_check,
    ADD CONSTRAINT code_run_t_state_check
        CHECK (state IN ('paused', 'running', 'waiting', 'ended')),  -- paused: of older gateways
    ADD COLUMN caller       bytea,
    ADD COLUMN fence        bigint NOT NULL DEFAULT 0,
    ADD COLUMN lease_ts     timestamptz,
    ADD COLUMN failures     integer NOT NULL DEFAULT 0,
    ADD COLUMN cancel       boolean NOT NULL DEFAULT false,
    ADD COLUMN approval_id  uuid,
    ADD COLUMN pending      bytea NOT NULL DEFAULT '',
    ADD COLUMN result       bytea NOT NULL DEFAULT '';
COMMENT ON COLUMN code_run_t.state IS
    'running: a process goes on with it, until lease_ts; waiting: for approval_id; ended: with result';
COMMENT ON COLUMN code_run_t.record IS 'the program, as MessagePack';
COMMENT ON COLUMN code_run_t.caller IS 'whose calls the run makes, as JSON, without a token';
COMMENT ON COLUMN code_run_t.failures IS 'times that its process died';
COMMENT ON COLUMN code_run_t.pending IS 'the calls that wait, as MessagePack';
COMMENT ON COLUMN code_run_t.result IS 'what its caller is answered, as JSON';
CREATE INDEX code_run_lease_idx ON code_run_t (lease_ts) WHERE state = 'running';
CREATE INDEX code_run_approval_idx ON code_run_t (host_id, approval_id) WHERE state = 'waiting';

CREATE TABLE code_run_step_t (
    host_id  uuid NOT NULL,
    run_id   uuid NOT NULL,
    step_id  bigint GENERATED ALWAYS AS IDENTITY,
    steps    bytea NOT NULL,
    PRIMARY KEY (host_id, run_id, step_id),
    FOREIGN KEY (host_id, run_id) REFERENCES code_run_t ON DELETE CASCADE
);
COMMENT ON TABLE code_run_step_t IS
    'Calls that runs have begun and answers that they have had, in their order, as MessagePack.';
