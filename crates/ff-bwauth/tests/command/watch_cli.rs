//! `ff-bwauth status`, `explain` and `doctor` as commands.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64ct::{Base64Unpadded, Encoding};
use ff_base::utc::Utc;
use ff_bwauth::watch::page;
use ff_bwauth::watch::status::{Cause, NetworkStatus, Problem, Status};
use ff_proto::units::BytesPerSec;
use ff_store::{Begin, Kind, Period, Store, ToPlan};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::samples::outcome;

/// The present time, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// A consensus of an hour ago with relays 1 to `relays`, whose fingerprints are their numbers.
fn consensus(relays: u32) -> String {
    let valid_after =
        Utc::from_unix_secs(now() - 3600).expect("a time").to_string().replace('T', " ");
    let mut text =
        format!("network-status-version 3\nvote-status consensus\nvalid-after {valid_after}\n");
    for number in 1..=relays {
        let name = Base64Unpadded::encode_string(&fingerprint(number));
        let (high, low) = (number / 200, number % 200 + 1);
        writeln!(
            text,
            "r relay{number} {name} 2026-11-21 12:00:00 10.1.{high}.{low} 9001 0\nw Bandwidth=100"
        )
        .expect("text grows");
    }
    text + "directory-footer\n"
}

/// The fingerprint of a relay: that of the samples for the first ones.
fn fingerprint(number: u32) -> [u8; 20] {
    match u8::try_from(number) {
        Ok(number @ ..=3) => [number; 20],
        _ => {
            let mut fingerprint = [0xEE; 20];
            fingerprint[1..5].copy_from_slice(&number.to_be_bytes());
            fingerprint
        }
    }
}

/// Descriptors of these relays, each of which allows 16 Mbit/s.
fn descriptors(relays: u32, filler: &str) -> String {
    let mut text = String::new();
    for number in 1..=relays {
        let hex = hex::encode_upper(fingerprint(number));
        writeln!(
            text,
            "router relay{number} 192.0.2.1 9001 0 0\nfingerprint {hex}\nbandwidth 2000000 2000000 1\n\
             {filler}router-signature\n-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----"
        )
        .expect("text grows");
    }
    text
}

/// A coordinator's files: two measured relays, and one without FlashFlow.
fn coordinator(relays: u32, listen: &str, filler: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set")
    };
    fs::write(at("consensus"), consensus(relays)).expect("written");
    fs::write(at("descriptors"), descriptors(relays, filler)).expect("written");
    fs::write(at("key"), Base64Unpadded::encode_string(&[5; 32])).expect("written");
    fs::write(at("secret"), [6; 32]).expect("written");
    for private in ["key", "secret"] {
        set(&at(private), 0o600);
    }
    for made in ["state", "v3bw"] {
        fs::create_dir(at(made)).expect("made");
    }
    let config = format!(
        "key = 'key'\nstate_dir = 'state'\npublish_dir = 'v3bw'\n[watch]\nlisten = '{listen}'\n\
         [network]\nconsensus = 'consensus'\ndescriptors = ['descriptors']\n[period]\nsecret = 'secret'\n\
         [[measurer]]\nname = 'm1'\naddress = '127.0.0.1:9'\n\
         identity = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'\ncapacity = '1Gbit'\n"
    );
    fs::write(at("bwauth.toml"), config).expect("written");
    let mut store = Store::open(&at("state/store.sqlite"), [7; 32]).expect("a store");
    for (relay, mbit) in [(1, 10), (2, 250)] {
        let mut outcome = outcome(relay, mbit);
        outcome.started_unix_secs = now() - 3000;
        let begin = Begin {
            fingerprint: [relay; 20],
            target: outcome.target.clone(),
            plan: None,
            started_unix_secs: outcome.started_unix_secs,
            method: outcome.method,
            asked_secs: 30,
            ratio: outcome.ratio,
            allocated: None,
            shares: Vec::new(),
        };
        let id = store.begin_attempt(&begin).expect("begun");
        store.finish_attempt(id, &outcome, now() - 2900).expect("finished");
    }
    dir
}

/// Runs the command with this config.
fn run(dir: &Path, args: &[&str]) -> Output {
    let (command, rest) = args.split_first().expect("a command");
    Command::new(env!("CARGO_BIN_EXE_ff-bwauth"))
        .arg(command)
        .arg("--config")
        .arg(dir.join("bwauth.toml"))
        .args(rest)
        .output()
        .expect("it runs")
}

