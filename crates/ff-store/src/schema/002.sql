-- Version 2: what has happened in a period, so that its timetable can be made anew.

-- Row 0 of a period is what it began with, the others what happened since, each as JSON: the types Beginning and
-- Event of the program. They are kept for as long as a period may be taken up again.
CREATE TABLE events (
    period                          INTEGER NOT NULL REFERENCES periods (number),
    number                          INTEGER NOT NULL,
    event                           TEXT NOT NULL,
    PRIMARY KEY (period, number)
) STRICT, WITHOUT ROWID;
