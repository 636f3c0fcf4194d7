//! The arguments of `ff-lab up`.

use std::path::PathBuf;

use clap::Args;

/// `ff-lab up`.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// Number of relays that are not exits.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=200))]
    pub relays: u16,
    /// Number of exits, which allow connections to loopback.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub exits: u16,
    /// Number of arti-relays. Each node then has a network namespace with an address of its own,
    /// which needs root.
    ///
    /// arti-relay refuses loopback and private addresses, so nodes are in 198.18.0.0/15; nsenter
    /// --net=/proc/PID/ns/net runs a command where the node with that process id is. arti-relay
    /// 0.47 bootstraps and forwards, but uploads no descriptor: the consensus does not list it, and
    /// clients do not use it.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "arti_relay", value_parser = clap::value_parser!(u16).range(0..=50))]
    pub arti_relays: u16,
    /// The arti-relay program. With --flashflow it must contain FlashFlow:
    /// crates/ff-relay-ext/arti/build-arti-relay builds one.
    #[arg(long, value_name = "PROGRAM", requires = "arti_relays")]
    pub arti_relay: Option<PathBuf>,
    /// Number of clients: tors with a SocksPort.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=50))]
    pub clients: u16,
    /// Number of directory authorities.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub authorities: u8,
    /// Rate limit of each tor relay, such as 8Mbit or 1MB; tor accepts 76.8 kB/s or more.
    /// arti-relay has no limit.
    #[arg(long, value_name = "RATE")]
    pub limit: Option<String>,
    /// The tor program of all nodes; default: the system's.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Allow measurements of the relays. Needs a --tor with FlashFlow, such as
    /// crates/ff-relay-ext/tor/build-tor makes.
    #[arg(long, requires = "tor")]
    pub flashflow: bool,
    /// With --flashflow, the identity of a coordinator that may measure: 43 characters of base64;
    /// may be repeated.
    #[arg(long, value_name = "IDENTITY", requires = "flashflow")]
    pub coordinator: Vec<String>,
    /// Keep the network's directory, with all logs, on exit.
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}
