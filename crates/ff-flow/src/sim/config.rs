//! Configuration of a simulation: amount of traffic, duration, windows, and constants.
//!
//! Decisions: doc/decisions.md, "Constants without a known cause".

use anyhow::bail;

/// The bytes of a cell on a link, and the bytes of a stream in it (tor-spec).
pub const CELL: (f64, f64) = (514.0, 498.0);

/// Sizes in bytes, their relative frequencies, and seconds after which a download is given up
/// (paper §7). Shadow's clients finished 2,342, 398 and 226 of them, about 12 : 2 : 1.
pub(super) const SIZES: [(u32, u32, f64); 3] =
    [(51_200, 12, 15.0), (1_048_576, 2, 60.0), (5_242_880, 1, 120.0)];

/// Seconds after which downloads of 50 KiB, 1 MiB and 5 MiB are given up.
pub const LIMITS_SECS: [f64; 3] = [SIZES[0].2, SIZES[1].2, SIZES[2].2];

/// Cells in flight at first: ten TCP packets.
const FIRST_CELLS: f64 = 14_480.0 / CELL.1;

/// The limit of unacknowledged data in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellWindow {
    /// 1,000 cells for a circuit, 500 for a stream (tor-spec 7.4): Tor of 2019.
    #[default]
    Fixed,
    /// Congestion control (proposal 324): 124 cells at first, doubled each round trip up to 600,
    /// then 31 more per round trip; streams have no window of their own. Tor of today.
    CongestionControl,
}

impl CellWindow {
    /// The window of a user's circuit, in cells.
    pub(super) fn circuit_cells(self) -> f64 {
        match self {
            Self::Fixed => 1_000.0,
            Self::CongestionControl => f64::INFINITY,
        }
    }

    /// The most bytes of a circuit that its window leaves waiting at a full relay.
    pub(super) fn most_held(self) -> f64 {
        match self {
            Self::Fixed => f64::INFINITY,
            // More is taken back at the next acknowledgement: `cc_vegas_beta_exit` of proposal 324,
            // four times 62 cells.
            Self::CongestionControl => 248.0 * CELL.0,
        }
    }

    /// The window of a stream in cells, `trips` round trips after its first byte.
    pub(super) fn stream_cells(self, trips: f64) -> f64 {
        match self {
            Self::Fixed => (FIRST_CELLS * trips.min(30.0).exp2()).min(500.0),
            Self::CongestionControl => {
                let (first, slow, more) = (124.0_f64, 600.0_f64, 31.0);
                let until = (slow / first).log2();
                first * trips.min(until).exp2() + more * (trips - until).max(0.0)
            }
        }
    }
}

/// Constants without sufficiently known values, the same for all networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The median round trip of a hop, in seconds.
    pub hop_median_secs: f64,
    /// The 5th percentile of a hop's round trip, in seconds.
    pub hop_p5_secs: f64,
    /// The factor by which circuits' hops are shorter than those of the whole Internet: relays are
    /// close together.
    pub hop_scale: f64,
    /// The rate of cells that a relay carries over its listed capacity. Headers of TCP, IP and TLS
    /// take 4 %, but the throughput of Shadow's networks needs a value above 1.
    pub for_cells: f64,
    /// The queueing delay of a relay with utilisation 0.5, in seconds.
    pub queue_secs: f64,
    /// The factor of the bytes waiting at a full relay that are served before new ones.
    pub held_scale: f64,
    /// The same for cells that build circuits, which no window limits.
    pub build_scale: f64,
    /// The number of round trips in which a download doubles its data in flight.
    pub ramp: f64,
    /// Seconds after which users give up a request.
    pub give_up_secs: f64,
    /// Seconds from the arrival of a request at a server to its first byte: TGen's server sends by
    /// a model of packets.
    pub server_secs: f64,
    /// The least number of seconds for which clients wait for a circuit to be built:
    /// `cbtmintimeout`.
    pub least_build_secs: f64,
}

