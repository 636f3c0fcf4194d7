//! The cases: where the relay is, and its limit.

use std::fmt;

use clap::ValueEnum;
use ff_measurer::transit::Direction;
use ff_proto::ids::CryptoKind;

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
    /// A percentage of one core.
    Cpu {
        /// Of one core.
        percent: u8,
    },
    Core,
    /// The rest of the machine's cores; the measurers use one of them.
    AllCores,
    /// BandwidthRate and BandwidthBurst.
    Rate {
        /// In Mbit/s.
        mbit: u16,
    },
    /// RelayBandwidthRate and RelayBandwidthBurst.
    RelayRate {
        /// In Mbit/s.
        mbit: u16,
    },
}

/// One comparison.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Worker threads of the arti-relay in question; `None` if the relay is a tor.
    pub(crate) arti_threads: Option<u16>,
    /// Where the relay is.
    pub(crate) position: Position,
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
    /// What it forwards.
    pub(crate) by: Witness,
    /// How cells in transit go.
    pub(crate) transits: Transits,
}

/// The source of the forwarded rate, to be compared with the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Witness {
    /// Downloads of tor's clients.
    Downloads,
    /// Cells of measurers, through circuits to sinks and back.
    Transit,
    /// The one, then the other.
    Both,
}

/// How cells in transit go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transits {
    /// Circuits, if there are not more links.
    pub(crate) circuits: u32,
    /// On how many of them cells always go, if there are not more links.
    pub(crate) busy: u32,
    /// Of how many cells one goes over one of the others.
    pub(crate) quiet_one_in: Option<u32>,
    /// Sinks, to each of which the relay opens a link.
    pub(crate) sinks: u8,
    /// Which way.
    pub(crate) direction: Direction,
    /// The circuits' crypto.
    pub(crate) crypto: CryptoKind,
}

impl Case {
    /// Whether CPU time is the limit.
    pub(crate) fn is_cpu(&self) -> bool {
        matches!(self.limit, Limit::Cpu { .. } | Limit::Core | Limit::AllCores)
    }

    /// The description of the relay in a table.
    pub(crate) fn relay(&self) -> String {
        match self.arti_threads {
            None => self.position.to_string(),
            Some(1) => "arti-relay with 1 thread".to_owned(),
            Some(threads) => format!("arti-relay with {threads} threads"),
        }
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

impl fmt::Display for Transits {
    /// As in a column of a CSV.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { circuits, busy, quiet_one_in, sinks, direction, crypto } = *self;
        write!(
            f,
            "{direction:?} {circuits} circuits; {busy} busy; {sinks} sinks; {}",
            crypto.name()
        )?;
        quiet_one_in.map_or(Ok(()), |cells| write!(f, "; one cell in {cells} on quiet ones"))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { percent } => write!(f, "{percent} % of a core"),
            Self::Core => f.write_str("a whole core"),
            Self::AllCores => f.write_str("all cores"),
            Self::Rate { mbit } => write!(f, "{mbit} Mbit/s"),
            Self::RelayRate { mbit } => write!(f, "RelayBandwidthRate {mbit} Mbit/s"),
        }
    }
}

/// Reads the bounds that ratios are expected in.
pub(crate) fn parse_bounds(text: &str) -> Result<(f64, f64), String> {
    let bounds = text.split_once("..").and_then(|(min, max)| {
        Some((min.parse::<f64>().ok()?, max.parse::<f64>().ok()?)).filter(|(min, max)| min < max)
    });
    bounds.ok_or_else(|| format!("{text:?} is not of the form 0.75..1.30"))
}
