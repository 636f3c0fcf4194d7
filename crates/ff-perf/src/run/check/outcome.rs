//! Outcome of a download for the relay that is checked.

use std::time::Duration;

use ff_circuits::check::Outcome;
use ff_circuits::record::{CircuitRecord, Stage, Whose};

/// Round trip of the whole circuit: the time of the last hop's answer.
pub(super) fn trip_secs(circuit: &CircuitRecord) -> Option<f64> {
    let is_whole = circuit.hops_us.len() == circuit.path.len();
    match circuit.hops_us[..] {
        [.., before, last] if is_whole => Some(last.saturating_sub(before) as f64 / 1e6),
        _ => None,
    }
}

/// Time that a failed circuit had for the download, since it was built.
fn download_time(circuit: &CircuitRecord) -> Duration {
    let stood_us = circuit.build_us().unwrap_or(circuit.ended_us);
    Duration::from_micros(circuit.ended_us.saturating_sub(stood_us))
}

/// Outcome of a circuit for its relay at index `at`, with a download of `size` bytes and a limit of
/// `time`.
pub(super) fn outcome(circuit: &CircuitRecord, at: usize, size: u64, time: Duration) -> Outcome {
    let whole = circuit.download.as_ref().and_then(|download| Some((download.bytes, download.us?)));
    if let Some((bytes, us)) = whole {
        // Includes the time to the first byte: a relay that makes clients wait starves them.
        return Outcome::Arrived(bytes as f64 * 1e6 / us.max(1) as f64);
    }
    let Some(failure) = &circuit.failure else { return Outcome::FailedElsewhere };
    match (failure.stage, failure.whose) {
        (_, Whose::Client) => Outcome::FailedElsewhere,
        (Stage::Link | Stage::Build, _) => {
            // The relay did not answer, or the next relay, which it was to ask, did not. If a later
            // hop failed, cells passed through this relay and others, which counts as no arrival.
            match failure.hop.and_then(|hop| usize::from(hop).checked_sub(at + 1)) {
                None => Outcome::FailedElsewhere,
                Some(0 | 1) => Outcome::FailedHere,
                Some(_) => Outcome::NeverCame,
            }
        }
        (_, Whose::Unknown) if download_time(circuit) >= time => {
            Outcome::TimedOut(size as f64 / time.as_secs_f64())
        }
        // On an open circuit any relay may be the cause, so it counts against the checked relay;
        // the others get as much through all relays. The same for an exit that blames the target.
        (_, Whose::Target | Whose::Unknown) => Outcome::NeverCame,
        (_, Whose::Relay) => match failure.hop {
            Some(hop) if usize::from(hop) != at + 1 => Outcome::FailedElsewhere,
            _ => Outcome::FailedHere,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A circuit that failed.
    fn failed(stage: &str, hop: u8, whose: &str) -> CircuitRecord {
        let line = format!(
            r#"{{"schema":1,"number":0,"client":"arti","began_unix_secs":0,"began_us":0,"path":[],"ended_us":9,
                "failure":{{"stage":"{stage}","hop":{hop},"reason":"timeout","whose":"{whose}"}}}}"#
        );
        serde_json::from_str(&line).expect("a circuit")
    }

    /// Outcome of a circuit for a download of 6 MB in two minutes.
    fn of(circuit: &CircuitRecord, at: usize) -> Outcome {
        outcome(circuit, at, 6_000_000, Duration::from_secs(120))
    }

    #[test]
    fn failures_count_for_whom_they_went_through() {
        for (stage, hop, at, found) in [
            ("build", 2, 1, Outcome::FailedHere),
            ("build", 3, 1, Outcome::FailedHere),
            ("build", 1, 1, Outcome::FailedElsewhere),
            ("build", 2, 0, Outcome::FailedHere),
            // A guard gets the cells that ask another relay for a hop.
            ("build", 3, 0, Outcome::NeverCame),
            ("build", 2, 2, Outcome::FailedElsewhere),
            ("link", 1, 0, Outcome::FailedHere),
            ("link", 1, 1, Outcome::FailedElsewhere),
            ("download", 3, 2, Outcome::FailedHere),
            ("download", 3, 0, Outcome::FailedElsewhere),
        ] {
            assert_eq!(of(&failed(stage, hop, "relay"), at), found, "{stage} {hop} {at}");
        }
        let mut destroyed = failed("download", 3, "relay");
        destroyed.failure.as_mut().expect("a failure").hop = None;
        assert_eq!(of(&destroyed, 0), Outcome::FailedHere);
        assert_eq!(of(&failed("download", 3, "unknown"), 0), Outcome::NeverCame);
        assert_eq!(of(&failed("download", 3, "target"), 0), Outcome::NeverCame);
        assert_eq!(of(&failed("download", 3, "client"), 0), Outcome::FailedElsewhere);
        assert_eq!(of(&failed("build", 2, "client"), 1), Outcome::FailedElsewhere);
    }

    #[test]
    fn what_had_all_its_time_got_less_than_would_have_come_in_it() {
        let stood = |whose, ended_us| {
            let relay = ff_circuits::record::PathRelay { id: "A".repeat(40), nick: String::new() };
            let (path, hops_us) = (vec![relay; 3], vec![1, 2, 3_000_000]);
            CircuitRecord { path, hops_us, ended_us, ..failed("download", 3, whose) }
        };
        assert_eq!(of(&stood("unknown", 123_000_001), 0), Outcome::TimedOut(5e4));
        assert_eq!(of(&stood("unknown", 122_000_000), 0), Outcome::NeverCame);
        assert_eq!(of(&stood("target", 123_000_001), 0), Outcome::NeverCame);
    }
}
