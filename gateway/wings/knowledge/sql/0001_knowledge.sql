-- Documents of collections, and the chunks of their texts that are searched and cited. A collection
-- belongs to its owner, who grants others access; rows of chunks are those of the present version
-- of each document alone, which one transaction replaces. Words and vectors are those of the kind
-- `knowledge_chunk`, whose owner is the collection, so that a search reads the index of collections
-- that its caller may read.

CREATE TABLE knowledge_collection_t (
    host_id            uuid NOT NULL,
    collection_id      uuid NOT NULL,
    name               text COLLATE "C" NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('docs', 'code', 'conversation', 'mixed')),
    owner              text COLLATE "C" NOT NULL,
    description        text NOT NULL DEFAULT '',
    on_same_source     text NOT NULL CHECK (on_same_source IN ('version', 'append', 'reject')),
    skip_trivial       boolean NOT NULL DEFAULT false,
    chunkers           jsonb NOT NULL DEFAULT '[]',
    created_ts         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, collection_id),
    UNIQUE (host_id, name)
);
COMMENT ON COLUMN knowledge_collection_t.owner IS 'As a grantee: user:ID.';
COMMENT ON COLUMN knowledge_collection_t.on_same_source IS
    'What happens to another text of a document: it is a new version, is appended, or refused.';
COMMENT ON COLUMN knowledge_collection_t.skip_trivial IS
    'Whether exchanges of conversations that say nothing are left out.';
COMMENT ON COLUMN knowledge_collection_t.chunkers IS
    'Rules [{name, sha256, paths}], by name: the first one that matches a path cuts it.';

CREATE TABLE knowledge_chunker_t (
    host_id            uuid NOT NULL,
    sha256             bytea NOT NULL,
    module             bytea NOT NULL,
    report             jsonb NOT NULL,
    tried_ts           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, sha256)
);
COMMENT ON TABLE knowledge_chunker_t IS
    'Modules of WebAssembly that collections use, with the reports of their last trials.';

CREATE TABLE knowledge_grant_t (
    host_id            uuid NOT NULL,
    collection_id      uuid NOT NULL,
    grantee            text COLLATE "C" NOT NULL,
    access             text NOT NULL CHECK (access IN ('read', 'write', 'admin')),
    PRIMARY KEY (host_id, collection_id, grantee),
    FOREIGN KEY (host_id, collection_id) REFERENCES knowledge_collection_t ON DELETE CASCADE
);
COMMENT ON COLUMN knowledge_grant_t.grantee IS 'user:ID, agent:NAME, scope:NAME, or * for all.';

CREATE TABLE knowledge_blob_t (
    host_id            uuid NOT NULL,
    sha256             bytea NOT NULL,
    content            bytea NOT NULL,
    PRIMARY KEY (host_id, sha256)
);
-- Without compression a chunk is read without the rest of its text.
ALTER TABLE knowledge_blob_t ALTER COLUMN content SET STORAGE EXTERNAL;
COMMENT ON TABLE knowledge_blob_t IS 'Texts in UTF-8, each once for a tenant.';

CREATE TABLE knowledge_document_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    collection_id      uuid NOT NULL,
    path               text COLLATE "C" NOT NULL,
    version            integer NOT NULL DEFAULT 0,
    live               integer NOT NULL DEFAULT 0,
    sha256             bytea,
    bytes              bigint NOT NULL DEFAULT 0,
    chunks             integer NOT NULL DEFAULT 0,
    media_type         text NOT NULL DEFAULT 'text/plain',
    language           text NOT NULL DEFAULT '',
    metadata           jsonb NOT NULL DEFAULT '{}',
    dated_ts           timestamptz,
    created_ts         timestamptz NOT NULL DEFAULT now(),
    changed_ts         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, document_id),
    UNIQUE (collection_id, path, host_id),
    FOREIGN KEY (host_id, collection_id) REFERENCES knowledge_collection_t
);
CREATE INDEX knowledge_document_blob_ix ON knowledge_document_t (sha256, host_id);
COMMENT ON COLUMN knowledge_document_t.version IS 'Number of the last version, of any status.';
COMMENT ON COLUMN knowledge_document_t.live IS 'Number of the version that is found; 0: none yet.';
COMMENT ON COLUMN knowledge_document_t.dated_ts IS 'When what it tells was said, if it says so.';

