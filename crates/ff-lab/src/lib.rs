#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! ```text
//!  NetworkBuilder ──start──▶ Network ──▶ Node ──▶ process of tor     (builder, network, node, process)
//!                              ├──▶ Hosts, a namespace a node        (hosts)
//!                              │          ├──▶ Control, BwWatch      (control, bandwidth)
//!                              │          └──▶ CpuQuota, by pid      (quota)
//!                              ├──▶ Downloads ◀── Source             (download, source)
//!                              └──▶ consensus, votes                 (directory)
//!  LoneRelay ──▶ Node, without a network                             (lone)
//!  ArtiRelay: an arti-relay, in a network with hosts or alone       (arti_relay)
//!
//!  Profile ──▶ net::Plan ──▶ net::Emulation ──▶ link::Switch, a TUN in each namespace (profile, net, link)
//!  ff-lab up, link run | profiles | check                            (cli, run, check)
//! ```

mod arti_relay;
mod bandwidth;
mod builder;
pub mod check;
pub mod cli;
pub mod console;
mod control;
mod directory;
mod download;
mod ending;
mod error;
mod files;
mod hosts;
mod keys;
pub mod link;
mod lone;
pub mod net;
mod network;
mod node;
mod own_dir;
mod ports;
mod process;
pub mod profile;
mod quota;
pub mod run;
mod socks;
mod source;
mod torrc;

pub use arti_relay::{ArtiRelay, ArtiRelayPlan, NETWORK};
pub use bandwidth::{BwSecond, BwWatch};
pub use builder::{ArtiRelayConfig, NetworkBuilder, RelayConfig};
pub use control::{CircuitId, Control, Event, Reply, ReplyLine};
pub use directory::{RelayStatus, relay_statuses};
pub use download::{DownloadPlan, Downloads};
pub use ending::Ending;
pub use error::{Error, Result};
pub use files::{check_writable, write_whole};
pub use hosts::{Delays, Host, HostsPlan};
pub use lone::LoneRelay;
pub use network::Network;
pub use node::{Node, Role};
pub use quota::{CpuQuota, QuotaStats};
pub use source::Source;
