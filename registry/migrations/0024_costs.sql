-- Costs by day. Older nodes neither read nor write them.
CREATE TABLE cost_t (
    host_id       uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    day           date NOT NULL,
    kind          varchar(11) NOT NULL CHECK (kind IN ('model', 'definitions', 'answers')),
    caller        varchar(255) NOT NULL,
    toolset       varchar(63) NOT NULL,
    model         varchar(255) NOT NULL,
    currency      varchar(3) NOT NULL,
    requests      bigint NOT NULL,
    tokens_in     bigint NOT NULL,
    tokens_out    bigint NOT NULL,
    money_micros  bigint NOT NULL,
    PRIMARY KEY (host_id, day, kind, caller, toolset, model, currency)
);
COMMENT ON TABLE cost_t IS 'Tokens and money of each day (UTC), if costs.enabled.';
COMMENT ON COLUMN cost_t.kind IS
    'model: requests to chat models; definitions, answers: what clients were sent.';
COMMENT ON COLUMN cost_t.caller IS
    'Principal. Empty: work in the background; _OTHER: beyond costs.rows.';
COMMENT ON COLUMN cost_t.toolset IS 'Of the endpoint; empty: all tools.';
COMMENT ON COLUMN cost_t.model IS 'STRATEGY/MODEL of the kind model, else empty.';
COMMENT ON COLUMN cost_t.currency IS 'Of the price; empty: the model has none.';
COMMENT ON COLUMN cost_t.tokens_in IS 'Tokens that the model read.';
COMMENT ON COLUMN cost_t.tokens_out IS
    'Tokens that the model wrote, or that a client was sent (characters / 4).';
COMMENT ON COLUMN cost_t.money_micros IS 'Millionths of the currency.';
