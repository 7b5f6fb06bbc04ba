-- Sources that collections of documents follow: they are read again by a schedule or a webhook.

CREATE TABLE librarian_source_t (
    host_id            uuid NOT NULL,
    source_id          uuid NOT NULL,
    collection         text COLLATE "C" NOT NULL,
    collection_id      uuid NOT NULL,
    type               text NOT NULL CHECK (type IN ('git', 'url', 's3')),
    location           text COLLATE "C" NOT NULL,
    ref                text NOT NULL,
    filter             text[] NOT NULL,
    folder             text NOT NULL,
    caller             jsonb NOT NULL,
    interval_s         integer NOT NULL CHECK (interval_s >= 0),
    webhook            boolean NOT NULL,
    next_ts            timestamptz,
    claim              uuid,
    lease_ts           timestamptz,
    status             text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'reading',
        'ready', 'failed')),
    error              text,
    seen               text NOT NULL DEFAULT '',
    report             jsonb NOT NULL DEFAULT '{}',
    created_ts         timestamptz NOT NULL DEFAULT now(),
    read_ts            timestamptz,
    PRIMARY KEY (host_id, source_id),
    UNIQUE (host_id, collection_id, type, location),
    FOREIGN KEY (host_id, collection_id) REFERENCES knowledge_collection_t ON DELETE CASCADE
);
COMMENT ON COLUMN librarian_source_t.caller IS
    'Who added it, without a token: it is read with what that credential still permits.';
COMMENT ON COLUMN librarian_source_t.interval_s IS 'Between readings; 0: no schedule.';
COMMENT ON COLUMN librarian_source_t.next_ts IS
    'When it is read again. A webhook sets it to now, also while it is being read.';
COMMENT ON COLUMN librarian_source_t.claim IS
    'Of the process that reads it, or that read it last: only its holder renews or ends it.';
COMMENT ON COLUMN librarian_source_t.lease_ts IS
    'Until when a process reads it; renewed by it. Another one may take it up after that.';
COMMENT ON COLUMN librarian_source_t.seen IS
    'State of the source when it was read without a failure, such as a commit; empty: none.';

-- The secret of its webhook goes with a source, and both with the collection.
CREATE FUNCTION librarian_source_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM secret_t WHERE (host_id, source, scheme)
        = (OLD.host_id, 'librarian', OLD.source_id::text);
    RETURN NULL;
END $$;
CREATE TRIGGER librarian_source_gone AFTER DELETE ON librarian_source_t
    FOR EACH ROW EXECUTE FUNCTION librarian_source_gone();
