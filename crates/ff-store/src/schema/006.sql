-- Version 6: the relays that the schedule has no place for, as they were when a bandwidth file was last written.

CREATE TABLE not_scheduled (
    id                              INTEGER PRIMARY KEY,
    fingerprint                     BLOB NOT NULL UNIQUE CHECK (length(fingerprint) = 20),
    -- 'too_fast' or 'no_room'.
    reason                          TEXT NOT NULL
) STRICT;

-- When relays were asked before this store was made, by the copy beside the one before it.
CREATE TABLE copied_grants (
    id                              INTEGER PRIMARY KEY,
    fingerprint                     BLOB NOT NULL CHECK (length(fingerprint) = 20),
    unix_secs                       INTEGER NOT NULL
) STRICT;
CREATE INDEX copied_grants_of_relay ON copied_grants (fingerprint, unix_secs);
