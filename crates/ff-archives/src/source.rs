//! Reads networks from files of any supported kind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ff_dir::DocumentError;
use ff_report::input::{InputError, Inputs};
use ff_report::skipped::Skips;

use crate::network::{CapacitySource, Network};
use crate::read::archive::{self, Document, FileDocument};
use crate::read::consensus::Consensus;
use crate::read::consensus::scan;
use crate::read::descriptor::{Descriptors, join};
use crate::read::{january, relayinfo, shadow, span};
use crate::store::month::Month;
use crate::store::place::ArchiveStore;
use crate::store::plan::Documents;
use crate::store::{ArchiveStoreError, hour};

/// The start of a table of an experiment's relays.
const TABLE: &[u8] = b"name,position,";

/// The names of tables of relays in the folder of an experiment.
const TABLES: [&str; 2] = ["relays.csv", "relays.csv.xz"];

/// The greatest number of networks named by one path.
const MOST_NUMBERED: u32 = 1000;

/// The start of the table of January 2019.
const JANUARY: &[u8] = b"position,address,";

/// Why a file is not a network.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The hour of a store cannot be read.
    #[error(transparent)]
    Store(#[from] ArchiveStoreError),
    /// The content is of another kind, or invalid.
    #[error("{path}: {reason}")]
    Content {
        /// The file.
        path: String,
        /// The error, with its line.
        reason: String,
    },
}

/// Reads the network in a file or in an hour of a store, and its omissions.
///
/// # Errors
/// [`SourceError`] names the file.
pub fn network(path: &Path, inputs: &mut Inputs) -> Result<(Network, Skips), SourceError> {
    if let Some((dir, time)) = stored(path) {
        return Ok((stored_network(&dir, &time, inputs)?, Skips::default()));
    }
    if path.is_dir() {
        return network(&table_of(path)?, inputs);
    }
    let mut cut = Skips::default();
    let bytes = inputs.read_so_far(path, &mut cut)?;
    let name = path.display().to_string();
    let bad =
        |reason: String| SourceError::Content { path: name.clone(), reason: reason + &why(&cut) };
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    let (network, mut skips) = if is_json {
        relayinfo::parse(&name, &*bytes)
    } else if bytes.starts_with(TABLE) {
        let mut skips = Skips::default();
        let network = shadow::parse_network(&name, &bytes, &mut skips);
        (network.map_err(|error| bad(format!("{error:#}")))?, skips)
    } else if bytes.starts_with(JANUARY) {
        let mut skips = Skips::default();
        (january::relays(&name, &bytes, &mut skips), skips)
    } else {
        let consensus = read_consensus(&bytes).map_err(bad)?;
        let read = consensus.relays.len() as u64;
        (consensus.to_network(), Skips { read, ..Skips::default() })
    };
    if network.relays.is_empty() {
        let first = skips.all.first().map(|one| one.reason.clone());
        return Err(bad(first.unwrap_or_else(|| "it has no relays".to_owned())));
    }
    if !cut.all.is_empty() {
        // In JSON the truncation was already listed as an error; relays that are left out are
        // entries.
        skips.all.retain(|one| !is_json || one.entry.is_some());
        skips.extend(cut);
    }
    Ok((network, skips))
}

/// Expands a path: `networks/01..07` and `networks/01..07/relays.csv` are seven paths, every other
/// path is one.
///
/// # Errors
/// [`SourceError::Content`] if the numbers do not increase, or are too many.
pub fn numbered(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let parts: Vec<_> = path.components().collect();
    let range = parts.iter().enumerate().find_map(|(at, part)| {
        let (first, last) = part.as_os_str().to_str()?.split_once("..")?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().ok()).flatten()
        };
        Some((at, first.len(), number(first)?, number(last)?))
    });
    let Some((at, width, first, last)) = range else { return Ok(vec![path.to_owned()]) };
    if last < first || last - first >= MOST_NUMBERED {
        let reason = format!("its numbers must rise, and be at most {MOST_NUMBERED}");
        return Err(SourceError::Content { path: path.display().to_string(), reason });
    }
    let one = |number: u32| {
        let parts = parts.iter().enumerate();
        let name = |(place, part): (usize, &std::path::Component<'_>)| {
            if place == at {
                format!("{number:0width$}").into()
            } else {
                part.as_os_str().to_owned()
            }
        };
        parts.map(name).collect()
    };
    Ok((first..=last).map(one).collect())
}

