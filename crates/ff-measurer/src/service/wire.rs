//! Converts the messages of `proto/team.proto` to and from this crate's types.
//!
//! All received values are checked against the bounds of `ff_proto::params`; a value out of its
//! bounds is an error that names it.

pub mod exchange;

use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::ErrCode;
use ff_proto::params::{CELLS_PER_RECORD, DURATION_SECS, MIN_CHECK_PROBABILITY, SOCKETS};
use ff_proto::units::BytesPerSec;

use crate::link::TargetAddr;
use crate::order::{SecondReport, WorkerTotals};
use crate::report::round_trips;
use crate::task::{PartFailure, Task};
use crate::tcp::TcpSecond;

#[expect(
    missing_docs,
    clippy::allow_attributes_without_reason,
    reason = "generated; proto/team.proto says what each item is"
)]
mod generated {
    tonic::include_proto!("flashflow.team.v1");
}

pub use generated::*;

/// The largest time limit for opening a link in a request.
const MAX_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest text of a failure, in characters.
const MAX_MESSAGE_CHARS: usize = 1000;
/// The longest name in a capability, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The largest number of different round trips of a measurement: three significant digits
/// distinguish fewer.
const MAX_ROUND_TRIPS: usize = 65_536;

/// A value in a message is out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is out of its bounds or cannot be read")]
pub struct BadMessage {
    /// The name of the value.
    pub what: &'static str,
}

/// An error about this value.
fn bad(what: &'static str) -> BadMessage {
    BadMessage { what }
}

/// Checks that a number is within these bounds.
fn within<T, N: TryInto<T>>(
    what: &'static str,
    number: N,
    bounds: impl std::ops::RangeBounds<T>,
) -> Result<T, BadMessage>
where
    T: PartialOrd,
{
    number.try_into().ok().filter(|number| bounds.contains(number)).ok_or(bad(what))
}

/// Checks a time limit.
fn timeout(what: &'static str, millis: u32) -> Result<Duration, BadMessage> {
    let timeout = Duration::from_millis(millis.into());
    if (Duration::from_millis(1)..=MAX_TIMEOUT).contains(&timeout) {
        Ok(timeout)
    } else {
        Err(bad(what))
    }
}

/// A duration in milliseconds, at most the type's maximum.
pub(crate) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

impl From<&Task> for Prepare {
    fn from(task: &Task) -> Self {
        Self {
            measurement: task.measurement.0.to_vec(),
            target: task.target.addr.to_string(),
            ed_identity: task.target.ed_identity.as_bytes().to_vec(),
            links: task.sockets.into(),
            rate_bytes_per_sec: task.rate.map_or(0, BytesPerSec::get),
            duration_secs: task.duration_secs.into(),
            cells_per_record: task.cells_per_record.into(),
            crypto: task.crypto.0.into(),
            check_probability: task.check_probability,
            connect_timeout_millis: millis(task.connect_timeout),
            handshake_timeout_millis: millis(task.handshake_timeout),
        }
    }
}

impl TryFrom<Prepare> for Task {
    type Error = BadMessage;

    fn try_from(message: Prepare) -> Result<Self, BadMessage> {
        let measurement =
            message.measurement.try_into().map_err(|_| bad("the measurement's name"))?;
        let addr: SocketAddr = message.target.parse().map_err(|_| bad("the target's address"))?;
        let identity: [u8; 32] =
            message.ed_identity.try_into().map_err(|_| bad("the target's identity"))?;
        let crypto = CryptoKind(within("the cipher", message.crypto, ..)?);
        let probability = message.check_probability;
        if !CryptoKind::SUPPORTED.contains(&crypto) {
            return Err(bad("the cipher"));
        }
        if !(MIN_CHECK_PROBABILITY..=1.0).contains(&probability) {
            return Err(bad("the check's probability"));
        }
        let cells =
            within("the number of cells per record", message.cells_per_record, CELLS_PER_RECORD)?;
        Ok(Self {
            measurement: MeasurementId(measurement),
            target: TargetAddr { addr, ed_identity: identity.into() },
            sockets: within("the number of links", message.links, SOCKETS)?,
            rate: Some(message.rate_bytes_per_sec).filter(|&rate| rate > 0).map(BytesPerSec::new),
            duration_secs: within("the duration", message.duration_secs, DURATION_SECS)?,
            cells_per_record: u8::try_from(cells)
                .map_err(|_| bad("the number of cells per record"))?,
            crypto,
            check_probability: probability,
            connect_timeout: timeout(
                "the connections' time limit",
                message.connect_timeout_millis,
            )?,
            handshake_timeout: timeout(
                "the handshakes' time limit",
                message.handshake_timeout_millis,
            )?,
        })
    }
}

