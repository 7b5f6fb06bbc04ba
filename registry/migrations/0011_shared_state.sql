-- State that gateways share which serve the same clients (`state.backend: postgres`). Written by
-- gateway/state.
--
-- Streams, events, nodes and counters are UNLOGGED: they are written for every message and matter
-- for minutes. A crash of the database empties them, and clients get an error for what they return
-- to, as after any long absence. Sessions and secrets are written seldom; without them clients
-- would have to begin again, and what they carry could not be read.

CREATE UNLOGGED TABLE state_stream_t (
    stream             text PRIMARY KEY,
    born               bigint NOT NULL
        DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    last               bigint NOT NULL DEFAULT 1,
    update_ts          timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
COMMENT ON TABLE state_stream_t IS
    'Heads of event streams. An append holds the row until it commits, so that events become '
    'visible in the order of their numbers.';
COMMENT ON COLUMN state_stream_t.born IS
    'Microseconds since 1970, so that ids keep growing when a stream is forgotten and begins '
    'again.';
COMMENT ON COLUMN state_stream_t.last IS 'Number of the newest event.';

CREATE UNLOGGED TABLE state_event_t (
    stream             text NOT NULL,
    born               bigint NOT NULL,
    n                  bigint NOT NULL,
    data               bytea NOT NULL,
    PRIMARY KEY (stream, born, n)
);
-- An event lives for minutes and is read about once: compressing it costs more than it saves.
ALTER TABLE state_event_t ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE state_event_t IS 'Events of streams; n is their number.';

CREATE TABLE state_session_t (
    session_id         text PRIMARY KEY,
    record             bytea NOT NULL,
    nodes              text[] NOT NULL DEFAULT '{}',
    expires_ts         timestamptz NOT NULL
);
CREATE INDEX state_session_expires_ix ON state_session_t (expires_ts);
COMMENT ON TABLE state_session_t IS 'MCP sessions.';
COMMENT ON COLUMN state_session_t.record IS
    'SessionRecord of gateway/interfaces.py as JSON, in bytes: jsonb refuses some strings that clients '
    'may send.';
COMMENT ON COLUMN state_session_t.nodes IS
    'Gateways that have, or had, the session open. A change of the session waits until these have '
    'applied it.';

CREATE UNLOGGED TABLE state_node_t (
    node               text PRIMARY KEY,
    expires_ts         timestamptz NOT NULL
);
COMMENT ON TABLE state_node_t IS 'Gateways, until their last heartbeat expires.';

CREATE UNLOGGED TABLE state_counter_t (
    key                text PRIMARY KEY,
    uses               jsonb NOT NULL DEFAULT '{}',
    expires_ts         timestamptz NOT NULL
) WITH (fillfactor = 70);
COMMENT ON TABLE state_counter_t IS 'Counters of rate limits.';
COMMENT ON COLUMN state_counter_t.uses IS
    'Number of uses by time slot, a sixtieth of the window (gateway/state/rates.py).';

CREATE TABLE state_secret_t (
    name               varchar(32) PRIMARY KEY,
    secret             bytea NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp
);
COMMENT ON TABLE state_secret_t IS
    'Keys for what clients carry between gateways; made by the first gateway that needs them.';
