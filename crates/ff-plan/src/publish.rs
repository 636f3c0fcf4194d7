//! Published results: the results files of a measurement, and the bandwidth file that authorities
//! vote with.
//!
//! ```text
//!   Outcomes ─────────────▶ v3bw::Decisions ─▶ BandwidthFile ─▶ limits ─▶ shelf: the file, then the link
//!   consensus,     ┐            │  what stands of the draws, what days come to, together
//!   descriptors ─▶ view         └─▶ trace: how a number came about, or why there is none
//!   the last file ─▶ what was voted for
//! ```
//!
//! [`publish`] does all of it; [`prepare`] all except writing. Everything before the limits is
//! computation only.

use std::path::{Path, PathBuf};

pub mod days;
pub mod limits;
pub mod results;
pub mod scaling;
pub mod shelf;
pub mod shift;
pub mod together;
pub mod trace;
pub mod v3bw;
pub mod view;

pub use limits::{Broken, Limit, Moved, PublishRules};
pub use shelf::{LATEST, Last, Shelf, ShelfError};
pub use shift::Shift;

use crate::outcome::Outcome;
use ff_base::files::FileError;
use v3bw::{BandwidthFile, InvalidFile, Publication};

/// A published file.
#[derive(Debug)]
pub struct Published {
    /// The file's path.
    pub path: PathBuf,
    /// The prepared file.
    pub prepared: Prepared,
    /// Old files that were deleted, by name.
    pub deleted: Vec<PathBuf>,
}

/// A file as it would be published.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The file.
    pub file: BandwidthFile,
    /// Relays that have moved by more than the factor since the last file.
    pub moved: Vec<Moved>,
    /// Limits that the file breaks and that were overridden.
    pub overridden: Vec<Broken>,
    /// Limits that the file breaks and that were not overridden, so that it is refused.
    pub broken: Vec<Broken>,
    /// The change of weights from the file that authorities vote with now, if there is one.
    pub since_last: Option<Shift>,
    /// The change of weights from the consensus.
    pub from_consensus: Option<Shift>,
}

/// Why nothing was published; the previous file stays the latest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Limits are broken.
    #[error("the bandwidth file is refused: {}", sentences(_0))]
    Limits(Vec<Broken>),
    /// A rule is not valid.
    #[error(transparent)]
    Rules(#[from] limits::BadRule),
    /// The result would not be a valid bandwidth file.
    #[error("cannot write a bandwidth file: {0}")]
    Invalid(#[from] InvalidFile),
    /// The directory has a file of other software, or cannot be read or written.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// The directory cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Broken limits in one line.
fn sentences(broken: &[Broken]) -> String {
    broken.iter().map(Broken::to_string).collect::<Vec<_>>().join("; ")
}

/// Publishes results.
///
/// # Errors
/// [`Refused`]; the previous file then stays the latest.
pub fn publish(
    dir: &Path,
    rules: &PublishRules,
    outcomes: &[Outcome],
    publication: Publication,
) -> Result<Published, Refused> {
    let shelf = Shelf::open(dir)?;
    let now = publication.now_unix_secs;
    let prepared = prepare(&shelf, rules, outcomes, publication)?;
    if !prepared.broken.is_empty() {
        return Err(Refused::Limits(prepared.broken));
    }
    let path = shelf.place(&prepared.file)?;
    // The new file is published: an old one that cannot be deleted is tried again with the next.
    let deleted = shelf.prune(now, rules.keep_days).unwrap_or_default();
    Ok(Published { path, prepared, deleted })
}

/// Makes the file that would be published, and checks its limits.
///
/// # Errors
/// [`Refused::Invalid`] when there is nothing to publish.
pub fn prepare(
    shelf: &Shelf,
    rules: &PublishRules,
    outcomes: &[Outcome],
    publication: Publication,
) -> Result<Prepared, Refused> {
    rules.check()?;
    let publication = beside(shelf.last(), rules, publication);
    let file = BandwidthFile::from_outcomes(outcomes, &publication)?;
    let moved = limits::moved(&file, &publication.previous, rules.max_relay_factor);
    let (overridden, broken) = limits::broken(&file, &publication, shelf.last(), rules)
        .into_iter()
        .partition(|broken| rules.force.contains(&broken.limit));
    let since_last = Shift::since(&publication.previous, &file);
    let from_consensus = Shift::from_consensus(&file);
    Ok(Prepared { file, moved, overridden, broken, since_last, from_consensus })
}

/// The inputs of a file, with the last file's.
#[must_use]
pub fn beside(last: Option<&Last>, rules: &PublishRules, publication: Publication) -> Publication {
    let is_held = !rules.force.contains(&Limit::RelayFactor);
    Publication {
        previous: last.map(Last::votes).unwrap_or_default(),
        hold_above: Some(rules.max_relay_factor).filter(|_| is_held),
        max_age_secs: rules.max_age_secs,
        ..publication
    }
}
