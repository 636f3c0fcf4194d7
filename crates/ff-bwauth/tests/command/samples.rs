//! Sample outcomes for files.

use ff_plan::outcome::{
    CellCounts, CpuSeconds, Method, Outcome, RoundTrip, SocketCounts, TargetInfo,
};
use ff_plan::publish::v3bw::Publication;
use ff_proto::aggregate::{Draw, Estimator, SecondSample, Verdict, estimate};
use ff_proto::ids::CryptoKind;
use ff_proto::units::{BytesPerSec, Ratio};

/// 2026-11-20 09:30:00 UTC.
pub(crate) const NOW: u64 = 1_795_167_000;
/// A day.
pub(crate) const DAY: u64 = 24 * 60 * 60;

/// A conclusive measurement of relay number `relay` that ended a minute ago: 30 seconds of `mbit` +
/// 8 Mbit/s of background.
pub(crate) fn outcome(relay: u8, mbit: u64) -> Outcome {
    let second = SecondSample {
        measurement_bytes: mbit * 125_000,
        background_sent_bytes: 1_000_000,
        background_received_bytes: 1_000_900,
    };
    let ratio = Ratio::from_percent(25).expect("25 % is a ratio");
    let seconds = vec![second; 30];
    Outcome {
        method: Method::Echo,
        target: TargetInfo {
            address: format!("192.0.2.{relay}:9001"),
            ed_identity: [relay; 32],
            rsa_fingerprint: Some([relay; 20]),
            nickname: Some(format!("relay{relay}")),
        },
        started_unix_secs: NOW - 90,
        asked_secs: 30,
        granted_secs: Some(30),
        ratio,
        crypto: Some(CryptoKind::CGO_AES128),
        allocated: Some(BytesPerSec::from_mbit(3000)),
        estimate: estimate(&seconds, ratio),
        draw: estimate(&seconds, ratio).map_or(Draw::Void, Draw::Value),
        limit: None,
        result: Ok(Verdict::Conclusive),
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

/// A publication now, of results of the last day, in a network with this number of relays.
pub(crate) fn publication(consensus_relays: u64) -> Publication {
    Publication {
        now_unix_secs: NOW,
        max_age_secs: DAY,
        generator_started_unix_secs: Some(NOW - 2 * DAY),
        consensus_relays,
        ..Publication::default()
    }
}
