-- Version 8: on whose word an attempt failed.

-- The identity of the measurer on whose word alone the attempt failed by the relay or the path to it.
ALTER TABLE attempts ADD COLUMN accuser BLOB CHECK (length(accuser) = 32);
