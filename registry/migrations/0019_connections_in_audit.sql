-- Accounts of people that calls were made with. Records of older gateways have none.
ALTER TABLE audit_t ADD COLUMN connection text, ADD COLUMN owner text;
COMMENT ON COLUMN audit_t.connection IS
    'Ids of the connections of people that the call was made with, separated by commas.';
COMMENT ON COLUMN audit_t.owner IS
    'The person whose shared account the call was made with, where that is not the caller.';
