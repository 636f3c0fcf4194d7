//! The entries of a tar.
//!
//! The `tar` crate reads headers and contents; long names are read here, because the crate would
//! read names of any length into memory.

use std::io::{self, Read};

use ff_report::skipped::cut;
use tar::{Archive, Entry, PaxExtensions};

use super::hand_over::{Buffers, HandOver};
use super::{MOST_BYTES, TOO_LONG};

/// The greatest length of a name.
const MOST_NAME_BYTES: usize = 1 << 12;
/// The greatest size of an entry with a long name, such as a pax header.
const MOST_HEADER_BYTES: u64 = 1 << 16;
/// The most bytes read after an archive's end: tars are padded to blocks of 10 KiB or more.
const MOST_BEHIND: u64 = 64 << 20;

/// A reader that records whether its end was reached.
struct Watched<R> {
    inner: R,
    is_at_end: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(to)?;
        self.is_at_end |= len == 0 && !to.is_empty();
        Ok(len)
    }
}

/// The result of reading a tar, and the remaining buffers.
pub(super) type Ended = (io::Result<()>, Buffers);

/// Reads a tar, and hands over its entries.
pub(super) fn hand_over(from: impl Read, mut to: HandOver) -> Ended {
    let result = read(from, &mut to);
    // Entries before an error are kept.
    (to.flush().and(result), to.end())
}

/// Reads a tar, and hands over its entries.
fn read(from: impl Read, to: &mut HandOver) -> io::Result<()> {
    let mut archive = Archive::new(Watched { inner: from, is_at_end: false });
    let mut long_name = None;
    for entry in archive.entries()?.raw(true) {
        read_entry(entry?, &mut long_name, to)?;
    }
    let mut behind = archive.into_inner();
    if behind.is_at_end {
        return Err(io::Error::other("the archive has no end: it may be truncated"));
    }
    // The bytes after an archive's end are read to verify the checksums of the packing.
    io::copy(&mut behind.inner.by_ref().take(MOST_BEHIND), &mut io::sink())?;
    Ok(())
}

/// Reads an entry, or the name of the next one.
fn read_entry(
    mut entry: Entry<'_, impl Read>,
    long_name: &mut Option<Vec<u8>>,
    to: &mut HandOver,
) -> io::Result<()> {
    let kind = entry.header().entry_type();
    if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
        let bytes = read_name(&mut entry)?;
        let name = if kind.is_gnu_longname() { Some(bytes) } else { pax_path(&bytes) };
        *long_name = name.or_else(|| long_name.take());
        return Ok(());
    }
    if kind.is_gnu_longlink() || kind.is_pax_global_extensions() {
        return Ok(());
    }
    let name = long_name.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
    let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default());
    if kind.is_dir() {
        return Ok(());
    }
    let wrong = match () {
        () if name.len() > MOST_NAME_BYTES => Some("its name has more than 4096 bytes"),
        () if !is_sound(&name) => Some("its name leads out of the archive, or is empty"),
        () if !(kind.is_file() || kind.is_contiguous()) => Some("it is not a file"),
        () if entry.size() > MOST_BYTES as u64 => Some(TOO_LONG),
        () => None,
    };
    let mut name = name.into_owned();
    match wrong {
        Some(wrong) => {
            // Thousands of names may be listed.
            cut(&mut name);
            to.skip(name, wrong)
        }
        None => {
            let size = usize::try_from(entry.size()).unwrap_or(MOST_BYTES).min(MOST_BYTES);
            to.content(name, size, &mut entry)
        }
    }
}

/// A long name, or an extended header that contains one.
fn read_name(entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<u8>> {
    if entry.size() > MOST_HEADER_BYTES {
        return Err(io::Error::other("the name of an entry is longer than names can be"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path in a pax header, if it has one.
fn pax_path(bytes: &[u8]) -> Option<Vec<u8>> {
    let path = |extension: tar::PaxExtension<'_>| {
        (extension.key_bytes() == b"path").then(|| extension.value_bytes().to_vec())
    };
    PaxExtensions::new(bytes).filter_map(Result::ok).filter_map(path).last()
}

/// Whether an entry's name stays within its archive.
fn is_sound(name: &str) -> bool {
    let is_odd = |part: &str| part == ".." || part.contains(['\\', char::REPLACEMENT_CHARACTER]);
    !name.is_empty() && !name.starts_with('/') && !name.split('/').any(is_odd)
}
