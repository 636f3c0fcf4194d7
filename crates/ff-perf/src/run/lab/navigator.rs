//! `ff-perf lab navigator`: NavigaTor's measurements, sections 5 and 6, in a network with known
//! properties.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ff_circuits::analysis::{AnalysisOptions, Report, figures, tables, text};
use ff_circuits::buckets::INTERVAL_MS;
use ff_circuits::lab::verdicts::{ClaimVerdict, any_fails, verdicts};
use ff_circuits::read::Circuits;
use ff_circuits::replay::Timeout;
use ff_lab::console::note;
use ff_lab::run::DOES_NOT_COUNT;
use ff_lab::{
    CpuQuota, Delays, DownloadPlan, Ending, HostsPlan, Network, Node, RelayConfig, RunningDownloads,
};
use ff_report::input::Inputs;
use ff_report::output::{Folder, Summary};
use rand::SeedableRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use crate::cli::lab::LabNavigatorArgs;
use crate::run::output::print;

/// Limits of the slowest and the fastest relay, in bytes per second.
const RATES: [f64; 2] = [300e3, 8e6];
/// One in this many relays is short of CPU.
const SHORT_OF_CPU: usize = 8;
/// Share of a core that such a relay has, in percent.
const CPU_PERCENT: f64 = 5.0;
/// Period of its CPU quota.
const CPU_PERIOD: Duration = Duration::from_millis(100);
/// Relays per background download.
const RELAYS_PER_DOWNLOAD: usize = 4;
/// Host that measures.
const PROBE: &str = "probe";
/// Most circuits at once. Most of them wait for their download, so that the relays of some are
/// free.
const IN_FLIGHT: &str = "320";
/// Size of downloads. With the paper's 5 MiB they would take hours, and with a few of them chance
/// would decide which selection is faster.
const DOWNLOAD: &str = "256KiB";
/// Circuits per download in a network of [`USUAL`] relays. A relay is in one download at a time,
/// and each takes three seconds, so downloads limit the rate of circuits. A larger network has more
/// of them at once.
const CIRCUITS_PER_DOWNLOAD: f64 = 16.0;
/// Relays of a usual network.
const USUAL: f64 = 24.0;
/// Most paths that are drawn; further circuits repeat them.
const MOST_PATHS: u64 = 100_000;
/// Interval of checks whether the circuits are finished.
const LOOK: Duration = Duration::from_millis(200);
/// Shares of replayed selections, as in NavigaTor.
const SHARES: [f64; 2] = [0.8, 0.5];

/// Results.
#[derive(Serialize)]
struct Found {
    /// Version of this document.
    schema: u32,
    /// Number of relays.
    relays: u8,
    /// Random seed.
    seed: u64,
    /// Duration of the circuits, in seconds.
    circuits_secs: f64,
    /// Whether the emulator was in time; if not, the run is invalid.
    emulator_is_in_time: bool,
    /// Whether the emulator had SCHED_FIFO.
    emulator_is_real_time: bool,
    /// 99th percentile of packets' lateness, in µs.
    emulator_late_p99_us: f64,
    /// Bound of that.
    emulator_late_bound_us: f64,
    /// Share of packets dropped by hosts' devices before the emulator read them, not by a link.
    emulator_overflowed_share: f64,
    /// NavigaTor's rankings, and whether they hold here.
    verdicts: Vec<ClaimVerdict>,
    /// Analysis of the circuits.
    analysis: Report,
}