CREATE TABLE knowledge_version_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    version            integer NOT NULL,
    track_id           text COLLATE "C" NOT NULL,
    given_hash         bytea NOT NULL,
    bytes              bigint NOT NULL,
    origin             jsonb NOT NULL DEFAULT '{}',
    status             text NOT NULL CHECK (status IN ('pending', 'parsing', 'analyzing',
        'processing', 'processed', 'failed')),
    error              text,
    attempt            integer NOT NULL DEFAULT 0,
    next_ts            timestamptz,
    created_ts         timestamptz NOT NULL DEFAULT now(),
    done_ts            timestamptz,
    PRIMARY KEY (host_id, document_id, version),
    FOREIGN KEY (host_id, document_id) REFERENCES knowledge_document_t ON DELETE CASCADE
);
CREATE INDEX knowledge_version_track_ix ON knowledge_version_t (host_id, track_id);
COMMENT ON COLUMN knowledge_version_t.given_hash IS
    'SHA-256 of what was given: of a text that was appended, that text alone.';

CREATE TABLE knowledge_chunk_t (
    host_id            uuid NOT NULL,
    chunk_id           uuid NOT NULL,
    collection_id      uuid NOT NULL,
    document_id        uuid NOT NULL,
    ordinal            integer NOT NULL,
    kind               text NOT NULL,
    start_byte         integer NOT NULL,
    end_byte           integer NOT NULL,
    start_line         integer NOT NULL,
    end_line           integer NOT NULL,
    page               integer,
    header             text NOT NULL DEFAULT '',
    symbol             text COLLATE "C" NOT NULL DEFAULT '',
    sha256             bytea NOT NULL,
    PRIMARY KEY (host_id, chunk_id),
    FOREIGN KEY (host_id, document_id) REFERENCES knowledge_document_t,
    CHECK (0 <= start_byte AND start_byte < end_byte)
);
CREATE INDEX knowledge_chunk_document_ix ON knowledge_chunk_t (document_id, ordinal, host_id);
CREATE INDEX knowledge_chunk_collection_ix ON knowledge_chunk_t (collection_id, host_id);
COMMENT ON COLUMN knowledge_chunk_t.chunk_id IS
    'Made of its document, its header and its text: it stays where only others change.';
COMMENT ON COLUMN knowledge_chunk_t.header IS 'Headings or scopes that it stands in.';

CREATE TABLE knowledge_mention_t (
    host_id            uuid NOT NULL,
    chunk_id           uuid NOT NULL,
    norm               text COLLATE "C" NOT NULL,
    role               text NOT NULL CHECK (role IN ('subject', 'mention', 'link', 'import',
        'inherit', 'call')),
    start_byte         integer NOT NULL,
    end_byte           integer NOT NULL,
    collection_id      uuid NOT NULL,
    type               text NOT NULL,
    name               text NOT NULL,
    method             text NOT NULL DEFAULT 'rule' CHECK (method IN ('rule', 'parser', 'llm')),
    description        text NOT NULL DEFAULT '',
    PRIMARY KEY (host_id, chunk_id, norm, role, start_byte),
    FOREIGN KEY (host_id, chunk_id) REFERENCES knowledge_chunk_t ON DELETE CASCADE
);
CREATE INDEX knowledge_mention_norm_ix
    ON knowledge_mention_t (collection_id, norm, role, host_id) INCLUDE (chunk_id);
COMMENT ON TABLE knowledge_mention_t IS
    'Names in chunks, which are the graph: an entity is what has a name in a collection, and is '
    'there as long as a chunk mentions it.';
COMMENT ON COLUMN knowledge_mention_t.norm IS 'The name as it is compared with others.';
COMMENT ON COLUMN knowledge_mention_t.role IS
    'subject: the chunk is about it. Others: how the chunk names it.';
COMMENT ON COLUMN knowledge_mention_t.start_byte IS 'Within the chunk, which may move.';