/// Standard output.
fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Standard error.
fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A port without a listener, at a loopback address that only this test of this process uses.
fn free(test: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}:9231", 100 + test)
}

#[test]
fn status_without_a_coordinator_is_what_the_store_knows() {
    let dir = coordinator(3, &free(1), "");
    let output = run(dir.path(), &["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("the coordinator does not run"), "{}", err(&output));
    assert!(out(&output).contains("period     none has been planned\n"), "{}", out(&output));
    let json: Value =
        serde_json::from_slice(&run(dir.path(), &["status", "--json"]).stdout).expect("JSON");
    assert_eq!(
        (&json["is_running"], &json["store"]["interrupted"]),
        (&Value::from(false), &Value::from(0))
    );
    fs::remove_dir_all(dir.path().join("state")).expect("removed");
    let output = run(dir.path(), &["status"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""));
    assert!(err(&output).contains("there is no store"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_of_a_coordinator_that_runs_says_what_is_wrong() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let dir = coordinator(3, &at, "");
    let mut status = Status {
        version: "0.1.0".to_owned(),
        coordinator: "x".to_owned(),
        // So that it does not count as silent while the command starts.
        now_unix_secs: now() + 3600,
        started_unix_secs: now(),
        network: NetworkStatus {
            valid_after_unix_secs: Some(now()),
            relays: 3,
            described: 3,
            error: None,
        },
        finished: 2,
        ..Status::default()
    };
    let (sender, live) = watch::channel(None);
    let store = dir.path().join("state/store.sqlite");
    tokio::spawn(page::serve(listener, live, store, page::PageOptions::default()));
    let run = async |args: &'static [&'static str]| {
        let path = dir.path().to_owned();
        tokio::task::spawn_blocking(move || run(&path, args)).await.expect("run")
    };
    let output = run(&["status"]).await;
    assert!(
        err(&output).contains("is starting") && output.status.code() == Some(1),
        "{}",
        err(&output)
    );
    sender.send_replace(Some(Arc::new(status.clone())));
    let output = run(&["status"]).await;
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    assert!(out(&output).contains("consensus  3 relays, 3 with a descriptor"), "{}", out(&output));
    assert!(out(&output).starts_with("state      good: no action needed\n"), "{}", out(&output));
    let text = "cannot fetch a newer consensus: no way to them".to_owned();
    let (cause, since_unix_secs) = (Cause::Consensus, status.now_unix_secs - 60);
    status.problems = vec![Problem { cause, of: String::new(), since_unix_secs, text }];
    sender.send_replace(Some(Arc::new(status.clone())));
    let output = run(&["status"]).await;
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(3), ""));
    assert!(out(&output).contains("(1 min ago): cannot fetch"), "{}", out(&output));
    sender.send_replace(Some(Arc::new(status)));
    let output = run(&["status", "--json"]).await;
    assert_eq!(output.status.code(), Some(3));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["problems"][0], "cannot fetch a newer consensus: no way to them");
    assert_eq!(
        (&json["is_young"], &json["status"]["problems"][0]["cause"]),
        (&false.into(), &"consensus".into())
    );
    assert_eq!(json["status"]["finished"], 2);
    // Another coordinator's page is at the configured port.
    let output = run(&["doctor"]).await;
    assert!(out(&output).contains("another coordinator answers"), "{}", out(&output));
}

