-- Shapes of answers to calls of programs, of tools that describe none, for who has had them.

CREATE TABLE code_shape_t (
    host_id     uuid NOT NULL,
    principal   text COLLATE "C" NOT NULL,
    tool_id     text COLLATE "C" NOT NULL,
    digest      text NOT NULL,
    shape       bytea NOT NULL,
    updated_ts  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, principal, tool_id)
);
COMMENT ON COLUMN code_shape_t.digest IS 'that of the tool: a changed tool is learned anew';
COMMENT ON COLUMN code_shape_t.shape IS 'a JSON Schema without values';
