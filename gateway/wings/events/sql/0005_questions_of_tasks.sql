-- What the server of a tool asks the client of a task of MCP during its call, and the answers. A new
-- attempt finds the answers that former ones were given. An older gateway asks nothing.
CREATE TABLE invocation_question_t (
    host_id        uuid NOT NULL,
    invocation_id  uuid NOT NULL,
    question_key   text NOT NULL,
    principal_id   text NOT NULL,
    question       json NOT NULL,
    answer         json,
    asked_ts       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, invocation_id, question_key)
);
CREATE INDEX invocation_question_age_ix ON invocation_question_t (asked_ts);

COMMENT ON TABLE invocation_question_t IS 'Questions to the clients of tasks, until these have '
    'ended.';
COMMENT ON COLUMN invocation_question_t.question_key IS 'Equal for the same question of each '
    'attempt.';
COMMENT ON COLUMN invocation_question_t.question IS 'Parameters of elicitation/create.';
COMMENT ON COLUMN invocation_question_t.answer IS 'Its result. Null: nobody has answered.';
