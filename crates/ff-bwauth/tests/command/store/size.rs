//! The size of a store, and its speed and memory use when it is large.
//!
//! The large stores are filled by SQL with copies of one attempt, and are not part of the usual
//! tests:
//!
//! ```sh
//! cargo test --release -p ff-bwauth --no-default-features --features store --test store -- \
//!     --ignored --nocapture --test-threads 1
//! ```
//!
//! `FF_TEST_STORE` names an existing store of these tests.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ff_plan::outcome::Outcome;
use ff_proto::aggregate::SecondSample;
use ff_store::{Attempt, AttemptId, Kind, Retention, Seconds, Store, StoreError};
use rusqlite::{Connection, params};

use super::{COORDINATOR, Temporary, begin, period, to_plan};
use crate::samples::{NOW, outcome};

/// A day, in seconds.
const DAY: u64 = 86_400;
/// The beginning of the current day.
const TODAY: u64 = NOW / DAY * DAY;
/// The largest CPU time of a page's queries.
const MOST_TIME: Duration = Duration::from_millis(50);

/// A measurement of a relay of 1 Gbit/s with 25 % of background, in which all seconds differ.
fn typical() -> Outcome {
    let second = |index: u64| {
        let noise = index.wrapping_mul(6_364_136_223_846_793_005) >> 33;
        let measurement_bytes = (243_190 - noise % 12_000) * 514;
        let step = measurement_bytes / 75;
        let background = (measurement_bytes / 4 - noise % 9_000_000) / step * step;
        SecondSample {
            measurement_bytes,
            background_sent_bytes: background,
            background_received_bytes: background,
        }
    };
    Outcome { seconds: (0..30).map(second).collect(), ..outcome(1, 100) }
}

/// Copies the first attempt of the store at `path`, its plan, its seconds and its shares for
/// `relays` on each of `days` before today; `retries` in a hundred have two attempts.
fn fill(path: &Path, relays: u32, days: u64, retries: u32, samples_days: u64) {
    let db = Connection::open(path).expect("a database");
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000").expect("faster");
    let columns = columns(
        &db,
        "attempts",
        &["id", "target", "plan", "started_unix_secs", "finished_unix_secs"],
    );
    db.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO targets (fingerprint, ed_identity, address, nickname, shown_fingerprint)
         SELECT f, CAST(f || substr(f, 1, 12) AS BLOB), '198.51.100.' || (i % 250) || ':9001', 'relay' || i, f
         FROM (SELECT i, randomblob(20) AS f FROM n)",
        [relays],
    )
    .expect("relays");
    for day in (1..=days).rev() {
        let start = (TODAY - day * DAY).cast_signed();
        let number = start / DAY.cast_signed();
        db.execute_batch("BEGIN").expect("begun");
        db.execute(
            "INSERT INTO periods SELECT ?1, ?2, length_secs, slot_secs, slots,
             consensus_valid_after_unix_secs, seed_sha256, ?2, ?2 + 86400 FROM periods WHERE number = 1",
            params![number, start],
        )
        .expect("a period");
        for (kind, most) in [("old", 100), ("retry", retries)] {
            db.execute(
                "INSERT INTO plan (period, slot, fingerprint, kind, group_number, demand_bytes_per_sec)
                 SELECT ?1, id * 7919 % 2160, fingerprint, ?2, id, 375000000 FROM targets
                 WHERE id > 1 AND id % 100 < ?3",
                params![number, kind, most],
            )
            .expect("a plan");
        }
        db.execute(
            &format!(
                "INSERT INTO attempts (target, plan, started_unix_secs, finished_unix_secs, {columns})
                 SELECT t.id, p.id, ?2 + p.slot * 40, ?2 + p.slot * 40 + 40, {columns} FROM
                 (SELECT * FROM plan WHERE period = ?1) p JOIN targets t ON t.fingerprint = p.fingerprint
                 JOIN (SELECT {columns} FROM attempts WHERE id = 1) ORDER BY p.slot"
            ),
            params![number, start],
        )
        .expect("attempts");
        let of_day = "SELECT a.id FROM attempts a JOIN plan p ON p.id = a.plan WHERE p.period = ?1";
        if day <= samples_days {
            let sql = format!(
                "INSERT INTO samples SELECT d.id, seconds FROM ({of_day}) d, samples WHERE attempt = 1"
            );
            db.execute(&sql, [number]).expect("samples");
        }
        let sql = format!(
            "INSERT INTO shares SELECT d.id, measurer, rate_bytes_per_sec, links FROM ({of_day}) d, shares
             WHERE attempt = 1"
        );
        db.execute(&sql, [number]).expect("shares");
        db.execute_batch("COMMIT").expect("committed");
    }
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("written back");
}

