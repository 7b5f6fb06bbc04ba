-- Words of long texts in fewer bytes: a row for all words of a document that have the same frequency,
-- instead of one for each word, whose header and keys have ten times the bytes of the word. They are
-- found by a GIN index, which has each key once and a few bits for each of its rows. A search reads
-- only the numbers of a row, which stand before the words. A row belongs to one document, so that
-- nobody who writes or deletes waits for another.
ALTER TABLE search_kind_t ADD COLUMN wordlists boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN search_kind_t.wordlists IS
    'Whether the words are in search_wordlist_t instead of search_posting_t, as those of long texts '
    'are: their component searches them by search_postings. Set by search_kind_list.';

CREATE TABLE search_wordlist_t (
    part_id            integer NOT NULL,
    doc_id             integer NOT NULL,
    tf                 real NOT NULL,
    length             real NOT NULL,
    words              text COLLATE "C" NOT NULL,
    PRIMARY KEY (part_id, doc_id, tf)
) PARTITION BY LIST (tf);
-- Most words of a text occur once. Their lists are stored apart from the numbers, so that a search of a
-- frequent word reads few pages.
CREATE TABLE search_wordlist_once_t PARTITION OF search_wordlist_t FOR VALUES IN (1)
    WITH (toast_tuple_target = 128, autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE search_wordlist_default_t PARTITION OF search_wordlist_t DEFAULT
    WITH (autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE search_wordlist_t IS
    'Words of each document, of kinds with search_kind_t.wordlists; without foreign keys, as '
    'search_posting_t.';
COMMENT ON COLUMN search_wordlist_t.tf IS 'As search_posting_t.tf, of each of the words.';
COMMENT ON COLUMN search_wordlist_t.length IS 'As search_posting_t.length.';
COMMENT ON COLUMN search_wordlist_t.words IS
    'A blank before and after each, which no word has in it (see search_words). Written by '
    'search_wordlist.';

-- The words of a row. PostgreSQL stores a text apart only where its row has more than 2 kB; blanks
-- before it are compressed to some 30 bytes.
CREATE FUNCTION search_wordlist(tf real, words text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE tf WHEN 1 THEN repeat(' ', 2100 - length(words)) ELSE '' END || words || ' ';

-- The key of a word in a partition. That two have the same is less likely than an error of the memory,
-- and a partition that is not searched is left out by its number.
CREATE FUNCTION search_word_key(part_id integer, term text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(term COLLATE "C", part_id::bigint);
CREATE FUNCTION search_word_keys(part_id integer, words text) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT array_agg(search_word_key(part_id, word.term))
        FROM string_to_table(btrim(words), ' ') AS word (term));
-- Without a list of pending entries, which each search would read.
CREATE INDEX search_wordlist_ix ON search_wordlist_t USING gin (search_word_keys(part_id, words))
    WITH (fastupdate = off);

-- The documents of a word in a partition. IS NOT DISTINCT FROM keeps the planner from reading all of
-- the partition by its key.
CREATE FUNCTION search_postings(part integer, term text)
    RETURNS TABLE (doc_id integer, tf real, length real)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 100 AS $$
    SELECT doc_id, tf, length FROM search_wordlist_t
    WHERE search_word_keys(part_id, words) @> ARRAY[search_word_key(part, term)]
        AND part_id IS NOT DISTINCT FROM part
    OFFSET 0
$$;

-- As in 0008_search.sql, with lists of words.
CREATE OR REPLACE FUNCTION search_refresh(
    kind text, host_ids uuid[], entity_ids uuid[], owners text[] DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    weights real[]; is_listed boolean;
    gone integer[]; changed integer[]; changed_ids uuid[];
    lost_parts integer[]; lost_terms text[]; lost_numbers integer[]; lost_lengths float8[];
    new_parts integer[]; new_terms text[]; new_numbers integer[]; new_lengths float8[];
BEGIN
    SELECT field_weights, wordlists INTO weights, is_listed
    FROM search_kind_t WHERE entity_type = kind;
    IF weights IS NULL THEN
        RAISE EXCEPTION 'there is no kind of entity %; see search_kind_add', kind;
    END IF;
    INSERT INTO search_part_t (host_id, entity_type, owner)
    SELECT DISTINCT given.host_id, kind, coalesce(given.owner, '')
    FROM unnest(host_ids, owners) AS given (host_id, owner)
    WHERE NOT EXISTS (SELECT FROM search_part_t AS part
        WHERE (part.host_id, part.entity_type, part.owner)
            = (given.host_id, kind, coalesce(given.owner, '')))
    ON CONFLICT DO NOTHING;

    EXECUTE format($sql$
        WITH given AS MATERIALIZED (
            SELECT DISTINCT part.part_id, part.owner, key.host_id, key.entity_id
            FROM unnest($2, $3, $4) AS key (host_id, entity_id, owner)
            JOIN search_part_t AS part ON (part.host_id, part.entity_type, part.owner)
                = (key.host_id, $1, coalesce(key.owner, ''))
        ), source AS MATERIALIZED (
            SELECT given.part_id, given.entity_id, source.name, source.source, source.domain,
                source.namespace, source.tier, source.toolsets, source.scopes, source.weight,
                source.valid_from, source.valid_to, source.facets,
                md5(row(source.name, source.title, source.description, source.source, source.tags,
                    source.parameters, source.parameter_texts)::text) AS digest
            FROM given CROSS JOIN LATERAL (SELECT * FROM %1$I AS one
                WHERE one.host_id = given.host_id AND one.entity_id = given.entity_id OFFSET 0
            ) AS source
            WHERE source.live AND source.owner = given.owner
        ), inserted AS (
            INSERT INTO search_doc_t (part_id, entity_id, name, source, domain, namespace, tier,
                toolsets, scopes, weight, valid_from, valid_to, facets, digest)
            SELECT * FROM source WHERE NOT EXISTS (SELECT FROM search_doc_t AS doc
                WHERE (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id))
            RETURNING part_id, doc_id, entity_id
        ), reworded AS (
            SELECT doc.part_id, doc.doc_id, doc.entity_id FROM search_doc_t AS doc JOIN source
                ON (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id)
            WHERE doc.digest <> source.digest
        ), updated AS (
            UPDATE search_doc_t AS doc SET name = source.name, source = source.source,
                domain = source.domain, namespace = source.namespace, tier = source.tier,
                toolsets = source.toolsets, scopes = source.scopes, weight = source.weight,
                valid_from = source.valid_from, valid_to = source.valid_to,
                facets = source.facets, digest = source.digest
            FROM source
            WHERE (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id)
                AND (doc.name, doc.source, doc.domain, doc.namespace, doc.tier, doc.toolsets,
                    doc.scopes, doc.weight, doc.valid_from, doc.valid_to, doc.facets, doc.digest)
                    IS DISTINCT FROM
                    (source.name, source.source, source.domain, source.namespace, source.tier,
                    source.toolsets, source.scopes, source.weight, source.valid_from,
                    source.valid_to, source.facets, source.digest)
        ), deleted AS (
            DELETE FROM search_doc_t AS doc USING given
            WHERE (doc.part_id, doc.entity_id) = (given.part_id, given.entity_id)
                AND NOT EXISTS (SELECT FROM source
                    WHERE (source.part_id, source.entity_id) = (given.part_id, given.entity_id))
            RETURNING doc.part_id, doc.doc_id
        ), lost AS (
            SELECT * FROM deleted UNION ALL SELECT part_id, doc_id FROM reworded
        ), new AS (
            SELECT * FROM inserted UNION ALL SELECT * FROM reworded
        )
        SELECT (SELECT array_agg(part_id ORDER BY doc_id) FROM lost),
            (SELECT array_agg(doc_id ORDER BY doc_id) FROM lost),
            (SELECT array_agg(part_id ORDER BY doc_id) FROM new),
            (SELECT array_agg(doc_id ORDER BY doc_id) FROM new),
            (SELECT array_agg(entity_id ORDER BY doc_id) FROM new)
        $sql$, kind || '_search_v')
    INTO lost_parts, gone, new_parts, changed, changed_ids USING kind, host_ids, entity_ids, owners;

    WITH posting AS (
        DELETE FROM search_posting_t AS posting
        USING unnest(lost_parts, gone) AS doc (part_id, doc_id)
        WHERE NOT is_listed AND (posting.part_id, posting.doc_id) = (doc.part_id, doc.doc_id)
        RETURNING posting.part_id, posting.doc_id, posting.term, posting.tf
    ), wordlist AS (
        DELETE FROM search_wordlist_t AS wordlist
        USING unnest(lost_parts, gone) AS doc (part_id, doc_id)
        WHERE is_listed AND (wordlist.part_id, wordlist.doc_id) = (doc.part_id, doc.doc_id)
        RETURNING wordlist.part_id, wordlist.doc_id, wordlist.tf, wordlist.words
    ), lost AS (
        SELECT part_id, doc_id, term, tf FROM posting
        UNION ALL
        SELECT part_id, doc_id, word.term, tf
        FROM wordlist CROSS JOIN LATERAL string_to_table(btrim(words), ' ') AS word (term)
    ), counted AS (
        SELECT part_id, term, -count(*) AS docs, 0::float8 AS length FROM lost
        GROUP BY part_id, term
        UNION ALL
        SELECT part_id, '', -count(DISTINCT doc_id), -sum(tf) FROM lost GROUP BY part_id
    )
    SELECT array_agg(part_id), array_agg(term), array_agg(docs), array_agg(length)
    INTO lost_parts, lost_terms, lost_numbers, lost_lengths FROM counted;

    EXECUTE format($sql$
        WITH word AS MATERIALIZED (
            SELECT new.part_id, new.doc_id, found.term, found.tf
            FROM unnest($1, $2, $3) AS new (part_id, doc_id, entity_id)
            JOIN search_part_t AS part USING (part_id)
            CROSS JOIN LATERAL (SELECT * FROM %1$I AS one
                WHERE one.host_id = part.host_id AND one.entity_id = new.entity_id OFFSET 0
            ) AS source
            CROSS JOIN LATERAL search_terms(source.name, source.title, source.description,
                source.source, source.tags, source.parameters, source.parameter_texts, $4) AS found
        ), added AS (
            INSERT INTO search_posting_t (part_id, doc_id, term, tf, length)
            SELECT part_id, doc_id, term, tf, sum(tf) OVER (PARTITION BY part_id, doc_id) FROM word
            WHERE NOT $5 ORDER BY part_id, term, doc_id
        ), listed AS (
            INSERT INTO search_wordlist_t (part_id, doc_id, tf, length, words)
            SELECT part_id, doc_id, tf, sum(sum(tf)) OVER (PARTITION BY part_id, doc_id),
                search_wordlist(tf, string_agg(' ' || term, '' ORDER BY term)) FROM word
            WHERE $5 GROUP BY part_id, doc_id, tf ORDER BY part_id, doc_id, tf
        ), counted AS (
            SELECT part_id, term, count(*) AS docs, 0::float8 AS length FROM word
            GROUP BY part_id, term
            UNION ALL
            SELECT part_id, '', count(DISTINCT doc_id), sum(tf) FROM word GROUP BY part_id
        )
        SELECT array_agg(part_id), array_agg(term), array_agg(docs), array_agg(length)
        FROM counted
        $sql$, kind || '_search_v')
    INTO new_parts, new_terms, new_numbers, new_lengths
    USING new_parts, changed, changed_ids, weights, is_listed;

    PERFORM search_count(lost_parts || new_parts, lost_terms || new_terms,
        lost_numbers || new_numbers, lost_lengths || new_lengths);
END $$;

-- Moves the words of a kind of entity into search_wordlist_t. For migrations, also of other
-- components; they lock the entities first, so that no writer began before.
--
-- Emptying the table gives its bytes back at once, where deleting most of it would not; hence the lock.
-- Words of other kinds, which are few, are put back.
CREATE FUNCTION search_kind_list(kind text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE search_posting_t IN ACCESS EXCLUSIVE MODE;
    UPDATE search_kind_t SET wordlists = true WHERE entity_type = kind;
    INSERT INTO search_wordlist_t (part_id, doc_id, tf, length, words)
    SELECT part_id, doc_id, tf, max(length), search_wordlist(tf, string_agg(' ' || term, '' ORDER BY term))
    FROM search_posting_t JOIN search_part_t AS part USING (part_id)
    WHERE part.entity_type = kind
    GROUP BY part_id, doc_id, tf ORDER BY part_id, doc_id, tf;
    CREATE TEMPORARY TABLE search_posting_rest ON COMMIT DROP AS
        SELECT posting.* FROM search_posting_t AS posting JOIN search_part_t AS part USING (part_id)
        WHERE part.entity_type <> kind;
    TRUNCATE search_posting_t;
    INSERT INTO search_posting_t (part_id, doc_id, tf, length, term)
    SELECT part_id, doc_id, tf, length, term FROM search_posting_rest
    ORDER BY part_id, term, doc_id;
    DROP TABLE search_posting_rest;
END $$;
