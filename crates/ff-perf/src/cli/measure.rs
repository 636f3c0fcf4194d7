//! Options of `circuits run`, and those that `circuits serve` shares.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::paths::Drawing;
use crate::schedule::PER_GUARD;
use crate::series::Series;
use crate::sizes::bytes;
use crate::target::StreamTarget;

/// Options of `circuits run`.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// Network, paths and measurements.
    #[command(flatten)]
    pub measuring: Measuring,
    /// Number of circuits.
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub count: u64,
    /// Begin at most this many circuits per second, or per minute or hour with /min or /h. Default:
    /// 100, on the Internet 1.
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
    /// Write lines to circuits-000.jsonl in this folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Continue the run in --out.
    #[arg(long)]
    pub resume: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options on network, paths and measurements.
#[derive(Args, Clone, Debug)]
pub struct Measuring {
    /// The network: the data directory of one of its tors, the directory of a network of ff-lab or
    /// chutney, or a consensus of the microdesc flavour with its microdescriptors in the same
    /// directory, as tor keeps them. `public` is the data directory of this system's tor; it also
    /// needs --public.
    #[arg(long, value_name = "DIR|FILE|public")]
    pub network: PathBuf,
    /// Allow a network with relays on the Internet. Read ETHICS.md first.
    #[arg(long)]
    pub public: bool,
    /// Largest number of concurrent circuits. A relay is in one at a time, so a small network has
    /// fewer.
    #[arg(long, value_name = "NUMBER", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub in_flight: u64,
    /// Let relays be in several circuits that are being built or wait; each is still in one
    /// measurement at a time.
    #[arg(long)]
    pub share_builds: bool,
    /// Let relays also be in several circuits that are measured by single cells; a download still
    /// has its relays to itself. For private networks.
    #[arg(long, requires = "share_builds")]
    pub share_probes: bool,
    /// Whether relays may be in several downloads at once.
    #[arg(skip)]
    pub share_downloads: bool,
    /// The client that builds the circuits.
    #[arg(long, value_enum, default_value_t = ClientKind::Arti)]
    pub client: ClientKind,
    /// Build through the paths of this file in turn, repeatedly: one per line, fingerprints
    /// separated by commas or spaces, `#` before remarks. Without it, paths are drawn as by
    /// `ff-perf paths`.
    #[arg(long, value_name = "FILE")]
    pub path_file: Option<PathBuf>,
    /// How paths are drawn.
    #[command(flatten)]
    pub drawing: Drawing,
    /// Number of round trips by a stream that the exit refuses; five of them give a congestion
    /// delay.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub rtt: u32,
    /// Number of round trips by resolving a literal address, as a check of the others. Not with
    /// --client tor, which answers such requests itself.
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub resolve: u32,
    /// Pause for a random time of up to this many ms before each further round trip. Without
    /// pauses, probes synchronise with relays that hold cells back until a refill; with pauses of a
    /// refill's interval (tor's: 100), `circuits analyze` finds these relays.
    #[arg(long, value_name = "MS", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub rtt_pause: u64,
    /// Number of times to first byte.
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub ttfb: u32,
    /// Measure time to first byte repeatedly on each circuit, for this many seconds, such as 600,
    /// the lifetime of tor's circuits, for NavigaTor's table 5 in `circuits analyze`.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub ttfb_for: Option<u64>,
    /// Seconds between two of these requests, answered or not; at most 10,000 requests in all.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = between, requires = "ttfb_for")]
    pub ttfb_every: f64,
    /// Size of the download: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = bytes)]
    pub download: u64,
    /// Share of the circuits that download, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub download_share: f64,
    /// The target of streams: http://HOST:PORT/PATH, or bytes://HOST:PORT for a source of ff-lab.
    /// Default in a private network: such a source on loopback, started by this command. With HTTP,
    /// only answers with a status of 200 to 299 count as downloads; redirections are not followed.
    #[arg(long, value_name = "URL")]
    pub target: Option<StreamTarget>,
    /// Begin at most this many circuits a second at the same first relay. tor's relays mark clients
    /// with more than 3.
    #[arg(long, value_name = "PER-SECOND", default_value_t = PER_GUARD, value_parser = rate)]
    pub per_guard: f64,
    /// Time limit for building a circuit, in seconds. Arti always gives up a link after two tries
    /// of 5 s each.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub build_time: u64,
    /// Time limit of a round trip or a first byte, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub trip_time: u64,
    /// Time limit of a download, in seconds.
    #[arg(skip = DOWNLOAD_SECS)]
    pub download_time: u64,
    /// Whether the client chooses paths itself.
    #[arg(skip)]
    pub as_client: bool,
    /// Folder for guards and documents of an Arti that chooses its own paths; default: temporary.
    /// Each of several arms has a folder in it.
    #[arg(skip)]
    pub state: Option<PathBuf>,
}

/// Default time limit of a circuit's download, in seconds.
const DOWNLOAD_SECS: u64 = 300;

/// Client that builds circuits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ClientKind {
    /// Arti, in this process.
    Arti,
    /// The tor in --network that has a SocksPort, through its control socket: its directory
    /// contains that as `control`, and its torrc, as in ff-lab's networks. Nothing else may use
    /// this tor meanwhile: its options are changed, and streams are attached by us. At the end its
    /// options are restored, also after SIGTERM, Ctrl-C and when the terminal is closed (not under
    /// `nohup`); after `kill -9` it keeps the changed options until it gets SIGHUP.
    Tor,
}

impl From<ClientKind> for ff_circuits::record::Client {
    fn from(kind: ClientKind) -> Self {
        match kind {
            ClientKind::Arti => Self::Arti,
            ClientKind::Tor => Self::Tor,
        }
    }
}

impl Measuring {
    /// Whether circuits have streams to a target.
    pub const fn has_streams(&self) -> bool {
        self.ttfb > 0 || self.ttfb_for.is_some() || self.download > 0
    }

    /// Settings of repeated first bytes, if asked for.
    ///
    /// # Errors
    /// One sentence if there would be too many.
    pub fn latency(&self) -> Result<Option<Series>, String> {
        let every = Duration::try_from_secs_f64(self.ttfb_every).unwrap_or(Duration::MAX);
        let over = |secs| Series::over(Duration::from_secs(secs), every);
        self.ttfb_for.map(over).transpose()
    }
}

/// Parses a number of bytes above 0.
pub(super) fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("it must be at least 1 byte".to_owned()),
        size => Ok(size),
    }
}

/// Parses a share from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a share from 0 to 1".to_owned())
}

/// Parses the seconds between two streams of a circuit.
fn between(text: &str) -> Result<f64, String> {
    let secs = text.parse().ok().filter(|secs| (0.02..=3600.0).contains(secs));
    secs.ok_or_else(|| "give a number of seconds from 0.02 to 3600".to_owned())
}

/// Parses a rate per second: a number, alone or followed by `/s`, `/min` or `/h`.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let secs = match unit {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("give a number per second, or a number with /min or /h".to_owned()),
    };
    let rate = number.parse().ok().map(|number: f64| number / secs);
    let rate = rate.filter(|rate| (1e-5..=1e5).contains(rate));
    rate.ok_or_else(|| "the rate must be from 0.00001 to 100000 per second".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_bytes_shares_and_rates_are_read() {
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
