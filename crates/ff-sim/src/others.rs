//! Other systems that measure relays: TorFlow, sbws, EigenSpeed, PeerFlow (paper §2, §8, Table 2).
//!
//! ```text
//!   a relay's traffic ─▶ Observed ─┐
//!   downloads ────────▶ Sample ◀───┘ old weights
//!                         │
//!                         ├─▶ torflow  ratio x observed bandwidth, by class, at most 5 %, or with feedback
//!                         └─▶ sbws     ratio x min(descriptor, consensus), at most 5 %, two digits
//!   relays' views of each other ─▶ eigenspeed   an eigenvector, found from trusted relays
//!   bytes that relays exchange  ─▶ peerflow     a weighted median over trusted relays
//! ```
//!
//! All are pure functions of one step. [`torflow::weights`] and [`sbws::weights`] turn what was
//! measured into new weights, so that a simulation can go round: weights make load, load makes
//! [`observed::Observed`] bandwidths and download speeds, and these make weights. The formulas that
//! both share are `ff_plan`'s, where they are compared with what sbws itself makes of networks.
//!
//! Limits: no downloads happen here, so the caller decides which relay measures which, and how
//! often.

pub mod eigenspeed;
pub mod observed;
pub mod peerflow;
pub mod sbws;
pub mod torflow;

use ff_plan::publish::scaling::Inputs;

use crate::network::Position;

/// Bytes of a kilobyte, the unit of weights.
pub const KILOBYTE: f64 = 1000.0;

/// What is known of a relay when weights are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What downloads through it came to, in bytes a second; nothing if there were none.
    pub measured: Vec<f64>,
    /// What its descriptor says it has seen itself do, in bytes a second.
    pub observed: f64,
    /// The least of what its descriptor says it may do, in bytes a second; infinite if that is not
    /// known.
    pub allowed: f64,
    /// Its weight in the consensus, in kilobytes a second; 0 if it has none.
    pub old_weight: f64,
    /// Its class.
    pub position: Position,
}

impl Sample {
    /// Whether it was measured.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        !self.measured.is_empty()
    }

    /// The same for the formulas, without what is not a number; `bound` is a further limit on what
    /// it may do.
    fn inputs(&self, bound: f64) -> Inputs {
        Inputs {
            measured: self.measured.iter().copied().map(sane).collect(),
            observed: sane(self.observed),
            allowed: if self.allowed.is_nan() { bound } else { self.allowed.max(0.0).min(bound) },
        }
    }

    /// Its old weight as a weight: what stands for relays that were not measured.
    fn kept_weight(&self) -> f64 {
        sane(self.old_weight)
    }
}

/// The number, if it is a rate: finite and not negative; else 0. No rate is above 1e15 bytes a
/// second.
fn sane(rate: f64) -> f64 {
    if rate.is_finite() { rate.clamp(0.0, 1e15) } else { 0.0 }
}

/// A weight as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "weights are rounded to few digits, or below 2^53")]
fn float(weight: u64) -> f64 {
    weight as f64
}
