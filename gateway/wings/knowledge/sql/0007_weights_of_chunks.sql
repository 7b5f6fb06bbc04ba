-- Implementations of traits and tests count less than what they implement or test: see decision 0012.
-- Rows of before, and those that older nodes write, count by their kind.
ALTER TABLE knowledge_chunk_t ADD COLUMN weight real CHECK (weight BETWEEN 0 AND 1);
COMMENT ON COLUMN knowledge_chunk_t.weight IS 'Of its score in searches; NULL: that of its kind.';

CREATE OR REPLACE VIEW knowledge_chunk_search_v AS
SELECT chunk.host_id, chunk_id AS entity_id, chunk.collection_id::text AS owner, true AS live,
    chunk.symbol AS name, chunk.header AS title, knowledge_text((
        SELECT content FROM knowledge_blob_t AS blob
        WHERE (blob.host_id, blob.sha256) = (chunk.host_id, chunk.sha256)
    ), start_byte, end_byte) AS description, ''::text AS source, (
        SELECT path FROM knowledge_document_t AS document
        WHERE (document.host_id, document.document_id) = (chunk.host_id, chunk.document_id)
    ) AS tags, NULL::text AS parameters, NULL::text AS parameter_texts,
    NULL::text AS domain, NULL::text AS namespace, NULL::text AS tier, '{}'::text[] AS toolsets,
    '{}'::text[] AS scopes,
    coalesce(chunk.weight, CASE chunk.kind WHEN 'code' THEN 0.7 ELSE 1 END)::real AS weight,
    NULL::timestamptz AS valid_from, NULL::timestamptz AS valid_to, NULL::jsonb AS facets
FROM knowledge_chunk_t AS chunk;
