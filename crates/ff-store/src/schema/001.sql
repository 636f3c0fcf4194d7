-- The store of a coordinator, version 1. doc/store.md explains it.
--
-- Times are seconds since 1970 in UTC, rates are bytes per second. Numbers have 64 bits: 2^63 and more, which
-- only a broken counter reaches, are stored as the negative number with the same bits.

-- Whose store it is: one row.
CREATE TABLE meta (
    id                              INTEGER PRIMARY KEY CHECK (id = 1),
    -- The coordinator's Ed25519 identity.
    coordinator                     BLOB NOT NULL CHECK (length(coordinator) = 32)
) STRICT;

-- Measurement periods.
CREATE TABLE periods (
    number                          INTEGER PRIMARY KEY,
    start_unix_secs                 INTEGER NOT NULL,
    length_secs                     INTEGER NOT NULL,
    slot_secs                       INTEGER NOT NULL,
    slots                           INTEGER NOT NULL,
    -- When the consensus that it was planned with became valid.
    consensus_valid_after_unix_secs INTEGER NOT NULL,
    -- SHA-256 of the schedule's seed: shows that two coordinators had the same, and not which.
    seed_sha256                     BLOB NOT NULL CHECK (length(seed_sha256) = 32),
    -- When the coordinator planned it, and when it was done with it.
    planned_unix_secs               INTEGER NOT NULL,
    finished_unix_secs              INTEGER
) STRICT;

-- Who is measured when. Each row is carried out by one attempt at most; a retry is a row of its own.
CREATE TABLE plan (
    id                              INTEGER PRIMARY KEY AUTOINCREMENT,
    period                          INTEGER NOT NULL REFERENCES periods (number),
    slot                            INTEGER NOT NULL,
    fingerprint                     BLOB NOT NULL CHECK (length(fingerprint) = 20),
    kind                            TEXT NOT NULL CHECK (kind IN ('old', 'new', 'retry')),
    -- Rows of one period with one number are relays that are measured at the same time.
    group_number                    INTEGER NOT NULL,
    -- What its measurement was to have of the team.
    demand_bytes_per_sec            INTEGER NOT NULL,
    -- Why it is not carried out; NULL for what is.
    left_out                        TEXT
) STRICT;
CREATE INDEX plan_of_period ON plan (period, slot);

-- What relays were called and where they were, as often as one of it changed.
CREATE TABLE targets (
    id                              INTEGER PRIMARY KEY,
    -- The RSA fingerprint by which the network's documents name it.
    fingerprint                     BLOB NOT NULL CHECK (length(fingerprint) = 20),
    ed_identity                     BLOB NOT NULL CHECK (length(ed_identity) = 32),
    address                         TEXT NOT NULL,
    nickname                        TEXT,
    -- The fingerprint that the outcome names; NULL when no link has shown one.
    shown_fingerprint               BLOB CHECK (length(shown_fingerprint) = 20)
) STRICT;
CREATE UNIQUE INDEX targets_once ON targets (
    fingerprint, ed_identity, address, nickname IS NULL, ifnull(nickname, ''), ifnull(shown_fingerprint, x'')
);
CREATE INDEX targets_by_nickname ON targets (nickname COLLATE NOCASE);

-- Attempts to measure a relay. A row is there before the relay is asked; finished_unix_secs is NULL until it is
-- known what came of it, and so is what stands below it.
CREATE TABLE attempts (
    id                              INTEGER PRIMARY KEY AUTOINCREMENT,
    target                          INTEGER NOT NULL REFERENCES targets (id),
    -- The row of the plan that it carries out; NULL for one that was asked for by hand.
    plan                            INTEGER REFERENCES plan (id),
    started_unix_secs               INTEGER NOT NULL,
    -- 1 unless it is known that the relay has not granted it.
    grant_used                      INTEGER NOT NULL CHECK (grant_used IN (0, 1)),
    method                          TEXT NOT NULL,
    asked_secs                      INTEGER NOT NULL,
    ratio_percent                   INTEGER NOT NULL,
    allocated_bytes_per_sec         INTEGER,

    finished_unix_secs              INTEGER,
    -- Seconds that were measured, also when their samples are gone.
    measured_secs                   INTEGER,
    granted_secs                    INTEGER,
    -- The number of the cipher (PROTOCOL.md 4.2).
    crypto                          INTEGER,
    verdict                         TEXT,
    -- Only of those whose verdict is 'failed'.
    failure                         TEXT,
    relay_code                      INTEGER,
    message                         TEXT,
    estimate_bytes_per_sec          INTEGER,
    draw                            TEXT,
    draw_bytes_per_sec              INTEGER,
    limit_bytes_per_sec             INTEGER,
    cells_sent                      INTEGER,
    cells_echoed                    INTEGER,
    cells_checked                   INTEGER,
    cells_bad                       INTEGER,
    rtt_p50_ms                      REAL,
    rtt_p90_ms                      REAL,
    rtt_p99_ms                      REAL,
    rtt_max_ms                      REAL,
    cpu_measurers_secs              REAL,
    cpu_target_secs                 REAL,
    sockets_asked                   INTEGER,
    sockets_opened                  INTEGER,
    CHECK ((finished_unix_secs IS NULL) = (verdict IS NULL)),
    CHECK ((verdict IS 'failed') = (failure IS NOT NULL))
) STRICT;
CREATE INDEX attempts_by_start ON attempts (started_unix_secs);
CREATE INDEX attempts_of_target ON attempts (target, started_unix_secs);
-- What is known of each relay's capacity, without looking at the attempts.
CREATE INDEX attempts_conclusive ON attempts (target, started_unix_secs, estimate_bytes_per_sec)
    WHERE verdict = 'conclusive';
