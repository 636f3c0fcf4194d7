"""Reads what a store's tests have exported, and the store itself, with programs that are not ours.

    python3 read_exports.py DIR

DIR has store.sqlite and, of each table, TABLE.csv and TABLE.parquet. Prints one JSON object. Needs duckdb.
"""

import json
import pathlib
import sqlite3
import sys

import duckdb

TABLES = ["results", "seconds", "failures", "disputes", "schedule", "measurers"]
# What each kind of column is to DuckDB.
TYPES = {"BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "TIMESTAMP WITH TIME ZONE"}
NAMES = {"started", "finished", "slot_start", "measured"}

folder = pathlib.Path(sys.argv[1])
duckdb.execute("SET TimeZone = 'UTC'")
tables = {}
for table in TABLES:
    parquet, csv = f"'{folder}/{table}.parquet'", f"'{folder}/{table}.csv'"
    columns = duckdb.execute(f"DESCRIBE SELECT * FROM {parquet}").fetchall()
    types = {name: kind for name, kind, *_ in columns}
    assert set(types.values()) <= TYPES, types
    for name, kind in types.items():
        assert (kind == "TIMESTAMP WITH TIME ZONE") == (name in NAMES), (name, kind)
    # With the types of the one, the other has the same rows.
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    read = f"read_csv({csv}, header = true, columns = {{{listed}}})"
    # Times as numbers: as objects they need another package.
    times = [f"CAST(epoch({name}) AS BIGINT) AS {name}" for name in types if name in NAMES]
    shown = f"SELECT * REPLACE ({', '.join(times)})"
    one = duckdb.execute(f"{shown} FROM {parquet}").fetchall()
    other = duckdb.execute(f"{shown} FROM {read}").fetchall()
    assert len(one) == len(other), table
    for row, same in zip(one, other):
        # CSV does not tell an empty text from none.
        assert [cell or None for cell in row] == [cell or None for cell in same], (row, same)
    tables[table] = {"rows": len(one), "columns": [name for name, *_ in columns]}

store = sqlite3.connect(f"file:{folder}/store.sqlite?mode=ro", uri=True)
pairs = {
    "estimates": (
        "SELECT sum(estimate_bytes_per_sec) FROM attempts WHERE verdict <> 'lower_bound'",
        f"SELECT sum(estimate_bytes_per_sec) FROM '{folder}/results.parquet'",
    ),
    "seconds": (
        "SELECT sum(measured_secs) FROM attempts",
        f"SELECT count(*) FROM '{folder}/seconds.parquet'",
    ),
    "failures": (
        "SELECT count(*) FROM results WHERE failure IS NOT NULL",
        f"SELECT count(*) FROM '{folder}/failures.parquet'",
    ),
    "demand": (
        "SELECT sum(demand_bytes_per_sec) FROM plan",
        f"SELECT sum(demand_bytes_per_sec) FROM '{folder}/schedule.parquet'",
    ),
    "first": (
        "SELECT min(started_unix_secs) FROM attempts WHERE finished_unix_secs IS NOT NULL",
        f"SELECT epoch(min(started))::BIGINT FROM '{folder}/results.parquet'",
    ),
    "names": (
        "SELECT group_concat(nickname, ' ') FROM (SELECT nickname FROM results ORDER BY attempt)",
        f"SELECT string_agg(nickname, ' ' ORDER BY attempt) FROM '{folder}/results.parquet'",
    ),
}
sums = {}
for name, (ours, theirs) in pairs.items():
    one = store.execute(ours).fetchone()[0]
    other = duckdb.execute(theirs).fetchone()[0]
    assert one == other, (name, one, other)
    sums[name] = one
measured = duckdb.execute(
    f"SELECT sum(measurement_bytes), sum(total_bytes) FROM '{folder}/seconds.parquet'"
).fetchone()
sums["measurement_bytes"], sums["total_bytes"] = map(int, measured)
sums["first_utc"] = duckdb.execute(
    f"SELECT CAST(min(started) AS VARCHAR) FROM '{folder}/results.parquet'"
).fetchone()[0]
print(json.dumps({"tables": tables, "sums": sums}))
