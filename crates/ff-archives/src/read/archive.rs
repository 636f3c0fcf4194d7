//! Reads the documents of archives and folders, without unpacking to disk.
//!
//! [`walk`] takes a `.tar.xz`, a `.tar`, an `.xz` file, a plain file, or a folder of those, and
//! passes each document to a closure, through reused buffers. The type of a file is recognised by
//! its first bytes; a tar without the magic of 1988 is recognised by its name. Byte order marks and
//! DOS line ends are removed. Files with several documents are split, see [`documents`]. Unreadable
//! input is listed in [`Skips`]: files in other packings, entries with `..`, absolute or odd names,
//! links, documents above [`MOST_BYTES`], and the unreadable rest of a broken or truncated file;
//! documents before it are kept. An entry with [`MOST_SKIPS_OF_ENTRY`] omissions is abandoned, and
//! so is a file with [`MOST_SKIPS`].

mod entries;
mod hand_over;
mod shared;
mod split;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use ff_base::text::{Packing, UnixText, refuse_packed, unix};
use ff_dir::DocumentError;
use ff_report::input::{XZ_MAGIC, unpack};
use ff_report::skipped::Skips;
use ff_report::{ahead, workers};

pub use self::shared::Shared;
pub use self::split::{DocumentSplitter, FileDocument, documents};

/// The greatest size of a document, in bytes.
pub const MOST_BYTES: usize = 64 << 20;
/// A file is abandoned after this number of omissions.
pub const MOST_SKIPS: usize = 100_000;
/// An entry of an archive is abandoned after this number of omissions.
pub const MOST_SKIPS_OF_ENTRY: usize = 10_000;
/// Bytes read from disk at once.
const READ_BYTES: usize = 1 << 16;
/// The length of a tar's blocks, in bytes.
const BLOCK: u64 = 512;

/// A document in a file or in an entry of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// The file of the document.
    pub file: &'a str,
    /// The entry, if the file is an archive.
    pub entry: Option<&'a str>,
    /// The first line of the document in the file or entry, from 1.
    pub first_line: usize,
    /// The content, including preceding annotations.
    pub bytes: &'a [u8],
    /// The same content, if it can be kept without a copy.
    pub shared: Option<&'a Shared>,
}

/// Receives documents; its error gives the line of the document that cannot be read, from 1.
pub trait Taker: FnMut(Document<'_>) -> Result<(), DocumentError> {}

impl<T: FnMut(Document<'_>) -> Result<(), DocumentError>> Taker for T {}

/// Passes on all documents of a file, or of a folder's files sorted by name, including subfolders.
///
/// # Errors
/// If there is nothing at this path; errors below it are listed.
pub fn walk(path: &Path, skips: &mut Skips, taker: impl Taker) -> io::Result<()> {
    let is_folder = fs::metadata(path)?.is_dir();
    let mut walk = Walk { taker, skips, buffer: Vec::new(), file: String::new(), skipped: 0 };
    if !is_folder {
        walk.file(path);
        return Ok(());
    }
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        // A link to a folder might lead back to a parent.
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        if !is_folder && walk.is_file(&path) {
            walk.file(&path);
        } else if is_folder {
            walk.push_sorted(&path, &mut left);
        }
    }
    Ok(())
}

/// The state of a walk.
struct Walk<'a, T> {
    /// Receives the documents.
    taker: T,
    /// The omissions.
    skips: &'a mut Skips,
    /// A reused buffer for documents.
    buffer: Vec<u8>,
    /// The file that is being read.
    file: String,
    /// The number of omissions in this file.
    skipped: usize,
}

