//! An invented coordinator for tests: its store, its status and its bandwidth files.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ff_base::identity::Fingerprint;
use ff_base::utc::now_unix_secs as now;
use ff_plan::outcome::{
    CellCounts, CpuSeconds, Failure, Method, Outcome, RoundTrip, SocketCounts, TargetInfo,
};
use ff_plan::period::carried::Carried;
use ff_plan::publish::Shift;
use ff_plan::publish::v3bw::{DirectoryFacts, Publication};
use ff_proto::aggregate::{Draw, Estimator, SecondSample, Verdict, estimate};
use ff_proto::failure::FailureKind;
use ff_proto::ids::CryptoKind;
use ff_proto::units::{BytesPerSec, Ratio};
use ff_store::{Begin, Coverage, Kind, Period, Store, ToPlan};

use super::problems::{self, Found};
use super::status::{
    MemberStatus, NetworkStatus, PeriodStatus, Problem, PublishedStatus, RunningStatus,
    SecondShown, Status, TooFast,
};

/// A text that is harmful as markup.
pub(super) const HOSTILE: &str =
    "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>\u{202e}";
/// The length of a slot in seconds.
const SLOT_SECS: u32 = 45;

/// The fingerprint of a relay.
pub(super) fn fingerprint(relay: u32) -> Fingerprint {
    let mut fingerprint = [0xA5; 20];
    fingerprint[..4].copy_from_slice(&relay.wrapping_mul(2_654_435_761).to_be_bytes());
    fingerprint
}

/// The outcome of a relay's measurement: mostly conclusive.
pub(super) fn outcome(relay: u32, started_unix_secs: u64) -> Outcome {
    // Capacities from 0.5 to 1,200 Mbit/s, many small ones.
    let mbit = 0.5 * 2400_f64.powf(f64::from(relay.wrapping_mul(7919) % 1000) / 1000.0);
    let ratio = Ratio::from_percent(25).expect("25 % is a ratio");
    let bytes = BytesPerSec::new(125_000).scale(mbit).get();
    let second = |index: u64| SecondSample {
        measurement_bytes: bytes + bytes / 10 * (index * 7 % 5) / 5,
        background_sent_bytes: bytes / 8,
        background_received_bytes: bytes / if index == 11 { 2 } else { 8 },
    };
    let kind = match relay % 23 {
        3 => Some(FailureKind::NotSupported),
        7 => Some(FailureKind::Timeout),
        11 => Some(FailureKind::ConnectionRefused),
        19 if relay.is_multiple_of(2) => Some(FailureKind::WrongContent),
        _ => None,
    };
    let seconds: Vec<_> = if kind.is_some() { Vec::new() } else { (0..30).map(second).collect() };
    let verdict = if relay % 17 == 5 { Verdict::NeedsMoreCapacity } else { Verdict::Conclusive };
    let estimate = estimate(&seconds, ratio).filter(|_| kind.is_none());
    Outcome {
        method: Method::Echo,
        target: TargetInfo {
            address: format!("192.0.2.{}:9001", relay % 250),
            ed_identity: {
                let mut id = [7; 32];
                id[..4].copy_from_slice(&relay.to_be_bytes());
                id
            },
            rsa_fingerprint: Some(fingerprint(relay)),
            nickname: Some(format!("relay{relay}")),
        },
        started_unix_secs,
        asked_secs: 30,
        granted_secs: kind.is_none().then_some(30),
        ratio,
        crypto: Some(CryptoKind::CGO_AES128),
        allocated: Some(BytesPerSec::from_mbit(3000)),
        estimate,
        draw: estimate.map_or(Draw::Void, Draw::Value),
        limit: None,
        result: match kind {
            Some(kind) => {
                Err(Failure { kind, relay_code: None, message: format!("it failed {HOSTILE}") })
            }
            None => Ok(verdict),
        },
        seconds,
        disputes: Vec::new(),
        accuser: None,
        cells: CellCounts { sent: 1_000_010, echoed: 1_000_000, checked: 1_003, bad: 0 },
        round_trip: RoundTrip {
            p50: Some(12.6),
            p90: Some(20.0),
            p99: Some(30.5),
            max: Some(40.0),
        },
        cpu: CpuSeconds { measurers: 3.25, target: None },
        sockets: SocketCounts { asked: 160, opened: 159 },
        settle_secs: 0,
        counted_unix_millis: None,
        settling_bytes: Vec::new(),
        paths: Vec::new(),
        estimator: Estimator::default(),
    }
}

fn period_start() -> u64 {
    now() / 86_400 * 86_400
}

/// A period of one day.
pub(super) fn period() -> Period {
    let start = period_start();
    Period {
        number: start / 86_400,
        start_unix_secs: start,
        length_secs: 86_400,
        slot_secs: SLOT_SECS,
        slots: 86_400 / SLOT_SECS,
        consensus_valid_after_unix_secs: start - 3600,
        seed_sha256: [9; 32],
        planned_unix_secs: start,
        finished_unix_secs: None,
    }
}

