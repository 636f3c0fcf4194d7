//! Merges the stores of several machines.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::ArchiveStoreError;
use super::manifest::{self, Manifest};
use super::month::Month;
use super::place::{self, ArchiveStore};
use super::plan::Documents;
use super::schema::Table;

/// A month that was added to a store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Merged {
    /// The kind of documents.
    pub documents: Documents,
    /// The month.
    pub month: Month,
    /// The store that it came from.
    pub from: PathBuf,
}

/// Adds the content of stores to another one, by hard links where possible and otherwise as copies.
///
/// # Errors
/// [`ArchiveStoreError::Contradiction`] if two stores have different data of the same month;
/// nothing has been written then. A partition that disagrees with its manifest is an error, too.
pub fn merge(from: &[ArchiveStore], to: &ArchiveStore) -> Result<Vec<Merged>, ArchiveStoreError> {
    let mut all: Vec<(Documents, Month, &ArchiveStore, Manifest)> = Vec::new();
    for store in std::iter::once(to).chain(from) {
        for documents in Documents::ALL {
            for month in store.months(documents)? {
                let Some(manifest) = store.manifest(documents, month)? else { continue };
                let same = all.iter().find(|one| (one.0, one.1) == (documents, month));
                match same {
                    None => all.push((documents, month, store, manifest)),
                    Some(one) if one.3 == manifest => {}
                    Some(one) => {
                        return Err(ArchiveStoreError::Contradiction {
                            one: one.2.manifest_path(documents, month),
                            other: store.manifest_path(documents, month),
                        });
                    }
                }
            }
        }
    }
    all.retain(|one| one.2.dir() != to.dir());
    for (documents, month, store, manifest) in &all {
        check(store, *documents, *month, manifest)?;
    }
    let mut merged = Vec::new();
    for (documents, month, store, manifest) in all {
        take(store, to, documents, month, &manifest)?;
        merged.push(Merged { documents, month, from: store.dir().to_owned() });
    }
    merged.sort_by_key(|one| (one.month, one.documents));
    Ok(merged)
}

/// Checks that partitions agree with their manifest.
fn check(
    store: &ArchiveStore,
    documents: Documents,
    month: Month,
    manifest: &Manifest,
) -> Result<(), ArchiveStoreError> {
    let is_named = manifest.documents == documents.name() && manifest.month == month;
    let names = || manifest.parts.iter().map(|part| part.table.as_str());
    if !is_named || !names().eq(documents.tables().iter().map(|table| table.name)) {
        let path = store.manifest_path(documents, month);
        return Err(ArchiveStoreError::broken(&path, "it is a manifest of other documents"));
    }
    for (table, part) in documents.tables().iter().zip(&manifest.parts) {
        let path = store.part(table, month);
        if manifest::hash(&path)? != (part.bytes, part.sha256.clone()) {
            return Err(ArchiveStoreError::broken(&path, "it differs from its manifest"));
        }
    }
    Ok(())
}

/// Adds a month, its manifest last.
fn take(
    from: &ArchiveStore,
    to: &ArchiveStore,
    documents: Documents,
    month: Month,
    manifest: &Manifest,
) -> Result<(), ArchiveStoreError> {
    let _lock = to.lock(documents, month)?;
    for table in documents.tables() {
        link(&from.part(table, month), to, table, month)?;
    }
    let path = to.manifest_path(documents, month);
    let dir = path.parent().unwrap_or(to.dir());
    fs::create_dir_all(dir).map_err(ArchiveStoreError::io(dir, "created"))?;
    let beside = place::beside(&path);
    let name = beside.file_name().unwrap_or_default().to_string_lossy();
    place::write_json(&path, &name, manifest)
}

/// Links a partition into a store, or copies it.
fn link(
    from: &Path,
    to: &ArchiveStore,
    table: &Table,
    month: Month,
) -> Result<(), ArchiveStoreError> {
    let path = to.part(table, month);
    let dir = path.parent().unwrap_or(to.dir());
    fs::create_dir_all(dir).map_err(ArchiveStoreError::io(dir, "created"))?;
    let beside = place::beside(&path);
    // A killed run may have left this file.
    let _ = fs::remove_file(&beside);
    if fs::hard_link(from, &beside).is_err() {
        let copied = fs::copy(from, &beside).and_then(|_| fs::File::open(&beside)?.sync_all());
        if let Err(error) = copied {
            let _ = fs::remove_file(&beside);
            return Err(ArchiveStoreError::io(&path, "written")(error));
        }
    }
    place::put_in_place(&beside, &path)
}
