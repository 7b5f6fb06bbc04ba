CREATE TABLE toy_word_t (
    host_id  uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    word     text NOT NULL,
    PRIMARY KEY (host_id, word)
);
