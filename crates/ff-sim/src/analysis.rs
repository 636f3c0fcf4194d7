//! Errors of capacities and weights over time (paper §3, Eq. 1-7, App. A).
//!
//! ```text
//!   Readings, in order of time ─▶ Engine::take ─▶ ErrorAnalysis
//!                                   │               ├─▶ NetworkStep  Eq. 3, 6
//!                                   └─▶ NewRelays   ├─▶ RelayMeans   Eq. 2, 5, 7
//!                                                   └─▶ groups, ranks
//!   network::Network ─▶ moment::weight_error  Eq. 5, 6 at one moment
//!   series::daily    ─▶ speed_test            Fig. 5
//! ```
//!
//! [`engine::Engine`] is the central type. It takes times in order and never goes back, so an
//! archive of any length can be streamed through it. [`outcome::ErrorAnalysis`] is the result; a
//! [`window::Window`] is the length of time over which a capacity is computed.
//!
//! Interpretation of the paper:
//!
//! - A window of length p at time t contains the times in (t - p, t]. A(r, t) is among them, so no
//!   error is negative.
//! - A relay has errors at the times at which it is listed, and only relays listed at t are in the
//!   sums at t. The numerator of Eq. 3 is A(r, t): the paper's printed p would make it a sum of
//!   sums.
//! - A relay with capacity 0 or unknown has no errors and is left out of the sums of weights; its
//!   share of the total weight is in [`outcome::NetworkWindow::weight_left_out`].
//! - Eq. 7 is computed over the values at the times of the data (hourly for an archive), as a
//!   population deviation. The paper does the same: its greatest deviation of 7,937 % within a year
//!   needs at least 6,300 values, more than a relay has descriptors.
//! - Data begin at their first time, and a window that begins earlier is not whole. If two times
//!   are further apart than [`engine::EngineSettings::step_secs`], the rest of the interval is a
//!   gap, and a window that contains part of a gap is not whole either. Gaps are not filled in: a
//!   window contains what was listed within it, and the covered share is given with every result. A
//!   time at which nothing is advertised counts as missing, too; the windows of the deviation of
//!   weights use only the times that have weights. Means of relays leave out windows with a covered
//!   share below [`engine::EngineSettings::least_share`].

pub mod engine;
pub mod groups;
pub mod moment;
pub mod new_relays;
pub mod outcome;
pub mod ranks;
pub mod speed_test;
pub mod window;

mod batch;
mod coverage;
mod maxima;
mod quotient;
mod reading;
mod relay;
mod spread;
mod trail;

#[cfg(test)]
mod tests;