impl From<&SecondReport> for Second {
    fn from(report: &SecondReport) -> Self {
        Self {
            second: report.second.into(),
            sent_cells: report.sent_cells,
            echoed_cells: report.echoed_cells,
            checked_cells: report.checked_cells,
            round_trip_p50_micros: report.round_trip_p50_micros,
            round_trip_p90_micros: report.round_trip_p90_micros,
            round_trip_p99_micros: report.round_trip_p99_micros,
            cpu_micros: report.cpu_micros,
            idle_micros: report.idle_micros,
            links_alive: report.sockets_alive.into(),
            window_limited: report.window_limited,
            is_starting: report.is_starting,
            tcp: Some(&report.tcp).filter(|tcp| tcp.links > 0).map(Tcp::from),
        }
    }
}

impl From<&TcpSecond> for Tcp {
    fn from(tcp: &TcpSecond) -> Self {
        Self {
            links: tcp.links.into(),
            round_trip_micros: tcp.round_trip_micros,
            segment_bytes: tcp.segment_bytes,
            sent_segments: tcp.sent_segments,
            resent_segments: tcp.resent_segments,
            received_segments: tcp.received_segments,
            disordered_segments: tcp.disordered_segments,
            busy_micros: tcp.busy_micros,
            window_full_micros: tcp.window_full_micros,
            unsent_bytes: tcp.unsent_bytes,
            round_trip_now_micros: tcp.round_trip_now_micros,
            acked_bytes: tcp.acked_bytes,
            resending_links: tcp.resending_links.into(),
            disordered_links: tcp.disordered_links.into(),
            silence_micros: tcp.silence_micros,
        }
    }
}

impl TryFrom<Tcp> for TcpSecond {
    type Error = BadMessage;

    fn try_from(tcp: Tcp) -> Result<Self, BadMessage> {
        // More than any host can have in a second is refused, and sums must not overflow.
        let number = |number| within("a number about TCP", number, ..=1_u64 << 40);
        let links = within("the number of links", tcp.links, ..)?;
        Ok(Self {
            links,
            resending_links: within("the number of links", tcp.resending_links, ..=links)?,
            disordered_links: within("the number of links", tcp.disordered_links, ..=links)?,
            round_trip_micros: number(tcp.round_trip_micros)?,
            segment_bytes: number(tcp.segment_bytes)?,
            sent_segments: number(tcp.sent_segments)?,
            resent_segments: number(tcp.resent_segments)?,
            received_segments: number(tcp.received_segments)?,
            disordered_segments: number(tcp.disordered_segments)?,
            busy_micros: number(tcp.busy_micros)?,
            window_full_micros: number(tcp.window_full_micros)?,
            unsent_bytes: number(tcp.unsent_bytes)?,
            round_trip_now_micros: number(tcp.round_trip_now_micros)?,
            acked_bytes: number(tcp.acked_bytes)?,
            silence_micros: number(tcp.silence_micros)?,
        })
    }
}

impl TryFrom<Second> for SecondReport {
    type Error = BadMessage;

    fn try_from(message: Second) -> Result<Self, BadMessage> {
        Ok(Self {
            second: within("the second", message.second, ..*DURATION_SECS.end())?,
            sent_cells: cells(message.sent_cells)?,
            echoed_cells: cells(message.echoed_cells)?,
            checked_cells: cells(message.checked_cells)?,
            round_trip_p50_micros: message.round_trip_p50_micros,
            round_trip_p90_micros: message.round_trip_p90_micros,
            round_trip_p99_micros: message.round_trip_p99_micros,
            cpu_micros: message.cpu_micros.min(u64::from(u32::MAX)),
            idle_micros: message.idle_micros,
            sockets_alive: within("the number of links", message.links_alive, ..)?,
            window_limited: message.window_limited,
            is_starting: message.is_starting,
            tcp: message.tcp.map(TcpSecond::try_from).transpose()?.unwrap_or_default(),
        })
    }
}

/// Checks a number of cells: more than any host can send is refused, and sums must not overflow.
fn cells(count: u64) -> Result<u64, BadMessage> {
    within("a number of cells", count, ..=1_u64 << 40)
}

