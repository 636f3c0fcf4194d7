//! The command line.

#[cfg(feature = "store")]
mod export;
#[cfg(feature = "demo")]
mod measurers;
#[cfg(feature = "demo")]
mod network;
mod schedule;
#[cfg(feature = "demo")]
mod service;
mod transit;
mod v3bw;
#[cfg(feature = "demo")]
mod watch;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use base64ct::{Base64Unpadded, Encoding};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ff_proto::failure::FailureKind;
use ff_proto::ids::CryptoKind;
use ff_proto::units::{BytesPerSec, Ratio};
use tor_llcrypto::pk::ed25519::Ed25519Identity;

#[cfg(feature = "store")]
pub use self::export::ExportArgs;
#[cfg(feature = "demo")]
pub use self::measurers::MeasurersArgs;
#[cfg(feature = "demo")]
pub use self::network::NetworkArgs;
pub use self::schedule::ScheduleArgs;
#[cfg(feature = "demo")]
pub use self::service::{GenerateArgs, InitArgs, RunArgs, STATE_DIR};
pub use self::transit::TransitArgs;
pub use self::v3bw::{ScalingName, V3bw, WriteArgs};
#[cfg(feature = "demo")]
pub use self::watch::{DoctorArgs, ExplainArgs, StatusArgs};

/// What tor accepts as the BandwidthRate of a relay, in bytes per second: or.h,
/// RELAY_REQUIRED_MIN_BANDWIDTH and ROUTER_MAX_DECLARED_BANDWIDTH.
const TOR_RATES_BYTES_PER_SEC: RangeInclusive<u64> = 76_800..=2_147_483_647;
/// The demo's client traffic when it is not told: 50 Mbit/s.
const DEFAULT_BACKGROUND: BytesPerSec = BytesPerSec::new(6_250_000);

/// Measures how much traffic Tor relays can really forward.
///
/// A coordinator asks a relay for a measurement; measurers flood it with random cells over many
/// Tor links; the relay decrypts and returns them; the median second is its capacity, or 1.05 times
/// the mean second where that is less.
#[derive(Debug, Parser)]
#[command(name = "ff-bwauth", version, after_help = exit_status_help())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log more: warnings by default, -v for what happens, -vv for details.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
}

impl Cli {
    /// Finds options that are right by themselves and wrong together.
    ///
    /// # Errors
    /// One for [`clap::Error::exit`], as those of parsing.
    pub fn check(&self) -> Result<(), clap::Error> {
        match &self.command {
            Command::Demo(demo) => demo.check(),
            Command::Measure(measure) => measure.check(),
            #[cfg(feature = "store")]
            Command::Export(export) => export.check(),
            Command::Schedule(schedule) => schedule.check(),
            #[cfg(feature = "demo")]
            Command::Network(_) => Ok(()),
            Command::V3bw(_) => Ok(()),
            #[cfg(feature = "demo")]
            Command::Init(_) | Command::Run(_) | Command::Generate(_) => Ok(()),
            #[cfg(feature = "demo")]
            Command::Status(_) | Command::Explain(_) | Command::Doctor(_) => Ok(()),
            #[cfg(feature = "demo")]
            Command::Measurers(_) => Ok(()),
        }
    }
}

/// What the exit statuses mean. The failures of each are those of [`FailureKind`].
const EXIT_STATUS: [(u8, &str); 14] = [
    (0, "the measurement is conclusive; with --transit, it has a lower bound"),
    (1, "it failed for a reason that has no number of its own"),
    (2, "the command line is wrong"),
    (3, "the relay does not support FlashFlow"),
    (4, "the relay has another identity than was asked for, or cannot prove it"),
    (5, "the relay's port refused the connection or cannot be reached"),
    (6, "the peer is no Tor relay"),
    (7, "the peer did not answer in time"),
    (8, "the relay refused the measurement"),
    (9, "the relay failed a check or broke the protocol"),
    (10, "inconclusive: the measurers need more capacity"),
    (11, "inconclusive: the measurers were at their own limit"),
    (12, "the measurement ended too early, by the relay or on the way to it"),
    (13, "inconclusive: the relay granted fewer seconds than were asked for"),
];