-- The last part of a dotted name in code, by which definitions and references are matched.
CREATE FUNCTION knowledge_last(name text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN regexp_replace(name, '^.*(\.|::|->)', '') COLLATE "C";
CREATE INDEX knowledge_mention_reference_ix
    ON knowledge_mention_t (collection_id, knowledge_last(name), chunk_id, host_id)
    WHERE type = 'symbol' AND role IN ('call', 'import', 'inherit');

CREATE TABLE knowledge_symbol_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    ordinal            integer NOT NULL,
    collection_id      uuid NOT NULL,
    symbol             text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    scope              text COLLATE "C" NOT NULL,
    kind               text NOT NULL,
    visibility         text NOT NULL,
    signature          text NOT NULL,
    start_byte         integer NOT NULL,
    end_byte           integer NOT NULL,
    start_line         integer NOT NULL,
    end_line           integer NOT NULL,
    PRIMARY KEY (host_id, document_id, ordinal),
    FOREIGN KEY (host_id, document_id) REFERENCES knowledge_document_t ON DELETE CASCADE
);
CREATE INDEX knowledge_symbol_name_ix ON knowledge_symbol_t (collection_id, name, host_id);
CREATE INDEX knowledge_symbol_scope_ix ON knowledge_symbol_t (collection_id, scope, host_id);
COMMENT ON TABLE knowledge_symbol_t IS
    'What the code of the present versions of documents defines: replaced as a whole.';
COMMENT ON COLUMN knowledge_symbol_t.symbol IS 'With its scopes: Flask.run.';
COMMENT ON COLUMN knowledge_symbol_t.name IS 'The last part of the symbol: run.';
COMMENT ON COLUMN knowledge_symbol_t.scope IS 'The symbol without its name: Flask.';

CREATE TABLE knowledge_base_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    ordinal            integer NOT NULL,
    base               text COLLATE "C" NOT NULL,
    collection_id      uuid NOT NULL,
    PRIMARY KEY (host_id, document_id, ordinal, base),
    FOREIGN KEY (host_id, document_id, ordinal) REFERENCES knowledge_symbol_t ON DELETE CASCADE
);
CREATE INDEX knowledge_base_ix ON knowledge_base_t (host_id, collection_id, base);
COMMENT ON TABLE knowledge_base_t IS 'The names of what symbols inherit.';

CREATE TABLE knowledge_index_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, document_id),
    FOREIGN KEY (host_id, document_id) REFERENCES knowledge_document_t ON DELETE CASCADE
);
COMMENT ON TABLE knowledge_index_t IS
    'Documents whose present text was resolved by a compiler: that is used, not what was parsed.';

CREATE TABLE knowledge_resolved_t (
    host_id            uuid NOT NULL,
    document_id        uuid NOT NULL,
    ordinal            integer NOT NULL,
    collection_id      uuid NOT NULL,
    role               text NOT NULL CHECK (role IN ('define', 'call', 'import')),
    symbol             text COLLATE "C" NOT NULL,
    whole              text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    scope              text COLLATE "C" NOT NULL,
    kind               text NOT NULL,
    visibility         text NOT NULL,
    signature          text NOT NULL,
    bases              text[] COLLATE "C" NOT NULL,
    start_byte         integer NOT NULL,
    end_byte           integer NOT NULL,
    start_line         integer NOT NULL,
    end_line           integer NOT NULL,
    line_byte          integer NOT NULL,
    line_end           integer NOT NULL,
    PRIMARY KEY (host_id, document_id, ordinal),
    FOREIGN KEY (host_id, document_id) REFERENCES knowledge_index_t ON DELETE CASCADE
);
CREATE INDEX knowledge_resolved_name_ix
    ON knowledge_resolved_t (host_id, collection_id, name, role);
CREATE INDEX knowledge_resolved_base_ix ON knowledge_resolved_t (host_id, collection_id)
    WHERE bases <> '{}';
COMMENT ON TABLE knowledge_resolved_t IS
    'Definitions and references in code, as an index of it has them: see knowledge_symbol_t.';
COMMENT ON COLUMN knowledge_resolved_t.whole IS 'With its modules, too: flask.app.Flask.run.';
COMMENT ON COLUMN knowledge_resolved_t.line_byte IS 'Of the line in the text, up to line_end.';

