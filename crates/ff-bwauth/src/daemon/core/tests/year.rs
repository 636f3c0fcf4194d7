//! The memory of a coordinator of ten thousand relays, over days that pass in seconds.
//!
//! The clock goes from slot to slot, documents come four times a day and a bandwidth file is
//! written once; the store and the files are real, and kept in memory where there is a /dev/shm.
//! `FF_TEST_DAYS` sets the number of days.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Instant;

use ff_plan::publish::PublishRules;
use ff_proto::aggregate::SecondSample;

use super::*;
use crate::daemon::publish::Publisher;

/// Relays of the network.
const RELAYS: u32 = 10_000;
/// The length of a day, which is a period, in seconds.
const DAY_SECS: u32 = 86_400;
/// The length of a slot in seconds.
const YEAR_SLOT_SECS: u32 = 40;
/// The most memory that a coordinator may use, in bytes.
const MOST_BYTES: u64 = 300_000_000;
/// The largest growth of memory from its settled size to the end, in percent.
const MOST_GROWTH_PERCENT: u64 = 10;

/// A relay's fingerprint.
fn fingerprint(relay: u32) -> Fingerprint {
    let mut name = [0; 20];
    name[..4].copy_from_slice(&relay.wrapping_mul(2_654_435_761).to_be_bytes());
    name[16..].copy_from_slice(&relay.to_be_bytes());
    name
}

/// A relay's true capacity: from 1 to 100 Mbit/s.
fn capacity(relay: &Fingerprint) -> BytesPerSec {
    BytesPerSec::from_mbit(1 + u64::from(relay[19]) * 100 / 256)
}

/// The network's documents at a time.
fn documents(valid_after: u64) -> Arc<View> {
    let mut text = head(valid_after);
    let mut descriptors = String::new();
    let mut relays: Vec<_> = (0..RELAYS).map(|relay| (fingerprint(relay), relay)).collect();
    relays.sort_unstable();
    for (name, relay) in relays {
        let (base64, ip) =
            (Base64Unpadded::encode_string(&name), Ipv4Addr::from(0x0b00_0000 + relay));
        let weight = capacity(&name).get() / 1000;
        let _ = write!(
            text,
            "r relay{relay} {base64} {base64} {} {ip} 9001 0\nw Bandwidth={weight}\n",
            stamp(valid_after)
        );
        let mut id = [0; 32];
        id[..20].copy_from_slice(&name);
        let _ = write!(
            descriptors,
            "router relay{relay} {ip} 9001 0 0\nmaster-key-ed25519 {}\nfingerprint {}\n\
             bandwidth 1073741824 1073741824 0\nrouter-signature\n",
            Base64Unpadded::encode_string(&id),
            hex::encode(name)
        );
    }
    text.push_str("directory-footer\n");
    Arc::new(View::parse(&text, &[&descriptors]).expect("a good view"))
}

/// The outcome of a measurement, with seconds that all differ.
fn with_seconds(job: &Job, now: u64) -> Box<Outcome> {
    let capacity = capacity(&job.fingerprint);
    let second = |index: u64| {
        let noise = (now + index).wrapping_mul(6_364_136_223_846_793_005) >> 40;
        let measurement_bytes = capacity.get() - noise % (capacity.get() / 20 + 1);
        SecondSample { measurement_bytes, ..SecondSample::default() }
    };
    let mut outcome = outcome(job, capacity, now);
    outcome.seconds = (0..30).map(second).collect();
    outcome.target.rsa_fingerprint = Some(job.fingerprint);
    outcome
}

/// A coordinator with its store in this directory.
fn coordinator_of_many(dir: &Path, now: u64) -> Core {
    let capacity = BytesPerSec::from_mbit(1000);
    let measurers =
        [0, 1, 2].map(|number| Measurer { name: format!("m{number}"), capacity }).into();
    let common = Common {
        teams: vec![Team { coordinator: [1; 32], measurers }],
        me: [1; 32],
        secret: Zeroizing::new(vec![7; 32]),
        length_secs: DAY_SECS,
        slot_secs: YEAR_SLOT_SECS,
        consensus_lead_secs: 1800,
        params: Params::PAPER,
    };
    let means = Means {
        key: SigningKey::from_bytes(&[1; 32]),
        params: Params::PAPER,
        deadline: std::time::Duration::from_secs(60),
    };
    let rhythm = Rhythm {
        refresh_secs: u64::from(DAY_SECS) / 4,
        publish_secs: DAY_SECS.into(),
        keep: Retention { samples_days: 30, results_days: 400 },
    };
    let store = Store::open(&dir.join("store.sqlite"), [1; 32]).expect("a store");
    let members =
        [10, 11, 12].map(|number| Member::new(Arc::new(Nobody(number)), "192.0.2.99:1", capacity));
    Core::new(common, means, rhythm, store, members.into(), now).expect("a coordinator")
}

