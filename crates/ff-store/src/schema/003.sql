-- Version 3: which measurers say more than which relays.

-- A measurer that counted more in an attempt than the relay says that it has echoed to it.
CREATE TABLE disputes (
    attempt                         INTEGER NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
    -- Its place in the attempt's team, from 0.
    place                           INTEGER NOT NULL,
    measurer                        INTEGER NOT NULL REFERENCES measurers (id),
    -- Cells that came back, by the measurer's word and by the relay's.
    claimed_cells                   INTEGER NOT NULL,
    reported_cells                  INTEGER NOT NULL,
    PRIMARY KEY (attempt, place)
) STRICT, WITHOUT ROWID;
