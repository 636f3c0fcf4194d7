//! Reads a folder of archives into a store.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ff_report::progress::ProgressLine;
use ff_report::skipped::Skips;

use super::error::ArchiveStoreError;
use super::fill::{Bounds, Filled, fill};
use super::gaps::{Between, Gaps};
use super::manifest::{self, Manifest, Part, SourceFile};
use super::month::Month;
use super::partition::Partition;
use super::place::{self, ArchiveStore};
use super::plan::{Documents, Unit};
use crate::read::archive::{self, Document};

/// A unit that is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The kind of documents.
    pub documents: Documents,
    /// The month.
    pub month: Month,
    /// Whether it was in the store before.
    pub was_there: bool,
    /// The manifest of the unit.
    pub manifest: Manifest,
}

/// Reads units into a store, several at once, each completely or not at all. A unit that was
/// already read from the same files is left unchanged. The results are in the order of the units.
///
/// `now` is the time in seconds since 1970; documents in the future are left out.
///
/// # Errors
/// The first [`ArchiveStoreError`]: units finished before it are kept, and no other unit is begun.
pub fn ingest(
    store: &ArchiveStore,
    units: &[Unit],
    jobs: usize,
    now: u64,
    progress: &ProgressLine,
) -> Result<Vec<Done>, ArchiveStoreError> {
    let (queue, stop) = (Mutex::new(units.iter().enumerate()), AtomicBool::new(false));
    let next = || {
        let is_stopped = stop.load(Ordering::Relaxed);
        queue.lock().ok().filter(|_| !is_stopped)?.next()
    };
    let work = || {
        let mut done = Vec::new();
        while let Some((index, unit)) = next() {
            let result = ingest_unit(store, unit, now, progress);
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((index, result));
        }
        done
    };
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (1..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Reads a unit into the store.
fn ingest_unit(
    store: &ArchiveStore,
    unit: &Unit,
    now: u64,
    progress: &ProgressLine,
) -> Result<Done, ArchiveStoreError> {
    let _lock = store.lock(unit.documents, unit.month)?;
    let sources = unit.sources.iter().map(|source| {
        let (bytes, sha256) = manifest::hash(&source.path)?;
        Ok(SourceFile { path: source.name.clone(), bytes, sha256 })
    });
    let sources = sources.collect::<Result<Vec<_>, ArchiveStoreError>>()?;
    let done = |manifest, was_there| Done {
        documents: unit.documents,
        month: unit.month,
        was_there,
        manifest,
    };
    // An unreadable manifest is replaced; one with another schema is not ours to replace.
    let before = match store.manifest(unit.documents, unit.month) {
        Err(ArchiveStoreError::Broken { .. }) => None,
        before => before?,
    };
    if let Some(manifest) = before.filter(|manifest| is_there(store, unit, &sources, manifest)) {
        return Ok(done(manifest, true));
    }
    let read = read(store, unit, now, progress);
    let written = read.and_then(|(filled, skips)| commit(store, unit, sources, filled, skips));
    if written.is_err() {
        for table in unit.documents.tables() {
            // On a full disk they would waste space; if they cannot be removed, they are replaced
            // later.
            let _ = fs::remove_file(place::beside(&store.part(table, unit.month)));
        }
    }
    Ok(done(written?, false))
}

/// Whether a unit was already read from these files.
fn is_there(
    store: &ArchiveStore,
    unit: &Unit,
    sources: &[SourceFile],
    manifest: &Manifest,
) -> bool {
    let has_part = |table: &&super::schema::Table| {
        let part = manifest.parts.iter().find(|part| part.table == table.name);
        part.is_some_and(|part| manifest::has_len(&store.part(table, unit.month), part.bytes))
    };
    manifest.sources == sources && unit.documents.tables().iter().all(has_part)
}

/// Reads a unit's documents into partitions under temporary names.
fn read(
    store: &ArchiveStore,
    unit: &Unit,
    now: u64,
    progress: &ProgressLine,
) -> Result<(Filled, Skips), ArchiveStoreError> {
    let mut parts = Vec::new();
    for table in unit.documents.tables() {
        let path = store.part(table, unit.month);
        let dir = path.parent().unwrap_or(store.dir());
        fs::create_dir_all(dir).map_err(ArchiveStoreError::io(dir, "created"))?;
        parts.push(Partition::create(&place::beside(&path), table)?);
    }
    let bounds = Bounds { month: unit.month, now };
    let mut lines_left_out = 0;
    let broken = || ArchiveStoreError::broken(store.dir(), "a table is missing");
    let mut fill = fill(unit.documents, bounds, parts).ok_or_else(broken)?;
    let (mut skips, mut documents) = (Skips::default(), 0_u64);
    for source in &unit.sources {
        let (mut found, mut lines) = (Skips::default(), Skips::default());
        let walked = archive::walk(&source.path, &mut found, |document: Document<'_>| {
            documents += 1;
            progress.say(|| {
                format!("{} of {}: {documents} documents", unit.documents.name(), unit.month)
            });
            fill.take(Document { file: &source.name, ..document })?;
            for error in fill.left_out() {
                let line = document.first_line.saturating_add(error.line).saturating_sub(1);
                lines.add("", document.entry, Some(line), error.reason);
            }
            Ok(())
        });
        walked.map_err(ArchiveStoreError::io(&source.path, "read"))?;
        lines_left_out += lines.left_out();
        for mut found in [found, lines] {
            // In the store, files have their paths within their folder, wherever that is.
            found.all.iter_mut().for_each(|one| one.file.clone_from(&source.name));
            skips.extend(found);
        }
    }
    let mut filled = fill.finish()?;
    filled.counts.lines_left_out = lines_left_out;
    filled.counts.read = skips.read.saturating_sub(filled.counts.passed_over);
    Ok((filled, skips))
}

/// Renames partitions to their final names, and then writes the manifest.
fn commit(
    store: &ArchiveStore,
    unit: &Unit,
    sources: Vec<SourceFile>,
    filled: Filled,
    skips: Skips,
) -> Result<Manifest, ArchiveStoreError> {
    let part = |(table, written): &(&super::schema::Table, super::partition::Written)| Part {
        table: table.name.to_owned(),
        rows: written.rows,
        bytes: written.bytes,
        sha256: written.sha256.clone(),
    };
    let parts: Vec<Part> = filled.parts.iter().map(part).collect();
    let unit_name = (unit.documents.name(), unit.month);
    let manifest = Manifest::new(unit_name, sources, parts, filled.counts, skips.all);
    let manifest_path = store.manifest_path(unit.documents, unit.month);
    let dir = manifest_path.parent().unwrap_or(store.dir());
    fs::create_dir_all(dir).map_err(ArchiveStoreError::io(dir, "created"))?;
    // From here on until the new manifest is written, no manifest claims that the partitions belong
    // together.
    remove(&manifest_path)?;
    for (table, _) in &filled.parts {
        let path = store.part(table, unit.month);
        place::put_in_place(&place::beside(&path), &path)?;
    }
    place::write_json(&manifest_path, &beside_name(&manifest_path), &manifest)?;
    Ok(manifest)
}

/// Removes a file, if it exists, and syncs that to disk.
fn remove(path: &PathBuf) -> Result<(), ArchiveStoreError> {
    match fs::remove_file(path) {
        Ok(()) => place::sync_folder_of(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(ArchiveStoreError::io(path, "removed")(error)),
    }
}

/// The temporary name of a file.
fn beside_name(path: &std::path::Path) -> String {
    place::beside(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The omissions in these months of a store, both included, or in all months, in the order of kinds
/// and months, with the number of documents read and the missing hours.
///
/// # Errors
/// [`ArchiveStoreError`] if a manifest cannot be read.
pub fn skips(
    store: &ArchiveStore,
    since: Option<Month>,
    until: Option<Month>,
) -> Result<Skips, ArchiveStoreError> {
    skips_between(store, Between::Missing, since, until)
}

/// The same for a store that may have only some of the months.
fn skips_between(
    store: &ArchiveStore,
    between: Between,
    since: Option<Month>,
    until: Option<Month>,
) -> Result<Skips, ArchiveStoreError> {
    let is_wanted = |month: &Month| {
        since.is_none_or(|since| since <= *month) && until.is_none_or(|until| *month <= until)
    };
    let (mut all, mut gaps) = (Skips::default(), Gaps::new(between));
    for documents in Documents::ALL {
        for month in store.months(documents)?.into_iter().filter(is_wanted) {
            let Some(manifest) = store.manifest(documents, month)? else { continue };
            gaps.add(&manifest);
            all.read += manifest.read + manifest.lines;
            all.extend(Skips { all: manifest.skipped, ..Skips::default() });
        }
    }
    all.missing = gaps.into_list();
    Ok(all)
}

/// Writes `errors.csv` with all omissions of a store.
///
/// # Errors
/// [`ArchiveStoreError`] if a file cannot be read or written.
pub fn write_errors(store: &ArchiveStore, between: Between) -> Result<(), ArchiveStoreError> {
    let path = store.dir().join("errors.csv");
    let mut bytes = Vec::new();
    let skips = skips_between(store, between, None, None)?;
    skips.write_csv(&mut bytes).map_err(ArchiveStoreError::io(&path, "written"))?;
    place::write_whole(&path, &format!(".store-errors-{}.tmp", std::process::id()), &bytes)
}

/// The omissions in units, with the number of documents read and the missing hours.
#[must_use]
pub fn skips_of(done: &[Done], between: Between) -> Skips {
    let mut all = Skips::default();
    let lists = done.iter().map(|one| one.manifest.skipped.clone());
    lists.for_each(|list| all.extend(Skips { all: list, ..Skips::default() }));
    let mut by_month: Vec<&Manifest> = done.iter().map(|one| &one.manifest).collect();
    by_month.sort_by_key(|manifest| manifest.month);
    let mut gaps = Gaps::new(between);
    for manifest in by_month {
        gaps.add(manifest);
    }
    all.read = done.iter().map(|one| one.manifest.read + one.manifest.lines).sum();
    all.missing = gaps.into_list();
    all
}

/// For each unit, the number of missing hours between the last one of an earlier month and its
/// first one.
#[must_use]
pub fn hours_missing_before(done: &[Done], between: Between) -> Vec<u64> {
    let mut by_month: Vec<(usize, &Manifest)> =
        done.iter().enumerate().map(|(at, one)| (at, &one.manifest)).collect();
    by_month.sort_by_key(|(_, manifest)| manifest.month);
    let (mut gaps, mut hours) = (Gaps::new(between), vec![0; done.len()]);
    for (at, manifest) in by_month {
        hours[at] = gaps.add(manifest);
    }
    hours
}