impl Default for Constants {
    /// Hops by the paper's dataset (App. D), the least build time by path-spec 2.4; the others
    /// fitted to Shadow's networks 1-4 at both loads, with
    /// [`Weighted`](crate::fill::Weighted) shares.
    fn default() -> Self {
        Self {
            hop_median_secs: 0.118,
            hop_p5_secs: 0.0274,
            hop_scale: 0.7,
            for_cells: 1.03,
            queue_secs: 0.002,
            held_scale: 1.65,
            build_scale: 0.05,
            ramp: 0.5,
            give_up_secs: 30.0,
            server_secs: 0.35,
            least_build_secs: 1.5,
        }
    }
}

/// Configuration of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowConfig {
    /// The number of circuits that users open in ten minutes.
    pub circuits_per_10_min: f64,
    /// The number of users' clients, each with guards of its own, if any.
    pub user_clients: u32,
    /// The number of guards of each of the users' clients; with 0, every circuit gets a fresh
    /// guard.
    pub guards: u8,
    /// The number of benchmark clients; they download files, without fixed guards.
    pub perf_clients: u32,
    /// The greatest number of relay measurements at a time, if an observer asks for them.
    pub probes: u32,
    /// Simulated seconds before the counted ones.
    pub warm_up_secs: u32,
    /// Simulated seconds that are counted.
    pub secs: u32,
    /// The limit of data in flight.
    pub window: CellWindow,
    /// Constants of the model.
    pub constants: Constants,
    /// Random seed.
    pub seed: u64,
}

impl Default for FlowConfig {
    /// Shadow's ten-percent networks at load 1.0: an hour, of which the last 40 minutes count.
    /// Their clients have no fixed guards (tornettools writes `UseEntryGuards 0`).
    fn default() -> Self {
        Self {
            circuits_per_10_min: 148_896.0,
            user_clients: 792,
            guards: 0,
            perf_clients: 79,
            probes: 0,
            warm_up_secs: 1_200,
            secs: 2_400,
            window: CellWindow::default(),
            constants: Constants::default(),
            seed: 1,
        }
    }
}

impl FlowConfig {
    /// Checks that the configuration is valid.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let constants = &self.constants;
        let positive = [
            constants.hop_p5_secs,
            constants.hop_median_secs,
            constants.hop_scale,
            constants.for_cells,
            constants.ramp,
            constants.give_up_secs / 1e3,
        ];
        let is_positive = |value: &f64| (1e-6..=1e3).contains(value);
        let are_times = [
            constants.queue_secs,
            constants.held_scale,
            constants.build_scale,
            constants.server_secs,
            constants.least_build_secs,
        ]
        .iter()
        .all(|secs| (0.0..=1e3).contains(secs));
        if !positive.iter().all(is_positive) || !are_times {
            bail!("the constants of a simulation must be from 1e-6 to 1000: {constants:?}");
        }
        if !(0.0..=1e9).contains(&self.circuits_per_10_min) {
            bail!("{} circuits in ten minutes cannot be simulated", self.circuits_per_10_min);
        }
        if self.secs.saturating_add(self.warm_up_secs) > 10_000_000 || self.secs == 0 {
            bail!("a simulation lasts from 1 to 10,000,000 s");
        }
        if self.perf_clients.max(self.probes) > 1_000_000 || self.user_clients > 10_000_000 {
            bail!("there are too many clients");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_up_to_their_limits() {
        let fixed = |trips| CellWindow::Fixed.stream_cells(trips);
        assert!((fixed(1.0) / fixed(0.0) - 2.0).abs() < 1e-9);
        assert_eq!(fixed(20.0).to_bits(), 500_f64.to_bits());
        let today = |trips| CellWindow::CongestionControl.stream_cells(trips);
        assert_eq!(today(0.0).to_bits(), 124_f64.to_bits());
        assert!((today(1.0) - 248.0).abs() < 1e-9);
        // By hand: 600 cells after log2(600 / 124) = 2.2746 round trips.
        assert!((today(12.2746) - 910.0).abs() < 0.1, "{}", today(12.2746));
    }
}
