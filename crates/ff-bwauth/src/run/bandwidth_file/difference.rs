//! The differences of two bandwidth files, as text and JSON.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ff_dir::bandwidth::{Change, Reading, diff};
use serde_json::json;

/// The differences of two files.
pub(super) struct Difference {
    /// The changes of relays, in the order of fingerprints.
    changes: Vec<Change>,
    /// Relays with a vote in the older and the newer file.
    relays: [usize; 2],
    /// The sums of weights, in kilobytes a second.
    total_bw: [u64; 2],
}

impl Difference {
    /// The differences from the old file to the new one.
    pub(super) fn of(old: &Reading, new: &Reading) -> Self {
        Self {
            changes: diff(old, new),
            relays: [old, new].map(|reading| reading.votes().len()),
            total_bw: [old, new].map(Reading::total_kilobytes),
        }
    }

    /// As text: the greatest changes first.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut order: Vec<_> = self.changes.iter().collect();
        order.sort_by_key(|change| std::cmp::Reverse(bws(change)[0].abs_diff(bws(change)[1])));
        for change in order {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", line(change));
        }
        let sum = |which: usize| {
            self.changes.iter().map(|change| u128::from(bws(change)[which])).sum::<u128>()
        };
        let changed = self.changes.len();
        let _ =
            writeln!(text, "{changed} relays changed, from {} to {} kB/s in all", sum(0), sum(1));
        let [old, new] = self.total_bw;
        let [before, after] = self.relays;
        let moved = percent(old, new).unwrap_or_else(|| "from nothing".to_owned());
        let _ = writeln!(
            text,
            "all relays: {old} kB/s of {before} relays before, {new} kB/s of {after} now, {moved}"
        );
        text
    }

    /// As JSON: a line for each relay, and one for all of them.
    pub(super) fn json(&self) -> Result<String> {
        let mut text = String::new();
        for change in &self.changes {
            text.push_str(&serde_json::to_string(change).context("Failed to make the JSON")?);
            text.push('\n');
        }
        let total = json!({
            "changed_relays": self.changes.len(),
            "old_relays": self.relays[0],
            "new_relays": self.relays[1],
            "old_total_bw": self.total_bw[0],
            "new_total_bw": self.total_bw[1],
        });
        text.push_str(&format!("{total}\n"));
        Ok(text)
    }
}

/// The two weights, 0 for none.
fn bws(change: &Change) -> [u64; 2] {
    [change.old_bw, change.new_bw].map(|bw| bw.unwrap_or(0))
}

/// A relay's line.
fn line(change: &Change) -> String {
    let shown = |bw: Option<u64>| bw.map_or("-".to_owned(), |bw| bw.to_string());
    let moved = match (change.old_bw, change.new_bw) {
        (Some(_), None) => Some("gone".to_owned()),
        (old, new) => percent(old.unwrap_or(0), new.unwrap_or(0)),
    };
    format!(
        "{} {:>10} {:>10} {:>10}  {}",
        change.fingerprint,
        shown(change.old_bw),
        shown(change.new_bw),
        moved.unwrap_or_else(|| "new".to_owned()),
        change.nickname.as_deref().unwrap_or("").escape_debug()
    )
}

/// The change in percent; `None` if the old value is 0.
#[expect(clippy::cast_precision_loss, reason = "weights lie far below 2^53")]
fn percent(old: u64, new: u64) -> Option<String> {
    (old > 0).then(|| format!("{:+.1} %", (new as f64 / old as f64 - 1.0) * 100.0))
}