-- Another text was not resolved.
CREATE FUNCTION knowledge_index_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM knowledge_index_t
    WHERE (host_id, document_id) = (NEW.host_id, NEW.document_id);
    RETURN NULL;
END $$;
CREATE TRIGGER knowledge_index_gone AFTER UPDATE OF sha256 ON knowledge_document_t
    FOR EACH ROW WHEN (OLD.sha256 IS NOT NULL AND OLD.sha256 IS DISTINCT FROM NEW.sha256)
    EXECUTE FUNCTION knowledge_index_gone();

CREATE VIEW knowledge_definition_v AS
SELECT host_id, collection_id, document_id, ordinal, symbol, name, scope, kind, visibility,
    signature, start_byte, end_byte, start_line, end_line
FROM knowledge_symbol_t AS symbol WHERE NOT EXISTS (SELECT FROM knowledge_index_t AS indexed
    WHERE (indexed.host_id, indexed.document_id) = (symbol.host_id, symbol.document_id))
UNION ALL
SELECT host_id, collection_id, document_id, ordinal, symbol, name, scope, kind, visibility,
    signature, start_byte, end_byte, start_line, end_line
FROM knowledge_resolved_t WHERE role = 'define';
COMMENT ON VIEW knowledge_definition_v IS 'What code defines: resolved, or else parsed.';

CREATE VIEW knowledge_inherited_v AS
SELECT host_id, collection_id, document_id, ordinal, base
FROM knowledge_base_t AS base WHERE NOT EXISTS (SELECT FROM knowledge_index_t AS indexed
    WHERE (indexed.host_id, indexed.document_id) = (base.host_id, base.document_id))
UNION ALL
SELECT host_id, collection_id, document_id, ordinal, unnest(bases)
FROM knowledge_resolved_t WHERE bases <> '{}';
COMMENT ON VIEW knowledge_inherited_v IS 'The names of what definitions inherit.';

CREATE TABLE knowledge_alias_t (
    host_id            uuid NOT NULL,
    collection_id      uuid NOT NULL,
    alias              text COLLATE "C" NOT NULL,
    norm               text COLLATE "C" NOT NULL,
    confidence         real NOT NULL CHECK (confidence > 0 AND confidence <= 1),
    owner              text COLLATE "C" NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, collection_id, alias, norm),
    FOREIGN KEY (host_id, collection_id) REFERENCES knowledge_collection_t ON DELETE CASCADE,
    CHECK (alias <> norm)
);
CREATE INDEX knowledge_alias_norm_ix ON knowledge_alias_t (host_id, collection_id, norm);
COMMENT ON TABLE knowledge_alias_t IS
    'Names that were merged, as edges between them: mentions stay as they are, and deleting the edge '
    'splits the names again.';

