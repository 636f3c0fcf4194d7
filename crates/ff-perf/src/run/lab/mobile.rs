//! `ff-perf lab mobile`: the downloads of OnionPerf on mobile links, section 5, over emulated
//! links.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ff_circuits::downloads::parts::NAMES;
use ff_circuits::lab::mobile::{ProfileResult, wrong};
use ff_circuits::record::CircuitRecord;
use ff_circuits::traffic::WIRE;
use ff_lab::console::note;
use ff_lab::profile::Profile;
use ff_lab::run::DOES_NOT_COUNT;
use ff_lab::{Delays, Ending, HostsPlan, Network, RelayConfig};
use ff_report::input::Inputs;
use ff_report::output::{Folder, Summary};
use serde::Serialize;

use crate::cli::lab::LabMobileArgs;
use crate::cli::measure::ClientKind;
use crate::run::output::print;
use crate::store::LINES;

/// Host of the source.
const WEB: &str = "web";
/// Numbers of authorities and exits (OnionPerf on mobile links, figure 5).
const AUTHORITIES: usize = 3;
const EXITS: usize = 5;
/// Time limit of a download, in seconds; OnionPerf's 270 cut off most downloads over EDGE
/// (OnionPerf on mobile links).
const TIMEOUT: &str = "900";
/// Interval of checks whether all have ended.
const LOOK: Duration = Duration::from_millis(200);
/// Interval of progress reports.
const TELL: Duration = Duration::from_secs(15);

/// Results.
#[derive(Serialize)]
struct Found {
    /// Version of this document.
    schema: u32,
    /// Size of each download, in bytes.
    size_bytes: u64,
    /// Computed bytes on the wire per byte of payload.
    wire: f64,
    /// Whether the emulator was in time; if not, the run is invalid.
    emulator_is_in_time: bool,
    /// 99th percentile of packets' lateness, in µs.
    emulator_late_p99_us: f64,
    rows: Vec<ProfileResult>,
    /// Violations of the paper's order and of the bounds.
    wrong: Vec<String>,
}

/// A program that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; its lines are in its file.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(args: &LabMobileArgs, ending: &Ending) -> Result<ExitCode> {
    let profiles =
        args.profiles.iter().map(|name| Profile::find(name)).collect::<ff_lab::Result<Vec<_>>>()?;
    if let Some(folder) = args.out.as_deref().and_then(|out| occupied(args, out)) {
        bail!("{} already has downloads: give another folder", folder.display());
    }
    let clients = profiles.len();
    note(&format!("ff-perf: starting a private network of {EXITS} exits and {clients} clients"));
    let network = start(args, &profiles, ending).context("Failed to start the private network")?;
    let out = args.out.clone().unwrap_or_else(|| network.dir().join("downloads"));
    let (_source, url) = source(&network)?;
    let folders = download(args, &network, ending, &url, &out)?;
    let links = network.stop_links()?;
    let (_, size) = args.downloads();
    let row = |(folder, profile): (&PathBuf, &Profile)| {
        let rate = profile.down.rate.mean().map(|rate| rate.get() as f64);
        Ok(ProfileResult::of(&profile.name, &lines(folder)?, size, rate))
    };
    let rows = folders.iter().zip(&profiles).map(row).collect::<Result<Vec<_>>>()?;
    let found = Found {
        schema: 1,
        size_bytes: size,
        wire: WIRE,
        emulator_is_in_time: !links.lateness.is_too_late,
        emulator_late_p99_us: links.lateness.p99_us,
        wrong: wrong(&rows),
        rows,
    };
    if args.out.is_some() {
        let folder = Folder::create(&out)?;
        let (inputs, options) = (Inputs::default(), args.options.clone());
        let seed = Some(args.seed);
        folder.finish(&Summary::new("lab mobile", inputs.all(), seed, options, &found))?;
    }
    print(args.json, &found, text)?;
    Ok(match (found.emulator_is_in_time, found.wrong.is_empty()) {
        (false, _) => ExitCode::from(DOES_NOT_COUNT),
        (true, holds) => ExitCode::from(u8::from(!holds)),
    })
}

/// Name of the host of a profile's client.
fn host(client: ClientKind, number: usize) -> String {
    match client {
        // A tor of the network.
        ClientKind::Tor => format!("client{number}"),
        ClientKind::Arti => format!("mobile{number}"),
    }
}

fn start(args: &LabMobileArgs, profiles: &[Profile], ending: &Ending) -> ff_lab::Result<Network> {
    let clients = (0..profiles.len()).map(|number| host(args.client, number));
    let links: BTreeMap<String, Profile> = clients.clone().zip(profiles.iter().cloned()).collect();
    let mut extra = vec![WEB.to_owned()];
    let tors = match args.client {
        ClientKind::Tor => profiles.len(),
        ClientKind::Arti => {
            extra.extend(clients);
            1
        }
    };
    let plan = HostsPlan {
        links,
        delays: Delays::Uniform(Duration::ZERO),
        extra,
        seed: args.seed,
        ..HostsPlan::default()
    };
    let mut builder =
        Network::builder().authorities(AUTHORITIES).clients(tors).hosts(plan).ending(ending);
    if let Some(tor) = &args.tor {
        builder = builder.tor(tor);
    }
    for exit in 0..EXITS {
        builder = builder.relay(RelayConfig::exit(format!("exit{exit}")));
    }
    builder.start()
}

