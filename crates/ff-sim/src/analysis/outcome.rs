//! What an analysis comes to.

use super::window::Window;

/// What an analysis comes to.
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
    /// The time, in seconds since 1970.
    pub time: u64,
    /// Whether a gap lies before it, in what was advertised.
    pub is_after_gap: bool,
    /// How many relays were listed.
    pub relays: u32,
    /// How many of them advertised nothing that is known.
    pub without_advertised: u32,
    /// What they advertised, in bytes a second: the sum of A(r, t).
    pub advertised: u128,
    /// The sum of their weights.
    pub weight: u128,
    /// What each window says.
    pub windows: Vec<NetworkWindow>,
}

/// The network at one time, as one window sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkWindow {
    /// Which part of the window data cover, from 0 to 1: what was advertised, which capacities come
    /// from.
    pub share: f64,
    /// Whether they cover all of it.
    pub is_whole: bool,
    /// Which part of it weights cover, which the deviation of weights looks back at.
    pub share_of_weights: f64,
    /// What the relays that are listed could carry, in bytes a second: the sum of C(r, t, p).
    pub capacity: u128,
    /// NCE(t, p), Eq. 3; nothing if no relay has a capacity.
    pub capacity_error: Option<f64>,
    /// NWE(t, p), Eq. 6; nothing without weights.
    pub weight_error: Option<f64>,
    /// Which part of all weight relays have whose capacity is unknown or 0; they are in no sum of
    /// weights.
    pub weight_left_out: f64,
}

/// A relay over the whole time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayMeans {
    /// When it was listed first, in seconds since 1970; nothing if it never was.
    pub first_seen: Option<u64>,
    /// When it was listed last.
    pub last_seen: Option<u64>,
    /// At how many times it was listed.
    pub listed: u32,
    /// The most that it ever advertised, in bytes a second.
    pub most_advertised: u64,
    /// What each window says.
    pub windows: Vec<RelayWindow>,
}

/// A relay over the whole time, as one window sees it: means over the times at which it was listed
/// and the window was covered well enough.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelayWindow {
    /// The sum of A(r, t) over the times of the next field.
    pub advertised: u128,
    /// The sum of C(r, t, p) over them.
    pub capacity: u128,
    /// RCE(r, t, p), Eq. 2.
    pub capacity_error: Mean,
    /// RWE(r, t, p), Eq. 5.
    pub weight_error: Mean,
    /// W(r, t), its part of all weight, over the times of the mean before.
    pub weight_share: Mean,
    /// Its part of all capacity, Eq. 4, over the same times.
    pub capacity_share: Mean,
    /// RSD(A(r, t, p)), Eq. 7.
    pub advertised_deviation: Mean,
    /// RSD(W(r, t, p)), Eq. 7.
    pub weight_deviation: Mean,
}

impl RelayWindow {
    /// Takes a number of times at which the relay always advertised this in the window: errors are
    /// 0.
    pub(super) fn add_same(&mut self, advertised: u64, times: u32) {
        let all = u128::from(advertised) * u128::from(times);
        self.advertised += all;
        self.capacity += all;
        self.capacity_error.add_zeros(times);
        self.advertised_deviation.add_zeros(times);
    }
}

/// A mean of values that come one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    /// How many there were.
    count: u32,
}

impl Mean {
    /// Takes a value.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Takes a number of values of 0.
    pub(super) const fn add_zeros(&mut self, count: u32) {
        self.count += count;
    }

    /// How many values there were.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Their mean; nothing of none.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

impl ErrorAnalysis {
    /// Which window this is among the results.
    #[must_use]
    pub fn index(&self, window: Window) -> Option<usize> {
        self.windows.iter().position(|&other| other == window)
    }

    /// At how many times a window was whole; at none if it is longer than its data.
    #[must_use]
    pub fn whole_steps(&self, window: usize) -> usize {
        let windows = self.steps.iter().filter_map(|step| step.windows.get(window));
        windows.filter(|window| window.is_whole).count()
    }

    /// The means of all relays that have one, sorted: the distribution that the paper's figures 1,
    /// 3 and 10 show.
    #[must_use]
    pub fn means(&self, window: usize, of: impl Fn(&RelayWindow) -> Mean) -> Vec<f64> {
        let windows = self.relays.iter().filter_map(|relay| relay.windows.get(window));
        ff_report::stats::sorted(windows.filter_map(|window| of(window).get()).collect())
    }

    /// An error of the network at all times at which a part `least_share` of the window is covered,
    /// sorted: the medians and extremes of the paper's figures 2 and 4.
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

    /// Which part of all weight relays without a capacity have, at all times that have weights and
    /// at which a part `least_share` of the window is covered, sorted.
    #[must_use]
    pub fn weight_left_out(&self, window: usize, least_share: f64) -> Vec<f64> {
        let steps = self.steps.iter().filter(|step| step.weight > 0);
        let windows = steps.filter_map(|step| step.windows.get(window));
        let covered = windows.filter(|window| window.share >= least_share);
        ff_report::stats::sorted(covered.map(|window| window.weight_left_out).collect())
    }
}
