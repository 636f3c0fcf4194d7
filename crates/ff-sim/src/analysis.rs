//! Errors of capacities and weights over time (paper §3, Eq. 1-7, App. A).
//!
//! ```text
//!   Reading: relay, advertised, weight ─▶ Engine::take, a time after the other ─▶ Outcome
//!                                           │                                       ├─▶ NetworkStep  Eq. 3, 6
//!                                           └─▶ NewRelays                           ├─▶ RelayMeans   Eq. 2, 5, 7
//!                                                                                   └─▶ groups, ranks
//!   network::Network ─▶ moment::weight_error  Eq. 5, 6 at one moment
//!   series::daily    ─▶ speed_test            Fig. 5
//! ```
//!
//! [`engine::Engine`] is the centre: it takes times in order and never goes back, so that an
//! archive of any length streams through it. [`outcome::ErrorAnalysis`] is what comes out,
//! [`window::Window`] the lengths that it looks back.
//!
//! How the paper is read:
//!
//! - A window of length p at time t holds the times in (t - p, t]: A(r, t) is among them, so no
//!   error is negative.
//! - A relay has errors at the times at which it is listed, and only relays listed at t are in the
//!   sums of t. Eq. 3's numerator is A(r, t): the paper's printed p would make it a sum of sums.
//! - A relay whose capacity is unknown or 0 has no errors and leaves the sums of weights; which
//!   part of all weight it had is in [`outcome::NetworkWindow::weight_left_out`].
//! - Eq. 7 is over the values at the times of the data, once an hour for an archive, and with the
//!   deviation of all values there are. The paper does the same: its greatest deviation of 7,937 %
//!   within a year needs 6,300 values at least, more than a relay's descriptors.
//! - Data begin at their first time and a window that begins earlier is not whole. Where two
//!   times are further apart than [`engine::EngineSettings::step_secs`], the rest between them is a
//!   gap, and a window that reaches into it is not whole either. Nothing is made up for it: a
//!   window has what was listed within it, and the share of it that data cover is given with every
//!   result. A time at which nothing is advertised is missing too, and the deviation of weights has
//!   windows of the times that have weights. Means of relays leave windows out whose share is below
//!   [`engine::EngineSettings::least_share`].

pub mod engine;
pub mod groups;
pub mod joined;
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
