//! Options of `paths`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::paths::{Lengths, Rules};

/// Options of `paths`.
///
/// Writes a file for `circuits run --path-file`: a path a line, the fingerprints of its relays, the first hop first. Relays of a
/// family stay apart where descriptors are given or the network names families.
#[derive(Args, Clone, Debug)]
pub struct PathsArgs {
    /// A network: a consensus of either flavour, relayinfo JSON, or an hour of a store (DIR@2019-01-07T12:00).
    #[arg(long, value_name = "SRC")]
    pub network: PathBuf,
    /// Descriptors of its relays: a file, an archive or a folder. They know the families, and what relays say of themselves.
    #[arg(long, value_name = "PATH")]
    pub descriptors: Option<PathBuf>,
    /// How many paths.
    #[arg(long, value_name = "PATHS", default_value_t = 1000)]
    pub count: u64,
    /// By which rules relays are drawn.
    #[arg(long, value_enum, default_value_t = SelectPaths::Tor)]
    pub select: SelectPaths,
    /// Relays of a path, from 1 to 8: 3, or a mix with shares, as in 3=0.8,4=0.2.
    #[arg(long, value_name = "LENGTHS", default_value = "3", value_parser = lengths)]
    pub lengths: Lengths,
    /// Draw so many guards and keep them; with 0 each path gets a fresh one, as NavigaTor's do.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub guards: usize,
    /// Let relays of one /16 meet: for private networks, whose relays often have one address.
    #[arg(long)]
    pub any_subnet: bool,
    /// Where paths are drawn from.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The file; without it paths go to standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// By which rules relays are drawn, as an argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum SelectPaths {
    /// As Tor's clients do today: by weight and place.
    Tor,
    /// As tor 0.1.1.26 did: by what relays say of themselves up to 1,500 kB/s, entries each with the same chance.
    Old,
    /// Each relay with the same chance, an exit last.
    Uniform,
}

impl From<SelectPaths> for Rules {
    fn from(select: SelectPaths) -> Self {
        match select {
            SelectPaths::Tor => Self::Tor,
            SelectPaths::Old => Self::Old,
            SelectPaths::Uniform => Self::Uniform,
        }
    }
}

/// Reads a mix of lengths.
fn lengths(text: &str) -> Result<Lengths, String> {
    let one = |part: &str| -> Option<(u8, f64)> {
        let (length, share) = part.split_once('=').unwrap_or((part, "1"));
        Some((length.trim().parse().ok()?, share.trim().parse().ok()?))
    };
    let mix: Option<Vec<_>> = text.split(',').map(one).collect();
    Lengths::new(&mix.unwrap_or_default()).map_err(|error| format!("{error}: 3, or 3=0.8,4=0.2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_understood() {
        for text in ["3", "1,8", "3=0.8,4=0.2"] {
            lengths(text).expect(text);
        }
        for odd in ["", "0", "9", "3=0", "3=-1", "3=", "a", "3,,4"] {
            lengths(odd).expect_err(odd);
        }
    }
}
