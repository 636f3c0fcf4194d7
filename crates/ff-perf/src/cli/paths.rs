//! Options of `paths`, some of which `circuits run` shares.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ff_circuits::paths::{Choice, Lengths, Rules};

/// Default port that exits must allow: HTTPS.
pub(crate) const PORT: u16 = 443;

/// Options of `paths`.
#[derive(Args, Clone, Debug)]
pub struct PathsArgs {
    /// A network: a consensus of either flavour, relayinfo JSON, or an hour of a store
    /// (DIR@2019-01-07T12:00); or as for `circuits run`, the data directory of a tor or a directory
    /// with several, or `public`. With a consensus of the microdesc flavour, microdescriptors in
    /// the same directory give families and exit policies.
    #[arg(long, value_name = "SRC|DIR|public")]
    pub network: PathBuf,
    /// Allow a directory of a network with relays on the Internet. This command only reads files.
    #[arg(long)]
    pub public: bool,
    /// Descriptors of its relays: a file, an archive or a folder. They give families, by name and
    /// by key, and the relays' own data.
    #[arg(long, value_name = "PATH")]
    pub descriptors: Option<PathBuf>,
    /// Draw by the weights of this bandwidth file instead of the consensus', with --select tor or
    /// weighted. Relays that are not in it are not drawn.
    #[arg(long, value_name = "V3BW")]
    pub weights: Option<PathBuf>,
    /// Number of paths.
    #[arg(long, value_name = "PATHS", default_value_t = 1000)]
    pub count: u64,
    /// Rules for drawing paths.
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Random seed of the paths.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Write paths into this file; default: standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options on drawing paths.
#[derive(Args, Clone, Debug)]
pub struct Drawing {
    /// Rules for drawing paths.
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Random seed of the paths.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

/// Options on rules for drawing paths.
#[derive(Args, Clone, Debug)]
pub struct RulesArgs {
    /// Rules for drawing relays.
    #[arg(long, value_enum, default_value_t = SelectPaths::Tor)]
    pub select: SelectPaths,
    /// Number of relays of a path, from 1 to 8: 3, or a mix with shares, such as 3=0.8,4=0.2.
    #[arg(long, alias = "hops", value_name = "LENGTHS", default_value = "3", value_parser = mix)]
    pub lengths: Mix,
    /// Draw this many guards and keep them; with 0, draw a new one for each path, as NavigaTor
    /// does.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub guards: usize,
    /// Whether a path may have two relays of the same /16. Default: no, but yes in a private
    /// network, whose relays often share an address.
    #[arg(long, value_enum, value_name = "SUBNETS")]
    pub subnets: Option<Subnets>,
    /// The port that exits must allow, if their policies are known; default: that of --target, else
    /// 443. For ports of long streams, such as 22, `tor` requires the flag Stable of all relays.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

impl RulesArgs {
    /// Rules for a network, private or not, with streams to this port.
    #[must_use]
    pub fn choice(&self, is_private: bool, target: Option<u16>) -> Choice {
        Choice {
            rules: self.select.into(),
            lengths: self.lengths.lengths.clone(),
            guards: self.guards,
            any_subnet: self.subnets.map_or(is_private, |subnets| subnets == Subnets::Any),
            port: self.port.or(target).unwrap_or(PORT),
        }
    }

    /// Whether any option differs from its default.
    #[must_use]
    pub fn is_given(&self) -> bool {
        let is_default = self.select == SelectPaths::Tor && self.lengths.text == "3";
        !is_default || self.guards > 0 || self.subnets.is_some() || self.port.is_some()
    }

    /// The options as text, to compare them when a run is continued.
    #[must_use]
    pub fn words(&self) -> String {
        let name = self.select.to_possible_value();
        let mut text = name.map(|value| value.get_name().to_owned()).unwrap_or_default();
        text += &format!(" --lengths {} --guards {}", self.lengths.text, self.guards);
        if let Some(subnets) = self.subnets.and_then(|one| one.to_possible_value()) {
            text += &format!(" --subnets {}", subnets.get_name());
        }
        if let Some(port) = self.port {
            text += &format!(" --port {port}");
        }
        text
    }
}

/// A mix of path lengths, with its text.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The argument.
    text: String,
    /// The lengths.
    lengths: Lengths,
}

/// Whether a path may have relays of one /16.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Subnets {
    /// No path has two relays of the same /16.
    Apart,
    /// A path may have several relays of a /16.
    Any,
}

/// Rules for drawing relays.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum SelectPaths {
    /// As Tor's clients do today: by weight and position.
    Tor,
    /// By weight alone, regardless of position.
    Weighted,
    /// As tor 0.1.1.26 did: by the bandwidth that relays claim, up to 1,500 kB/s; entries with
    /// equal probability, without requirements on capacity or uptime.
    Old,
    /// Each relay with equal probability, an exit last.
    Uniform,
}

impl From<SelectPaths> for Rules {
    fn from(select: SelectPaths) -> Self {
        match select {
            SelectPaths::Tor => Self::Tor,
            SelectPaths::Weighted => Self::Weighted,
            SelectPaths::Old => Self::Old,
            SelectPaths::Uniform => Self::Uniform,
        }
    }
}

/// Parses a mix of lengths.
pub(crate) fn mix(text: &str) -> Result<Mix, String> {
    Ok(Mix { text: text.to_owned(), lengths: lengths(text)? })
}

/// Parses lengths.
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
