-- Sources that collections of documents follow: what is read again by a schedule or a webhook.

CREATE TABLE librarian_source_t (
    host_id            uuid NOT NULL,
    source_id          uuid NOT NULL,
    collection         text COLLATE "C" NOT NULL,
    type               text NOT NULL CHECK (type IN ('git', 'url', 's3')),
    location           text NOT NULL,
    ref                text NOT NULL DEFAULT '',
    filter             text[] NOT NULL DEFAULT '{}',
    folder             text NOT NULL DEFAULT '',
    owner              text COLLATE "C" NOT NULL,
    interval_s         integer NOT NULL DEFAULT 0 CHECK (interval_s >= 0),
    next_ts            timestamptz,
    status             text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'reading',
        'ready', 'failed')),
    error              text,
    report             jsonb NOT NULL DEFAULT '{}',
    created_ts         timestamptz NOT NULL DEFAULT now(),
    read_ts            timestamptz,
    PRIMARY KEY (host_id, source_id),
    UNIQUE (host_id, collection, type, location)
);
CREATE INDEX librarian_source_due_ix ON librarian_source_t (host_id, next_ts)
    WHERE next_ts IS NOT NULL;
COMMENT ON COLUMN librarian_source_t.owner IS
    'The subject that added it: it is read with its rights.';
COMMENT ON COLUMN librarian_source_t.interval_s IS 'Between readings; 0: no schedule.';
