//! Sample outcomes for files.

use ff_plan::outcome::{
    Asked, CellCounts, CpuSeconds, MeasuredSeconds, Outcome, RoundTrip, SocketCounts, TargetInfo,
};
use ff_plan::publish::v3bw::Publication;
use ff_proto::aggregate::{SecondSample, Verdict, estimate};
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
    let target = TargetInfo {
        address: format!("192.0.2.{relay}:9001"),
        ed_identity: [relay; 32],
        rsa_fingerprint: Some([relay; 20]),
        nickname: Some(format!("relay{relay}")),
    };
    let asked = Asked {
        started_unix_secs: NOW - 90,
        asked_secs: 30,
        ratio,
        allocated: Some(BytesPerSec::from_mbit(3000)),
        ..Asked::nothing(target)
    };
    let measured = MeasuredSeconds { seconds: vec![second; 30], ..MeasuredSeconds::default() };
    let estimate = estimate(&measured.seconds, ratio).expect("it has seconds");
    let [p50, p90, p99, max] = [12.6, 20.0, 30.5, 40.0].map(Some);
    Outcome {
        granted_secs: Some(30),
        crypto: Some(CryptoKind::CGO_AES128),
        cells: CellCounts { sent: 1_000_010, echoed: 1_000_000, checked: 1_003, bad: 0 },
        round_trip: RoundTrip { p50, p90, p99, max },
        cpu: CpuSeconds { measurers: 3.25, target: None },
        sockets: SocketCounts { asked: 160, opened: 159 },
        ..Outcome::of(asked, measured, Ok((estimate, Verdict::Conclusive)))
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
