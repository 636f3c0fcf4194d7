-- Version 7: which relays could choose when they are measured, why others are not measured again, and estimators.

-- 1: the relay came during the period, or was new when it began, and had the first slot with room: so it could know when that is.
ALTER TABLE plan ADD COLUMN at_arrival INTEGER NOT NULL DEFAULT 0 CHECK (at_arrival IN (0, 1));
CREATE INDEX plan_at_arrival ON plan (period) WHERE at_arrival = 1;

-- Of a retry that is left out because it was refused: the code of the reason.
ALTER TABLE plan ADD COLUMN refused TEXT;
-- Few retries are left out.
CREATE INDEX plan_not_again ON plan (left_out) WHERE kind = 'retry' AND left_out IS NOT NULL;

-- How the seconds of an attempt became its estimate.
ALTER TABLE attempts ADD COLUMN estimator TEXT NOT NULL DEFAULT 'bounded_median';