CREATE INDEX attempts_failed ON attempts (started_unix_secs, failure) WHERE failure IS NOT NULL;
CREATE UNIQUE INDEX attempts_of_plan ON attempts (plan) WHERE plan IS NOT NULL;
CREATE INDEX attempts_begun ON attempts (id) WHERE finished_unix_secs IS NULL;

-- The seconds of an attempt, as doc/store.md describes the bytes. They are kept for a shorter time.
CREATE TABLE samples (
    attempt                         INTEGER PRIMARY KEY REFERENCES attempts (id) ON DELETE CASCADE,
    seconds                         BLOB NOT NULL
) STRICT;

-- Measurement hosts.
CREATE TABLE measurers (
    id                              INTEGER PRIMARY KEY,
    identity                        BLOB NOT NULL UNIQUE CHECK (length(identity) = 32),
    -- What the configuration calls it; empty as long as it has not been said.
    name                            TEXT NOT NULL,
    -- What its operator says that it carries.
    stated_bytes_per_sec            INTEGER,
    -- What it was measured to carry, and when.
    measured_bytes_per_sec          INTEGER,
    measured_unix_secs              INTEGER,
    -- How often it counted what a relay says it has not echoed.
    disputes                        INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Which measurers took part in an attempt, with how much and how many links.
CREATE TABLE shares (
    attempt                         INTEGER NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
    measurer                        INTEGER NOT NULL REFERENCES measurers (id),
    -- NULL: as fast as it could.
    rate_bytes_per_sec              INTEGER,
    links                           INTEGER NOT NULL,
    PRIMARY KEY (attempt, measurer)
) STRICT, WITHOUT ROWID;

-- What retention has deleted, summed up by the day on which it began (days since 1970 in UTC).
CREATE TABLE daily (
    day                             INTEGER NOT NULL,
    verdict                         TEXT NOT NULL,
    -- Empty unless the verdict is 'failed'.
    failure                         TEXT NOT NULL,
    attempts                        INTEGER NOT NULL,
    grants_used                     INTEGER NOT NULL,
    measured_secs                   INTEGER NOT NULL,
    -- The sum of the estimates of those that have one, and how many have.
    estimates                       INTEGER NOT NULL,
    estimate_sum_bytes_per_sec      INTEGER NOT NULL,
    PRIMARY KEY (day, verdict, failure)
) STRICT, WITHOUT ROWID;

-- Finished attempts for people: names and times that can be read.
CREATE VIEW results AS
SELECT
    attempts.id AS attempt, plan.period, plan.slot, plan.kind,
    hex(targets.fingerprint) AS fingerprint, targets.nickname, targets.address,
    datetime(attempts.started_unix_secs, 'unixepoch') AS started_utc,
    datetime(attempts.finished_unix_secs, 'unixepoch') AS finished_utc,
    attempts.verdict, attempts.failure, attempts.message,
    attempts.estimate_bytes_per_sec, attempts.draw, attempts.draw_bytes_per_sec,
    attempts.allocated_bytes_per_sec, attempts.asked_secs, attempts.granted_secs, attempts.measured_secs,
    attempts.grant_used
FROM attempts
JOIN targets ON targets.id = attempts.target
LEFT JOIN plan ON plan.id = attempts.plan
WHERE attempts.finished_unix_secs IS NOT NULL;