/// The table of relays in the folder of an experiment.
fn table_of(dir: &Path) -> Result<PathBuf, SourceError> {
    let all = TABLES.map(|name| dir.join(name));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| SourceError::Content {
        path: dir.display().to_string(),
        reason: format!(
            "it is a folder without {}: give a file in it, or a store and an hour",
            TABLES[0]
        ),
    })
}

/// Reads a network as [`network()`] does; with descriptors, the network of a consensus with data
/// from relays' descriptors.
///
/// # Errors
/// [`SourceError`] names the file; descriptors can be joined only with a consensus of the flavour
/// ns, and at least one must be listed there.
pub fn described(
    path: &Path,
    descriptors: Option<&Path>,
    inputs: &mut Inputs,
) -> Result<(Network, Skips), SourceError> {
    let Some(from) = descriptors else { return network(path, inputs) };
    let bad = |path: &Path, reason: String| SourceError::Content {
        path: path.display().to_string(),
        reason,
    };
    let consensus = read_consensus(&inputs.read(path)?);
    let consensus = consensus.map_err(|error| {
        bad(path, format!("--descriptors needs a consensus, and this is none: {error}"))
    })?;
    let (descriptors, mut skips) = read_descriptors(from, inputs)?;
    let network = join(&consensus, &descriptors);
    if network.relays.iter().all(|relay| relay.capacity.is_none()) {
        let reason = format!(
            "none of its {} descriptors is listed in {} by its digest",
            descriptors.all.len(),
            path.display()
        );
        return Err(bad(from, reason));
    }
    skips.read += consensus.relays.len() as u64;
    Ok((network, skips))
}

/// Parses a consensus that is not in the future, or returns the error.
fn read_consensus(bytes: &[u8]) -> Result<Consensus, String> {
    let consensus = Consensus::parse(bytes).map_err(|error| error.to_string())?;
    let wrong = span::wrong(consensus.valid_after_unix_secs);
    wrong.map_or(Ok(consensus), |why| Err(format!("its time, valid-after, {why}")))
}

/// The message for a truncated file.
fn why(cut: &Skips) -> String {
    cut.all.first().map(|one| format!("; {}", one.reason)).unwrap_or_default()
}

/// Reads the descriptors in a file, an archive or a folder.
fn read_descriptors(from: &Path, inputs: &mut Inputs) -> Result<(Descriptors, Skips), SourceError> {
    let (mut descriptors, mut skips) = (Descriptors::default(), Skips::default());
    let mut files = BTreeSet::new();
    let walked = archive::walk(from, &mut skips, |document: Document<'_>| {
        if !files.contains(document.file) {
            files.insert(document.file.to_owned());
        }
        let before = descriptors.all.len();
        descriptors.add_one(FileDocument { first_line: 1, bytes: document.bytes })?;
        let wrong = descriptors.all.last().and_then(|one| span::wrong(one.published_unix_secs));
        let wrong = wrong.filter(|_| descriptors.all.len() > before);
        wrong.map_or(Ok(()), |why| {
            descriptors.all.truncate(before);
            Err(DocumentError { line: 1, reason: format!("its time of publication {why}") })
        })
    });
    walked.map_err(|source| InputError::Read { path: from.to_owned(), source })?;
    for file in files {
        inputs.note(Path::new(&file))?;
    }
    Ok((descriptors, skips))
}

/// The store and the first and last hour, in seconds since 1970, in
/// `DIR@2019-01-07T00:00..2019-01-07T23:00`; `None` if the path is a file, or its folder is not a
/// store.
///
/// # Errors
/// [`SourceError`] if the times are not hours.
pub fn stored_hours(path: &Path) -> Result<Option<(ArchiveStore, u64, u64)>, SourceError> {
    let Some((dir, span)) = stored(path) else { return Ok(None) };
    let hours = span.split_once("..").and_then(|(from, to)| unix_secs(from).zip(unix_secs(to)));
    let (from, to) = hours.filter(|(from, to)| from <= to).ok_or_else(|| SourceError::Content {
        path: path.display().to_string(),
        reason: "give hours in the form @2019-01-07T00:00..2019-01-07T23:00".to_owned(),
    })?;
    Ok(Some((ArchiveStore::open(&dir)?, from, to)))
}