/// Stores a period whose relays are planned over the whole day; those before now have been
/// measured, and all were measured the day before.
pub(super) fn fill(path: &Path, relays: u32) {
    let mut store = Store::open(path, [7; 32]).expect("a store");
    let period = period();
    let now_slot =
        u32::try_from((now() - period.start_unix_secs) / u64::from(SLOT_SECS)).expect("a slot");
    let plan = |relay: u32| ToPlan {
        fingerprint: fingerprint(relay),
        // A third have slots before now, so that there are results at any time of the day.
        slot: relay.wrapping_mul(997)
            % if relay.is_multiple_of(3) { now_slot.max(1) } else { period.slots },
        kind: if relay.is_multiple_of(9) { Kind::New } else { Kind::Old },
        group: relay,
        demand: BytesPerSec::from_mbit(250),
    };
    let rows: Vec<_> = (0..relays).map(plan).collect();
    store.set_plan(&period, &rows).expect("planned");
    let (capacity, name) = (BytesPerSec::from_mbit(1000), HOSTILE);
    store.put_measurer([1; 32], name, Some(capacity)).expect("noted");
    store.put_measurer([2; 32], "ams1", Some(capacity)).expect("noted");
    let rate = BytesPerSec::from_mbit(941);
    let carried = Carried { rate, sent: rate, received: rate, tested: capacity, loss_permille: 12 };
    store.set_measured([2; 32], "192.0.2.77:9232", &Ok(carried), now() - 7000).expect("noted");
    let planned = store.planned(period.number).expect("a plan");
    for (relay, row) in (0_u32..).zip(&planned) {
        let number =
            (0..relays).find(|one| fingerprint(*one) == row.what.fingerprint).expect("one of them");
        let at = period.start_unix_secs + u64::from(row.what.slot * SLOT_SECS);
        if row.what.slot > now_slot {
            continue;
        }
        if relay % 41 == 40 {
            store.leave_out(row.id, ff_store::GONE).expect("left out");
            continue;
        }
        let outcome = outcome(number, at);
        let begin = Begin::of(row.what.fingerprint, &outcome, Some(row.id));
        let id = store.begin_attempt(&begin).expect("begun");
        if row.what.slot < now_slot {
            store.finish_attempt(id, &outcome, at + 40).expect("finished");
        }
    }
    // Relays that fail also failed the day before: early in a day few have been measured.
    let before = |relay: &u32| relay.is_multiple_of(4) || outcome(*relay, 0).result.is_err();
    for relay in (0..relays).filter(before) {
        let outcome = outcome(relay, period.start_unix_secs - 86_400 + u64::from(relay) * 45);
        let begin = Begin::of(fingerprint(relay), &outcome, None);
        let id = store.begin_attempt(&begin).expect("begun");
        store.finish_attempt(id, &outcome, outcome.started_unix_secs + 40).expect("finished");
    }
}

/// Writes bandwidth files of yesterday and of today: numbers rise from relay to relay, and today's
/// are higher.
pub(super) fn publish(dir: &Path, relays: u32) {
    let now = now();
    for (at, step) in [(now - 90_000, 10), (now - 900, 11)] {
        let mut text = format!("{at}\nversion=1.5.0\nsoftware=flashflow\n=====\n");
        for relay in 0..relays {
            let node = hex::encode_upper(fingerprint(relay));
            text += &format!("node_id=${node} bw={}\n", 1000 + relay * step);
        }
        let stamp = ff_base::utc::Utc::from_unix_secs(at).expect("a time").file_stamp();
        let name = format!("{stamp}.v3bw");
        std::fs::write(dir.join(&name), text).expect("written");
        let link = dir.join(ff_plan::publish::LATEST);
        // The first time there is no link yet.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(name, link).expect("a link");
    }
}

/// The documents' data: every fifth relay shares an address with the next.
pub(super) fn publication(relays: u32) -> Publication {
    let facts = |relay: u32| DirectoryFacts {
        is_listed: true,
        ed_identity: Some(outcome(relay, 0).target.ed_identity),
        bandwidth_avg: Some(BytesPerSec::from_mbit(if relay.is_multiple_of(6) {
            40
        } else {
            4000
        })),
        consensus_bandwidth: Some(BytesPerSec::new(u64::from(relay % 7 + 1) * 1_000_000)),
        ..DirectoryFacts::default()
    };
    Publication {
        now_unix_secs: now(),
        max_age_secs: ff_dir::bandwidth::MAX_FILE_AGE_SECS,
        consensus_relays: relays.into(),
        consensus_valid_after_unix_secs: Some(now() - 1800),
        directory: (0..relays)
            .map(|relay| (fingerprint(relay), facts(relay)))
            .collect::<BTreeMap<_, _>>(),
        groups: (0..relays)
            .step_by(5)
            .filter(|relay| relay + 1 < relays)
            .map(|relay| vec![fingerprint(relay), fingerprint(relay + 1)])
            .collect(),
        nicknames: (0..relays)
            .map(|relay| {
                let nickname =
                    if relay == 2 { HOSTILE.to_owned() } else { format!("relay{relay}") };
                (fingerprint(relay), nickname)
            })
            .collect::<HashMap<_, _>>(),
        ..Publication::default()
    }
}

