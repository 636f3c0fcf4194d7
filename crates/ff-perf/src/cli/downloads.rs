//! Options of `downloads`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::measure::{ClientKind, MeasureArgs, Measuring, Recording, rate, some_bytes};
use super::paths::Drawing;
use super::plan::{self, PlanArgs};
use super::serve;
use super::status::STATUS;
use crate::mix::Mix;
use crate::target::StreamTarget;

/// Commands of `ff-perf downloads`.
#[derive(Debug, Subcommand)]
pub enum DownloadsCommand {
    /// Download from a source, one download on each circuit, through given or random relays.
    #[command(after_help = STATUS)]
    Run(Box<DownloadsRunArgs>),
    /// Download continuously, one download at a time, until SIGTERM or Ctrl-C: rotated files,
    /// OnionPerf's files of each day, metrics for Prometheus.
    #[command(after_help = STATUS)]
    Serve(Box<ServeArgs>),
    /// Analyse downloads: times, throughput, failures, where the time went; compare sets of them.
    ///
    /// For each set of downloads, target (exit or onion service) and size: medians with 95 %
    /// intervals, quartiles and 90th percentiles of times to first and last byte and of throughput,
    /// failures by OnionPerf's names, and where the time went. Only complete downloads have times.
    /// Sets are compared by the Mann-Whitney test; each arm of a run is a set.
    #[command(after_help = STATUS)]
    Analyze(AnalyzeArgs),
    /// Filter downloads in OnionPerf's files by the relays of their circuits.
    ///
    /// Marks circuits that do not match, as OnionPerf's `filter` does, and removes nothing: its
    /// `viz` and `downloads analyze` leave out downloads of marked circuits and of unknown
    /// circuits. Marks of earlier filters stay.
    #[command(after_help = STATUS)]
    Filter(FilterArgs),
    /// Write downloads as OnionPerf's analysis files, version 3.1: one per UTC day, compressed
    /// with xz, with an index.
    ///
    /// OnionPerf's own tools, Tor Metrics and tornettools read these files. A download belongs to
    /// the day on which its circuit began. Existing files of a day are replaced.
    #[command(after_help = STATUS)]
    Export(ExportArgs),
    /// Compute the traffic of continuous downloads: bytes per day and month, the time of each size,
    /// and the precision of medians.
    ///
    /// A month counts as 30 days, and each download as a new circuit over a new link. Bytes of both
    /// directions count: payload, the overhead of cells, the overhead of TLS, TCP and IP, and
    /// directory documents, without retransmissions. For each size it prints the number of
    /// downloads per month for each target, and the percentiles between which the 95 % interval of
    /// their median lies (binomial order statistics) if all are complete. With --profile it adds
    /// the shortest possible time: the round trips over the link before the first byte, and the
    /// time that the link needs for the bytes.
    #[command(after_help = STATUS)]
    Plan(PlanArgs),
}

/// Options on network, source and client.
#[derive(Args, Clone, Debug)]
pub struct Fetching {
    /// The network, as for `circuits run`: the data directory of a tor in it, a directory with
    /// several of these, a consensus file with its microdescriptors in the same directory, or
    /// `public`.
    #[arg(long, value_name = "DIR|FILE|public")]
    pub network: PathBuf,
    /// Allow a network with relays on the Internet. Read ETHICS.md first.
    #[arg(long)]
    pub public: bool,
    /// The source: a URL that `ff-perf source` prints. The URL of an onion service needs
    /// --as-client.
    #[arg(long, value_name = "URL", value_parser = source)]
    pub to: StreamTarget,
    /// The client that builds the circuits.
    #[arg(long, value_enum, default_value_t = ClientKind::Arti)]
    pub client: ClientKind,
    /// Let the client choose its paths itself, as it does for its users: Arti with its own guards,
    /// or the tor in --network with the options of its torrc unchanged (bridges, conflux, guards).
    /// No two downloads share a circuit. Each line has the path if the client reports it, otherwise
    /// the reason. The time to build circuits then counts towards --timeout.
    #[arg(long, conflicts_with = "build_time")]
    pub as_client: bool,
    /// Keep Arti's guards and documents in this folder if Arti chooses its paths itself; each arm
    /// has a folder in it. Without it, each start gets new ones.
    #[arg(long, value_name = "DIR", requires = "paths_of_clients")]
    pub state: Option<PathBuf>,
    /// Size of the download: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "5MiB", value_parser = some_bytes)]
    pub size: u64,
    /// Time limit of a download in seconds, from the request for its stream; OnionPerf uses 270.
    #[arg(long, value_name = "SECONDS", default_value_t = 270,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Time limit for building a circuit, in seconds. Not with --as-client.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub build_time: u64,
    /// Use the paths of this file in turn, repeatedly; `ff-perf paths` writes such files. Without
    /// it, paths are drawn at random.
    #[arg(long, value_name = "FILE")]
    pub path_file: Option<PathBuf>,
    /// How paths are drawn.
    #[command(flatten)]
    pub drawing: Drawing,
}

