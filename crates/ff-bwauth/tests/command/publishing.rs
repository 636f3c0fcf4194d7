//! Publication: the content of files, refusals, and what is left on the disk.

mod limits;
mod lines;
mod results;
mod same;
mod shelf;
mod trace;

use ff_dir::bandwidth::{FileFinding, Reading};
use ff_plan::outcome::Outcome;
use ff_plan::publish::v3bw::{DirectoryFacts, Publication};
use ff_proto::units::BytesPerSec;

use crate::samples::{DAY, NOW, outcome, publication};

/// A conclusive outcome of relay number `relay`, this number of hours ago, of `mbit` Mbit/s in all.
fn measured(relay: u8, hours_ago: u64, mbit: u64) -> Outcome {
    let mut outcome = outcome(relay, mbit);
    for second in &mut outcome.seconds {
        (second.background_sent_bytes, second.background_received_bytes) = (0, 0);
    }
    let rate = BytesPerSec::from_mbit(mbit);
    Outcome {
        estimate: Some(rate),
        draw: ff_proto::aggregate::Draw::Value(rate),
        started_unix_secs: NOW - hours_ago * 3600 - 60,
        ..outcome
    }
}

/// A publication now, in a network of relays 1 to `relays`, whose consensus is an hour old.
fn network(relays: u8) -> Publication {
    let listed = DirectoryFacts { is_listed: true, ..DirectoryFacts::default() };
    Publication {
        max_age_secs: 3 * DAY,
        consensus_valid_after_unix_secs: Some(NOW - 3600),
        directory: (1..=relays).map(|relay| ([relay; 20], listed)).collect(),
        ..publication(relays.into())
    }
}

/// The weights that authorities find in a file, by the first byte of the fingerprints.
fn votes(text: &str) -> Vec<(u8, u64)> {
    let reading = Reading::of(text.as_bytes(), NOW);
    // Only what tor before 0.3.5 cannot read: lines of more than 510 characters.
    let is_length = |finding: &FileFinding| finding.text.contains("510 characters");
    assert!(reading.findings.iter().all(is_length), "{:?}", reading.findings);
    let voted = reading.lines.iter().filter(|line| line.votes);
    voted.map(|line| (line.fingerprint[0], line.bw)).collect()
}