/// The status of the coordinator.
pub(super) fn status(relays: u32) -> Status {
    let (now, period) = (now(), period());
    let now_slot =
        u32::try_from((now - period.start_unix_secs) / u64::from(SLOT_SECS)).expect("a slot");
    let member = |name: &str, is_up: bool| MemberStatus {
        name: name.to_owned(),
        address: "192.0.2.77:9232".to_owned(),
        identity: "3Vk6w1zQ7cGmQXzS0kJdJq0bV1m2y9Yw0XcVJ3o1b2A".to_owned(),
        stated_bytes_per_sec: 125_000_000,
        is_up,
        version: is_up.then(|| "0.1.0".to_owned()),
        cores: is_up.then_some(4),
        clock_ahead_millis: if is_up { 12 } else { -2300 },
        congestion_control: is_up.then(|| "cubic".to_owned()),
        disputes: u64::from(!is_up),
        words: 10,
        described_unix_secs: None,
        is_aside: !is_up,
        error: (!is_up).then(|| format!("it did not answer in 10 s {HOSTILE}")),
        measured: None,
        not_measured: (!is_up).then(|| format!("it did not answer {HOSTILE}")),
    };
    let mut status = Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        coordinator: "Jq0bV1m2y9Yw0XcVJ3o1b2A3Vk6w1zQ7cGmQXzS0kJd".to_owned(),
        authority: Some("moria1".to_owned()),
        now_unix_secs: now,
        started_unix_secs: now - 200_000,
        period: Some(PeriodStatus {
            number: period.number,
            start_unix_secs: period.start_unix_secs,
            end_unix_secs: period.start_unix_secs + 86_400,
            slot_secs: SLOT_SECS,
            slots: period.slots,
            now_slot,
            schedule_digest: "ab".repeat(32),
            consensus_valid_after_unix_secs: period.consensus_valid_after_unix_secs,
            last_planned_slot: Some(1800),
            done_unix_secs: Some(now + 5000),
            coverage: Coverage {
                planned: u64::from(relays) + 3,
                left_out: 2,
                begun: 2,
                done: u64::from(relays) / 2,
                retries_left: 3,
                relays: relays.into(),
                relays_done: u64::from(relays) / 2,
                relays_measured: (u64::from(relays) / 2).saturating_sub(1),
                relays_unsupported: 0,
                relays_conclusive: u64::from(relays) / 3,
                verdicts: BTreeMap::from([("conclusive".to_owned(), u64::from(relays) / 3)]),
                failures: BTreeMap::from([("timeout".to_owned(), 3)]),
                refused: BTreeMap::from([("no_grant".to_owned(), 1), ("no_room".to_owned(), 5)]),
            },
            before: None,
            too_fast: 7,
            too_fast_relays: vec![TooFast {
                fingerprint: "AB".repeat(20),
                needs_bytes_per_sec: 500_000_000,
            }],
        }),
        running: (0..2).map(|relay| running(relay, now_slot)).collect(),
        team: vec![member("ams1", true), member("fra1", true), member(HOSTILE, false)],
        network: NetworkStatus {
            valid_after_unix_secs: Some(now - 1800),
            relays: relays.into(),
            described: relays.into(),
            error: None,
        },
        published: Some(PublishedStatus {
            path: Some("/var/lib/flashflow/v3bw/2026-11-22-19-00-00.v3bw".to_owned()),
            relays: relays.into(),
            consensus_relays: relays.into(),
            is_voted: true,
            unix_secs: Some(now - 900),
            every_secs: 3600,
            since_last: Some(Shift {
                relays: 12,
                before_kilobytes: 2_000_000,
                after_kilobytes: 2_100_000,
                moved_permille: 31,
            }),
            from_consensus: None,
            refused: None,
            is_too_few: false,
        }),
        finished: 4321,
        failed: vec![("timeout".to_owned(), 17), ("not_supported".to_owned(), 4)],
        ..Status::default()
    };
    let since_unix_secs = now - 60;
    let problem = |Found { cause, of, text }| Problem { cause, of, since_unix_secs, text };
    status.problems = problems::found(&status).into_iter().map(problem).collect();
    status
}

/// A running measurement.
fn running(relay: u32, slot: u32) -> RunningStatus {
    let second = |second: u16| SecondShown {
        second,
        measurement_bytes: 30_000_000 + u64::from(second % 5) * 900_000,
        background_bytes: (second > 0).then_some(2_000_000),
    };
    RunningStatus {
        fingerprint: hex::encode_upper(fingerprint(relay)),
        nickname: format!("relay{relay}"),
        slot,
        started_unix_secs: now() - 14,
        of_secs: 30,
        guess_bytes_per_sec: 31_250_000,
        seconds: (0..12).map(second).collect(),
    }
}