/// Options for clients that choose their own paths: for all clients, or for arms.
fn paths_of_clients() -> ArgGroup {
    ArgGroup::new("paths_of_clients").args(["as_client", "arms"]).multiple(true)
}

/// Options of `downloads run`.
#[derive(Args, Clone, Debug)]
#[command(group = paths_of_clients())]
pub struct DownloadsRunArgs {
    /// Network, source and client.
    #[command(flatten)]
    pub fetching: Fetching,
    /// Compare the ways to download (arms) in this TOML file. They take turns, in an order drawn by
    /// --seed. Each has a client, torrc lines, and rules for paths or a file of paths. Other
    /// options apply to all arms. See doc/downloads.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["path_file", "in_flight"])]
    pub arms: Option<PathBuf>,
    /// Number of downloads, over all arms.
    #[arg(long, value_name = "NUMBER", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// Number of simultaneous downloads; they slow each other down. A relay is in one at a time, so a
    /// small network has fewer.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=50))]
    pub in_flight: u64,
    /// Let relays be in several downloads at once, which begin at the same guard at --rate. For
    /// private networks.
    #[arg(long, conflicts_with_all = ["arms", "as_client"])]
    pub share_relays: bool,
    /// Begin at most this many downloads per second, or per minute or hour with /min or /h.
    #[arg(long, value_name = "RATE", default_value = "1", value_parser = rate)]
    pub rate: f64,
    /// When it stops early, and where its results go.
    #[command(flatten)]
    pub recording: Recording,
}

/// Options of `downloads serve`.
#[derive(Args, Clone, Debug)]
#[command(group = paths_of_clients())]
pub struct ServeArgs {
    /// Network, source and client.
    #[command(flatten)]
    pub fetching: Fetching,
    /// Seconds from the start of one download to the start of the next; OnionPerf uses 300.
    /// Downloads never overlap.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: u64,
    /// Compare the arms of this TOML file, as `downloads run` does. See doc/downloads.md.
    #[arg(long, value_name = "FILE", conflicts_with = "path_file")]
    pub arms: Option<PathBuf>,
    /// Download several sizes in proportion to their weights: SIZE=WEIGHT,… or A:B:C, the weights
    /// of 50KiB, 1MiB and 5MiB. OnionPerf used 12:2:1. The order depends on --seed.
    #[arg(long, value_name = "MIX", conflicts_with = "size")]
    pub mix: Option<Mix>,
    /// Limit the traffic of a calendar month (UTC), such as 5GB/month. A download that might exceed
    /// it is put off, and a line says so. Computed from the payload with cells, TLS, TCP and IP;
    /// directory documents and retransmissions count only with --data-interface.
    #[arg(long, value_name = "SIZE/month", value_parser = plan::data)]
    pub data: Option<u64>,
    /// Count --data by the kernel's counters of this network interface, such as eth0: all of its
    /// traffic, including that of other programs.
    #[arg(long, value_name = "INTERFACE", requires = "data")]
    pub data_interface: Option<String>,
    /// Name of the measuring host in OnionPerf's files, which are written to the folder onionperf
    /// in --dir after each UTC day: up to 64 letters, digits and -.
    #[arg(long, value_name = "NAME", default_value = "ff-perf", value_parser = host)]
    pub host: String,
    /// Public address of the measuring host in these files; omitted by default.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<std::net::IpAddr>,
    /// Where lines are kept, and for how long.
    #[command(flatten)]
    pub keeping: serve::Keeping,
}

