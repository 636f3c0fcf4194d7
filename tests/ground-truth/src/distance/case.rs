//! What is measured over what.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use ff_lab::link::{Direction, Loss, QueueLimit, Rate};
use ff_lab::profile::Profile;
use ff_proto::units::BytesPerSec;

/// The line of each host, as those of the paper's hosts.
const LINE: BytesPerSec = BytesPerSec::from_mbit(1000);
/// What waits for it at most: Linux's own queue drops nothing earlier.
const QUEUE: Duration = Duration::from_millis(120);

/// Where segments are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lossy {
    /// On the way to the relay and back.
    Both,
    /// From the measurers to the relay.
    Out,
    /// From the relay to the measurers.
    Back,
}

/// TCP's buffers at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Buffers {
    /// The kernel's defaults: up to 6 MiB for receiving and 4 MiB for sending.
    Default,
    /// Up to 64 MiB for both, as in the paper's App. D.1.
    Tuned,
}

impl Buffers {
    /// `tcp_rmem` and `tcp_wmem`: least, first and greatest.
    pub(super) const fn sizes(self) -> [&'static str; 2] {
        match self {
            Self::Default => ["4096 131072 6291456", "4096 16384 4194304"],
            Self::Tuned => ["4096 131072 67108864", "4096 16384 67108864"],
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// Each relay's rate in Mbit/s.
    pub(crate) mbit: u32,
    /// Relays on one host that are measured at once.
    pub(crate) relays: u16,
    /// The round trip of each measurer in ms.
    pub(crate) round_trips_ms: Vec<u32>,
    pub(crate) loss_percent: f64,
    /// Where that is.
    pub(crate) lossy: Lossy,
    /// A profile in place of that: a built-in one's name, or a file.
    pub(crate) profile: Option<String>,
    /// Links to each relay; 0 for the default.
    pub(crate) links: u16,
    /// The team's rate as a multiple of the relay's.
    pub(crate) multiple: f64,
    /// Seconds that count.
    pub(crate) seconds: u16,
    /// TCP's congestion control at both ends.
    pub(crate) congestion_control: String,
    /// TCP's buffers at both ends.
    pub(crate) buffers: Buffers,
    /// Bytes of the longest packet.
    pub(crate) mtu: u16,
}

impl Default for Case {
    /// One relay of 100 Mbit/s at 27 ms.
    fn default() -> Self {
        Self {
            mbit: 100,
            relays: 1,
            round_trips_ms: vec![27],
            loss_percent: 0.0,
            lossy: Lossy::Both,
            profile: None,
            links: 0,
            multiple: 3.0,
            seconds: 10,
            congestion_control: "cubic".to_owned(),
            buffers: Buffers::Default,
            mtu: 1500,
        }
    }
}

impl Case {
    /// Bytes a second of a relay.
    pub(super) fn rate(&self) -> u64 {
        u64::from(self.mbit) * 125_000
    }

    /// Bytes of cells per second that can reach a relay and come back: its rate, or what the
    /// profile's line carries, if that is constant and less. A packet of the greatest length has 52
    /// bytes of IP and TCP headers, and TLS adds 22 bytes to a record of 31 cells.
    ///
    /// # Errors
    /// If the profile does not exist.
    #[expect(clippy::cast_precision_loss, reason = "bytes a second are below 2^53")]
    pub(super) fn truth(&self) -> Result<f64> {
        let Some(name) = &self.profile else { return Ok(self.rate() as f64) };
        let profile = Profile::find(name)?;
        let packet = f64::from(self.mtu);
        let of_line = (packet - 52.0) / packet * (31.0 * 514.0) / (31.0 * 514.0 + 22.0);
        let carried = |way: &Direction| match way.rate {
            Rate::Constant(rate) if way.timetable.is_empty() => rate.get() as f64 * of_line,
            _ => f64::INFINITY,
        };
        Ok(carried(&profile.up).min(carried(&profile.down)).min(self.rate() as f64))
    }

    /// A line that loses nothing.
    pub(super) fn line() -> Direction {
        let (rate, queue) = (Rate::Constant(LINE), QueueLimit::Time(QUEUE));
        Direction { rate, queue, ..Direction::default() }
    }

    /// The access link of a measurer, there and back.
    ///
    /// # Errors
    /// When the profile does not exist.
    pub(super) fn link(&self) -> Result<(Direction, Direction)> {
        if let Some(name) = &self.profile {
            let profile = Profile::find(name)?;
            return Ok((profile.up, profile.down));
        }
        let direction = |is_lossy| {
            let loss = match is_lossy {
                true if self.loss_percent > 0.0 => Loss::Independent(self.loss_percent / 100.0),
                _ => Loss::None,
            };
            Direction { loss, ..Self::line() }
        };
        Ok((direction(self.lossy != Lossy::Back), direction(self.lossy != Lossy::Out)))
    }

    /// The loss, or the profile that gives it.
    pub(super) fn losses(&self) -> String {
        let whose = match self.lossy {
            Lossy::Both => "",
            Lossy::Out => " there",
            Lossy::Back => " back",
        };
        match &self.profile {
            Some(name) => name.clone(),
            None => format!("{} % lost{whose}", self.loss_percent),
        }
    }

    /// Round trips, joined by `+`.
    pub(crate) fn round_trips(&self) -> String {
        let all: Vec<_> = self.round_trips_ms.iter().map(u32::to_string).collect();
        all.join("+")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::default();
        if self.relays > 1 {
            write!(f, "{} x ", self.relays)?;
        }
        write!(f, "{} Mbit/s, {} ms, {}", self.mbit, self.round_trips(), self.losses())?;
        if self.links > 0 {
            write!(f, ", {} links", self.links)?;
        }
        if self.multiple.total_cmp(&usual.multiple).is_ne() {
            write!(f, ", {} times its rate", self.multiple)?;
        }
        if self.buffers != usual.buffers {
            write!(f, ", tuned buffers")?;
        }
        if self.mtu != usual.mtu {
            write!(f, ", packets of {}", self.mtu)?;
        }
        write!(f, ", {} s, {}", self.seconds, self.congestion_control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_carries_less_than_the_relay_is_the_truth() {
        let case = Case { mbit: 100, ..Case::default() };
        assert!((case.truth().expect("a rate") - 12.5e6).abs() < 1.0);
        // 10 Mbit/s up, 100 down.
        let slow = Case { profile: Some("cable".to_owned()), ..case.clone() };
        let truth = slow.truth().expect("a rate");
        assert!((truth / 1.25e6 - 0.964).abs() < 0.001, "{truth}");
        let free = Case { profile: Some("none".to_owned()), ..case };
        assert!((free.truth().expect("a rate") - 12.5e6).abs() < 1.0);
    }
}
