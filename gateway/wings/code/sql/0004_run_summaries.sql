-- What a list shows of a run, beside its program and its answers, which are large.

ALTER TABLE code_run_t
    ADD COLUMN tool     text NOT NULL DEFAULT '',
    ADD COLUMN calls    integer NOT NULL DEFAULT 0,
    ADD COLUMN outcome  text NOT NULL DEFAULT '';
COMMENT ON COLUMN code_run_t.tool IS 'that runs it; empty: of an older gateway';
COMMENT ON COLUMN code_run_t.calls IS 'that it had made when it was last stored';
COMMENT ON COLUMN code_run_t.outcome IS 'of one that has ended: completed, failed';