/// The store and the time in `DIR@2019-01-07T12:00`; `None` if the path is a file, or its folder is
/// not a store.
fn stored(path: &Path) -> Option<(PathBuf, String)> {
    let (dir, time) = path.to_str()?.rsplit_once('@')?;
    let dir = PathBuf::from(dir);
    (!path.exists() && ArchiveStore::is_at(&dir)).then(|| (dir, time.to_owned()))
}

/// Reads the network in an hour of a store.
fn stored_network(dir: &Path, time: &str, inputs: &mut Inputs) -> Result<Network, SourceError> {
    let bad = |reason: &str| SourceError::Content {
        path: format!("{}@{time}", dir.display()),
        reason: reason.to_owned(),
    };
    let unix_secs =
        unix_secs(time).ok_or_else(|| bad("give an hour in the form @2019-01-07T12:00"))?;
    let store = ArchiveStore::open(dir)?;
    let network = hour::network(&store, unix_secs)?;
    let month = Month::of(unix_secs).ok_or_else(|| bad("it is before 2007"))?;
    let manifests = [
        (Documents::Consensuses, month),
        (Documents::Descriptors, month.before()),
        (Documents::Descriptors, month),
    ];
    for (documents, month) in manifests {
        let path = store.manifest_path(documents, month);
        if path.is_file() {
            inputs.read(&path)?;
        }
    }
    if network.relays.is_empty() {
        return Err(bad("it has no relays"));
    }
    let is_described = network.relays.iter().any(|relay| relay.capacity.is_some());
    if network.capacities == CapacitySource::Observed && !is_described {
        let reason = format!(
            "none of its {} relays has a descriptor in the store: those of {} and {month} are needed, and others are \
             not joined",
            network.relays.len(),
            month.before()
        );
        return Err(bad(&reason));
    }
    Ok(network)
}

/// Parses a time in UTC: `2019-01-07T12:00`, optionally with seconds and `Z`. Returns seconds since
/// 1970.
fn unix_secs(time: &str) -> Option<u64> {
    let time = time.strip_suffix('Z').unwrap_or(time).replacen('T', " ", 1);
    let secs = if time.len() == 16 { ":00" } else { "" };
    scan::time(format!("{time}{secs}").as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_mean_networks_one_by_one() {
        let names = |path: &str| -> Vec<String> {
            let all = numbered(Path::new(path)).expect(path);
            all.iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("a/08..11"), ["a/08", "a/09", "a/10", "a/11"]);
        assert_eq!(names("../1..2/relays-1.2.csv"), ["../1/relays-1.2.csv", "../2/relays-1.2.csv"]);
        for one in ["a/01", "../a", "a..b", "1..", "store@2019-01-07T12:00", "/a/x1..2"] {
            assert_eq!(names(one), [one]);
        }
        for odd in ["a/7..1", "a/0..1000", "a/1..4000000000"] {
            let error = numbered(Path::new(odd)).expect_err(odd).to_string();
            assert!(error.starts_with(odd) && error.contains("rise"), "{error}");
        }
    }

    #[test]
    fn a_folder_of_an_experiment_is_its_table() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut inputs = Inputs::default();
        let error = network(dir.path(), &mut inputs).expect_err("it is empty").to_string();
        assert!(error.contains("a folder without relays.csv"), "{error}");
        let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
        let table = dir.path().join("relays.csv.xz");
        std::fs::copy(sample.join("flow-relays-01.csv.xz"), &table).expect("copied");
        let (found, _) = network(dir.path(), &mut inputs).expect("a network");
        assert_eq!((found.relays.len(), inputs.all().len()), (649, 1));
        assert_eq!(inputs.all()[0].path, table.display().to_string());
    }
}
