//! Options of `measure --transit`.

use std::net::SocketAddr;

use clap::Args;
use ff_measurer::key::parse_key;
use ff_measurer::transit::{DEFAULT_LINKS, MAX_PUBLIC_LINKS};

/// Options of `measure --transit`.
#[derive(Args, Clone, Debug)]
pub struct TransitArgs {
    /// Measure a relay without FlashFlow: how many of our own cells its circuits forward.
    ///
    /// Cells of random content go to sinks of this process and back. The relay's client traffic is
    /// unknown then, so the verdict is `lower_bound`, and no bandwidth file is written. Use --links
    /// instead of --sockets; --rate is the rate in each direction.
    #[arg(long, requires_all = ["onion_key", "sinks"],
          conflicts_with_all = ["fingerprint", "key", "measurers", "sockets", "ratio"])]
    pub transit: bool,
    /// The relay's key for circuits: `ntor-onion-key` in its descriptor.
    #[arg(long, value_name = "BASE64", requires = "transit", value_parser = parse_key)]
    pub onion_key: Option<[u8; 32]>,
    /// Addresses at which our sinks listen: the relay must be able to reach them.
    #[arg(long, value_name = "IP:PORT,...", requires = "transit", value_delimiter = ',')]
    pub sinks: Vec<SocketAddr>,
    /// Links to the relay (1 to 90): a relay refuses further links from an address that has 100.
    #[arg(long, default_value_t = DEFAULT_LINKS, value_name = "NUMBER", requires = "transit",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_PUBLIC_LINKS)))]
    pub links: u16,
    /// Number of circuits over all links; default: two per link.
    #[arg(long, value_name = "NUMBER", requires = "transit",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub circuits: Option<u32>,
    /// Confirm that the relay's operator has agreed; required unless its address is private.
    #[arg(long, requires = "transit")]
    pub i_have_the_operators_consent: bool,
}
