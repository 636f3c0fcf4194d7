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
