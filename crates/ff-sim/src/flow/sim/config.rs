//! What is simulated: how much traffic, for how long, by which windows, and constants.
//!
//! Decisions: doc/decisions.md, "Constants without a known cause".

use anyhow::bail;

/// Bytes of a cell on a link, and of those what it carries of a stream (tor-spec).
pub(in crate::flow) const CELL: (f64, f64) = (514.0, 498.0);

/// Sizes in bytes, how often each is chosen, and seconds after which a download is given up (paper
/// §7). Shadow's clients finished 2,342, 398 and 226 of them: 12 to 2 to 1.
pub(super) const SIZES: [(u32, u32, f64); 3] =
    [(51_200, 12, 15.0), (1_048_576, 2, 60.0), (5_242_880, 1, 120.0)];

/// Seconds after which downloads of 50 KiB, 1 MiB and 5 MiB are given up.
pub const LIMITS_SECS: [f64; 3] = [SIZES[0].2, SIZES[1].2, SIZES[2].2];

/// Cells that are on their way at first: ten packets of TCP.
const FIRST_CELLS: f64 = 14_480.0 / CELL.1;

/// How much may be on its way before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellWindow {
    /// 1,000 cells for a circuit, 500 for a stream (tor-spec 7.4): Tor of 2019.
    #[default]
    Fixed,
    /// As much as the path takes (proposal 324): 124 cells at first, twice as many each round trip
    /// up to 600, 31 more each round trip after that; nothing else limits a stream. Tor of today.
    CongestionControl,
}

impl CellWindow {
    /// Cells of a circuit of users.
    pub(super) fn circuit_cells(self) -> f64 {
        match self {
            Self::Fixed => 1_000.0,
            Self::CongestionControl => f64::INFINITY,
        }
    }

    /// The most bytes of a circuit that a window leaves waiting at a full relay.
    pub(super) fn most_held(self) -> f64 {
        match self {
            Self::Fixed => f64::INFINITY,
            // More is taken back at the next acknowledgement: `cc_vegas_beta_exit` of proposal 324,
            // four times 62 cells.
            Self::CongestionControl => 248.0 * CELL.0,
        }
    }

    /// Cells of a stream a number of round trips after its first byte.
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

/// What nobody knows well enough, for all networks alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// A hop's round trip in seconds: the median.
    pub hop_median_secs: f64,
    /// A hop's round trip in seconds: the 5th percentile.
    pub hop_p5_secs: f64,
    /// By how much circuits' hops are shorter than those of all the Internet: relays stand close
    /// together.
    pub hop_scale: f64,
    /// What a relay carries in cells, as a part of the capacity that is listed. Headers of TCP, IP
    /// and TLS take 4 %; Shadow's networks carry what they do with more than all of it.
    pub for_cells: f64,
    /// Seconds that a queue adds at a relay that is half utilised.
    pub queue_secs: f64,
    /// How many times what circuits have sent and a full relay has not let through is served before
    /// what has just come.
    pub held_scale: f64,
    /// The same before cells that build circuits, which no window holds back.
    pub build_scale: f64,
    /// Round trips in which a download doubles what it has on its way.
    pub ramp: f64,
    /// Seconds after which users give up what they have asked for.
    pub give_up_secs: f64,
    /// Seconds from when a request comes to a server to its first byte: TGen's server sends what a
    /// model of packets says.
    pub server_secs: f64,
    /// Clients wait at least this number of seconds for a circuit to be built: `cbtmintimeout`.
    pub least_build_secs: f64,
}

impl Default for Constants {
    /// Hops by the paper's dataset (App. D), the least build time by path-spec 2.4; the rest as
    /// Shadow's networks 1-4 have it at both loads, by [`Weighted`](crate::flow::fill::Weighted)
    /// shares.
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

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowConfig {
    /// Circuits that users open in ten minutes.
    pub circuits_per_10_min: f64,
    /// How many clients they have: each holds its own guards, if any.
    pub user_clients: u32,
    /// How many guards each of users' clients holds; with none every circuit gets a fresh one.
    pub guards: u8,
    /// Clients that download files to see how long it takes; they hold no guards.
    pub perf_clients: u32,
    /// Relays that are measured at a time, if somebody asks for that.
    pub probes: u32,
    /// Seconds before anything is counted.
    pub warm_up_secs: u32,
    /// Seconds in which things are counted.
    pub secs: u32,
    /// How much may be on its way.
    pub window: CellWindow,
    /// What nobody knows well enough.
    pub constants: Constants,
    /// The seed of all that is random.
    pub seed: u64,
}

impl Default for FlowConfig {
    /// Shadow's ten-percent networks at load 1.0: an hour, of which the last 40 minutes count. No
    /// client of theirs held guards (tornettools writes `UseEntryGuards 0`).
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
    /// Says what is wrong with it.
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
        // By hand: 600 cells after log2(600 / 124) = 2.2746 trips.
        assert!((today(12.2746) - 910.0).abs() < 0.1, "{}", today(12.2746));
    }
}
