//! Other systems that compute relays' weights: TorFlow, sbws, EigenSpeed, PeerFlow (paper §2, §8,
//! Table 2).
//!
//! ```text
//!   a relay's traffic ─▶ Observed ─┐
//!   downloads ────────▶ Sample ◀───┘ old weights
//!                         │
//!                         ├─▶ torflow  ratio x observed bandwidth, at most 5 %, or feedback
//!                         └─▶ sbws     ratio x min(descriptor, consensus), at most 5 %, two digits
//!   relays' views of each other ─▶ eigenspeed   an eigenvector, found from trusted relays
//!   bytes that relays exchange  ─▶ peerflow     a weighted median over trusted relays
//! ```
//!
//! All are pure functions of one step. [`torflow::weights`] and [`sbws::weights`] compute new
//! weights from measurements, so that a simulation can close the loop: weights determine load, load
//! determines [`observed::Observed`] bandwidths and download speeds, and these determine weights.
//! The formulas that both share are in `ff_plan`, where they are compared with sbws's own results.
//!
//! Limits: there are no downloads here, so the caller decides which relay measures which, and how
//! often.

pub mod eigenspeed;
pub mod observed;
pub mod peerflow;
pub mod sbws;
pub mod torflow;

use ff_archives::network::Position;
use ff_plan::publish::scaling::Inputs;

/// Bytes of a kilobyte, in the unit of weights.
pub const KILOBYTE: f64 = 1000.0;

/// The data from which a relay's weight is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Speeds of downloads through it, in bytes per second; empty if there were none.
    pub measured: Vec<f64>,
    /// Observed bandwidth in its descriptor, in bytes per second.
    pub observed: f64,
    /// The lowest rate limit in its descriptor, in bytes per second; infinite if unknown.
    pub allowed: f64,
    /// Weight in the consensus, in kilobytes per second; 0 if it has none.
    pub old_weight: f64,
    /// The class of the relay.
    pub position: Position,
}

impl Sample {
    /// Whether there are measurements of it.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        !self.measured.is_empty()
    }

    /// Inputs for the shared formulas, without invalid numbers; `bound` is an additional limit, in
    /// bytes per second.
    fn inputs(&self, bound: f64) -> Inputs {
        Inputs {
            measured: self.measured.iter().copied().map(sane).collect(),
            observed: sane(self.observed),
            allowed: if self.allowed.is_nan() { bound } else { self.allowed.max(0.0).min(bound) },
        }
    }

    /// The old weight, used for relays that were not measured.
    fn kept_weight(&self) -> f64 {
        sane(self.old_weight)
    }
}

/// The rate if it is finite and not negative, otherwise 0; at most 1e15 bytes per second.
fn sane(rate: f64) -> f64 {
    if rate.is_finite() { rate.clamp(0.0, 1e15) } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "weights are rounded to few digits, or below 2^53")]
fn float(weight: u64) -> f64 {
    weight as f64
}
