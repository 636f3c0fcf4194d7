//! Downloads in pairs whose circuits share a link to one guard, or have a link each, over links
//! with losses. TCP delivers in order, so what one circuit loses delays all circuits of its link.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use ff_circuits::lab::mobile::LinksResult;
use ff_circuits::paths::file::render;
use ff_circuits::record::CircuitRecord;
use ff_lab::console::note;
use ff_lab::link::Loss;
use ff_lab::profile::Profile;

use super::lab::{LOOK, Lab, host, lines};
use super::{BUILD_TIME, TIMEOUT};
use crate::cli::measure::ClientKind;

/// Shares of packets lost in each direction.
const LOSSES: [f64; 3] = [0.0, 0.01, 0.03];
/// Profile of the links, to which losses are added.
const PROFILE: &str = "lte-paper";
/// Number of hosts, one for each loss and number of links.
pub(super) const HOSTS: usize = 2 * LOSSES.len();

/// Hosts of the clients, with their links; the first has this number.
pub(super) fn hosts(client: ClientKind, first: usize) -> ff_lab::Result<Vec<(String, Profile)>> {
    let one = |number: usize| {
        let mut profile = Profile::find(PROFILE)?;
        let loss = Loss::Independent(LOSSES[number / 2]);
        (profile.up.loss, profile.down.loss) = (loss, loss);
        Ok((host(client, first + number), profile))
    };
    (0..HOSTS).map(one).collect()
}

/// Folder of the lines of the host of this number.
fn folder(out: &Path, number: usize) -> PathBuf {
    let kind = ["one-link", "two-links"][number % 2];
    out.join(format!("loss-{}-{kind}", LOSSES[number / 2]))
}

/// The first folder of an earlier run.
pub(super) fn occupied(out: &Path) -> Option<PathBuf> {
    (0..HOSTS).map(|number| folder(out, number)).find(|folder| folder.exists())
}

/// Downloads on all hosts at once; the first has this number.
pub(super) fn measure(lab: Lab<'_>, first: usize, url: &str) -> Result<Vec<LinksResult>> {
    let circuits = thread::scope(|scope| {
        let one = |number| scope.spawn(move || pairs(lab, first, number, url));
        let all: Vec<_> = (0..HOSTS).map(one).collect();
        let ended = all.into_iter().map(|thread| {
            thread.join().map_err(|_| anyhow!("a thread that waited for downloads has panicked"))?
        });
        ended.collect::<Result<Vec<_>>>()
    })?;
    let rows = circuits.as_chunks().0.iter().zip(LOSSES);
    Ok(rows.map(|([one, two], loss)| LinksResult::of(loss, one, two)).collect())
}

/// Downloads one pair after the other, each by another process, so that both downloads of a pair
/// begin together. Arti's links are new for each pair; a tor keeps its own.
fn pairs(lab: Lab<'_>, first: usize, number: usize, url: &str) -> Result<Vec<CircuitRecord>> {
    let (name, folder) = (host(lab.args.client, first + number), folder(lab.out, number));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let paths = folder.join("paths.txt");
    let text =
        render("The paths of each pair.", paths_of(lab, number % 2).iter().map(Vec::as_slice));
    ff_lab::write_whole(&paths, &text).with_context(|| paths.display().to_string())?;
    let (downloads, size) = lab.args.downloads();
    let (paths, size) = (paths.display().to_string(), size.to_string());
    let options = [
        ["--to", url, "--path-file", &paths, "--size", &size, "--timeout", TIMEOUT].as_slice(),
        &["--build-time", BUILD_TIME, "--count", "2", "--in-flight", "2", "--rate", "100"],
        &["--share-relays", "--failures", "1"],
    ]
    .concat();
    let mut all = Vec::new();
    for pair in 0..(downloads / 2).max(1) {
        let out = folder.join(pair.to_string());
        let mut running = lab.spawn(&name, &mut lab.downloads(&name, &options, &out)?)?;
        while running.status()?.is_none() {
            lab.ending.sleep(LOOK)?;
        }
        match lines(&out) {
            Ok(pair) => all.extend(pair),
            // One of many; it counts neither as whole nor as failed.
            Err(error) => note(&format!("ff-perf: {error:#}")),
        }
    }
    Ok(all)
}

/// The paths of a pair with one or two guards, otherwise the same.
fn paths_of(lab: Lab<'_>, guard: usize) -> [Vec<String>; 2] {
    let id = |exit: usize| lab.network.node(&format!("exit{exit}")).rsa_fingerprint().to_owned();
    [[0, 2, 3], [guard, 2, 4]].map(|path| path.map(id).to_vec())
}
