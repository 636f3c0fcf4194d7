//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use ff_coordinator::options::{Common, Limit, exit_status_help};
use ff_proto::units::BytesPerSec;

/// What tor accepts as the BandwidthRate of a relay, in bytes per second: or.h,
/// RELAY_REQUIRED_MIN_BANDWIDTH and ROUTER_MAX_DECLARED_BANDWIDTH.
const TOR_RATES_BYTES_PER_SEC: RangeInclusive<u64> = 76_800..=2_147_483_647;

/// The demo's client traffic when it is not told: 20 Mbit/s.
const DEFAULT_BACKGROUND: BytesPerSec = BytesPerSec::new(2_500_000);

/// Starts a Tor relay, clients that use it and a team of measurers on this machine, and measures
/// the relay.
///
/// It takes half a minute and uses only loopback. The relay's limit is known, so that the estimate
/// can be compared with it. `ff-bwauth measure` measures relays elsewhere; `ff-bwauth demo
/// --network` starts a network.
#[derive(Clone, Debug, Parser)]
#[command(name = "ff-demo", version, after_help = exit_status_help())]
pub(crate) struct Cli {
    /// Log more: -v for information, -vv for details; default: warnings.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// What every measurement has.
    #[command(flatten)]
    pub(crate) common: Common,
    /// Limit of the relay's traffic, such as 100Mbit; `none` for no limit.
    #[arg(long, default_value = "100Mbit", value_name = "RATE")]
    pub(crate) limit: Limit,
    /// Client traffic through the relay, such as 20Mbit; `none` for none
    /// [default: 20Mbit; with --tor there is none].
    #[arg(long, value_name = "RATE")]
    pub(crate) background: Option<Limit>,
    /// Measure this tor instead of a relay built from Arti's crates.
    ///
    /// It must contain FlashFlow's target: crates/ff-relay-ext/tor/build-tor builds one. The demo
    /// starts it as a relay that uses only loopback, with the data directory DIR/tor (replaced each
    /// time; DIR is that of --out) and --limit as its BandwidthRate and BandwidthBurst, and stops
    /// it afterwards.
    #[arg(long, value_name = "PATH")]
    pub(crate) tor: Option<PathBuf>,
    /// Number of measurers (1 to 8).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) measurers: u8,
}

impl Cli {
    /// The rate of the clients' traffic, if there are to be clients.
    #[must_use]
    pub(crate) fn clients(&self) -> Option<BytesPerSec> {
        match (self.background, &self.tor) {
            (Some(background), _) => background.0,
            (None, Some(_)) => None,
            (None, None) => Some(DEFAULT_BACKGROUND),
        }
    }

    /// Finds options that are right by themselves and wrong together.
    ///
    /// # Errors
    /// One for [`clap::Error::exit`], as those of parsing.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        let is_tors = |limit: BytesPerSec| TOR_RATES_BYTES_PER_SEC.contains(&limit.get());
        let text = if self.tor.is_none() {
            return Ok(());
        } else if self.background.is_some_and(|background| background.0.is_some()) {
            "--background must be none with --tor: clients of a tor need a network of relays, \
             and the demo has only one; the tests in crates/ff-lab start whole networks"
        } else if !self.limit.0.is_none_or(is_tors) {
            "with --tor, --limit must be from 615kbit to 17Gbit, or none: a tor relay does not \
             accept another BandwidthRate"
        } else {
            return Ok(());
        };
        Err(Cli::command().error(ErrorKind::ArgumentConflict, text))
    }
}