/// The columns of a table except some.
fn columns(db: &Connection, table: &str, without: &[&str]) -> String {
    let mut statement = db.prepare(&format!("SELECT * FROM {table}")).expect("a table");
    let names = statement.column_names().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let _ = &mut statement;
    names
        .into_iter()
        .filter(|name| !without.contains(&name.as_str()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A closed store with one typical attempt by three measurers in period 1.
fn seeded() -> Temporary {
    let mut temporary = Temporary::new();
    let one = typical();
    let mut first = period(1);
    first.start_unix_secs = TODAY - 400 * DAY;
    temporary.store.set_plan(&first, &[to_plan(1, 1, Kind::Old)]).expect("a plan");
    let mut begun = begin(&one);
    begun.started_unix_secs = NOW;
    begun.plan = Some(temporary.store.planned(1).expect("read")[0].id);
    begun.shares.push(ff_store::Share { measurer: [3; 32], ..begun.shares[0] });
    let id = temporary.store.begin_attempt(&begun).expect("begun");
    assert_eq!(id, AttemptId(1));
    temporary.store.finish_attempt(id, &one, NOW + 40).expect("finished");
    temporary
}

/// The size of a store, in bytes.
fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").len()
}

/// The largest memory of this process so far, in MiB.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}

/// The CPU time of this thread.
fn on_processor() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("a status");
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

/// Runs `work`, prints its duration, and returns its CPU time, which excludes other programs.
#[expect(clippy::print_stdout, reason = "the figures are what the tests are for")]
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> (T, Duration) {
    let (start, before) = (Instant::now(), on_processor());
    let value = work();
    let (took, had) = (start.elapsed(), on_processor() - before);
    println!("{what}: {took:.1?}, {had:.1?} of a processor");
    (value, had)
}

#[test]
fn a_months_attempts_take_as_much_as_the_document_says_and_go_when_they_are_old() {
    let mut temporary = seeded();
    let path = temporary.path();
    fill(&path, 300, 40, 5, 40);
    let attempts = 300 * 40 * 105 / 100;
    let full = size(&path);
    println!("{} bytes for each attempt", full / attempts);
    assert!((300..600).contains(&(full / attempts)), "{full} bytes for {attempts} attempts");

    let keep = Retention { samples_days: 10, results_days: 20 };
    let deleted = temporary.store.retain(NOW, &keep).expect("deleted");
    // The current day is additional, with the first attempt.
    println!("{deleted:?}");
    assert_eq!(deleted.attempts, attempts / 2);
    assert_eq!(deleted.planned, attempts / 2);
    assert!(size(&path) < full / 2, "{} of {full} bytes", size(&path));
    let db = Connection::open(&path).expect("a database");
    let count = |sql: &str| {
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number").unsigned_abs()
    };
    assert_eq!(count("SELECT sum(attempts) FROM daily"), attempts / 2);
    assert_eq!(count("SELECT count(*) FROM daily"), 20);
    assert_eq!(count("SELECT count(*) FROM samples"), attempts / 4 + 1);
    assert_eq!(count("SELECT count(*) FROM periods"), 20 + 1);
    // A second call deletes nothing.
    let again = temporary.store.retain(NOW, &keep).expect("deleted");
    assert_eq!((again.attempts, again.samples, again.planned), (0, 0, 0));
}

#[test]
fn a_clock_that_jumps_deletes_nothing() {
    let mut temporary = seeded();
    fill(&temporary.path(), 20, 5, 0, 5);
    let keep = Retention { samples_days: 10, results_days: 10 };
    for now in [NOW + 4000 * DAY, u64::MAX, NOW - 4000 * DAY, 0] {
        let deleted = temporary.store.retain(now, &keep).expect("deleted");
        assert_eq!((deleted.attempts, deleted.samples), (0, 0), "{now}");
    }
    // Attempts that a jump of the clock has dated into the future displace no more than their own
    // number of days.
    let mut odd = outcome(9, 100);
    odd.started_unix_secs = NOW + 4000 * DAY;
    temporary.put(&odd);
    let deleted = temporary.store.retain(NOW + 4000 * DAY, &keep).expect("deleted");
    assert_eq!((deleted.attempts, deleted.samples), (0, 0));
    let keep = Retention { samples_days: 1, results_days: 3 };
    let deleted = temporary.store.retain(NOW + 4000 * DAY, &keep).expect("deleted");
    assert_eq!(deleted.attempts, 4 * 20, "what is left is of three days");
}

#[test]
#[ignore = "fills 100 MB and measures: run it alone"]
fn a_month_of_7000_relays() {
    let temporary = seeded();
    let path = temporary.path();
    let ((), _) = timed("fill", || fill(&path, 7000, 30, 5, 30));
    let total = size(&path);
    println!("a month of 7,000 relays: {} MB", total / 1_000_000);
    let db = Connection::open(&path).expect("a database");
    let mut parts = db
        .prepare("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 10")
        .expect("dbstat");
    let rows = parts.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
    for row in rows.expect("rows") {
        let (name, bytes) = row.expect("a row");
        println!("  {name}: {} MB", bytes / 1_000_000);
    }
    assert!(total < 130_000_000, "{total}");
}

#[test]
#[ignore = "fills 1.5 GB and measures: run it alone"]
fn a_year_of_10000_relays_is_opened_and_asked_fast_and_in_little_memory() {
    let (dir, path) = match std::env::var_os("FF_TEST_STORE") {
        Some(path) => (None, path.into()),
        None => {
            let temporary = seeded();
            let path = temporary.path();
            let ((), _) = timed("fill", || fill(&path, 10_000, 365, 5, 30));
            (Some(temporary.dir), path)
        }
    };
    println!("{} MB", size(&path) / 1_000_000);
    // Filling may use more memory than reading is allowed.
    fs::write("/proc/self/clear_refs", "5").expect("the peak is forgotten");
    let before = peak_mib();
    let (mut store, _) =
        timed("open and check", || Store::open(&path, COORDINATOR).expect("a store"));
    let last = TODAY / DAY - 1;
    let fingerprint = store.planned(last).expect("read")[5000].what.fingerprint;
    let none = |_: Attempt| Ok::<_, StoreError>(());
    for round in 1..=3 {
        println!("round {round}");
        let mut times = Vec::new();
        let mut query = |what: &str, work: &dyn Fn(&Store)| {
            let (_, took) = timed(what, || work(&store));
            times.push((what.to_owned(), took));
        };
        query("coverage", &|store| drop(store.coverage(last).expect("read")));
        query("pending", &|store| drop(store.pending(last).expect("read")));
        query("running", &|store| drop(store.running().expect("read")));
        query("estimates of a month", &|store| {
            drop(store.estimates(TODAY - 30 * DAY).expect("read"))
        });
        query("failures of a month", &|store| {
            drop(store.failures(TODAY - 30 * DAY..NOW).expect("read"))
        });
        query("history of a relay, 30 with seconds", &|store| {
            drop(store.history(&fingerprint, 30, Seconds::With).expect("read"));
        });
        query("history of a relay, a year without", &|store| {
            drop(store.history(&fingerprint, 400, Seconds::Without).expect("read"));
        });
        query("grants used", &|store| {
            assert!(
                !store.grants_used(&fingerprint, TODAY - DAY, u64::MAX).expect("read").is_empty()
            );
        });
        if round == 3 {
            for (what, took) in times {
                assert!(took < MOST_TIME, "{what}: {took:?}");
            }
        }
        timed("what is known of each relay", || store.known()).0.expect("read");
        timed("latest of each relay", || store.latest(TODAY - 30 * DAY, Seconds::Without, none))
            .0
            .expect("read");
        timed("latest of each relay with seconds", || {
            store.latest(TODAY - 30 * DAY, Seconds::With, none)
        })
        .0
        .expect("read");
        timed("attempts of a day with seconds", || {
            store.attempts(TODAY - DAY..TODAY, Seconds::With, none)
        })
        .0
        .expect("read");
    }
    println!("memory: {before} MiB before, at most {} MiB while it was asked", peak_mib());
    assert!(peak_mib() < before + 20);
    timed("one attempt", || {
        let one = typical();
        let id = store.begin_attempt(&begin(&one)).expect("begun");
        store.finish_attempt(id, &one, NOW).expect("finished");
    });
    let keep = Retention { samples_days: 27, results_days: 362 };
    let (deleted, _) = timed("a day's retention", || store.retain(NOW, &keep).expect("deleted"));
    println!("{deleted:?}, {} MB left", size(&path) / 1_000_000);
    println!("memory: at most {} MiB with retention", peak_mib());
    drop(dir);
}
