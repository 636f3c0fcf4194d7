//! The cases: settings, figures measured, and their bounds.

use std::time::Duration;

use ff_proto::units::BytesPerSec;

use super::probe::{self, LEFT, RIGHT};
use crate::error::Result;
use crate::link::{Delay, Direction, Loss, PairDelays, QueueLimit, Rate};
use crate::net::{Emulation, EmulationPlan, HostPlace, HostPlan, LatenessReport, Report};

/// Tolerance of a median round trip, in ms.
const RTT_P50_OFF_MS: f64 = 0.3;

/// Tolerance of the slowest of a hundred round trips, in ms.
const RTT_P99_OFF_MS: f64 = 2.0;

/// Relative tolerance of a rate.
const RATE_OFF: f64 = 0.01;

/// Half-width of the central 99 % of a normal distribution, in standard deviations.
const DEVIATIONS_99: f64 = 2.5758;

/// Least share of the link that one CUBIC stream must reach from its third second on.
const STREAM_SHARE: f64 = 0.95;

/// Pause of the receiver between reads in the cost case: waking it for each packet would be counted
/// as the emulator's CPU time.
const COST_READS_EVERY: Duration = Duration::from_millis(1);

/// Largest cost per byte in packets of 1,500 bytes, relative to writing such packets to a socket
/// and reading them again. Both costs depend on the machine, their ratio hardly.
const TIMES_PLAIN: f64 = 5.0;

/// One run of the emulator.
#[derive(Clone, Copy, Debug)]
pub(super) enum Case {
    /// Round trips over a link with `ms` ms each way.
    Delay { ms: u32, probes: u32 },
    /// A link offered more than it carries, for `secs` seconds.
    Rate { kbit: u32, secs: u32 },
    /// A link with a loss of `per_mille` ‰.
    Loss { per_mille: u32, packets: u32 },
    /// One TCP stream over a link of 50 Mbit/s and 100 ms.
    Stream { secs: u32 },
    /// CPU time of a stream of many packets.
    Cost { secs: u32 },
}

/// One figure measured, with its bounds.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) what: String,
    pub(super) set: f64,
    pub(super) measured: f64,
    pub(super) at_least: f64,
    pub(super) at_most: f64,
    pub(super) stop: Stop,
}

/// Effect on a figure when the machine stops the emulator's core for a while. Packets that are due
/// then leave late, and packets that are sent wait unread. The emulator's lateness includes both,
/// except packets sent while it slept with nothing due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// A time in ms grows by the stop's length, once each way.
    Ms,
    /// A rate over this number of seconds changes by the lateness as a share of that time.
    RateOver(f64),
    /// A share of this number of packets is lost if the sender's device overflows.
    ShareOf(f64),
    /// A stream backs off if the sender's device overflows.
    Stream,
    /// None: the emulator's CPU time stands still too, and does not depend on lateness.
    Nothing,
}

impl Found {
    pub(super) fn is_between(&self) -> bool {
        (self.at_least..=self.at_most).contains(&self.measured)
    }

    /// Whether lateness of the emulator makes the figure invalid.
    pub(super) fn needs_time(&self) -> bool {
        !matches!(self.stop, Stop::Nothing)
    }

    /// Whether one stop, as long as the emulator's greatest lateness, explains a figure out of
    /// bounds.
    #[expect(clippy::cast_precision_loss, reason = "packets lie far below 2^53")]
    pub(super) fn may_be_stopped(&self, lateness: &LatenessReport, overflowed: u64) -> bool {
        let off = (self.measured - self.set).abs();
        lateness.max_us > lateness.bound_us
            && match self.stop {
                Stop::Ms => off <= 2.0 * lateness.max_us / 1e3,
                Stop::RateOver(secs) => off / self.set <= lateness.max_us / 1e6 / secs,
                Stop::ShareOf(packets) => off * packets <= overflowed as f64,
                Stop::Stream => overflowed > 0,
                Stop::Nothing => false,
            }
    }
}

