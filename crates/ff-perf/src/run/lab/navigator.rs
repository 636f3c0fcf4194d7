//! `ff-perf lab navigator`: NavigaTor's measurements, sections 5 and 6, in a network whose true
//! values are set.

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
use crate::run::print;

/// The slowest and the fastest relay, in bytes a second.
const RATES: [f64; 2] = [300e3, 8e6];
/// One relay in this number is short of CPU.
const SHORT_OF_CPU: usize = 8;
/// The share of a core that such a relay has, in percent.
const CPU_PERCENT: f64 = 5.0;
/// CPU is given out in slices of this period.
const CPU_PERIOD: Duration = Duration::from_millis(100);
/// Relays per background download.
const RELAYS_PER_DOWNLOAD: usize = 4;
/// The host that measures.
const PROBE: &str = "probe";
/// How many circuits may be there at once. Most of them wait for their download, so that there are
/// some whose relays are free.
const IN_FLIGHT: &str = "320";
/// What is downloaded on some circuits: the paper's 5 MiB would take hours, and of fewer and larger
/// ones chance alone would say which selection is faster.
const DOWNLOAD: &str = "256KiB";
/// Circuits per download, in a network of [`USUAL`] relays. A relay is in one download at a time,
/// each takes three seconds, and so these decide how many circuits a second there are. In a larger
/// network more go on at once.
const CIRCUITS_PER_DOWNLOAD: f64 = 16.0;
/// Relays of a usual network.
const USUAL: f64 = 24.0;
/// How many paths are drawn; further circuits repeat them.
const MOST_PATHS: u64 = 100_000;
/// How often it is looked whether circuits are measured to the end.
const LOOK: Duration = Duration::from_millis(200);
/// Selections with these shares are replayed, as in NavigaTor.
const SHARES: [f64; 2] = [0.8, 0.5];

/// The result.
#[derive(Serialize)]
struct Found {
    /// The version of this document.
    schema: u32,
    /// Relays of the network.
    relays: u8,
    /// Where it comes from.
    seed: u64,
    /// How long the circuits took, in seconds.
    circuits_secs: f64,
    /// Whether the emulator was in time: if not, nothing here counts.
    emulator_is_in_time: bool,
    /// Whether it had SCHED_FIFO.
    emulator_is_real_time: bool,
    /// How late packets left, 99th percentile, in µs.
    emulator_late_p99_us: f64,
    /// What that may be.
    emulator_late_bound_us: f64,
    /// The share of packets that were lost in hosts' devices before the emulator read them, and not
    /// on a link.
    emulator_overflowed_share: f64,
    /// 002's orders, and whether they hold here.
    verdicts: Vec<ClaimVerdict>,
    /// What circuits say.
    analysis: Report,
}

pub(super) fn run(args: &LabNavigatorArgs, ending: &Ending) -> Result<ExitCode> {
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    note(&format!("ff-perf: starting a private network of {} relays", args.relays));
    let network = start(args, ending, &mut rng).context("Failed to start the private network")?;
    let quotas = short_of_cpu(&network)?;
    let background = background(&network, &mut rng)?;
    let began = Instant::now();
    // In the network's own directory, which goes with it, and if this is killed, when the next
    // network starts.
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

/// Starts the network: regions, unequal rates, a host that measures.
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

/// How many of `relays` relays are exits.
const fn exits(relays: usize) -> usize {
    relays / 3
}

/// Limits in bytes a second, each greater than the one before by the same factor.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "8 million at most")]
fn rates(relays: usize) -> Vec<u64> {
    let [least, most] = RATES;
    let steps = relays.saturating_sub(1).max(1) as f64;
    (0..relays).map(|step| (least * (most / least).powf(step as f64 / steps)) as u64).collect()
}

/// Takes CPU time away from some relays.
fn short_of_cpu(network: &Network) -> Result<Vec<CpuQuota>> {
    let some = network.relays().step_by(SHORT_OF_CPU);
    some.map(|relay| Ok(CpuQuota::set(relay.pid()?, CPU_PERCENT, CPU_PERIOD)?)).collect()
}

/// Downloads that go on beside.
fn background(network: &Network, rng: &mut ChaCha12Rng) -> Result<Vec<RunningDownloads>> {
    let (exits, others) = places(network);
    let client = network.node("client0");
    let one = |_| {
        let path = path(&exits, &others, rng);
        Ok(network.download(client, &DownloadPlan::through(&path))?)
    };
    (0..(exits.len() + others.len()) / RELAYS_PER_DOWNLOAD).map(one).collect()
}

/// Exits, and the other relays.
fn places(network: &Network) -> (Vec<&Node>, Vec<&Node>) {
    network.relays().partition(|node| node.name().starts_with("exit"))
}

/// Their fingerprints.
fn ids(nodes: Vec<&Node>) -> Vec<&str> {
    nodes.into_iter().map(Node::rsa_fingerprint).collect()
}

/// Two relays and an exit. A third of relays are exits and stand in no other place, so each relay
/// is in about as many paths as the others: what is compared is circuits. (Where exits are as
/// scarce as that, Tor's own weights leave them for the last place, too.)
fn path<T: Copy>(exits: &[T], others: &[T], rng: &mut ChaCha12Rng) -> Vec<T> {
    others.sample(rng, 2).chain(exits.choose(rng)).copied().collect()
}

/// A file of random paths, of this number or as many as are drawn, through relays with these
/// fingerprints.
fn paths_text(exits: &[&str], others: &[&str], count: u64, rng: &mut ChaCha12Rng) -> String {
    let mut text = String::new();
    for _ in 0..count.min(MOST_PATHS) {
        text.push_str(&path(exits, others, rng).join(","));
        text.push('\n');
    }
    text
}

/// On what share of circuits something is downloaded.
fn download_share(relays: u8) -> f64 {
    f64::from(relays) / USUAL / CIRCUITS_PER_DOWNLOAD
}

/// Has circuits measured, by this program inside of the network.
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

/// What that program is told: how, to which target, and where the network is, the paths, and what
/// comes out.
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

/// A program that is ended with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // What was measured until then is in its file, so there is nothing to ask it for. It may
        // have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes tables, figures and the summary to the folder of the circuits.
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

/// The tables, the verdicts, and whether the emulator was in time.
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
        "{} relays, seed {}; circuits took {:.0} s; the emulator ran {real_time} SCHED_FIFO, p99 {:.0} µs late (limit: {:.0}), and missed {:.3} % of packets",
        found.relays,
        found.seed,
        found.circuits_secs,
        found.emulator_late_p99_us,
        found.emulator_late_bound_us,
        found.emulator_overflowed_share * 100.0
    );
    if !found.emulator_is_in_time {
        text.push_str("INVALID RUN: the results above say nothing about the network\n");
    }
    text
}

#[cfg(test)]
mod tests;
