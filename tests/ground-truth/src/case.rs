//! What is compared: where the relay is, and what limits it.

use std::fmt;

use clap::ValueEnum;

/// Where in the circuits the relay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Position {
    /// Between two relays.
    Middle,
    /// Between clients and relays.
    Guard,
}

/// What limits the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// So many percent of one core.
    Cpu {
        /// Of one core.
        percent: u8,
    },
    /// BandwidthRate and BandwidthBurst.
    Rate {
        /// In Mbit/s.
        mbit: u16,
    },
}

/// One comparison.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Where the relay is.
    pub(crate) position: Position,
    /// What limits it.
    pub(crate) limit: Limit,
    /// With how many sockets it is measured, in turn.
    pub(crate) sockets: Vec<u16>,
    /// How often.
    pub(crate) rounds: u16,
    /// How often in turn in each round.
    pub(crate) turns: u16,
    /// How long traffic flows before it counts.
    pub(crate) warm_up_secs: u16,
    /// How long it counts.
    pub(crate) secs: u16,
    /// Cells that measurers put into a TLS record.
    pub(crate) cells_per_record: usize,
}

impl Case {
    /// Whether CPU time is the limit.
    pub(crate) fn is_cpu(&self) -> bool {
        matches!(self.limit, Limit::Cpu { .. })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Middle => "middle",
            Self::Guard => "guard",
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { percent } => write!(f, "{percent} % of a core"),
            Self::Rate { mbit } => write!(f, "{mbit} Mbit/s"),
        }
    }
}