pub(super) fn run(args: &LabNavigatorArgs, ending: &Ending) -> Result<ExitCode> {
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    note(&format!("ff-perf: starting a private network of {} relays", args.relays));
    let network = start(args, ending, &mut rng).context("Failed to start the private network")?;
    let quotas = short_of_cpu(&network)?;
    let background = background(&network, &mut rng)?;
    let began = Instant::now();
    // In the network's directory, which is removed with it, or at the next network's start if this
    // process is killed.
    let dir = args.out.clone().unwrap_or_else(|| network.dir().join("circuits"));
    let paths = network.dir().join("paths");
    let (exits, others) = places(&network);
    let [exits, others] = [exits, others].map(ids);
    let text = paths_text(&exits, &others, args.circuits(), &mut rng);
    fs::write(&paths, text).context("Failed to write the file of paths")?;
    measure(args, &network, ending, &paths, &dir)?;
    let circuits_secs = began.elapsed().as_secs_f64();
    drop(background);
    drop(quotas);
    let links = network.stop_links()?;
    let mut inputs = Inputs::default();
    let circuits = Circuits::read(std::slice::from_ref(&dir), &mut inputs)?;
    drop(network);
    let window = usize::try_from(args.circuits().clamp(20, 20_000) / 20).unwrap_or(1000);
    let options = AnalysisOptions {
        hops: 3,
        window,
        shares: SHARES.to_vec(),
        timeout: Timeout::Percentile,
        seed: args.seed,
        refill_ms: INTERVAL_MS,
    };
    let analysis = Report::of(&circuits, None, &options);
    let found = Found {
        schema: 1,
        relays: args.relays,
        seed: args.seed,
        circuits_secs,
        emulator_is_in_time: !links.lateness.is_too_late,
        emulator_is_real_time: links.is_real_time,
        emulator_late_p99_us: links.lateness.p99_us,
        emulator_late_bound_us: links.lateness.bound_us,
        emulator_overflowed_share: links.overflowed_share(),
        verdicts: verdicts(&circuits, &analysis),
        analysis,
    };
    if let Some(out) = &args.out {
        write(out, args, &circuits, &found, &inputs)?;
    }
    print(args.json, &found, whole_text)?;
    Ok(match (found.emulator_is_in_time, any_fails(&found.verdicts)) {
        (false, _) => ExitCode::from(DOES_NOT_COUNT),
        (true, fails) => ExitCode::from(u8::from(fails)),
    })
}

/// Starts the network: regions, unequal rates, a measuring host.
fn start(
    args: &LabNavigatorArgs,
    ending: &Ending,
    rng: &mut ChaCha12Rng,
) -> ff_lab::Result<Network> {
    let relays = usize::from(args.relays);
    let mut rates: Vec<u64> = rates(relays);
    rates.shuffle(rng);
    let plan = HostsPlan {
        delays: Delays::Regions,
        extra: vec![PROBE.to_owned()],
        seed: args.seed,
        ..HostsPlan::default()
    };
    let mut builder = Network::builder().clients(1).hosts(plan).ending(ending);
    if let Some(tor) = &args.tor {
        builder = builder.tor(tor);
    }
    for (relay, rate) in rates.into_iter().enumerate() {
        let config = if relay < exits(relays) {
            RelayConfig::exit(format!("exit{relay}"))
        } else {
            RelayConfig::middle(format!("relay{relay}"))
        };
        builder = builder.relay(config.bandwidth_rate(rate));
    }
    builder.start()
}

/// Number of exits among `relays` relays.
const fn exits(relays: usize) -> usize {
    relays / 3
}

/// Limits in bytes per second: a geometric sequence.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "8 million at most")]
fn rates(relays: usize) -> Vec<u64> {
    let [least, most] = RATES;
    let steps = relays.saturating_sub(1).max(1) as f64;
    (0..relays).map(|step| (least * (most / least).powf(step as f64 / steps)) as u64).collect()
}

/// Takes CPU time from some relays.
fn short_of_cpu(network: &Network) -> Result<Vec<CpuQuota>> {
    let some = network.relays().step_by(SHORT_OF_CPU);
    some.map(|relay| Ok(CpuQuota::set(relay.pid()?, CPU_PERCENT, CPU_PERIOD)?)).collect()
}

/// Starts downloads in the background.
fn background(network: &Network, rng: &mut ChaCha12Rng) -> Result<Vec<RunningDownloads>> {
    let (exits, others) = places(network);
    let client = network.node("client0");
    let one = |_| {
        let path = path(&exits, &others, rng);
        Ok(network.download(client, &DownloadPlan::through(&path))?)
    };
    (0..(exits.len() + others.len()) / RELAYS_PER_DOWNLOAD).map(one).collect()
}

/// The exits, and the other relays.
fn places(network: &Network) -> (Vec<&Node>, Vec<&Node>) {
    network.relays().partition(|node| node.name().starts_with("exit"))
}

fn ids(nodes: Vec<&Node>) -> Vec<&str> {
    nodes.into_iter().map(Node::rsa_fingerprint).collect()
}