/// The exit statuses and the failures' codes, for `--help`.
fn exit_status_help() -> String {
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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this host a coordinator: a key, a secret, a config, and the lines for others.
    #[cfg(feature = "demo")]
    Init(InitArgs),
    /// Measure a network for months, with measurers on other hosts, and publish what comes of it.
    ///
    /// SIGTERM ends it: running measurements end at once, and the next start goes on where this one was.
    #[cfg(feature = "demo")]
    Run(RunArgs),
    /// Write what a package has beside the two programs: man pages, completions, example configs.
    #[cfg(feature = "demo")]
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Start a relay and measurers on this machine, and measure it over loopback.
    Demo(Demo),
    /// Measure a relay that runs elsewhere, with measurers in this process.
    Measure(Measure),
    /// Write what a coordinator has measured as a table: CSV or Parquet.
    ///
    /// For November's results in DuckDB:
    ///
    ///   ff-bwauth export --store ff.sqlite --what results --format parquet
    ///       --from 2026-11-01 --to 2026-12-01 --out november.parquet
    ///   duckdb -c "SELECT nickname, max(estimate_bytes_per_sec) FROM 'november.parquet' GROUP BY 1"
    #[cfg(feature = "store")]
    #[command(verbatim_doc_comment)]
    Export(ExportArgs),
    /// Fetch the network's consensus and descriptors, and say what there is.
    #[cfg(feature = "demo")]
    Network(NetworkArgs),
    /// Say when and by whom each relay of a network would be measured.
    Schedule(ScheduleArgs),
    /// Look at bandwidth files, ours and others'.
    #[command(subcommand)]
    V3bw(V3bw),
    /// Say how the coordinator is: team, period, coverage, failures, and when it is done.
    ///
    /// It asks the page of the coordinator that runs. Exit status 0 if all is well, 1 if no coordinator runs (then
    /// what its store knows is shown), 3 if there are problems; these are on standard error.
    #[cfg(feature = "demo")]
    Status(StatusArgs),
    /// Explain a relay's number in the bandwidth file: every step from its seconds to bw=, or why there is none.
    ///
    /// It is for the relay's operator to read. It is made of the store, of the last consensus that the
    /// coordinator has kept, and of the last bandwidth file; the coordinator need not run. Exit status 1 if there
    /// is no such relay, or more than one.
    #[cfg(feature = "demo")]
    Explain(ExplainArgs),
    /// Look for what is wrong with this machine, the files and the team, and say what to do.
    ///
    /// Clock, kernel, file descriptors, keys, store, disk, the directory of the bandwidth files, the page's port,
    /// the consensus, every measurer. Exit status 0 if all is well, 1 if something is bad, 3 if something could be
    /// better.
    #[cfg(feature = "demo")]
    Doctor(DoctorArgs),
    /// Say what the team's networks carry, as it is stated and as it was measured; with --measure, measure it now.
    ///
    /// A measurer counts for what was measured, and for no more than what is stated. Exit status 3 if --measure has
    /// not measured all of them.
    #[cfg(feature = "demo")]
    Measurers(MeasurersArgs),
}

