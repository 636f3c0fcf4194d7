//! Options of `circuits run`, and what `circuits serve` has of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::paths::RulesArgs;
use crate::schedule::PER_GUARD;
use crate::series::Series;
use crate::target::Target;

/// Options of `circuits run`.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// What is measured, and how.
    #[command(flatten)]
    pub measuring: Measuring,
    /// How many circuits.
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub count: u64,
    /// How many new circuits a second, at most: 100, on the Internet 1. With /min or /h behind it, so many a minute or an
    /// hour.
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    pub rate: Option<f64>,
    /// When it stops early, and where its results go.
    #[command(flatten)]
    pub recording: Recording,
}

/// When a run stops early, and where its results go.
#[derive(Args, Clone, Debug)]
pub struct Recording {
    /// Stop when more than this share of the last 100 circuits failed, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub failures: f64,
    /// Where lines go: circuits-000.jsonl in this folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Go on with the run in --out.
    #[arg(long)]
    pub resume: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What is measured, and how.
#[derive(Args, Clone, Debug)]
pub struct Measuring {
    /// The network: the data directory of a tor that is in it (chutney's and ff-lab's directories with several such are
    /// fine, too), or the file of a consensus of the microdesc flavour with the microdescriptors beside it, as tor keeps
    /// them. `public` is the directory of this system's tor; it takes --public, too.
    #[arg(long, value_name = "DIR|FILE|public")]
    pub network: PathBuf,
    /// The network has relays on the Internet, and you have read ETHICS.md and mean it.
    #[arg(long)]
    pub public: bool,
    /// How many circuits at once, at most. A relay is in one at a time, so a small network has fewer.
    #[arg(long, value_name = "NUMBER", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub in_flight: u64,
    /// Let relays be in several circuits that are being built or wait; they still are in one measurement at a time.
    #[arg(long)]
    pub share_builds: bool,
    /// Let relays also be in several circuits that are measured by single cells; who downloads something is alone still. For
    /// private networks.
    #[arg(long, requires = "share_builds")]
    pub share_probes: bool,
    /// Who builds the circuits.
    #[arg(long, value_enum, default_value_t = ClientKind::Arti)]
    pub client: ClientKind,
    /// Build through these paths, again and again: one a line, fingerprints with commas or spaces between them, `#`
    /// before remarks. Without it paths are drawn, as `ff-perf paths` does.
    #[arg(long, value_name = "FILE")]
    pub path_file: Option<PathBuf>,
    /// By which rules paths are drawn.
    #[command(flatten)]
    pub rules: RulesArgs,
    /// What draws the paths.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// How many round trips by a stream that the exit refuses; of five comes a congestion delay.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub rtt: u32,
    /// How many round trips by resolving a literal address, as a check of the others. Not with --client tor, which answers
    /// that by itself.
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub resolve: u32,
    /// Pause for a random time of up to so many ms before each further round trip. Without pauses probes fall into step with
    /// relays that hold cells back until a refill; with pauses of a refill's interval (tor's: 100) `circuits analyze` finds
    /// these relays.
    #[arg(long, value_name = "MS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub rtt_pause: u64,
    /// How many times to first byte.
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub ttfb: u32,
    /// For so many seconds, ask for a first byte again and again on each circuit: 600 is the life of tor's circuits, and what
    /// 002 has. `circuits analyze` makes table 5 of it.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub ttfb_for: Option<u64>,
    /// How often, in seconds, whether or not the one before has come; at most 10,000 times in all.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = between, requires = "ttfb_for")]
    pub ttfb_every: f64,
    /// How much to download: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = bytes)]
    pub download: u64,
    /// On what share of the circuits to download, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub download_share: f64,
    /// What streams lead to: http://HOST:PORT/PATH, or bytes://HOST:PORT for a source of ff-lab's. Without it a
    /// private network gets such a source on loopback. Of HTTP, a download is only what comes with a status of 200 to 299;
    /// redirections are not followed.
    #[arg(long, value_name = "URL")]
    pub target: Option<Target>,
    /// How many new circuits a second at one first relay, at most. tor's relays mark who has more than 3.
    #[arg(long, value_name = "PER-SECOND", default_value_t = PER_GUARD, value_parser = rate)]
    pub per_guard: f64,
    /// How long a circuit may take to be built, in seconds. Arti gives up a link that does not stand within 5 s, after two tries
    /// of that, whatever stands here.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub build_time: u64,
    /// How long a round trip or a first byte may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub trip_time: u64,
    /// How long a download may take, in seconds.
    #[arg(skip = DOWNLOAD_SECS)]
    pub download_time: u64,
}

/// How long a download of `circuits` may take, in seconds.
const DOWNLOAD_SECS: u64 = 300;

/// Who builds circuits, as an argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ClientKind {
    /// Arti, in this process.
    Arti,
    /// The tor in --network that has a SocksPort, by its control socket: its directory has that as `control`, and its torrc beside
    /// it, as in ff-lab's networks. Nobody else may use it meanwhile: it gets other
    /// options and leaves streams to us. At the end it has its own again, also after SIGTERM, Ctrl-C and when the terminal is
    /// closed (not under `nohup`); if we are killed (`kill -9`) it keeps ours until it gets SIGHUP.
    Tor,
}