impl From<&WorkerTotals> for Done {
    fn from(totals: &WorkerTotals) -> Self {
        let recorded = totals.round_trip_micros.iter_recorded();
        let (round_trip_micros, round_trip_counts) =
            recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).unzip();
        Self {
            sent_cells: totals.sent_cells,
            echoed_cells: totals.echoed_cells,
            checked_cells: totals.checked_cells,
            round_trip_micros,
            round_trip_counts,
            cpu_micros: totals.cpu_micros,
            held_bytes_per_link: totals.held_bytes_per_socket as u64,
        }
    }
}

impl TryFrom<Done> for WorkerTotals {
    type Error = BadMessage;

    fn try_from(message: Done) -> Result<Self, BadMessage> {
        let (values, counts) = (&message.round_trip_micros, &message.round_trip_counts);
        if values.len() != counts.len() || values.len() > MAX_ROUND_TRIPS {
            return Err(bad("the list of round trips"));
        }
        let mut round_trip_micros = round_trips(3);
        for (&value, &count) in values.iter().zip(counts) {
            round_trip_micros.saturating_record_n(value, cells(count)?);
        }
        Ok(Self {
            sent_cells: cells(message.sent_cells)?,
            echoed_cells: cells(message.echoed_cells)?,
            checked_cells: cells(message.checked_cells)?,
            round_trip_micros,
            cpu_micros: message.cpu_micros.min(u64::from(u32::MAX) * 1000),
            held_bytes_per_socket: usize::try_from(message.held_bytes_per_link)
                .unwrap_or(usize::MAX),
        })
    }
}

impl From<&PartFailure> for Failure {
    fn from(failure: &PartFailure) -> Self {
        Self {
            code: failure.kind.code().to_owned(),
            relay_code: failure.relay_code.map_or(0, |code| code.0.into()),
            message: printable(&failure.message),
        }
    }
}

impl From<Failure> for PartFailure {
    /// An unknown kind is reported as the measurer's own failure.
    fn from(message: Failure) -> Self {
        let code = u16::try_from(message.relay_code).ok().filter(|&code| code != 0);
        Self {
            kind: FailureKind::from_code(&message.code).unwrap_or(FailureKind::MeasurerFailed),
            relay_code: code.map(ErrCode),
            message: printable(&message.message),
        }
    }
}

impl Capability {
    /// The same with printable texts.
    pub(super) fn printable(self) -> Self {
        let [version, hours, congestion_control] =
            [self.version, self.hours, self.congestion_control]
                .map(|text| printable(&text).chars().take(MAX_NAME_CHARS).collect::<String>());
        Self { version, hours, congestion_control, ..self }
    }
}