impl<T: Taker> Walk<'_, T> {
    /// Whether the path is a file or a link to one; otherwise it is listed.
    fn is_file(&mut self, path: &Path) -> bool {
        self.file = path.display().to_string();
        self.skipped = 0;
        match fs::metadata(path) {
            Ok(found) if found.is_file() => return true,
            Ok(_) => self.skip(None, None, "it is not a file"),
            Err(error) => self.skip(None, None, error.to_string()),
        }
        false
    }

    /// Pushes the paths in a folder, the first name last, so that it is popped first.
    fn push_sorted(&mut self, folder: &Path, left: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).and_then(|entries| {
            entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()
        });
        match entries {
            Ok(mut paths) => {
                paths.sort_unstable_by(|one, other| other.cmp(one));
                left.extend(paths);
            }
            Err(error) => {
                self.skips.add(folder.display().to_string(), None, None, error.to_string())
            }
        }
    }

    fn file(&mut self, path: &Path) {
        self.file = path.display().to_string();
        self.skipped = 0;
        match self.read_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.skip(None, None, error.to_string());
            }
            Err(error) => self.skip(None, None, format!("it cannot be read further: {error}")),
        }
    }

    /// Reads a file, and unpacks it if necessary.
    fn read_file(&mut self, path: &Path) -> io::Result<()> {
        let mut file = BufReader::with_capacity(READ_BYTES, File::open(path)?);
        let head = file.fill_buf()?;
        refuse_packed(head, &[Packing::Xz])?;
        if head.starts_with(XZ_MAGIC) {
            return self.read_packed(path, file);
        }
        let (is_tar, from) = look(is_tar_by_name(path), file)?;
        if !is_tar {
            return self.read_stream(from);
        }
        let (to, take_over) = hand_over::sides();
        let done = workers::run("unpack", move || Some(entries::hand_over(from, to)))?;
        self.take_entries(&take_over, &done)
    }

    /// Reads a packed file. The unpacker uses megabytes, and memory freed by one thread is not
    /// always reusable in another: so one thread allocates, uses and frees it.
    fn read_packed(&mut self, path: &Path, file: impl Read + Send + 'static) -> io::Result<()> {
        let is_called_tar = is_tar_by_name(path);
        let ((to, take_over), (chunks, ahead)) = (hand_over::sides(), ahead::sides());
        let (tell, told) = channel();
        let work = move || {
            let (is_tar, from) = match unpack(file).and_then(|from| look(is_called_tar, from)) {
                Ok(found) => found,
                Err(error) => return tell.send(Err(error)).ok().and(None),
            };
            tell.send(Ok(is_tar)).ok()?;
            if is_tar {
                return Some(entries::hand_over(from, to));
            }
            chunks.hand_over(from);
            None
        };
        let done = workers::run("unpack", work)?;
        match told.recv().map_err(|_| cannot_unpack())?? {
            true => self.take_entries(&take_over, &done),
            false => self.read_stream(ahead.until(done)),
        }
    }

    /// Takes the entries of a tar from another thread.
    fn take_entries(
        &mut self,
        take_over: &hand_over::TakeOver,
        done: &Receiver<Option<entries::Ended>>,
    ) -> io::Result<()> {
        let mut before: Option<Arc<Vec<u8>>> = None;
        for hand_over::Entries { bytes, all } in &take_over.from {
            let whole = Arc::new(bytes);
            for hand_over::Found { name, content } in all {
                match content {
                    Ok(range) => self.content(&name, &whole, range),
                    Err(why) => self.skip(Some(&name), None, why),
                }
                self.check()?;
            }
            // The receiver may still use the last shared document.
            let (known, done) = match hand_over::is_kept(&whole) {
                true => (Some(whole), before.take()),
                false => (before.take(), Some(whole)),
            };
            before = known;
            done.into_iter().for_each(|whole| take_over.give_back(whole));
        }
        before.into_iter().for_each(|whole| take_over.give_back(whole));
        let (result, buffers) = done.recv().ok().flatten().ok_or_else(cannot_unpack)?;
        buffers.put_aside();
        result
    }

    /// Passes on the documents of an entry.
    fn content(&mut self, name: &str, whole: &Arc<Vec<u8>>, range: Range<usize>) {
        let (mut at, most) = (range.start, self.skipped.saturating_add(MOST_SKIPS_OF_ENTRY));
        let bytes = whole.get(range).unwrap_or_default();
        if let Err(error) = refuse_packed(bytes, &[]) {
            return self.skip(Some(name), None, error.to_string());
        }
        let text = unix(bytes);
        // Changed text is not in the buffer, and a long buffer is not kept because of one document
        // in it.
        let is_shared = text.len() == bytes.len() && hand_over::is_kept(whole);
        for part in documents(&text) {
            let end = at + part.bytes.len();
            let shared = is_shared.then(|| Shared::new(Arc::clone(whole), at..end));
            at = end;
            let first_line = part.first_line;
            self.take(Some(name), part, shared.as_ref());
            if self.skipped >= most {
                // The list for the entry itself may be full.
                let reason = format!("{name} is not read after line {first_line}: {TOO_MUCH}");
                return self.skip(None, None, reason);
            }
        }
    }

    /// Reads documents one after another; together they may exceed memory.
    fn read_stream(&mut self, from: impl Read) -> io::Result<()> {
        let from = BufReader::with_capacity(READ_BYTES, from);
        let mut from = BufReader::with_capacity(READ_BYTES, UnixText::new(from));
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.split_stream(&mut from, &mut buffer);
        self.buffer = buffer;
        result
    }

    /// Passes on each document as soon as the next one begins.
    fn split_stream(&mut self, from: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut begin = split::Begin::default();
        let (mut number, mut first_line, mut is_too_long, mut is_line) = (1, 1, false, true);
        buffer.clear();
        loop {
            let at = buffer.len();
            let most = (MOST_BYTES + 1).saturating_sub(at) as u64;
            if from.by_ref().take(most).read_until(b'\n', buffer)? == 0 {
                break;
            }
            let line = buffer.get(at..).unwrap_or_default();
            let ends = line.ends_with(b"\n");
            if is_line && begin.is_next(line) {
                self.stream_document(first_line, buffer.get(..at).unwrap_or_default(), is_too_long);
                buffer.drain(..at);
                (first_line, is_too_long) = (number, false);
                self.check()?;
            }
            (is_line, number) = (ends, number + usize::from(ends));
            if buffer.len() > MOST_BYTES {
                buffer.clear();
                is_too_long = true;
            }
        }
        self.stream_document(first_line, buffer, is_too_long);
        Ok(())
    }

    /// Passes on a document of a stream, unless it is too long.
    fn stream_document(&mut self, first_line: usize, bytes: &[u8], is_too_long: bool) {
        if is_too_long {
            return self.skip(None, Some(first_line), TOO_LONG);
        }
        self.take(None, FileDocument { first_line, bytes }, None);
    }

    /// Passes on a document, unless it is blank.
    fn take(&mut self, entry: Option<&str>, part: FileDocument<'_>, shared: Option<&Shared>) {
        let FileDocument { first_line, bytes } = part;
        if bytes.trim_ascii_start().is_empty() {
            return;
        }
        match (self.taker)(Document { file: &self.file, entry, first_line, bytes, shared }) {
            Ok(()) => self.skips.read += 1,
            Err(error) => {
                let line = first_line.saturating_add(error.line).saturating_sub(1);
                self.skip(entry, Some(line), error.reason);
            }
        }
    }

    /// Lists an omission in this file.
    fn skip(&mut self, entry: Option<&str>, line: Option<usize>, reason: impl Into<String>) {
        self.skipped += 1;
        self.skips.add(self.file.as_str(), entry, line, reason);
    }

    /// Abandons a file with too many omissions.
    fn check(&self) -> io::Result<()> {
        if self.skipped < MOST_SKIPS { Ok(()) } else { Err(io::Error::other(TOO_MUCH)) }
    }
}

/// The reason for leaving out a document.
const TOO_LONG: &str = "it has more than 64 MiB";
/// The reason for abandoning an entry or file.
const TOO_MUCH: &str = "too much of it is broken";

/// The error if the unpacking thread ended without a result.
fn cannot_unpack() -> io::Error {
    io::Error::other("it cannot be decompressed")
}

/// Whether the input is a tar, and a reader of the whole input. If the first block cannot be read,
/// there is nothing to keep.
fn look(is_called_tar: bool, mut from: impl Read) -> io::Result<(bool, impl Read)> {
    let mut head = Vec::new();
    from.by_ref().take(BLOCK).read_to_end(&mut head)?;
    let is_tar = is_called_tar || head.get(257..262) == Some(b"ustar");
    Ok((is_tar, Cursor::new(head).chain(from)))
}

/// Whether a file has the name of an archive.
fn is_tar_by_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    [".tar", ".tar.xz", ".txz"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests;
