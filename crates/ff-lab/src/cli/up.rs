//! The arguments of `ff-lab up`.

use std::path::PathBuf;

use clap::Args;

/// `ff-lab up`.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// How many relays that are no exits.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=200))]
    pub relays: u16,
    /// How many exits. They let clients connect to loopback.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub exits: u16,
    /// How many arti-relays. Each node then has a network namespace with an address of its own, which needs root.
    ///
    /// arti-relay refuses loopback and private addresses, so nodes are in 198.18.0.0/15; nsenter --net=/proc/PID/ns/net runs a
    /// command where the node with that process id is. arti-relay 0.47 bootstraps and forwards, but uploads no descriptor: the
    /// consensus does not list it, and clients do not use it.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "arti_relay", value_parser = clap::value_parser!(u16).range(0..=50))]
    pub arti_relays: u16,
    /// The arti-relay that these run. With --flashflow it must know FlashFlow: crates/ff-relay-ext/arti/build-arti-relay
    /// makes one.
    #[arg(long, value_name = "PROGRAM", requires = "arti_relays")]
    pub arti_relay: Option<PathBuf>,
    /// How many clients: tors with a SocksPort.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=50))]
    pub clients: u16,
    /// How many directory authorities.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub authorities: u8,
    /// What every tor relay forwards at most: 8Mbit, 1MB and so on; tor takes 76.8 kB/s or more. arti-relay has no limit.
    #[arg(long, value_name = "RATE")]
    pub limit: Option<String>,
    /// The tor that all nodes run instead of the system's.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Relays let themselves be measured. It takes a --tor that knows FlashFlow: crates/ff-relay-ext/tor/build-tor makes
    /// one.
    #[arg(long, requires = "tor")]
    pub flashflow: bool,
    /// With --flashflow, a coordinator that may measure: its identity, 43 letters of base64.
    #[arg(long, value_name = "IDENTITY", requires = "flashflow")]
    pub coordinator: Vec<String>,
    /// Keep the directory, with all logs, on exit.
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}