/// Options that both ways of measuring have.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// How long to measure, in seconds (1 to 120).
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(1..=120))]
    pub duration: u16,
    /// Links to the relay over the whole team (1 to 4096) [default: one for each 12.5 Mbit/s of the fastest
    /// relay that --rate is enough for, 20 to 160; without --rate 160].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub sockets: Option<u16>,
    /// The greatest share of the relay's traffic that clients may have meanwhile (0 to 0.99).
    #[arg(long, default_value = "0.25")]
    pub ratio: Ratio,
    /// How fast the team may send, as in 750Mbit or 1.5Gbit; `none` for as fast as it can.
    ///
    /// Set it to what the team's network carries: a relay faster than about a third of it gives no
    /// conclusive result. Without it only a relay in this process (`demo`) does.
    #[arg(long, default_value = "none", value_name = "RATE")]
    pub rate: Limit,
    /// Cells in one TLS record (1 to 31).
    ///
    /// 6 is what tor's relays send each other; more makes a relay look faster than it is.
    #[arg(long, default_value_t = 6, value_name = "CELLS",
          value_parser = clap::value_parser!(u8).range(1..=31))]
    pub cells_per_record: u8,
    /// The cipher that the relay puts each echoed cell through.
    ///
    /// The clients of tor 0.4.9 and later use CGO, which costs a relay more than the AES-CTR of
    /// older ones; with it the result is what the relay can forward for them. A relay that says it
    /// has no CGO is not measured then. `any` takes CGO from relays that say they have it, and
    /// AES-CTR from others, so that they may look faster than they are.
    #[arg(long, value_enum, default_value_t = Crypto::Cgo)]
    pub crypto: Crypto,
    /// Where the results (JSON lines), report.html and latest.v3bw go; made if it is not there
    /// [default: flashflow-demo or flashflow-results].
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

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// What both ways have.
    #[command(flatten)]
    pub common: Common,
    /// What the relay's traffic is limited to, as in 250Mbit; `none` for no limit.
    #[arg(long, default_value = "250Mbit", value_name = "RATE")]
    pub limit: Limit,
    /// Client traffic through the relay, as in 50Mbit; `none` for none
    /// [default: 50Mbit; with --tor there is none].
    #[arg(long, value_name = "RATE")]
    pub background: Option<Limit>,
    /// Measure this tor instead of a relay built from Arti's crates.
    ///
    /// It must have FlashFlow's target in it: crates/ff-relay-ext/tor/build-tor builds one. The
    /// demo starts it as a relay that keeps to itself on loopback, with the data directory DIR/tor
    /// (made anew each time; DIR is that of --out) and --limit as its BandwidthRate and
    /// BandwidthBurst, and ends it afterwards.
    #[arg(long, value_name = "PATH")]
    pub tor: Option<PathBuf>,
    /// Measurers in the team (1 to 8).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub measurers: u8,
    /// Start a network of relays on this machine, two coordinators and three measurers, and have the
    /// coordinators measure it in shortened periods, as they would for months. Ctrl-C ends it.
    #[cfg(feature = "demo")]
    #[arg(long, conflicts_with_all = ["limit", "background", "tor", "measurers", "sockets", "rate"])]
    pub network: bool,
    /// With --network: end after the first whole period, with exit status 0 if every relay was measured.
    #[cfg(feature = "demo")]
    #[arg(long, requires = "network")]
    pub once: bool,
    /// With --network: relays (1 to 32), the first limited to 4 Mbit/s and each other to 4 Mbit/s more.
    #[cfg(feature = "demo")]
    #[arg(long, requires = "network", default_value_t = 8,
          value_parser = clap::value_parser!(u8).range(1..=32))]
    pub relays: u8,
    /// With --network: the length of a period in seconds (30 to 86400).
    #[cfg(feature = "demo")]
    #[arg(long, requires = "network", default_value_t = 120, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(30..=86_400))]
    pub period_secs: u32,
}

/// What `demo --network` takes.
#[cfg(feature = "demo")]
#[derive(Clone, Debug)]
pub struct NetworkDemo {
    /// How many relays.
    pub relays: u8,
    /// How long each is measured, in seconds.
    pub duration: u16,
    /// The length of a period in seconds.
    pub period_secs: u32,
    /// Whether to end after a period.
    pub once: bool,
    /// Whether to print JSON.
    pub json: bool,
}

impl Demo {
    /// The options of `--network`. Unless it is said, measurements are short, as the periods are.
    #[cfg(feature = "demo")]
    #[must_use]
    pub fn network_demo(&self) -> NetworkDemo {
        const SHORT_SECS: u16 = 5;
        let Common { duration, json, .. } = self.common;
        let default = ff_proto::params::Params::default().duration_secs;
        let duration = if duration == default { SHORT_SECS } else { duration };
        let Self { relays, period_secs, once, .. } = *self;
        NetworkDemo { relays, duration, period_secs, once, json }
    }

    /// The rate of the clients' traffic, if there are to be clients.
    #[must_use]
    pub fn clients(&self) -> Option<BytesPerSec> {
        match (self.background, &self.tor) {
            (Some(background), _) => background.0,
            (None, Some(_)) => None,
            (None, None) => Some(DEFAULT_BACKGROUND),
        }
    }

    /// Finds what does not go with `--tor`.
    fn check(&self) -> Result<(), clap::Error> {
        let is_tors = |limit: BytesPerSec| TOR_RATES_BYTES_PER_SEC.contains(&limit.get());
        let text = if self.tor.is_none() {
            return Ok(());
        } else if self.background.is_some_and(|background| background.0.is_some()) {
            "--background must be none with --tor: clients of a tor need a network of relays, \
             and the demo has only one; the tests in crates/ff-lab start whole networks"
        } else if !self.limit.0.is_none_or(is_tors) {
            "with --tor, --limit must be from 615kbit to 17Gbit, or none: a tor relay does not \
             accept another BandwidthRate"
        } else {
            return Ok(());
        };
        Err(Cli::command().error(ErrorKind::ArgumentConflict, text))
    }
}

