-- Code that is no definition counts less than definitions: comments of modules, imports and tables
-- have many of the words that are asked for, and so have later parts of definitions that did not fit
-- into one chunk. With 0.7 the definition that is asked for is among the first ten in 86 of 100
-- searches of cobra instead of 82, in 86 of flask instead of 85, and in 63 of serde_json instead of 60.

CREATE OR REPLACE VIEW knowledge_chunk_search_v AS
SELECT chunk.host_id, chunk_id AS entity_id, chunk.collection_id::text AS owner, true AS live,
    chunk.symbol AS name, chunk.header AS title,
    knowledge_text(content, start_byte, end_byte) AS description, ''::text AS source,
    document.path AS tags, NULL::text AS parameters, NULL::text AS parameter_texts,
    NULL::text AS domain, NULL::text AS namespace, NULL::text AS tier, '{}'::text[] AS toolsets,
    '{}'::text[] AS scopes, (CASE chunk.kind WHEN 'code' THEN 0.7 ELSE 1 END)::real AS weight,
    NULL::timestamptz AS valid_from, NULL::timestamptz AS valid_to, NULL::jsonb AS facets
FROM knowledge_chunk_t AS chunk
JOIN knowledge_document_t AS document
    ON (document.host_id, document.document_id) = (chunk.host_id, chunk.document_id)
JOIN knowledge_blob_t AS blob ON (blob.host_id, blob.sha256) = (chunk.host_id, chunk.sha256);

UPDATE search_doc_t AS doc SET weight = 0.7
FROM search_part_t AS part JOIN knowledge_chunk_t AS chunk USING (host_id)
WHERE part.entity_type = 'knowledge_chunk' AND chunk.kind = 'code'
    AND (doc.part_id, doc.entity_id) = (part.part_id, chunk.chunk_id)
    AND part.owner = chunk.collection_id::text;
