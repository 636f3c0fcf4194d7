//! The command line.

pub mod link;

use clap::{Parser, Subcommand};

use self::link::LinkArgs;

/// Links like those of real networks, on this machine alone.
///
/// Nothing leaves the machine: hosts are network namespaces, and what is between them is a thread of this program.
/// It needs root, and leaves nothing behind.
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
