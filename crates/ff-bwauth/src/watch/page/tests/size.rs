//! Tests how long pages and `explain` take with ten thousand relays and a year of results.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64ct::{Base64Unpadded, Encoding};
use ff_base::utc::now_unix_secs as now;
use ff_plan::publish::PublishRules;
use ff_store::{Begin, Store, ToPlan};
use rusqlite::Connection;

use super::http::get;
use super::served::Served;
use crate::watch::explain::Explanation;
use crate::watch::made_up::{self, fingerprint, outcome, period, publication, publish, status};
use crate::watch::page::connection::Deadlines;

const RELAYS: u32 = 10_000;
/// Days with results.
const DAYS: u32 = 365;
/// Days with seconds.
const SAMPLES_DAYS: u32 = 30;
/// The time limit of a page.
const MOST: Duration = Duration::from_millis(50);
/// The time limit of the command `explain`: it reads the results of all relays for a month.
const MOST_TO_EXPLAIN: Duration = Duration::from_secs(2);
/// Other lines of a descriptor, which has two kilobytes or more.
const FILLER: &str = "opt a-line-as-long-as-those-of-keys-and-certificates-in-real-descriptors\n";

/// A relay's address: eight relays share one.
fn ip(relay: u32) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from(0x0b00_0000 + relay / 8)
}

/// Fills a store: 200 relays of today by the API, all others as copies of these.
fn fill(path: &Path) {
    made_up::fill(path, 0);
    let mut store = Store::open(path, [7; 32]).expect("a store");
    let start = period().start_unix_secs;
    let mut attempts = Vec::new();
    for relay in 0..200 {
        let outcome = outcome(relay, start);
        let begin = Begin::of(fingerprint(relay), &outcome, None);
        let id = store.begin_attempt(&begin).expect("begun");
        store.finish_attempt(id, &outcome, start + 40).expect("finished");
        attempts.push(id);
    }
    let plan = |relay: u32| ToPlan {
        fingerprint: fingerprint(relay),
        slot: relay.wrapping_mul(997) % 1920,
        kind: ff_store::Kind::Old,
        group: relay,
        demand: ff_proto::units::BytesPerSec::from_mbit(250),
    };
    let rows: Vec<_> = (0..RELAYS).map(plan).collect();
    store.add_to_plan(period().number, &rows).expect("planned");
    drop(store);
    let db = Connection::open(path).expect("a database");
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; BEGIN")
        .expect("begun");
    let mut target = db
        .prepare(
            "INSERT OR IGNORE INTO targets (id, fingerprint, ed_identity, address, nickname, shown_fingerprint)
             VALUES (?1, ?2, ?3, ?5, ?4, ?2)",
        )
        .expect("a statement");
    for relay in 200..RELAYS {
        let id = outcome(relay, 0).target.ed_identity;
        let (name, address) = (format!("relay{relay}"), format!("{}:9001", ip(relay)));
        target
            .execute(rusqlite::params![relay + 1, fingerprint(relay), id, name, address])
            .expect("inserted");
    }
    drop(target);
    let columns = columns(&db);
    // Day 0 is today; its attempts carry out the plan.
    db.execute_batch(&format!(
        "CREATE TEMP TABLE day AS WITH RECURSIVE d(day) AS (SELECT 0 UNION ALL SELECT day + 1 FROM d WHERE day < {DAYS} - 1)
         SELECT day FROM d;
         CREATE TEMP TABLE relay AS WITH RECURSIVE r(relay) AS (SELECT 200 UNION ALL SELECT relay + 1 FROM r WHERE relay < {RELAYS} - 1)
         SELECT relay FROM r;
         INSERT INTO attempts (target, plan, started_unix_secs, finished_unix_secs, {columns})
         SELECT relay + 1, CASE day WHEN 0 THEN (SELECT max(id) FROM plan) - {RELAYS} + relay + 1 END,
         {start} - day * 86400 + relay * 8, {start} - day * 86400 + relay * 8 + 40, {columns}
         FROM day, relay JOIN attempts ON attempts.id = relay % 200 + 1;
         INSERT INTO samples SELECT new.id, seconds FROM attempts new JOIN samples ON attempt = (new.target - 1) % 200 + 1
         WHERE new.id > 200 AND new.started_unix_secs >= {start} - {SAMPLES_DAYS} * 86400;
         COMMIT"
    ))
    .expect("filled");
}

/// The copied columns of attempts.
fn columns(db: &Connection) -> String {
    let own = ["id", "target", "plan", "started_unix_secs", "finished_unix_secs"];
    let mut statement =
        db.prepare("SELECT name FROM pragma_table_info('attempts')").expect("a statement");
    let names = statement
        .query_map([], |row| row.get::<_, String>(0))
        .expect("names")
        .map(|name| name.expect("a name"));
    names
        .filter(|name| !own.contains(&name.as_str()))
        .map(|name| format!("attempts.{name}"))
        .collect::<Vec<_>>()
        .join(", ")
        .replace("attempts.", "")
}

