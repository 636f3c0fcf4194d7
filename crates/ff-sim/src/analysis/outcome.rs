//! Results of an analysis.

use super::window::Window;

/// Results of an analysis of errors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorAnalysis {
    /// The windows, in the order in which they were given.
    pub windows: Vec<Window>,
    /// The network at each time.
    pub steps: Vec<NetworkStep>,
    /// The relays, by the numbers that the caller gave them.
    pub relays: Vec<RelayMeans>,
}

/// The network at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkStep {
    /// In seconds since 1970.
    pub time: u64,
    /// Whether there is a gap in advertised bandwidths before this time.
    pub is_after_gap: bool,
    /// The number of listed relays.
    pub relays: u32,
    /// The number of listed relays with an unknown advertised bandwidth.
    pub without_advertised: u32,
    /// The sum of A(r, t), in bytes per second.
    pub advertised: u128,
    /// The sum of their weights.
    pub weight: u128,
    /// Results for each window.
    pub windows: Vec<NetworkWindow>,
}

/// The network at one time, for one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkWindow {
    /// The share of the window covered by advertised bandwidths, from 0 to 1; capacities come from
    /// these.
    pub share: f64,
    /// Whether they cover the whole window.
    pub is_whole: bool,
    /// The share of the window covered by weights; the deviation of weights is computed from these.
    pub share_of_weights: f64,
    /// The total capacity of the listed relays, in bytes per second: the sum of C(r, t, p).
    pub capacity: u128,
    /// NCE(t, p), Eq. 3; `None` if no relay has a capacity.
    pub capacity_error: Option<f64>,
    /// NWE(t, p), Eq. 6; `None` without weights.
    pub weight_error: Option<f64>,
    /// The share of total weight of relays with capacity 0 or unknown; they are in no sum of
    /// weights.
    pub weight_left_out: f64,
}

/// A relay over the whole time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayMeans {
    /// When it was first listed, in seconds since 1970; `None` if it never was.
    pub first_seen: Option<u64>,
    /// When it was last listed, in seconds since 1970.
    pub last_seen: Option<u64>,
    /// The number of times at which it was listed.
    pub listed: u32,
    /// The highest bandwidth that it ever advertised, in bytes per second.
    pub most_advertised: u64,
    /// Results for each window.
    pub windows: Vec<RelayWindow>,
}

/// A relay over the whole time, for one window: means over the times at which it was listed and the
/// window was sufficiently covered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelayWindow {
    /// The sum of A(r, t) over the times of `capacity_error`.
    pub advertised: u128,
    /// The sum of C(r, t, p) over the same times.
    pub capacity: u128,
    /// RCE(r, t, p), Eq. 2.
    pub capacity_error: Mean,
    /// RWE(r, t, p), Eq. 5.
    pub weight_error: Mean,
    /// W(r, t), its share of total weight, over the times of `weight_error`.
    pub weight_share: Mean,
    /// Its share of total capacity, Eq. 4, over the same times.
    pub capacity_share: Mean,
    /// RSD(A(r, t, p)), Eq. 7.
    pub advertised_deviation: Mean,
    /// RSD(W(r, t, p)), Eq. 7.
    pub weight_deviation: Mean,
}

impl RelayWindow {
    /// Adds a number of times at which the relay advertised this in the whole window: errors are 0.
    pub(super) fn add_same(&mut self, advertised: u64, times: u32) {
        let all = u128::from(advertised) * u128::from(times);
        self.advertised += all;
        self.capacity += all;
        self.capacity_error.add_zeros(times);
        self.advertised_deviation.add_zeros(times);
    }
}

/// A mean of values that are added one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Adds a number of zeros.
    pub(super) const fn add_zeros(&mut self, count: u32) {
        self.count += count;
    }

    /// The number of values.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The mean of the values; `None` if there are none.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

impl ErrorAnalysis {
    /// The index of this window in the results.
    #[must_use]
    pub fn index(&self, window: Window) -> Option<usize> {
        self.windows.iter().position(|&other| other == window)
    }

    /// The number of times at which a window was whole; 0 if it is longer than the data.
    #[must_use]
    pub fn whole_steps(&self, window: usize) -> usize {
        let windows = self.steps.iter().filter_map(|step| step.windows.get(window));
        windows.filter(|window| window.is_whole).count()
    }

    /// The means of all relays that have one, sorted: the distribution in the paper's figures 1, 3
    /// and 10.
    #[must_use]
    pub fn means(&self, window: usize, of: impl Fn(&RelayWindow) -> Mean) -> Vec<f64> {
        let windows = self.relays.iter().filter_map(|relay| relay.windows.get(window));
        ff_report::stats::sorted(windows.filter_map(|window| of(window).get()).collect())
    }

    /// An error of the network at all times at which at least `least_share` of the window is
    /// covered, sorted: the paper's figures 2 and 4 give its medians and extremes.
    #[must_use]
    pub fn network(
        &self,
        window: usize,
        least_share: f64,
        of: impl Fn(&NetworkWindow) -> Option<f64>,
    ) -> Vec<f64> {
        let windows = self.steps.iter().filter_map(|step| step.windows.get(window));
        let covered = windows.filter(|window| window.share >= least_share);
        ff_report::stats::sorted(covered.filter_map(of).collect())
    }

    /// The share of total weight of relays without a capacity, at all times that have weights and
    /// at which at least `least_share` of the window is covered, sorted.
    #[must_use]
    pub fn weight_left_out(&self, window: usize, least_share: f64) -> Vec<f64> {
        let steps = self.steps.iter().filter(|step| step.weight > 0);
        let windows = steps.filter_map(|step| step.windows.get(window));
        let covered = windows.filter(|window| window.share >= least_share);
        ff_report::stats::sorted(covered.map(|window| window.weight_left_out).collect())
    }
}
