//! The options that every way of measuring has, and what the exit status says.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ff_proto::failure::FailureKind;
use ff_proto::ids::CryptoKind;
use ff_proto::params::Params;
use ff_proto::units::{BytesPerSec, Ratio};

/// Options that both paths of measuring have.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// How long to measure, in seconds (1 to 120).
    #[arg(long, default_value_t = Params::default().duration_secs, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(1..=120))]
    pub duration: u16,
    /// Number of links from the whole team to the relay (1 to 4096) [default: one for each 12.5
    /// Mbit/s of the fastest relay that --rate can measure, 20 to 160; without --rate 160].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sockets: Option<u16>,
    /// Largest share of clients in the relay's traffic during the measurement (0 to 0.99).
    #[arg(long, default_value = "0.25")]
    pub ratio: Ratio,
    /// Limit of the team's sending rate, such as 750Mbit or 1.5Gbit; `none` for no limit.
    ///
    /// Set it to the capacity of the team's network: relays faster than about half of it give no
    /// conclusive result. Without it, only a relay in this process (`ff-demo`) gives one.
    #[arg(long, default_value = "none", value_name = "RATE")]
    pub rate: Limit,
    /// Cells in one TLS record (1 to 31).
    ///
    /// 6 is what tor's relays send each other; more makes a relay look faster than it is.
    #[arg(long, default_value_t = 6, value_name = "CELLS",
          value_parser = clap::value_parser!(u8).range(1..=31))]
    pub cells_per_record: u8,
    /// Cipher of the echoed cells.
    ///
    /// The clients of tor 0.4.9 and later use CGO, which costs a relay more than the AES-CTR of
    /// older ones; with it, the result is what the relay can forward for them. A relay that does
    /// not support CGO is then not measured. `any` uses CGO with relays that support it, and
    /// AES-CTR with others, which may then look faster than they are.
    #[arg(long, value_enum, default_value_t = Crypto::Cgo)]
    pub crypto: Crypto,
    /// Write results (JSON lines), report.html and latest.v3bw into this directory; created if
    /// missing [default: flashflow-demo or flashflow-results].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object on standard output, and everything else on standard error.
    #[arg(long)]
    pub json: bool,
}

/// Which ciphers a relay may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Crypto {
    /// Counter Galois Onion with AES-128, or no measurement.
    Cgo,
    /// AES-128-CTR, which every relay with FlashFlow has.
    AesCtr,
    /// The first of these two that the relay has.
    Any,
}

impl Crypto {
    /// The kinds, the preferred one first.
    #[must_use]
    pub fn kinds(self) -> &'static [CryptoKind] {
        match self {
            Self::Cgo => &[CryptoKind::CGO_AES128],
            Self::AesCtr => &[CryptoKind::AES128_CTR],
            Self::Any => &[CryptoKind::CGO_AES128, CryptoKind::AES128_CTR],
        }
    }
}

/// A rate, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<BytesPerSec>);

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        text.parse().map(|rate| Self(Some(rate))).map_err(|error| format!("{error}, or none"))
    }
}

/// What the exit statuses mean. The failures of each are those of [`FailureKind`].
const EXIT_STATUS: [(u8, &str); 16] = [
    (0, "the measurement is conclusive; with --transit, it has a lower bound"),
    (1, "any other failure"),
    (2, "invalid command line"),
    (3, "the relay does not support FlashFlow"),
    (4, "the relay has an unexpected identity, or cannot prove its identity"),
    (5, "the relay's port refused the connection or cannot be reached"),
    (6, "the peer is not a Tor relay"),
    (7, "the peer did not answer in time"),
    (8, "the relay refused the measurement"),
    (9, "the relay failed a check or broke the protocol"),
    (10, "inconclusive: the measurers need more capacity"),
    (11, "inconclusive: the measurers were at their own limit"),
    (12, "the measurement ended too early, by the relay or on the way to it"),
    (13, "inconclusive: the relay granted fewer seconds than requested"),
    (14, "inconclusive: the network path to the relay was the limit"),
    (15, "inconclusive: the rate never stopped growing"),
];

/// The exit statuses and the failures' codes, for `--help`.
#[must_use]
pub fn exit_status_help() -> String {
    let mut text = "Exit status, and in JSON the failure's code:".to_owned();
    for (status, meaning) in EXIT_STATUS {
        text.push_str(&format!("\n  {status:2}  {meaning}"));
        let kinds = FailureKind::ALL.iter().filter(|kind| kind.exit_status() == status);
        for codes in kinds.map(|kind| kind.code()).collect::<Vec<_>>().chunks(4) {
            text.push_str(&format!("\n        {}", codes.join(", ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ff_plan::period::links::KnownPath;

    use super::*;

    /// A program with these options alone.
    #[derive(Parser)]
    struct Program {
        /// They.
        #[command(flatten)]
        common: Common,
    }

    /// The parameters of a command line with these options.
    fn params(more: &[&str]) -> ff_proto::params::Params {
        let args = ["program"].iter().chain(more);
        let common = Program::try_parse_from(args).expect("a good command line").common;
        crate::team::params(&common, &KnownPath::default())
    }

    #[test]
    fn crypto_says_which_ciphers_in_which_order_and_only_cgo_by_default() {
        let (cgo, ctr) = (CryptoKind::CGO_AES128, CryptoKind::AES128_CTR);
        for (more, expected) in [
            (&[][..], &[cgo][..]),
            (&["--crypto", "any"], &[cgo, ctr]),
            (&["--crypto", "cgo"], &[cgo]),
            (&["--crypto", "aes-ctr"], &[ctr]),
        ] {
            let params = params(more);
            assert_eq!(params.crypto, expected, "{more:?}");
            params.validate().expect("good parameters");
        }
    }

    #[test]
    fn links_follow_the_rate_unless_they_are_given() {
        for (more, expected) in [
            (&[][..], 160),
            (&["--rate", "500Mbit"], 21),
            (&["--rate", "1.5Gbit"], 61),
            (&["--rate", "9Gbit"], 160),
            (&["--rate", "9Gbit", "--sockets", "7"], 7),
        ] {
            assert_eq!(params(more).sockets, expected, "{more:?}");
        }
    }

    #[test]
    fn help_lists_every_exit_status_and_every_failure_once() {
        let help = exit_status_help();
        for (index, (status, _)) in EXIT_STATUS.iter().enumerate() {
            assert_eq!(usize::from(*status), index);
        }
        let words: Vec<_> = help.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).collect();
        for kind in FailureKind::ALL {
            let (code, status) = (kind.code(), kind.exit_status());
            assert!(usize::from(status) < EXIT_STATUS.len(), "{code}");
            let times = words.iter().filter(|word| **word == code).count();
            // "timeout" and "refused" are words as well.
            assert!(
                times == 1 || matches!(code, "timeout" | "refused") && times > 0,
                "{code} in {help}"
            );
        }
    }
}
