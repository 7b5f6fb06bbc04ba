-- What chat models find in chunks, beside what rules find: names, which are rows of
-- knowledge_mention_t with the method `llm`, and relations. Both go with their chunks.

CREATE TABLE knowledge_relation_t (
    host_id            uuid NOT NULL,
    chunk_id           uuid NOT NULL,
    source             text COLLATE "C" NOT NULL,
    target             text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL,
    collection_id      uuid NOT NULL,
    description        text NOT NULL,
    start_byte         integer NOT NULL,
    end_byte           integer NOT NULL,
    PRIMARY KEY (host_id, chunk_id, source, target, type),
    FOREIGN KEY (host_id, chunk_id) REFERENCES knowledge_chunk_t ON DELETE CASCADE
);
CREATE INDEX knowledge_relation_source_ix
    ON knowledge_relation_t (host_id, collection_id, source);
CREATE INDEX knowledge_relation_target_ix
    ON knowledge_relation_t (host_id, collection_id, target);
COMMENT ON TABLE knowledge_relation_t IS
    'Evidence of relations: a relation is there as long as a chunk states it.';
COMMENT ON COLUMN knowledge_relation_t.source IS 'As knowledge_mention_t.norm.';
COMMENT ON COLUMN knowledge_relation_t.start_byte IS 'Of the quote, within the chunk.';

CREATE TABLE knowledge_extraction_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    version            integer NOT NULL,
    status             text NOT NULL CHECK (status IN ('waiting', 'processed', 'failed')),
    attempt            integer NOT NULL DEFAULT 0,
    next_ts            timestamptz NOT NULL DEFAULT now(),
    error              text,
    PRIMARY KEY (host_id, document_id),
    FOREIGN KEY (host_id, document_id) REFERENCES knowledge_document_t ON DELETE CASCADE
);
COMMENT ON TABLE knowledge_extraction_t IS
    'Documents that a chat model has read, or failed to. Those that are not here, or here with '
    'another version than the live one, are to be read.';

CREATE TABLE knowledge_extracted_t (
    host_id            uuid NOT NULL,
    key                bytea NOT NULL,
    found              jsonb,
    used_ts            timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, key)
);
COMMENT ON TABLE knowledge_extracted_t IS
    'Checked answers of chat models, by the model, the request and the text: no text is paid for '
    'twice.';
COMMENT ON COLUMN knowledge_extracted_t.found IS
    'Null: a run has been asking the model since used_ts, and others wait for it.';

CREATE TABLE knowledge_spent_t (
    host_id            uuid NOT NULL,
    day                date NOT NULL,
    purpose            text COLLATE "C" NOT NULL,
    tokens             bigint NOT NULL,
    PRIMARY KEY (host_id, day, purpose)
);
COMMENT ON TABLE knowledge_spent_t IS
    'Tokens of chat models that a tenant used on a day (UTC), or has reserved.';