impl Case {
    pub(super) fn all(short: bool) -> Vec<Self> {
        if short {
            return vec![
                Self::Delay { ms: 50, probes: 1000 },
                Self::Rate { kbit: 200, secs: 4 },
                Self::Rate { kbit: 50_000, secs: 3 },
                Self::Loss { per_mille: 20, packets: 100_000 },
                Self::Stream { secs: 8 },
                Self::Cost { secs: 4 },
            ];
        }
        let mut all = [5, 50, 200].map(|ms| Self::Delay { ms, probes: 3000 }).to_vec();
        all.extend([200, 1000, 5000, 20_000, 50_000].map(|kbit| Self::Rate { kbit, secs: 6 }));
        let loss = |per_mille| Self::Loss { per_mille, packets: 100_000 };
        all.extend([1, 20, 200].map(loss));
        all.extend([Self::Stream { secs: 15 }, Self::Cost { secs: 8 }]);
        all
    }

    pub(super) fn run(self, seed: u64) -> Result<(Report, Vec<Found>)> {
        let emulation = Emulation::start(&self.plan(seed))?;
        match self {
            Self::Delay { ms, probes } => {
                let gap = Duration::from_millis(4);
                let mut rtt_ms = probe::round_trips_ms(&emulation, probes, gap, seed)?;
                // Packets that did not come back count as the longest waits.
                rtt_ms.resize(probes as usize, f64::INFINITY);
                Ok((emulation.stop()?, delays(f64::from(ms) * 2.0, &rtt_ms)))
            }
            Self::Rate { kbit, secs } => {
                let bytes_per_sec = f64::from(kbit) * 125.0;
                let time = Duration::from_secs(secs.into());
                let measured = probe::flood(&emulation, bytes_per_sec * 1.25, time)?;
                let off = format!("rate of {kbit} kbit/s, Mbit/s");
                let stop = Stop::RateOver(f64::from(secs));
                let found = around(off, bytes_per_sec * 8e-6, measured * 8e-6, RATE_OFF, stop);
                Ok((emulation.stop()?, vec![found]))
            }
            Self::Loss { per_mille, packets } => {
                let arrived = probe::count(&emulation, packets)?;
                Ok((emulation.stop()?, vec![losses(per_mille, packets, arrived)]))
            }
            Self::Stream { secs } => {
                let rate = probe::stream(
                    &emulation,
                    Duration::from_secs(secs.into()),
                    2.0,
                    Duration::ZERO,
                )?;
                let share = rate / self.rate_bytes_per_sec();
                let what = "CUBIC over 50 Mbit/s and 100 ms, share from second 3".to_owned();
                let (at_least, at_most) = (STREAM_SHARE, 1.001);
                let stop = Stop::Stream;
                let found = Found { what, set: 1.0, measured: share, at_least, at_most, stop };
                Ok((emulation.stop()?, vec![found]))
            }
            Self::Cost { secs } => {
                let time = Duration::from_secs(secs.into());
                let rate = probe::stream(&emulation, time, 0.5, COST_READS_EVERY)?;
                let report = emulation.stop()?;
                let plain = probe::plain_cpu_s_per_gb()?;
                let cost = report.cpu_s_per_gb().unwrap_or(f64::INFINITY);
                let mbit = rate * 8e-6;
                let found = Found {
                    what: format!("CPU of {mbit:.0} Mbit/s ({cost:.1} s/GB), times a plain loop's"),
                    set: 0.0,
                    measured: cost / plain,
                    at_least: 0.0,
                    at_most: TIMES_PLAIN,
                    stop: Stop::Nothing,
                };
                Ok((report, vec![found]))
            }
        }
    }

    /// Rate of the link in bytes per second; 0 if unlimited.
    fn rate_bytes_per_sec(self) -> f64 {
        match self {
            Self::Rate { kbit, .. } => f64::from(kbit) * 125.0,
            Self::Stream { .. } => 50e6 / 8.0,
            Self::Cost { .. } => 1e9 / 8.0,
            _ => 0.0,
        }
    }

