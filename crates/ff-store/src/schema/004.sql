-- Version 4: what measurers' networks were measured to carry (paper §4.2), beside the rate and when.

-- What was sent and arrived, what was received, and the most that could have come of it.
ALTER TABLE measurers ADD COLUMN measured_sent_bytes_per_sec INTEGER;
ALTER TABLE measurers ADD COLUMN measured_received_bytes_per_sec INTEGER;
ALTER TABLE measurers ADD COLUMN measured_tested_bytes_per_sec INTEGER;
-- Of all that was sent to it and by it, so much did not arrive, in thousandths.
ALTER TABLE measurers ADD COLUMN measured_loss_permille INTEGER;
-- Where it was then, as the configuration had it.
ALTER TABLE measurers ADD COLUMN measured_address TEXT;
-- Why it was not measured when that was last tried; NULL if it was.
ALTER TABLE measurers ADD COLUMN not_measured TEXT;
