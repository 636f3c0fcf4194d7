//! `ff-perf lab mobile`: the downloads of OnionPerf on mobile links, section 5, over emulated
//! links; starts of clients and onion services; and downloads that share a link.

mod lab;
mod links;
mod start;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ff_circuits::lab::mobile::{
    LinksResult, ProfileResult, StartResult, unlike_real_edge, wrong, wrong_links, wrong_starts,
};
use ff_circuits::traffic::WIRE;
use ff_lab::console::note;
use ff_lab::profile::Profile;
use ff_lab::run::DOES_NOT_COUNT;
use ff_lab::{Delays, Ending, HostsPlan, Network, RelayConfig};
use ff_report::input::Inputs;
use ff_report::output::{Folder, Summary};
use serde::Serialize;

use self::lab::{LOOK, Lab, Running, WEB, file, host, lines};
use crate::cli::lab::LabMobileArgs;
use crate::cli::measure::ClientKind;
use crate::run::output::print;

/// Numbers of authorities and exits (OnionPerf on mobile links, figure 5).
const AUTHORITIES: usize = 3;
const EXITS: usize = 5;
/// Interval of votes: the longest with which a lab starts fast, because clients on slow links load
/// each new consensus.
const VOTING_INTERVAL: Duration = Duration::from_secs(300);
/// Minutes of a period of onion services' directories: 24 votes, so that a period has one shared
/// random value (rend-spec "Deriving blinded keys and subcredentials").
const HSDIR_INTERVAL: i64 = 120;
/// Time limit of a download, in seconds; OnionPerf's 270 cut off most downloads over EDGE
/// (OnionPerf on mobile links).
const TIMEOUT: &str = "900";
/// Time limit of a circuit, in seconds.
const BUILD_TIME: &str = "300";
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
    starts: Vec<StartResult>,
    links: Vec<LinksResult>,
    /// Violations of the paper's order and of the bounds.
    wrong: Vec<String>,
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
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let lab = Lab { args, network: &network, ending, out: &out };
    let (_source, url) = lab.source(WEB, &[], &network.dir().join("source.url"))?;
    ensure!(url.starts_with("http://"), "the source printed no URL: {url}");
    let folders = download(lab, &url)?;
    note("ff-perf: downloading in pairs, over one link and over two");
    let links = links::measure(lab, clients, &url)?;
    // Last: the rates of `edge-lossy` were fitted to downloads that begin with the network.
    note("ff-perf: starting a client on each host, and its onion service");
    let starts = start::measure(lab)?;
    let report = network.stop_links()?;
    let (_, size) = args.downloads();
    let row = |(folder, profile): (&PathBuf, &Profile)| {
        let rate = profile.down.rate.mean().map(|rate| rate.get() as f64);
        Ok(ProfileResult::of(&profile.name, &lines(folder)?, size, rate))
    };
    let rows = folders.iter().zip(&profiles).map(row).collect::<Result<Vec<_>>>()?;
    let wrong =
        [wrong(&rows), unlike_real_edge(&rows, size), wrong_starts(&starts), wrong_links(&links)];
    let found = Found {
        schema: 2,
        size_bytes: size,
        wire: WIRE,
        emulator_is_in_time: !report.lateness.is_too_late,
        emulator_late_p99_us: report.lateness.p99_us,
        wrong: wrong.concat(),
        rows,
        starts,
        links,
    };
    if args.out.is_some() {
        let folder = Folder::create(&out)?;
        let (inputs, options) = (Inputs::default(), args.options.clone());
        let seed = Some(args.seed);
        folder.finish(&Summary::new("lab mobile", inputs.all(), seed, options, &found))?;
    }
    print(args.json, &found, text::text)?;
    Ok(match (found.emulator_is_in_time, found.wrong.is_empty()) {
        (false, _) => ExitCode::from(DOES_NOT_COUNT),
        (true, holds) => ExitCode::from(u8::from(!holds)),
    })
}

fn start(args: &LabMobileArgs, profiles: &[Profile], ending: &Ending) -> ff_lab::Result<Network> {
    let names = (0..profiles.len()).map(|number| host(args.client, number));
    let mut clients: Vec<(String, Profile)> = names.zip(profiles.iter().cloned()).collect();
    clients.extend(links::hosts(args.client, profiles.len())?);
    let mut extra = vec![WEB.to_owned()];
    let tors = match args.client {
        ClientKind::Tor => clients.len(),
        ClientKind::Arti => {
            extra.extend(clients.iter().map(|(name, _)| name.clone()));
            1
        }
    };
    let plan = HostsPlan {
        links: clients.into_iter().collect(),
        delays: Delays::Uniform(Duration::ZERO),
        extra,
        seed: args.seed,
        ..HostsPlan::default()
    };
    let mut builder = Network::builder()
        .authorities(AUTHORITIES)
        .clients(tors)
        .hosts(plan)
        .voting_interval(VOTING_INTERVAL)
        .consensus_param("hsdir_interval", HSDIR_INTERVAL)
        .ending(ending);
    if let Some(tor) = &args.tor {
        builder = builder.tor(tor);
    }
    for exit in 0..EXITS {
        builder = builder.relay(RelayConfig::exit(format!("exit{exit}")));
    }
    builder.start()
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
    let of_profile = folders(args, out).into_iter().find(|folder| file(folder).exists());
    of_profile.or_else(|| links::occupied(out))
}

/// Makes the clients of all profiles download, each into its own folder.
fn download(lab: Lab<'_>, url: &str) -> Result<Vec<PathBuf>> {
    let (count, size) = lab.args.downloads();
    let numbers = [count.to_string(), size.to_string(), lab.args.seed.to_string()];
    let [count, size, seed] = numbers.each_ref().map(String::as_str);
    let options = [
        ["--to", url, "--size", size, "--count", count, "--seed", seed].as_slice(),
        &["--timeout", TIMEOUT, "--build-time", BUILD_TIME, "--failures", "1"],
    ]
    .concat();
    let folders = folders(lab.args, lab.out);
    let client = |(number, folder): (usize, &PathBuf)| {
        let name = host(lab.args.client, number);
        lab.spawn(&name, &mut lab.downloads(&name, &options, folder)?)
    };
    let mut running = folders.iter().enumerate().map(client).collect::<Result<Vec<_>>>()?;
    wait(&mut running, &folders, lab.ending)?;
    Ok(folders)
}

/// Waits until all have ended, and prints progress.
fn wait(running: &mut [Running], folders: &[PathBuf], ending: &Ending) -> Result<()> {
    let mut told = Instant::now();
    loop {
        let mut goes_on = false;
        for one in running.iter_mut() {
            goes_on |= one.status()?.is_none();
        }
        if !goes_on {
            return Ok(());
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            let count = |folder: &PathBuf| {
                let text = fs::read_to_string(file(folder)).unwrap_or_default();
                let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                format!("{name} {}", text.lines().count())
            };
            let all: Vec<String> = folders.iter().map(count).collect();
            note(&format!("ff-perf: downloads so far: {}", all.join(", ")));
        }
        ending.sleep(LOOK)?;
    }
}
