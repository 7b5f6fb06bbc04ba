CREATE TABLE toy_note_t (
    host_id  uuid NOT NULL,
    owner    text NOT NULL,
    number   integer NOT NULL,
    text     text NOT NULL,
    PRIMARY KEY (host_id, owner, number)
);