/// Writes a coordinator's config and the network's documents next to the store.
fn write_config(dir: &Path) {
    let mut consensus = String::from(
        "network-status-version 3\nvote-status consensus\nvalid-after 2026-11-22 12:00:00\n",
    );
    let mut descriptors = String::new();
    let mut relays: Vec<_> = (0..RELAYS).map(|relay| (fingerprint(relay), relay)).collect();
    relays.sort_unstable();
    for (name, relay) in relays {
        let (base64, hex) = (Base64Unpadded::encode_string(&name), hex::encode_upper(name));
        let ip = ip(relay);
        write!(
            consensus,
            "r relay{relay} {base64} {base64} 2026-11-22 12:00:00 {ip} 9001 0\nw Bandwidth=100\n"
        )
        .expect("text grows");
        write!(
            descriptors,
            "router relay{relay} {ip} 9001 0 0\nfingerprint {hex}\nbandwidth 2000000 2000000 1\n\
             {}router-signature\n-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n",
            FILLER.repeat(30)
        )
        .expect("text grows");
    }
    let config = "key = 'key'\nstate_dir = '.'\npublish_dir = 'v3bw'\n\
         [network]\nconsensus = 'consensus'\ndescriptors = ['descriptors']\n[period]\nsecret = 'secret'\n\
         [[measurer]]\nname = 'm1'\naddress = '127.0.0.1:9'\n\
         identity = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'\ncapacity = '1Gbit'\n";
    for (name, text) in [
        ("consensus", consensus + "directory-footer\n"),
        ("descriptors", descriptors),
        ("key", Base64Unpadded::encode_string(&[5; 32])),
        ("secret", "6".repeat(32)),
        ("bwauth.toml", config.to_owned()),
    ] {
        fs::write(dir.join(name), text).expect("written");
    }
    for private in ["key", "secret"] {
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(dir.join(private), mode).expect("set");
    }
}

/// The median duration of the command `explain` in this directory; the program must have been built
/// with the tests.
fn time_to_explain(dir: &Path, relay: &str) -> Duration {
    let test = std::env::current_exe().expect("this test's own path");
    let built = test.parent().and_then(Path::parent).expect("the folder of what was built");
    let program = built.join("ff-bwauth");
    assert!(program.exists(), "{} is not built: cargo build --workspace", program.display());
    let run = |_| {
        let began = Instant::now();
        let mut command = Command::new(&program);
        command.args(["explain", relay, "--config"]).arg(dir.join("bwauth.toml"));
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        began.elapsed()
    };
    let mut times: Vec<_> = (0..9).map(run).collect();
    println!("the command explain: first {:.1?}", times[0]);
    times.sort_unstable();
    println!("the command explain: median {:.1?}, greatest {:.1?}", times[4], times[8]);
    times[4]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "fills 1.3 GB; run it when a page or a query has changed"]
async fn every_page_answers_in_time_with_a_year_of_ten_thousand_relays() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.sqlite");
    let began = Instant::now();
    fill(&path);
    let bytes = std::fs::metadata(&path).expect("a file").len();
    println!("filled in {:?}: {} MB", began.elapsed(), bytes / 1_000_000);
    publish(dir.path(), RELAYS);
    let network = publication(RELAYS);
    let root = dir.path().to_owned();
    let served =
        Served::over(dir, &path, status(RELAYS), network.clone(), Deadlines::default()).await;
    let relay = format!("/relay/{}", hex::encode_upper(fingerprint(4321)));
    let mut late = Vec::new();
    for path in [
        "/",
        "/team",
        "/capacities",
        "/failures",
        "/relays",
        "/relays?find=relay4321",
        "/relays?find=r",
        "/relays?find=A5",
        "/relays?sort=nickname&order=desc&page=50",
        &relay,
        "/status.json",
        "/metrics",
    ] {
        let mut times = Vec::new();
        let mut length = 0;
        for round in 0..5 {
            // Cached values must not be used: each is computed again.
            tokio::time::sleep(Duration::from_millis(if round == 0 || path.len() < 12 {
                1100
            } else {
                100
            }))
            .await;
            if path == "/failures" && round > 0 {
                tokio::time::sleep(Duration::from_secs(9)).await;
            }
            let began = Instant::now();
            let answer = get(served.addr, path).await;
            times.push(began.elapsed());
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            length = answer.len();
        }
        let first = times[0];
        times.sort_unstable();
        println!(
            "{path}: median {:.1?}, greatest {:.1?}, first {first:.1?}, {} kB",
            times[2],
            times[4],
            length / 1000
        );
        if times[2] > MOST {
            late.push((path.to_owned(), times[2]));
        }
    }
    let reader = Store::open_read_only(&path).expect("a store");
    let began = Instant::now();
    let mut network = network;
    network.now_unix_secs = now();
    let rules = PublishRules::default();
    let memory = reader.memory(now(), rules.max_age_secs).expect("read");
    let explained = Explanation::of(&reader, &memory, &network, &rules, None, &fingerprint(4321));
    let text = explained.expect("explained").to_string();
    println!("explain: {:.1?}\n{}", began.elapsed(), text.lines().last().unwrap_or_default());
    write_config(&root);
    let command = time_to_explain(&root, &hex::encode_upper(fingerprint(4321)));
    assert!(command < MOST_TO_EXPLAIN, "explain took {command:?}");
    assert!(late.is_empty(), "{late:?} took longer than {MOST:?}");
}