/// Replaces characters of another host's text that could control a terminal.
pub(crate) fn printable(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(MAX_MESSAGE_CHARS).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn task() -> Task {
        Task {
            measurement: MeasurementId([7; 16]),
            target: TargetAddr {
                addr: SocketAddr::from(([192, 0, 2, 1], 9001)),
                ed_identity: [3; 32].into(),
            },
            sockets: 20,
            rate: Some(BytesPerSec::from_mbit(100)),
            duration_secs: 30,
            cells_per_record: 6,
            crypto: CryptoKind::CGO_AES128,
            check_probability: 1e-3,
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(20),
        }
    }

    #[test]
    fn tasks_come_through_and_what_is_out_of_bounds_is_named() {
        for rate in [None, Some(BytesPerSec::new(1))] {
            let task = Task { rate, ..task() };
            assert_eq!(Task::try_from(Prepare::from(&task)), Ok(task));
        }
        type Change = fn(&mut Prepare);
        let changes: [(&str, Change); 12] = [
            ("the measurement's name", |m| m.measurement.truncate(15)),
            ("the target's address", |m| m.target = "example.com:443".to_owned()),
            ("the target's identity", |m| m.ed_identity.push(0)),
            ("the number of links", |m| m.links = 0),
            ("the number of links", |m| m.links = 4097),
            ("the duration", |m| m.duration_secs = 121),
            ("the number of cells per record", |m| m.cells_per_record = 32),
            ("the cipher", |m| m.crypto = 99),
            ("the cipher", |m| m.crypto = 256 + 2),
            ("the check's probability", |m| m.check_probability = f64::NAN),
            ("the connections' time limit", |m| m.connect_timeout_millis = 0),
            ("the handshakes' time limit", |m| m.handshake_timeout_millis = 120_001),
        ];
        for (what, change) in changes {
            let mut message = Prepare::from(&task());
            change(&mut message);
            assert_eq!(Task::try_from(message), Err(BadMessage { what }));
        }
    }

    proptest! {
        #[test]
        fn totals_come_through(values in proptest::collection::vec(0_u64..200_000_000, 0..300)) {
            let mut round_trip_micros = round_trips(3);
            for &value in &values {
                round_trip_micros.saturating_record(value);
            }
            let totals = WorkerTotals {
                sent_cells: 3, echoed_cells: 2, checked_cells: 1, round_trip_micros,
                cpu_micros: 5, held_bytes_per_socket: 9,
            };
            let back = WorkerTotals::try_from(Done::from(&totals)).expect("it was good");
            prop_assert_eq!(back.round_trip_micros, totals.round_trip_micros);
            prop_assert_eq!(
                (back.sent_cells, back.echoed_cells, back.checked_cells, back.cpu_micros),
                (3, 2, 1, 5)
            );
        }

        #[test]
        fn seconds_come_through(n in proptest::array::uniform19(0_u64..=1 << 40), links in 1_u16.., flags in 0_u8..4) {
            let tcp = TcpSecond {
                links, round_trip_micros: n[0], round_trip_now_micros: n[1], segment_bytes: n[2],
                acked_bytes: n[3], sent_segments: n[4], resent_segments: n[5], received_segments: n[6],
                disordered_segments: n[7], resending_links: links / 2, disordered_links: links / 3,
                busy_micros: n[8], window_full_micros: n[9], unsent_bytes: n[10],
                silence_micros: n[18],
            };
            let report = SecondReport {
                second: 7, sent_cells: n[11], echoed_cells: n[12], checked_cells: n[13],
                round_trip_p50_micros: n[14], round_trip_p90_micros: n[15], round_trip_p99_micros: n[16],
                cpu_micros: n[17].min(1 << 20), idle_micros: 9, sockets_alive: 5,
                window_limited: flags & 1 > 0, is_starting: flags & 2 > 0, tcp,
            };
            prop_assert_eq!(SecondReport::try_from(Second::from(&report)), Ok(report));
            let unknown = SecondReport { tcp: TcpSecond::default(), ..report };
            let message = Second::from(&unknown);
            prop_assert!(message.tcp.is_none());
            prop_assert_eq!(SecondReport::try_from(message), Ok(unknown));
        }

        #[test]
        fn failures_come_through(index in 0..FailureKind::ALL.len(), code in 0_u16.., text in "\\PC{0,99}") {
            let relay_code = Some(code).filter(|&code| code > 0).map(ErrCode);
            let failure = PartFailure { kind: FailureKind::ALL[index], relay_code, message: text };
            prop_assert_eq!(PartFailure::from(Failure::from(&failure)), failure);
        }
    }

    #[test]
    fn what_no_host_can_have_counted_is_refused() {
        let second = |echoed_cells| Second { echoed_cells, ..Second::default() };
        assert!(SecondReport::try_from(second(u64::MAX)).is_err());
        assert!(SecondReport::try_from(Second { second: 120, ..second(1) }).is_err());
        assert!(SecondReport::try_from(Second { second: 119, ..second(1) }).is_ok());
        let tcp = |tcp| SecondReport::try_from(Second { tcp: Some(tcp), ..second(1) });
        assert!(tcp(Tcp { sent_segments: u64::MAX, ..Tcp::default() }).is_err());
        assert!(tcp(Tcp { links: 2, resending_links: 3, ..Tcp::default() }).is_err());
        assert!(tcp(Tcp { links: 70_000, ..Tcp::default() }).is_err());
        let done =
            Done { round_trip_micros: vec![1, 2], round_trip_counts: vec![1], ..Done::default() };
        assert!(WorkerTotals::try_from(done).is_err());
        let odd =
            Failure { code: "of_tomorrow".into(), relay_code: 70_000, message: "a\u{1b}b".into() };
        let failure = PartFailure::from(odd);
        assert_eq!((failure.kind, failure.relay_code), (FailureKind::MeasurerFailed, None));
        assert_eq!(failure.message, "a?b");
    }

    #[test]
    fn what_a_measurer_calls_itself_can_be_shown() {
        let version = format!("\u{1b}[2J{}", "x".repeat(1000));
        let shown = Capability { version, hours: "\n".into(), cores: 4, ..Default::default() };
        let shown = shown.printable();
        assert_eq!(shown.version, format!("?[2J{}", "x".repeat(60)));
        assert_eq!((shown.hours.as_str(), shown.cores), ("?", 4));
    }
}
