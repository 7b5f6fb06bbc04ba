ALTER TABLE toy_word_t ADD COLUMN meaning text NOT NULL DEFAULT '';
