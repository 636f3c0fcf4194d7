-- Version 3: what failed lately is counted without a look at what did not.

CREATE INDEX attempts_failed ON attempts (started_unix_secs, failure) WHERE failure IS NOT NULL;