CREATE FUNCTION knowledge_text(content bytea, start_byte integer, end_byte integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN convert_from(substring(content FROM start_byte + 1 FOR end_byte - start_byte), 'UTF8');

-- Code as models of texts read it: the name of its file, its symbol, and the words of identifiers.
CREATE FUNCTION knowledge_code_text(path text, symbol text, code text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN concat_ws(' ', identifier_words(regexp_replace(path, '^.*/|\.[^./]*$', '', 'g')) || ':',
        nullif(identifier_words(symbol), '') || '.', identifier_words(code));

-- What chunks belong to is looked up chunk by chunk. In a join the planner, which may have no statistics
-- of these tables yet, compares all chunks of a tenant with all of its texts, and joins them also for
-- ids alone.
CREATE VIEW knowledge_chunk_source_v AS
SELECT chunk.host_id, chunk_id AS entity_id, true AS active,
    CASE WHEN kind IN ('text', 'section', 'record', 'row') THEN concat_ws(E'\n',
        nullif(header, ''), knowledge_text((
            SELECT content FROM knowledge_blob_t AS blob
            WHERE (blob.host_id, blob.sha256) = (chunk.host_id, chunk.sha256)
        ), start_byte, end_byte))
    ELSE knowledge_code_text((
            SELECT path FROM knowledge_document_t AS document
            WHERE (document.host_id, document.document_id) = (chunk.host_id, chunk.document_id)
        ), symbol, knowledge_text((
            SELECT content FROM knowledge_blob_t AS blob
            WHERE (blob.host_id, blob.sha256) = (chunk.host_id, chunk.sha256)
        ), start_byte, end_byte))
    END COLLATE "default" AS source_text
FROM knowledge_chunk_t AS chunk;

-- Code that is no definition counts less than definitions: comments of modules, imports and tables
-- have many of the words that are asked for, and so have later parts of definitions that did not fit
-- into one chunk. With 0.7 the definition that is asked for is among the first ten in 86 of 100
-- searches of cobra instead of 82, in 86 of flask instead of 85, and in 63 of serde_json instead of 60.
CREATE VIEW knowledge_chunk_search_v AS
SELECT chunk.host_id, chunk_id AS entity_id, chunk.collection_id::text AS owner, true AS live,
    chunk.symbol AS name, chunk.header AS title, knowledge_text((
        SELECT content FROM knowledge_blob_t AS blob
        WHERE (blob.host_id, blob.sha256) = (chunk.host_id, chunk.sha256)
    ), start_byte, end_byte) AS description, ''::text AS source, (
        SELECT path FROM knowledge_document_t AS document
        WHERE (document.host_id, document.document_id) = (chunk.host_id, chunk.document_id)
    ) AS tags, NULL::text AS parameters, NULL::text AS parameter_texts,
    NULL::text AS domain, NULL::text AS namespace, NULL::text AS tier, '{}'::text[] AS toolsets,
    '{}'::text[] AS scopes, (CASE chunk.kind WHEN 'code' THEN 0.7 ELSE 1 END)::real AS weight,
    NULL::timestamptz AS valid_from, NULL::timestamptz AS valid_to, NULL::jsonb AS facets
FROM knowledge_chunk_t AS chunk;

-- Weights of the symbol, the headings, the text, -, the path.
SELECT search_kind_add('knowledge_chunk', 'passages', '{3.0, 3.0, 1.0, 1.0, 2.0, 0.6, 0.4}');
-- What a chunk says never changes, only its place: updates need no refresh.
CREATE TRIGGER knowledge_chunk_found_insert AFTER INSERT ON knowledge_chunk_t
    REFERENCING NEW TABLE AS new_row FOR EACH STATEMENT
    EXECUTE FUNCTION entity_found('knowledge_chunk', 'chunk_id', 'collection_id');
CREATE TRIGGER knowledge_chunk_found_delete AFTER DELETE ON knowledge_chunk_t
    REFERENCING OLD TABLE AS old_row FOR EACH STATEMENT
    EXECUTE FUNCTION entity_found('knowledge_chunk', 'chunk_id', 'collection_id');

-- Counts the chunks of a tenant, for registry/search/indexes.py: many have an index on their vectors.
CREATE FUNCTION knowledge_chunk_counted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN EXECUTE 'SELECT host_id, count(*)::integer AS number FROM '
        || CASE TG_OP WHEN 'INSERT' THEN 'new_row' ELSE 'old_row' END || ' GROUP BY host_id'
    LOOP
        INSERT INTO search_part_t (host_id, entity_type)
        SELECT changed.host_id, 'knowledge_chunk' WHERE NOT EXISTS (SELECT FROM search_part_t
            WHERE (host_id, entity_type, owner) = (changed.host_id, 'knowledge_chunk', ''))
        ON CONFLICT DO NOTHING;
        PERFORM search_count(ARRAY[part_id], ARRAY[''],
            ARRAY[CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END * changed.number], ARRAY[0::float8])
        FROM search_part_t
        WHERE (host_id, entity_type, owner) = (changed.host_id, 'knowledge_chunk', '');
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER knowledge_chunk_counted_insert AFTER INSERT ON knowledge_chunk_t
    REFERENCING NEW TABLE AS new_row FOR EACH STATEMENT EXECUTE FUNCTION knowledge_chunk_counted();
CREATE TRIGGER knowledge_chunk_counted_delete AFTER DELETE ON knowledge_chunk_t
    REFERENCING OLD TABLE AS old_row FOR EACH STATEMENT EXECUTE FUNCTION knowledge_chunk_counted();
