-- What gateways share that serve the same clients (`state.backend: postgres`).
--
-- Streams, nodes and counters are UNLOGGED: they are written for every message and matter for
-- minutes. A crash of the database empties them, and clients then get an error for what they come
-- back to, as after any long absence. Sessions and the secret are written seldom and would be
-- missed: clients had to begin again, and what they carry could not be opened any more.

CREATE UNLOGGED TABLE state_stream_t (
    stream             text PRIMARY KEY,
    born               bigint NOT NULL
        DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    last               bigint NOT NULL DEFAULT 1,
    update_ts          timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
COMMENT ON TABLE state_stream_t IS
    'The head of a stream of events. Whoever appends holds its row until the commit, so that '
    'events become visible in the order of their numbers.';
COMMENT ON COLUMN state_stream_t.born IS
    'Microseconds since 1970: ids go on growing when a stream is forgotten and begins again.';
COMMENT ON COLUMN state_stream_t.last IS 'Number of the newest event.';

CREATE UNLOGGED TABLE state_event_t (
    stream             text NOT NULL,
    born               bigint NOT NULL,
    n                  bigint NOT NULL,
    data               bytea NOT NULL,
    PRIMARY KEY (stream, born, n)
);
-- It lives for minutes and is read about once: compressing it costs more than it saves.
ALTER TABLE state_event_t ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE state_session_t (
    session_id         text PRIMARY KEY,
    record             bytea NOT NULL,
    expires_ts         timestamptz NOT NULL
);
CREATE INDEX state_session_expires_ix ON state_session_t (expires_ts);
COMMENT ON COLUMN state_session_t.record IS
    'JSON (SessionRecord of gateway/abc.py), as bytes: jsonb refuses some of what clients may say '
    'of themselves.';

CREATE UNLOGGED TABLE state_node_t (
    node               text PRIMARY KEY,
    expires_ts         timestamptz NOT NULL
);
COMMENT ON TABLE state_node_t IS 'Gateways that have shown a sign of life.';

CREATE UNLOGGED TABLE state_counter_t (
    key                text PRIMARY KEY,
    uses               jsonb NOT NULL DEFAULT '{}',
    expires_ts         timestamptz NOT NULL
) WITH (fillfactor = 70);
COMMENT ON COLUMN state_counter_t.uses IS 'Uses by slot of time (gateway/state/rates.py).';

CREATE TABLE state_secret_t (
    name               varchar(32) PRIMARY KEY,
    secret             bytea NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp
);
COMMENT ON TABLE state_secret_t IS
    'Made by the first gateway that needs them: keys for what clients carry between gateways.';
