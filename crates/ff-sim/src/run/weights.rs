//! The weights of bandwidth files, as commands take them.

use std::path::Path;

use anyhow::Result;
use ff_bwauth::publish::v3bw::read::{Reading as File, Severity};

use super::Reading;
pub(super) use crate::compare::Weights;
use crate::network::{Network, Relay};

/// Reads a bandwidth file, as old as it may be.
pub(super) fn read(path: &Path, reading: &mut Reading) -> Result<Weights> {
    let bytes = reading.inputs.read(path)?;
    let name = path.display().to_string();
    // It is read as of its own time.
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
    let weights: Weights = file.votes().into_iter().map(|(relay, line)| (relay, line.bw)).collect();
    anyhow::ensure!(!weights.is_empty(), "{name} has no relay that authorities would vote with");
    reading.skips.read += file.lines.len() as u64;
    Ok(weights)
}

/// These weights by a network's relays; those that are not among them have none.
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
