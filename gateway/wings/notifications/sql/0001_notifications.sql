-- Notifications: where they go, what they are about, and what is to be sent.
--
-- An incident is open while its concern is seen. A delivery is one message about one incident to
-- one target; it is written in the transaction that begins or ends the incident.

CREATE TABLE notification_target_t (
    host_id     uuid NOT NULL,
    name        text COLLATE "C" NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('webhook', 'slack', 'teams', 'mail')),
    subjects    text[] NOT NULL,
    place       text NOT NULL,
    sealed      bytea,
    recipients  text[] NOT NULL DEFAULT '{}',
    last_ts     timestamptz,
    last_ok     boolean,
    last_answer text NOT NULL DEFAULT '',
    PRIMARY KEY (host_id, name)
);
COMMENT ON COLUMN notification_target_t.place IS 'For people: the origin of the URL.';
COMMENT ON COLUMN notification_target_t.sealed IS
    'JSON of the URL and the secrets that sign requests to it, encrypted: URLs of Slack and Teams '
    'have a secret in them. Null: mail.';

CREATE TABLE notification_incident_t (
    host_id     uuid NOT NULL,
    incident_id uuid NOT NULL DEFAULT gen_random_uuid(),
    subject     text NOT NULL,
    key         text COLLATE "C" NOT NULL,
    title       text NOT NULL,
    detail      text NOT NULL,
    path        text NOT NULL,
    begun_ts    timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_ts     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_ts    timestamptz,
    PRIMARY KEY (host_id, incident_id)
);
-- Of all gateways that see a concern, one begins its incident.
CREATE UNIQUE INDEX notification_incident_open_ux
    ON notification_incident_t (host_id, subject, key) WHERE ended_ts IS NULL;
CREATE INDEX notification_incident_ix ON notification_incident_t (host_id, begun_ts, incident_id);
CREATE INDEX notification_incident_ended_ix ON notification_incident_t (ended_ts)
    WHERE ended_ts IS NOT NULL;
COMMENT ON COLUMN notification_incident_t.path IS 'Page of the console.';

CREATE TABLE notification_delivery_t (
    host_id     uuid NOT NULL,
    delivery_id uuid NOT NULL DEFAULT gen_random_uuid(),
    incident_id uuid NOT NULL,
    target      text COLLATE "C" NOT NULL,
    phase       text NOT NULL CHECK (phase IN ('begun', 'ended')),
    status      text NOT NULL DEFAULT 'PENDING'
                CHECK (status IN ('PENDING', 'DISPATCHED', 'ACKED', 'FAILED')),
    attempt     integer NOT NULL DEFAULT 0,
    error       text NOT NULL DEFAULT '',
    due_ts      timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_ts    timestamptz,
    fence       bigint NOT NULL DEFAULT 0,
    created_ts  timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_ts  timestamptz,
    PRIMARY KEY (host_id, delivery_id),
    UNIQUE (host_id, incident_id, target, phase),
    FOREIGN KEY (host_id, incident_id) REFERENCES notification_incident_t ON DELETE CASCADE,
    FOREIGN KEY (host_id, target) REFERENCES notification_target_t ON DELETE CASCADE
);
CREATE INDEX notification_delivery_open_ix ON notification_delivery_t (host_id, created_ts)
    WHERE status IN ('PENDING', 'DISPATCHED');
CREATE INDEX notification_delivery_rate_ix ON notification_delivery_t (host_id, claimed_ts);

-- The last check of what all gateways see alike: one of them makes each.
CREATE TABLE notification_turn_t (
    host_id     uuid PRIMARY KEY,
    checked_ts  timestamptz NOT NULL
);