#[test]
fn explain_goes_from_the_seconds_to_the_number() {
    let dir = coordinator(3, &free(2), "");
    let text = out(&run(dir.path(), &["explain", &"01".repeat(20)]));
    for line in [
        "seconds    of ",
        "median     ",
        "estimate   ",
        "stands     ",
        "limit      2000000 bytes/s",
        "published  nothing yet\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    // Its operator allows 2,000 kB/s; 10 + 8 Mbit/s of background, of which a third of 10 counts,
    // are less.
    assert!(text.contains("number     bw=1667\n"), "{text}");
    assert!(out(&run(dir.path(), &["explain", "Relay2"])).contains("number     bw=2000\n"));
    let json: Value =
        serde_json::from_slice(&run(dir.path(), &["explain", "relay2", "--json"]).stdout)
            .expect("JSON");
    assert_eq!(
        (&json["trace"]["number"]["bw"], &json["published"]),
        (&Value::from(2000), &Value::Null)
    );
    let none = out(&run(dir.path(), &["explain", "relay3"]));
    assert!(none.contains("no number  not measured yet (never_measured)"), "{none}");
    let elsewhere = out(&run(dir.path(), &["explain", &"77".repeat(20)]));
    assert!(elsewhere.contains("(not_in_consensus)"), "{elsewhere}");
    let output = run(dir.path(), &["explain", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("no relay in the consensus or the store matches \"nobody\""),
        "{}",
        err(&output)
    );
    fs::remove_file(dir.path().join("consensus")).expect("removed");
    assert!(err(&run(dir.path(), &["explain", "relay2"])).contains("the last consensus: "));
}

#[test]
fn explain_says_why_a_relay_is_not_measured_again() {
    let dir = coordinator(3, &free(7), "");
    let start = now() / 86_400 * 86_400;
    let period = Period {
        number: start / 86_400,
        start_unix_secs: start,
        length_secs: 86_400,
        slot_secs: 45,
        slots: 1920,
        consensus_valid_after_unix_secs: start - 3600,
        seed_sha256: [1; 32],
        planned_unix_secs: start,
        finished_unix_secs: None,
    };
    let row = |relay: u8, slot, kind| ToPlan {
        fingerprint: [relay; 20],
        slot,
        kind,
        group: u32::from(relay),
        demand: BytesPerSec::new(1),
    };
    let path = dir.path().join("state/store.sqlite");
    let mut store = Store::open(&path, [7; 32]).expect("a store");
    store.set_plan(&period, &[row(2, 4, Kind::Old)]).expect("planned");
    let reason = "it is not measured again: no slot that is left has room";
    let again = [row(1, 9, Kind::Retry), row(2, 9, Kind::Retry)];
    store.add_refused(period.number, &again, reason, "no_room").expect("kept");
    drop(store);
    let line = format!(" UTC, period {}: {reason}\n", period.number);
    let text = out(&run(dir.path(), &["explain", &"01".repeat(20)]));
    assert!(text.contains("left out   ") && text.contains(&line), "{text}");
    let status = run(dir.path(), &["status"]);
    let status = String::from_utf8_lossy(&status.stdout);
    let refused = "no retry   2 relays: no slot that is left has room\n";
    assert!(status.contains(refused), "{status}");
    // While a relay waits for a slot, its plan is not shown.
    let waits = out(&run(dir.path(), &["explain", &"02".repeat(20)]));
    assert!(!waits.contains("left out   "), "{waits}");
}

#[test]
fn a_published_number_is_named_by_file_and_line() {
    let dir = coordinator(3, &free(3), "");
    let file = format!(
        "{0}\nversion=1.4.0\nsoftware=flashflow\n=====\nbw=777 node_id=${1} nick=relay1\n",
        now(),
        "01".repeat(20)
    );
    let name = "2026-11-22-19-00-00.v3bw";
    fs::write(dir.path().join("v3bw").join(name), file).expect("written");
    std::os::unix::fs::symlink(name, dir.path().join("v3bw/latest.v3bw")).expect("linked");
    let text = out(&run(dir.path(), &["explain", "relay1"]));
    assert!(
        text.contains(&format!("published  bw=777 in line 5 of {name}; the next file will have")),
        "{text}"
    );
    let text = out(&run(dir.path(), &["explain", "relay2"]));
    assert!(text.contains(&format!("published  {name} does not list it\n")), "{text}");
}

#[test]
fn the_doctor_finds_what_was_broken_and_says_what_to_do() {
    let dir = coordinator(3, &free(4), "");
    let output = run(dir.path(), &["doctor", "--json"]);
    let findings: Vec<Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of =
        |about: &str| findings.iter().find(|finding| finding["about"] == about).expect("looked at");
    for about in ["key", "secret", "store", "port of the page", "consensus"] {
        assert_eq!(of(about)["level"], "ok", "{}", of(about));
    }
    // Nothing listens on the measurer's port.
    assert_eq!((of("measurer m1")["level"].as_str(), output.status.code()), (Some("bad"), Some(1)));
    for finding in &findings {
        let advice = finding["advice"].as_str().expect("a text");
        assert!(finding["level"] == "ok" || advice.len() > 10, "{finding}");
    }
    fs::set_permissions(dir.path().join("key"), fs::Permissions::from_mode(0o644)).expect("set");
    fs::write(dir.path().join("state/store.sqlite"), "no database").expect("written");
    let text = out(&run(dir.path(), &["doctor"]));
    assert!(text.contains("bad   key ") && text.contains("chmod 600"), "{text}");
    assert!(
        text.contains("bad   store ") && text.contains("\n                            -> "),
        "{text}"
    );
}

#[test]
fn a_config_that_is_not_there_is_one_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    for command in [&["status"][..], &["explain", "x"], &["doctor"], &["run", "--check"]] {
        let output = run(dir.path(), command);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            err(&output).contains("Failed to read") && err(&output).lines().count() == 1,
            "{}",
            err(&output)
        );
    }
}