impl Fetching {
    /// Circuits with one download each, `in_flight` at a time.
    fn measuring(&self, in_flight: u64) -> Measuring {
        Measuring {
            network: self.network.clone(),
            public: self.public,
            in_flight,
            share_builds: false,
            share_probes: false,
            share_downloads: false,
            client: self.client,
            path_file: self.path_file.clone(),
            drawing: self.drawing.clone(),
            rtt: 0,
            resolve: 0,
            rtt_pause: 0,
            ttfb: 0,
            ttfb_for: None,
            ttfb_every: 1.0,
            download: self.size,
            download_share: 1.0,
            target: Some(self.to.clone()),
            per_guard: crate::schedule::PER_GUARD,
            build_time: self.build_time,
            trip_time: self.timeout,
            download_time: self.timeout,
            as_client: self.as_client,
            state: self.state.clone(),
        }
    }
}

impl DownloadsRunArgs {
    /// Circuits to measure.
    #[must_use]
    pub fn circuits(&self) -> MeasureArgs {
        let mut measuring = self.fetching.measuring(self.in_flight);
        if self.share_relays {
            (measuring.share_builds, measuring.share_downloads) = (true, true);
            measuring.per_guard = self.rate;
        }
        MeasureArgs {
            measuring,
            count: self.count,
            rate: Some(self.rate),
            recording: self.recording.clone(),
        }
    }
}

impl ServeArgs {
    /// Circuits to measure.
    #[must_use]
    pub fn circuits(&self) -> serve::ServeArgs {
        let mix = self.mix.clone().unwrap_or_else(|| Mix::of(self.fetching.size));
        serve::ServeArgs {
            measuring: Measuring { download: mix.largest(), ..self.fetching.measuring(1) },
            rate: 1.0 / self.every as f64,
            keeping: self.keeping.clone(),
            terms: Some(serve::Terms {
                mix,
                data_bytes: self.data,
                data_interface: self.data_interface.clone(),
                host: self.host.clone(),
                address: self.address.map(|address| address.to_string()),
            }),
            arms: self.arms.clone(),
        }
    }
}

/// Parses a host name for OnionPerf's files.
fn host(text: &str) -> Result<String, String> {
    let is_host = ff_circuits::onionperf::day::is_host(text);
    is_host.then(|| text.to_owned()).ok_or("use up to 64 letters, digits and -".to_owned())
}

/// Parses the URL of a source.
fn source(text: &str) -> Result<StreamTarget, String> {
    text.parse::<StreamTarget>()?.secret()
}

/// Options of `downloads analyze`.
#[derive(Args, Clone, Debug)]
pub struct AnalyzeArgs {
    /// A set of downloads: its label, and its files and folders: circuits-*.jsonl of ff-perf,
    /// *.onionperf.analysis.json of OnionPerf (versions 1.0 to 5.0) or *.tpf of Torperf,
    /// compressed with xz or not.
    #[arg(long = "data", value_name = "LABEL=PATH,...", required = true, value_parser = data)]
    pub data: Vec<DataArg>,
    /// Write a page (report.html), figures (SVG), the table of OnionPerf's `viz`, and for each set
    /// Tor Metrics' daily tables (CSV) into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON. Times are in seconds, throughput in Mbit/s.
    #[arg(long)]
    pub json: bool,
    /// Options of this run, for summary.json.
    #[arg(skip)]
    pub options: ff_report::options::CommandOptions,
}

/// Options of `downloads filter`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("what").required(true).multiple(true)
          .args(["include_fingerprints", "exclude_fingerprints", "exclude_cbt"]))]
