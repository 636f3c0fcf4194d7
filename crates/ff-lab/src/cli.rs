//! The command line.

pub mod link;
pub mod up;

use clap::{Parser, Subcommand};

use self::link::LinkArgs;
use self::up::UpArgs;

/// Runs private Tor networks, and emulates the links of real ones, on this machine.
///
/// No traffic leaves the machine: networks use loopback; hosts on emulated links are network
/// namespaces, connected by a thread of this program. Links need root. Everything is removed at the
/// end.
#[derive(Debug, Parser)]
#[command(name = "ff-lab", version)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `ff-lab`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a private Tor network that runs until Ctrl-C.
    ///
    /// Starts a private Tor network on this machine, prints where its nodes are, and stops it at
    /// Ctrl-C. All of its addresses are on loopback, or with --arti-relays in network namespaces,
    /// so no traffic leaves the machine. The start takes about 10 seconds and needs Debian's
    /// package `tor`.
    ///
    /// `ff-perf circuits run --network` takes the directory that it prints. Each node has a
    /// directory there with its torrc, its log and its control socket.
    ///
    /// Exit status: 0 if it was stopped by Ctrl-C (or SIGTERM, SIGHUP), 1 if it did not start or a
    /// node ended by itself.
    Up(UpArgs),
    /// Emulate links: run a command over one, list profiles, check the emulator.
    Link(LinkArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