#[test]
fn a_sound_store_is_not_moved_aside() {
    let dir = coordinator(1, &free(6), "");
    let output = run(dir.path(), &["run", "--new-store"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let text = err(&output);
    assert!(
        text.contains("store.sqlite is not damaged") && text.contains("would have no results"),
        "{text}"
    );
    let names = fs::read_dir(dir.path().join("state")).expect("listed");
    let aside = names.filter(|name| {
        name.as_ref().expect("a name").file_name().to_string_lossy().contains("corrupt")
    });
    assert_eq!(aside.count(), 0);
}

#[test]
#[ignore = "prints how long it takes with ten thousand relays; run it with --release when reading has changed"]
fn explain_is_quick_with_ten_thousand_relays() {
    // The length of real descriptors: keys, policies and a family of thirty.
    let key = format!(
        "onion-key\n-----BEGIN RSA PUBLIC KEY-----\n{}-----END RSA PUBLIC KEY-----\n",
        "A".repeat(63).as_str().to_owned() + "\n"
    );
    let family = (1..=30)
        .map(|number| format!(" ${}", hex::encode_upper(fingerprint(number))))
        .collect::<String>();
    let filler = format!("{}family{family}\n{}", key.repeat(4), "reject 10.0.0.0/8:*\n".repeat(25));
    let dir = coordinator(10_000, &free(5), &filler);
    let bytes = fs::metadata(dir.path().join("descriptors")).expect("a file").len();
    let mut times: Vec<_> = (0..9)
        .map(|_| {
            let began = Instant::now();
            let output = run(dir.path(), &["explain", "relay2"]);
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "{} MB of descriptors: median {:?}, least {:?}",
        bytes / 1_000_000,
        times[4],
        times[0]
    );
}

#[test]
fn the_key_and_the_secret_that_systemd_provides_are_used() {
    let dir = coordinator(1, &free(9), "");
    // The store belongs to another coordinator.
    fs::remove_file(dir.path().join("state/store.sqlite")).expect("a store");
    let credentials = dir.path().join("credentials");
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set")
    };
    fs::create_dir(&credentials).expect("made");
    for name in ["key", "secret"] {
        fs::rename(dir.path().join(name), credentials.join(name)).expect("moved");
        set(&credentials.join(name), 0o440);
    }
    set(&credentials, 0o500);
    let check = |credentials: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"));
        command.env_remove("CREDENTIALS_DIRECTORY");
        if let Some(credentials) = credentials {
            command.env("CREDENTIALS_DIRECTORY", credentials);
        }
        command.args(["run", "--check", "--config"]).arg(dir.path().join("bwauth.toml"));
        command.output().expect("it runs")
    };
    let output = check(Some(&credentials));
    assert!(output.status.success(), "{}", err(&output));
    let output = check(None);
    assert!(
        !output.status.success() && err(&output).contains("does not exist; make it with"),
        "{}",
        err(&output)
    );
    // The check before a reload reads neither.
    let path = dir.path().join("bwauth.toml");
    let output = run(dir.path(), &["run", "--check-config"]);
    assert!(output.status.success(), "{}", err(&output));
    let text = fs::read_to_string(&path).expect("a config");
    fs::write(&path, format!("{text}odd = [\n")).expect("written");
    let output = run(dir.path(), &["run", "--check-config"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("bwauth.toml"), "{}", err(&output));
    fs::write(&path, text).expect("written");
    set(&credentials.join("secret"), 0o444);
    let output = check(Some(&credentials));
    set(&credentials, 0o700);
    assert!(
        !output.status.success() && err(&output).contains("others can read"),
        "{}",
        err(&output)
    );
}
