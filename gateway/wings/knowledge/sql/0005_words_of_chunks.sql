-- Words of chunks in a quarter of the bytes: see 0017_wordlists.sql of the registry. Chunks can be read
-- meanwhile; who writes or deletes some waits, as their words would be put where nobody looks for them.
--
-- Gateways of before this migration find chunks by meaning only, until they are replaced.
LOCK TABLE knowledge_chunk_t IN SHARE ROW EXCLUSIVE MODE;
SELECT search_kind_list('knowledge_chunk');