/// A line of /proc/self/status, in bytes.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let kib: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
    kib * 1024
}

/// Runs a day; returns the number of measurements and of published files.
fn live(core: &mut Core, publisher: &Publisher, start: u64) -> (u64, u64) {
    let (mut measured, mut published) = (0, 0);
    for now in (start..start + u64::from(DAY_SECS)).step_by(YEAR_SLOT_SECS as usize) {
        for effect in core.apply(Action::Tick, now) {
            match effect {
                Effect::Measure(job) => {
                    measured += 1;
                    let outcome = with_seconds(&job, now);
                    core.apply(Action::Finished(job.attempt, outcome), now + 35);
                }
                Effect::Refresh => {
                    core.apply(Action::Documents(Ok(documents(now / 3600 * 3600))), now);
                }
                Effect::Publish(network) => {
                    let written = publisher.publish(*network).expect("a file");
                    published += written.relays;
                    core.apply(Action::Published(Ok(written)), now);
                }
                Effect::Describe(_) | Effect::TakeTeam | Effect::Exchange(_) | Effect::End => {}
            }
        }
    }
    (measured, published)
}

#[test]
#[ignore = "half an hour for a year; FF_TEST_DAYS says for how many days"]
fn memory_is_flat_over_a_year_of_ten_thousand_relays() {
    let days = std::env::var("FF_TEST_DAYS").map_or(365, |days| days.parse().expect("a number"));
    let in_memory = Path::new("/dev/shm");
    let dir =
        if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
    let dir = dir.expect("a directory");
    let start = START / u64::from(DAY_SECS) * u64::from(DAY_SECS);
    let mut core = coordinator_of_many(dir.path(), start);
    core.apply(Action::Documents(Ok(documents(start - 7200))), start);
    let publisher = Publisher {
        store: dir.path().join("store.sqlite"),
        dir: dir.path().join("v3bw"),
        rules: PublishRules::default(),
        dirauth_nickname: None,
    };
    let (begin, mut sizes) = (Instant::now(), Vec::new());
    for day in 0..days {
        let began = start + day * u64::from(DAY_SECS);
        let (measured, published) = live(&mut core, &publisher, began);
        let size = memory("VmRSS");
        sizes.push(size);
        assert!(measured >= u64::from(RELAYS) * 99 / 100, "day {day}: {measured} measured");
        assert!(day == 0 || published >= u64::from(RELAYS) * 99 / 100, "day {day}: {published}");
        if day % 10 == 0 || day + 1 == days {
            let store = std::fs::metadata(&publisher.store).expect("a file").len();
            println!(
                "day {day}: {measured} measured, {published} published, {} MB in memory, {} MB at most, store \
                 {} MB, after {:.0?}",
                size / 1_000_000,
                memory("VmHWM") / 1_000_000,
                store / 1_000_000,
                begin.elapsed()
            );
        }
    }
    assert!(memory("VmHWM") < MOST_BYTES, "{} bytes", memory("VmHWM"));
    // From day 8 on files contain equally many days. Single days are up to a fifth larger, when the
    // allocator has not yet returned the memory that writing a file took.
    let settled = median(sizes.get(7..).unwrap_or(&sizes).iter().take(30));
    let last = median(sizes.iter().rev().take(30));
    assert!(
        last <= settled + settled / 100 * MOST_GROWTH_PERCENT,
        "{} MB in the month after the first week, {} MB in the last one",
        settled / 1_000_000,
        last / 1_000_000
    );
}

/// The median; 0 without values.
fn median<'a>(sizes: impl Iterator<Item = &'a u64>) -> u64 {
    let mut sizes: Vec<u64> = sizes.copied().collect();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or_default()
}
