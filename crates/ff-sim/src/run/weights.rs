//! Reads weights of bandwidth files for commands.

use std::path::Path;

use anyhow::Result;
use ff_archives::network::{Network, Relay};
use ff_archives::read::span;
use ff_archives::store::month::Month;
use ff_base::utc::Utc;
use ff_dir::bandwidth::{Reading as File, Severity};

use super::Reading;
pub(super) use crate::compare::Weights;

/// Near the end of a month a file and a network may be of different months if they are at most this
/// far apart: weights are measured before the consensus that has them.
const EDGE_SECS: u64 = 86_400;

/// The weights of a file with their time.
pub(super) struct Dated {
    pub(super) weights: Weights,
    /// When the newest weight was obtained, in seconds since 1970.
    unix_secs: u64,
}

/// Reads a bandwidth file of any age.
pub(super) fn read(path: &Path, reading: &mut Reading) -> Result<Dated> {
    let bytes = reading.inputs.read_so_far(path, &mut reading.skips)?;
    let name = path.display().to_string();
    // The file is judged as of its own time.
    let first = bytes.split(|&byte| byte == b'\n').find(|line| !line.starts_with(b"@"));
    let now = first.and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
    let file = File::of(&bytes, now.unwrap_or(0));
    for finding in &file.findings {
        anyhow::ensure!(
            finding.severity != Severity::Refused,
            "{name}, line {}: {}",
            finding.line,
            finding.text
        );
        if finding.severity == Severity::Skipped {
            reading.skips.add(&name, None, Some(finding.line), &finding.text);
        }
    }
    if let Some(why) = span::wrong(file.unix_secs) {
        anyhow::bail!("{name}, line 1: the time {why}");
    }
    let weights: Weights = file.votes().into_iter().map(|(relay, line)| (relay, line.bw)).collect();
    anyhow::ensure!(!weights.is_empty(), "{name} has no relay that authorities would vote with");
    reading.skips.read += file.lines.len() as u64;
    Ok(Dated { weights, unix_secs: file.unix_secs })
}

/// Refuses to join a file with a network of another month, unless that is allowed. Prints a note if
/// the network has no time, so that this cannot be checked.
pub(super) fn check_month(
    path: &Path,
    file: &Dated,
    network: &Network,
    allow_mixed: bool,
) -> Result<()> {
    let name = &network.name;
    let Some(secs) = network.unix_secs else {
        note!(
            "ff-sim: {name} has no time, so it cannot be checked whether {} is of its month",
            path.display()
        );
        return Ok(());
    };
    let is_near =
        Month::of(secs) == Month::of(file.unix_secs) || secs.abs_diff(file.unix_secs) <= EDGE_SECS;
    let day =
        |secs| Utc::from_unix_secs(secs).map_or_else(|_| secs.to_string(), |utc| utc.to_string());
    anyhow::ensure!(
        is_near || allow_mixed,
        "{} is of {}, the network ({name}) of {}: --allow-mixed joins data of different months",
        path.display(),
        day(file.unix_secs),
        day(secs)
    );
    Ok(())
}

/// These weights in the order of a network's relays; 0 for relays that are not in the file.
#[expect(clippy::cast_precision_loss, reason = "weights lie far below 2^53, or are rounded")]
pub(super) fn joined(network: &Network, file: &Weights) -> Result<Vec<f64>> {
    let weight = |relay: &Relay| file.get(&relay.fingerprint).map_or(0.0, |weight| *weight as f64);
    let weights: Vec<f64> = network.relays.iter().map(weight).collect();
    anyhow::ensure!(
        weights.iter().any(|weight| *weight > 0.0),
        "it has no line for any relay of {}",
        network.name
    );
    Ok(weights)
}