/// Options of `measure`.
#[derive(Args, Clone, Debug)]
pub struct Measure {
    /// The relay's ORPort.
    #[arg(long, value_name = "HOST:PORT")]
    pub target: String,
    /// The relay's Ed25519 identity in base64, as its file fingerprint-ed25519 has it.
    #[arg(long, value_name = "BASE64", value_parser = parse_identity)]
    pub ed_identity: Ed25519Identity,
    /// The relay's RSA fingerprint, as the consensus has it: 40 hexadecimal digits.
    ///
    /// The bandwidth file names relays by it, and the Ed25519 identity does not vouch for it. A relay
    /// that shows another one is not measured. Without it the file says what the link has shown.
    #[arg(long, value_name = "HEX", value_parser = parse_fingerprint)]
    pub fingerprint: Option<Fingerprint>,
    /// The file of the coordinator's key; made with a fresh key if it is not there.
    ///
    /// The relay must list the key's identity in FFAllowedCoordinators.
    #[arg(long, value_name = "FILE", default_value = "ff-coordinator.key")]
    pub key: PathBuf,
    /// What both ways have.
    #[command(flatten)]
    pub common: Common,
    /// Measurers in the team (1 to 8); the cores of this machine are shared out among them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub measurers: u8,
    /// How long a link to the relay may take to open, in seconds (1 to 120).
    #[arg(long, default_value_t = 20, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(1..=120))]
    pub timeout: u16,
    /// What only cells in transit need.
    #[command(flatten)]
    pub transit: TransitArgs,
}

/// An RSA fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 20]);

/// Reads an RSA fingerprint, with or without the `$` and the blanks that tor writes.
fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    let digits: String = text.chars().filter(|&c| c != ' ').collect();
    let mut bytes = [0; 20];
    hex::decode_to_slice(digits.trim_start_matches('$'), &mut bytes)
        .map_err(|_| "not a fingerprint: give 40 hexadecimal digits".to_owned())?;
    Ok(Fingerprint(bytes))
}

/// Reads an Ed25519 identity.
fn parse_identity(text: &str) -> Result<Ed25519Identity, String> {
    let bytes = Base64Unpadded::decode_vec(text.trim().trim_end_matches('='));
    match bytes.as_deref().map(<[u8; 32]>::try_from) {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        _ => Err("not an Ed25519 identity: give the 43 base64 characters from the file \
                  fingerprint-ed25519 in the relay's data directory"
            .to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crypto_says_which_ciphers_in_which_order_and_only_cgo_by_default() {
        let (cgo, ctr) = (CryptoKind::CGO_AES128, CryptoKind::AES128_CTR);
        for (more, expected) in [
            (&[][..], &[cgo][..]),
            (&["--crypto", "any"], &[cgo, ctr]),
            (&["--crypto", "cgo"], &[cgo]),
            (&["--crypto", "aes-ctr"], &[ctr]),
        ] {
            let args = ["ff-bwauth", "demo"].iter().chain(more);
            let cli = Cli::try_parse_from(args).expect("a good command line");
            let Command::Demo(demo) = cli.command else { panic!("not a demo") };
            let params = crate::team::params(&demo.common);
            assert_eq!(params.crypto, expected, "{more:?}");
            params.validate().expect("good parameters");
        }
    }

    #[test]
    fn links_follow_the_rate_unless_they_are_given() {
        for (more, expected) in [
            (&[][..], 160),
            (&["--rate", "500Mbit"], 20),
            (&["--rate", "1.5Gbit"], 41),
            (&["--rate", "9Gbit"], 160),
            (&["--rate", "9Gbit", "--sockets", "7"], 7),
        ] {
            let cli = Cli::try_parse_from(["ff-bwauth", "demo"].iter().chain(more)).expect("good");
            let Command::Demo(demo) = cli.command else { panic!("not a demo") };
            assert_eq!(crate::team::params(&demo.common).sockets, expected, "{more:?}");
        }
    }

    #[test]
    fn help_lists_every_exit_status_and_every_failure_once() {
        let help = Cli::command().render_help().to_string();
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

    #[test]
    fn a_fingerprint_is_read_as_tor_writes_it() {
        let expected = Ok(Fingerprint([0xAB; 20]));
        let spaced = ["ABAB"; 10].join(" ");
        for text in ["ab".repeat(20), format!("${}", "AB".repeat(20)), spaced] {
            assert_eq!(parse_fingerprint(&text), expected, "{text}");
        }
        for text in ["", "AB", &"AB".repeat(21), &"AG".repeat(20)] {
            assert!(parse_fingerprint(text).is_err(), "{text}");
        }
    }
}
