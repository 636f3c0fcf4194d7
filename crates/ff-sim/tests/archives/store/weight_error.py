"""The network's weight error (Eq. 6) at each hour of a store, for windows of an hour and of a day, by DuckDB."""

import json, sys

import duckdb

QUERY = """
WITH advertised AS (
  SELECT epoch(valid_after)::BIGINT AS time, fingerprint, weight,
    least(rate_bytes_per_sec, burst_bytes_per_sec, observed_bytes_per_sec) AS advertised
  FROM read_parquet('{store}/consensus_relays/*/part.parquet') AS listed
  LEFT JOIN read_parquet('{store}/descriptors/*/part.parquet') AS described USING (digest, fingerprint)
  WHERE flavour = 'ns'),
seen AS (
  SELECT now.time, now.fingerprint, any_value(now.weight) AS weight, max(past.advertised) AS capacity
  FROM advertised AS now JOIN advertised AS past
    ON past.fingerprint = now.fingerprint AND past.time > now.time - {window} AND past.time <= now.time
  GROUP BY now.time, now.fingerprint),
counted AS (SELECT * FROM seen WHERE weight IS NOT NULL AND capacity > 0),
sums AS (SELECT time, sum(weight) AS weights, sum(capacity) AS capacities FROM counted GROUP BY time)
SELECT time, sum(abs(weight / weights - capacity / capacities)) / 2
FROM counted JOIN sums USING (time) GROUP BY time ORDER BY time
"""

errors = {}
for window in (3600, 86400):
    for time, error in duckdb.sql(QUERY.format(store=sys.argv[1], window=window)).fetchall():
        errors[f"{window}@{time}"] = error
print(json.dumps({"errors": errors}))