/// Runs this program with these arguments on a host.
fn program(network: &Network, host: &str, words: &[&str], out: Stdio) -> Result<Running> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(words).stdout(out);
    Ok(Running(network.host(host)?.namespace().spawn(&mut command)?))
}

/// Starts the source and returns its URL.
fn source(network: &Network) -> Result<(Running, String)> {
    let listen = format!("{}:0", network.host(WEB)?.address());
    let mut running = program(network, WEB, &["source", "--listen", &listen], Stdio::piped())?;
    let told = running.0.stdout.take().context("the source printed no URL")?;
    let mut url = String::new();
    BufReader::new(told).read_line(&mut url).context("the source printed no URL")?;
    ensure!(url.starts_with("http://"), "the source did not start; see above");
    Ok((running, url.trim().to_owned()))
}

/// Folders of the clients' lines.
fn folders(args: &LabMobileArgs, out: &Path) -> Vec<PathBuf> {
    let folder = |(number, profile): (usize, &String)| {
        let file = Path::new(profile).file_stem().unwrap_or_default().to_string_lossy();
        out.join(format!("{number}-{file}"))
    };
    args.profiles.iter().enumerate().map(folder).collect()
}

/// The first folder with lines of an earlier run, which would be mixed with this one's.
fn occupied(args: &LabMobileArgs, out: &Path) -> Option<PathBuf> {
    folders(args, out).into_iter().find(|folder| folder.join(LINES).exists())
}

/// Makes all clients download, each into its own folder.
fn download(
    args: &LabMobileArgs,
    network: &Network,
    ending: &Ending,
    url: &str,
    out: &Path,
) -> Result<Vec<PathBuf>> {
    let (count, size) = args.downloads();
    let (count, size, seed) = (count.to_string(), size.to_string(), args.seed.to_string());
    let folders = folders(args, out);
    let mut running = Vec::new();
    for (number, folder) in folders.iter().enumerate() {
        let name = host(args.client, number);
        let documents = match args.client {
            ClientKind::Tor => network.node(&name).data_dir(),
            ClientKind::Arti => network.dir(),
        };
        let [documents, to] = [documents, folder.as_path()].map(|path| path.display().to_string());
        let client = if args.client == ClientKind::Tor { "tor" } else { "arti" };
        let words = [
            ["downloads", "run"].as_slice(),
            &["--network", &documents, "--to", url, "--client", client, "--out", &to],
            &["--size", &size, "--count", &count, "--seed", &seed, "--timeout", TIMEOUT],
            &["--build-time", "300", "--failures", "1"],
        ]
        .concat();
        running.push(program(network, &name, &words, Stdio::null())?);
    }
    wait(&mut running, &folders, ending)?;
    Ok(folders)
}

/// Waits until all have ended, and prints progress.
fn wait(running: &mut [Running], folders: &[PathBuf], ending: &Ending) -> Result<()> {
    let mut told = Instant::now();
    loop {
        let mut goes_on = false;
        for one in running.iter_mut() {
            goes_on |= one.0.try_wait().context("cannot wait for downloads")?.is_none();
        }
        if !goes_on {
            return Ok(());
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            let count = |folder: &PathBuf| {
                let text = fs::read_to_string(folder.join(LINES)).unwrap_or_default();
                let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                format!("{name} {}", text.lines().count())
            };
            let all: Vec<String> = folders.iter().map(count).collect();
            note(&format!("ff-perf: downloads so far: {}", all.join(", ")));
        }
        ending.sleep(LOOK)?;
    }
}

fn lines(folder: &Path) -> Result<Vec<CircuitRecord>> {
    let path = folder.join(LINES);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{}: nothing was measured; see above", path.display()))?;
    let line = |text: &str| serde_json::from_str(text).with_context(|| path.display().to_string());
    text.lines().map(line).collect()
}

fn text(found: &Found) -> String {
    let mut text = format!(
        "{} bytes; times in s, from asking for the stream to the last byte\n{:<12} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        found.size_bytes,
        "profile",
        "whole",
        "failed",
        "least",
        "q1",
        "median",
        "q3",
        "most",
        "wire",
        "of wire"
    );
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for row in &found.rows {
        let quartile =
            |at: usize| number(row.quartiles_secs.and_then(|all| all.get(at).copied()), 2);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<12} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            row.profile,
            row.whole,
            row.failed,
            quartile(0),
            quartile(1),
            quartile(2),
            quartile(3),
            quartile(4),
            number(row.wire_secs, 2),
            number(row.of_wire, 3)
        );
    }
    text.push_str("\nmean time of each part, in s\n");
    for row in &found.rows {
        let Some(parts) = row.parts else { continue };
        let named = NAMES.iter().zip(parts.means_secs());
        let all: Vec<String> = named.map(|(name, secs)| format!("{name} {secs:.2}")).collect();
        let _ =
            writeln!(text, "{:<12} {}; total {:.2}", row.profile, all.join(", "), parts.total_secs);
    }
    for row in found.rows.iter().filter(|row| !row.reasons.is_empty()) {
        let _ = writeln!(text, "{} failed: {}", row.profile, row.reasons.join("; "));
    }
    for wrong in &found.wrong {
        let _ = writeln!(text, "DOES NOT HOLD: {wrong}");
    }
    if !found.emulator_is_in_time {
        text.push_str("INVALID RUN: the emulator was too late; repeat it\n");
    }
    text
}