impl From<ClientKind> for crate::record::Client {
    fn from(kind: ClientKind) -> Self {
        match kind {
            ClientKind::Arti => Self::Arti,
            ClientKind::Tor => Self::Tor,
        }
    }
}

impl Measuring {
    /// Whether streams lead to a target.
    pub const fn has_streams(&self) -> bool {
        self.ttfb > 0 || self.ttfb_for.is_some() || self.download > 0
    }

    /// The first bytes over time that are asked for.
    ///
    /// # Errors
    /// One sentence, if these are too many.
    pub fn latency(&self) -> Result<Option<Series>, String> {
        let every = Duration::try_from_secs_f64(self.ttfb_every).unwrap_or(Duration::MAX);
        let over = |secs| Series::over(Duration::from_secs(secs), every);
        self.ttfb_for.map(over).transpose()
    }
}

/// Reads a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err("its unit is B, kB, KiB, MB, MiB, GB or GiB".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "it is a whole number of bytes".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "it is too much".to_owned())
}

/// Reads a number of bytes that is not 0.
pub(super) fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("it must be at least 1 byte".to_owned()),
        size => Ok(size),
    }
}

/// Reads a share.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "it is a share from 0 to 1".to_owned())
}

/// Reads a time between two streams of a circuit, in seconds.
fn between(text: &str) -> Result<f64, String> {
    let secs = text.parse().ok().filter(|secs| (0.02..=3600.0).contains(secs));
    secs.ok_or_else(|| "it is a number of seconds, from 0.02 to 3600".to_owned())
}

/// Reads a rate: a number a second, or with `/s`, `/min` or `/h` behind it; so many a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let secs = match unit {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("it is a number a second, or one with /min or /h behind it".to_owned()),
    };
    let rate = number.parse().ok().map(|number: f64| number / secs);
    let rate = rate.filter(|rate| (1e-5..=1e5).contains(rate));
    rate.ok_or_else(|| "it is a number a second, from 0.00001 to 100000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shares_and_rates_are_read() {
        assert_eq!((bytes("5MiB"), bytes("12")), (Ok(5_242_880), Ok(12)));
        assert_eq!((bytes("5GB"), bytes("1GiB")), (Ok(5_000_000_000), Ok(1 << 30)));
        for odd in ["", "MiB", "GB", "-1", "1.5MB", "5TB", "99999999999999MiB", "99999999999GB"] {
            assert!(bytes(odd).is_err(), "{odd}");
        }
        let odd = bytes("5TB").expect_err("no unit of ours");
        assert_eq!(odd, "its unit is B, kB, KiB, MB, MiB, GB or GiB");
        assert!(some_bytes("0").is_err());
        assert_eq!(some_bytes("5MiB"), Ok(5_242_880));
        assert_eq!((share("0.05"), rate("2")), (Ok(0.05), Ok(2.0)));
        for odd in ["nan", "-1", "2", "x"] {
            assert!(share(odd).is_err(), "{odd}");
        }
        assert_eq!((between("0.02"), between("1")), (Ok(0.02), Ok(1.0)));
        for odd in ["0", "0.01", "nan", "-1", "3601", ""] {
            assert!(between(odd).is_err(), "{odd}");
        }
        assert_eq!((rate("6/min"), rate("18/h"), rate("3/s")), (Ok(0.1), Ok(0.005), Ok(3.0)));
        for odd in ["0", "nan", "inf", "-2", "0/h", "6/", "6/day", "/min", "1e9/min"] {
            assert!(rate(odd).is_err(), "{odd}");
        }
    }
}