    /// The link from the left host to the right one; the way back has only delay.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    fn plan(self, seed: u64) -> EmulationPlan {
        let (delay_ms, loss) = match self {
            Self::Delay { ms, .. } => (ms, Loss::None),
            Self::Loss { per_mille, .. } => (10, Loss::Independent(f64::from(per_mille) / 1e3)),
            Self::Stream { .. } => (50, Loss::None),
            Self::Rate { .. } | Self::Cost { .. } => (10, Loss::None),
        };
        let rate = match self.rate_bytes_per_sec() {
            0.0 => Rate::Unlimited,
            rate => Rate::Constant(BytesPerSec::new(rate as u64)),
        };
        // One round trip's worth, as usual for a stream; more for a slow link, whose packets take
        // long.
        let queue = QueueLimit::Time(Duration::from_millis(100));
        let delay = Delay::constant(Duration::from_millis(delay_ms.into()));
        let there = Direction { rate, queue, loss, delay: delay.clone(), ..Direction::default() };
        let back = Direction { delay, ..Direction::default() };
        let host = |name: &str, address, up, down| HostPlan {
            name: name.to_owned(),
            place: HostPlace::Namespace,
            address,
            up,
            down,
        };
        EmulationPlan {
            hosts: vec![
                host("left", LEFT, there, back),
                host("right", RIGHT, Direction::default(), Direction::default()),
            ],
            pairs: PairDelays::uniform(2, Duration::ZERO),
            prefix_bits: 24,
            congestion_control: "cubic".to_owned(),
            seed,
        }
    }
}

fn delays(set_ms: f64, rtt_ms: &[f64]) -> Vec<Found> {
    let row = |share: f64, name: &str, off: f64| Found {
        what: format!("RTT of {set_ms} ms, {name}, ms"),
        set: set_ms,
        measured: quantile(rtt_ms, share),
        at_least: set_ms - off,
        at_most: set_ms + off,
        stop: Stop::Ms,
    };
    vec![row(0.5, "median", RTT_P50_OFF_MS), row(0.99, "p99", RTT_P99_OFF_MS)]
}

/// A figure that must be within a share of the value set.
fn around(what: String, set: f64, measured: f64, share: f64, stop: Stop) -> Found {
    let (at_least, at_most) = (set * (1.0 - share), set * (1.0 + share));
    Found { what, set, measured, at_least, at_most, stop }
}

/// Losses, which must be in the central 99 % of the binomial distribution.
fn losses(per_mille: u32, packets: u32, arrived: u32) -> Found {
    let (set, packets) = (f64::from(per_mille) / 1e3, f64::from(packets));
    let off = DEVIATIONS_99 * (set * (1.0 - set) / packets).sqrt();
    Found {
        what: format!("loss of {packets} packets"),
        set,
        measured: 1.0 - f64::from(arrived) / packets,
        at_least: set - off,
        at_most: set + off,
        stop: Stop::ShareOf(packets),
    }
}

/// Quantile of unsorted numbers; NaN if there are none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an index below the length"
)]
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (share * sorted.len() as f64) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_stop_can_do_is_put_down_to_one() {
        let late = |max_us| LatenessReport { max_us, bound_us: 1000.0, ..Default::default() };
        let of =
            |measured, stop| Found { stop, ..around(String::new(), 100.0, measured, 0.02, stop) };
        let may = |one: &Found, max_us, overflowed| one.may_be_stopped(&late(max_us), overflowed);
        let rtt = of(124.4, Stop::Ms);
        assert!(may(&rtt, 34_000.0, 0) && !may(&rtt, 9000.0, 0) && !may(&rtt, 900.0, 0));
        // 3 % of a rate in 3 s are 90 ms.
        let rate = of(97.0, Stop::RateOver(3.0));
        assert!(may(&rate, 91_000.0, 0) && !may(&rate, 34_000.0, 0));
        let lost = losses(20, 100_000, 97_000);
        assert!(may(&lost, 34_000.0, 1001) && !may(&lost, 34_000.0, 900));
        let stream = of(50.0, Stop::Stream);
        assert!(may(&stream, 34_000.0, 1) && !may(&stream, 34_000.0, 0));
        let cost = of(50.0, Stop::Nothing);
        assert!(!may(&cost, 34_000.0, 9) && !cost.needs_time() && stream.needs_time());
    }

    #[test]
    fn bounds_are_those_of_the_formulas() {
        let found = losses(20, 100_000, 98_000);
        assert!((found.measured - 0.02).abs() < 1e-12);
        // 2.5758 * sqrt(0.02 * 0.98 / 1e5) = 0.00114.
        assert!((found.at_most - 0.02114).abs() < 1e-5 && (found.at_least - 0.01886).abs() < 1e-5);
        let [median, p99] = &delays(100.0, &[100.0, 100.1, 100.2, 103.0])[..] else { panic!() };
        assert_eq!((median.measured, p99.measured), (100.2, 103.0));
        assert!(quantile(&[], 0.5).is_nan());
    }
}