/// Two relays and an exit. A third of relays are exits, used only at the end, so every relay is in
/// about as many paths as the others, as the experiment compares circuits. (If exits are that
/// scarce, Tor's weights reserve them for the end too.)
fn path<T: Copy>(exits: &[T], others: &[T], rng: &mut ChaCha12Rng) -> Vec<T> {
    others.sample(rng, 2).chain(exits.choose(rng)).copied().collect()
}

/// A file of random paths, `count` or the most that are drawn, through relays of these
/// fingerprints.
fn paths_text(exits: &[&str], others: &[&str], count: u64, rng: &mut ChaCha12Rng) -> String {
    let mut text = String::new();
    for _ in 0..count.min(MOST_PATHS) {
        text.push_str(&path(exits, others, rng).join(","));
        text.push('\n');
    }
    text
}

/// Share of circuits with a download.
fn download_share(relays: u8) -> f64 {
    f64::from(relays) / USUAL / CIRCUITS_PER_DOWNLOAD
}

/// Has this program measure circuits, from a host of the network.
fn measure(
    args: &LabNavigatorArgs,
    network: &Network,
    ending: &Ending,
    paths: &Path,
    out: &Path,
) -> Result<()> {
    let probe = network.host(PROBE)?;
    let source = network.source()?.addr();
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(words(args, source, [network.dir(), paths, out]));
    command.stdout(std::process::Stdio::null());
    let mut running = Running(probe.namespace().spawn(&mut command)?);
    let status = loop {
        if let Some(status) = running.0.try_wait().context("Failed to measure circuits")? {
            break status;
        }
        ending.sleep(LOOK)?;
    };
    ensure!(status.success(), "the measurement of circuits ended early: {status}; see above");
    Ok(())
}

/// Arguments of that program: options, target, and the places of network, paths and results.
fn words(args: &LabNavigatorArgs, target: SocketAddr, places: [&Path; 3]) -> Vec<OsString> {
    let fixed =
        "circuits run --share-builds --share-probes --rtt 5 --ttfb 1 --per-guard 100 --rate 1000";
    let what = match args.ttfb_for {
        Some(secs) => format!("--ttfb-for {secs}"),
        None => {
            format!("--download {DOWNLOAD} --download-share {}", download_share(args.relays))
        }
    };
    let (count, seed) = (args.circuits(), args.seed);
    let how =
        format!("--in-flight {IN_FLIGHT} --count {count} --seed {seed} --target bytes://{target}");
    let words = [fixed, &what, &how].join(" ");
    let named = ["--network", "--path-file", "--out"].into_iter().zip(places);
    let named = named.flat_map(|(name, place)| [name.into(), place.as_os_str().to_owned()]);
    words.split(' ').map(OsString::from).chain(named).collect()
}

/// A program that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Circuits finished until then are in its file, so it may be killed. It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes tables, figures and the summary to the circuits' folder.
fn write(
    dir: &Path,
    args: &LabNavigatorArgs,
    circuits: &Circuits,
    found: &Found,
    inputs: &Inputs,
) -> Result<()> {
    let folder = Folder::create(dir)?;
    for figure in figures::figures(circuits, &found.analysis) {
        folder.write(&format!("{}.svg", figure.name), figure.svg().as_bytes())?;
    }
    for (name, header, rows) in tables::tables(&found.analysis) {
        folder.table(name, header, rows.iter())?;
    }
    let (inputs, options) = (inputs.all(), args.options.clone());
    folder.finish(&Summary::new("lab navigator", inputs, Some(found.seed), options, found))?;
    Ok(())
}

/// Tables, verdicts, and whether the emulator was in time.
fn whole_text(found: &Found) -> String {
    let mut text = text::text(&found.analysis);
    text.push_str("\nNavigaTor's rankings, with our numbers and the paper's:\n");
    let real_time = if found.emulator_is_real_time { "with" } else { "WITHOUT" };
    for verdict in &found.verdicts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", verdict.line());
    }
    let _ = writeln!(
        text,
        "{} relays, seed {}; circuits took {:.0} s; the emulator ran {real_time} SCHED_FIFO, p99 {:.0} µs late (limit: {:.0}), and lost {:.3} % of packets",
        found.relays,
        found.seed,
        found.circuits_secs,
        found.emulator_late_p99_us,
        found.emulator_late_bound_us,
        found.emulator_overflowed_share * 100.0
    );
    if !found.emulator_is_in_time {
        text.push_str("INVALID RUN: the emulator was too late; repeat it\n");
    }
    text
}

#[cfg(test)]
mod tests;
