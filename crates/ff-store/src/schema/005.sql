-- Version 5: what measurements have shown of the paths to relays, since when a measurer is trusted again, and when the first
-- second that counts began.

-- One row for each relay that there is a target of. The JSON is the type Known of the coordinator: round trips, loss, how many
-- links the next measurement takes at least, and at which rate more links came to nothing.
CREATE TABLE paths (
    id                              INTEGER PRIMARY KEY,
    fingerprint                     BLOB NOT NULL UNIQUE CHECK (length(fingerprint) = 20),
    known                           TEXT NOT NULL
) STRICT;

-- When the operator has said that what relays said of it before does not count; NULL if never.
ALTER TABLE measurers ADD COLUMN trusted_unix_secs INTEGER;

-- When the first second that counts began, in milliseconds since 1970; NULL where it is not known.
ALTER TABLE attempts ADD COLUMN counted_unix_millis INTEGER;
