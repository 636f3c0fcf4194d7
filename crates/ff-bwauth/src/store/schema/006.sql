-- Version 6: the relays that the schedule has no place for, as they were when a bandwidth file was last written.

CREATE TABLE not_scheduled (
    id                              INTEGER PRIMARY KEY,
    fingerprint                     BLOB NOT NULL UNIQUE CHECK (length(fingerprint) = 20),
    -- 'too_fast' or 'no_room'.
    reason                          TEXT NOT NULL
) STRICT;
