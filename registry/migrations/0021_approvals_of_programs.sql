-- Approvals of calls that a program makes: several together, and uses that an approver has granted.

ALTER TABLE approval_t
    ADD COLUMN run_id uuid,
    ADD COLUMN code_digest bytea,
    ADD COLUMN program jsonb;
COMMENT ON COLUMN approval_t.run_id IS
    'The run of a program whose calls these are: see approval_call_t. NULL: a call by itself.';
COMMENT ON COLUMN approval_t.code_digest IS 'SHA-256 of the program that approvers are shown.';
COMMENT ON COLUMN approval_t.program IS 'For display: the program, and the calls that it has made.';

CREATE TABLE approval_call_t (
    host_id      uuid NOT NULL,
    approval_id  uuid NOT NULL,
    place        integer NOT NULL,

    tool_id      uuid NOT NULL,
    tool         text NOT NULL,
    source       text NOT NULL,
    definition   text NOT NULL,
    arguments    text NOT NULL DEFAULT '{}',

    number       integer,
    digest       char(64),
    most         integer NOT NULL DEFAULT 1,
    uses         integer NOT NULL DEFAULT 0,
    expire_ts    timestamptz,
    PRIMARY KEY (host_id, approval_id, place),
    FOREIGN KEY (host_id, approval_id) REFERENCES approval_t ON DELETE CASCADE,
    CHECK ((number IS NULL) = (digest IS NULL) AND (number IS NULL) = (expire_ts IS NOT NULL))
);
CREATE INDEX approval_run_ix ON approval_t (host_id, run_id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE approval_call_t IS
    'The calls of an approval of a program; and grants, of any calls of a tool in its run.';
COMMENT ON COLUMN approval_call_t.definition IS 'Digest of the tool at that time.';
COMMENT ON COLUMN approval_call_t.arguments IS 'For display: masked, and truncated where long.';
COMMENT ON COLUMN approval_call_t.number IS 'Of the call in its run; NULL: a grant.';
COMMENT ON COLUMN approval_call_t.most IS 'Uses that a grant allows until expire_ts.';
