//! The options of an analysis.

use crate::replay::Timeout;

/// The options of an analysis.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalysisOptions {
    /// The number of relays of the analysed circuits.
    pub hops: u8,
    /// The length of the window of selections, in circuits.
    pub window: usize,
    /// The shares of circuits that selections accept, from 0 to 1.
    pub shares: Vec<f64>,
    /// The source of timeouts.
    pub timeout: Timeout,
    /// Random seed.
    pub seed: u64,
    /// The refill interval of token buckets that is searched for, in ms.
    pub refill_ms: u64,
}