pub struct FilterArgs {
    /// OnionPerf's analysis files and folders of them.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Write the files into this folder under their own names, compressed with xz.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Keep circuits that have only relays in this file, one fingerprint per line.
    #[arg(long, value_name = "FILE")]
    pub include_fingerprints: Option<PathBuf>,
    /// Keep circuits that have no relay in this file, one fingerprint per line.
    #[arg(long, value_name = "FILE")]
    pub exclude_fingerprints: Option<PathBuf>,
    /// Check only the first relay of circuits.
    #[arg(long)]
    pub guards: bool,
    /// Check only the last relay of circuits; with --guards, both.
    #[arg(long)]
    pub exits: bool,
    /// Keep circuits that began after tor had computed its timeout for building them (cbt_set).
    #[arg(long)]
    pub exclude_cbt: bool,
}

/// Options of `downloads export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Files and folders, as `downloads analyze` reads them.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Write the files into this folder; created if missing.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the measuring host in the files: up to 64 letters, digits and -.
    #[arg(long, value_name = "NAME", default_value = "ff-perf", value_parser = host)]
    pub host: String,
    /// Public address of the measuring host in the files; omitted by default.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<std::net::IpAddr>,
}

/// A labelled set of downloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataArg {
    /// Label.
    pub label: String,
    /// Files and folders.
    pub paths: Vec<PathBuf>,
}

fn data(text: &str) -> Result<DataArg, String> {
    let (label, paths) =
        text.split_once('=').ok_or("write LABEL=PATH, or LABEL=PATH,PATH for several")?;
    // The label begins file names.
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if label.is_empty() || label.starts_with('.') || !label.bytes().all(is_good) {
        return Err(
            "use letters, digits, -, _ and . for the label, and begin it with another character than .".to_owned()
        );
    }
    let paths: Vec<PathBuf> = paths.split(',').map(PathBuf::from).collect();
    if paths.iter().any(|path| path.as_os_str().is_empty()) {
        return Err("a path is empty".to_owned());
    }
    Ok(DataArg { label: label.to_owned(), paths })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_source_has_a_token() {
        assert!(source("http://a:80/0123").is_ok_and(|target| target.is_secret));
        for odd in ["http://a:80/", "http://a:80/x/5", "bytes://a:80", "x"] {
            assert!(source(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn arms_have_their_own_paths_and_one_download_at_a_time() {
        let told = |words: &str| {
            let all = format!(
                "ff-perf downloads {words} --network n --to http://a:80/0123 --arms a.toml"
            );
            crate::cli::Cli::try_parse_from(all.split(' '))
        };
        for good in [
            "run --out o --client tor --guards 1",
            "run --out o --build-time 9",
            "run --out o --state s",
            "serve --dir d --state s",
            "serve --dir d",
        ] {
            told(good).expect(good);
        }
        for odd in [
            "run --out o --in-flight 2",
            "run --out o --path-file p",
            "serve --dir d --path-file p",
        ] {
            told(odd).expect_err(odd);
        }
    }

    #[test]
    fn options_without_effect_on_the_clients_own_paths_are_refused() {
        let told = |words: &str| {
            let all = format!("ff-perf downloads {words} --network n --to http://a:80/0123");
            crate::cli::Cli::try_parse_from(all.split(' ')).map_err(|error| error.to_string())
        };
        for start in ["run --out o", "serve --dir d"] {
            told(&format!("{start} --as-client --state s")).expect("a state");
            let error = told(&format!("{start} --as-client --build-time 9")).expect_err("no use");
            let pair = ["--as-client", "cannot be used with", "--build-time"];
            assert!(pair.iter().all(|said| error.contains(said)), "{error}");
            let error = told(&format!("{start} --state s")).expect_err("no client that keeps one");
            assert!(error.contains("--as-client"), "{error}");
        }
    }

    #[test]
    fn data_have_a_label_and_paths() {
        let found = data("a-1=/x,y=z").expect("a set");
        let paths = ["/x", "y=z"].map(PathBuf::from).to_vec();
        assert_eq!(found, DataArg { label: "a-1".to_owned(), paths });
        for odd in ["x", "=x", "a/b=x", ".a=x", "a=", "a=x,,y", "ä=x"] {
            assert!(data(odd).is_err(), "{odd}");
        }
    }
}
