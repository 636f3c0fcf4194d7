//! The command line.

pub mod link;
pub mod up;

use clap::{Parser, Subcommand};

use self::link::LinkArgs;
use self::up::UpArgs;

/// Private Tor networks, and links like those of real networks, on this machine alone.
///
/// Nothing leaves the machine: a network is on loopback; hosts behind links are network namespaces, and what is between
/// them is a thread of this program. Links need root. Nothing is left behind.
#[derive(Debug, Parser)]
#[command(name = "ff-lab", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a private Tor network, and keep it until Ctrl-C.
    ///
    /// Starts a private Tor network on this machine, says where its nodes are, and ends it with Ctrl-C. Nothing of it leaves
    /// the machine: everything is bound to loopback. It takes some 10 seconds, and needs Debian's package `tor`.
    ///
    /// The directory it names is what `ff-perf circuits run --network` takes. Each node has a directory there with its torrc,
    /// its log and its control socket.
    ///
    /// Exit status: 0 if it was ended by Ctrl-C (or SIGTERM, SIGHUP), 1 if it did not start or a node ended by itself.
    Up(UpArgs),
    /// Emulated links: run a command behind one, list them, check them.
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
