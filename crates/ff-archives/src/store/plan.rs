//! Finds the archives in a folder: for each kind of documents and each month, the files with these
//! documents.
//!
//! Kind and month come from names as used by CollecTor: `consensuses-2019-01.tar.xz`,
//! `server-descriptors-2019-01.tar.xz`, `recent/consensuses/2019-01-07-12-00-00-consensus`. If a
//! name is not recognised, the file's first document decides. Files of other kinds are skipped.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ff_base::text::{Packing, unix};
use ff_report::input::unpack;
use serde::Serialize;

use super::error::ArchiveStoreError;
use super::month::Month;
use super::schema::{
    BANDWIDTH_FILES, BANDWIDTH_LINES, CONSENSUS_RELAYS, CONSENSUSES, DESCRIPTORS, Table,
};
use crate::read::consensus::scan;

/// The number of bytes examined of a file with an unrecognised name.
const HEAD_BYTES: u64 = 1 << 16;

/// Kinds of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Documents {
    /// Consensuses of either flavour.
    Consensuses,
    /// Server descriptors.
    Descriptors,
    /// Bandwidth files.
    BandwidthFiles,
}

impl Documents {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Consensuses, Self::Descriptors, Self::BandwidthFiles];

    /// The name in file names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consensuses => "consensuses",
            Self::Descriptors => "descriptors",
            Self::BandwidthFiles => "bandwidth_files",
        }
    }

    /// The tables for these documents.
    #[must_use]
    pub fn tables(self) -> &'static [&'static Table] {
        match self {
            Self::Consensuses => &[&CONSENSUSES, &CONSENSUS_RELAYS],
            Self::Descriptors => &[&DESCRIPTORS],
            Self::BandwidthFiles => &[&BANDWIDTH_FILES, &BANDWIDTH_LINES],
        }
    }
}

/// A file with documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The path within the folder of archives, with `/` as separator.
    pub name: String,
}

/// A unit of work, which is done completely or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The kind of documents.
    pub documents: Documents,
    /// The month.
    pub month: Month,
    /// The files with these documents, sorted by name.
    pub sources: Vec<ArchiveFile>,
}

/// The units of work in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngestPlan {
    /// Sorted by month, then by kind.
    pub units: Vec<Unit>,
    /// The names of files without such documents.
    pub passed_over: Vec<String>,
    /// Files of unknown content in an unsupported packing.
    pub packed: Vec<(String, Packing)>,
}

/// A share of the months: the I-th of N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the share, from 1.
    index: u32,
    /// The number of shares.
    count: u32,
}

impl Shard {
    /// Whether a month is in the share.
    #[must_use]
    pub const fn has(self, month: Month) -> bool {
        month.number() % self.count == self.index - 1
    }
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| scan::number(digits.as_bytes())?.try_into().ok();
        let both = text.split_once('/').and_then(|(i, n)| Some((number(i)?, number(n)?)));
        let (index, count) = both.ok_or("give I/N, such as 1/3")?;
        if index == 0 || index > count {
            return Err("I of I/N must be from 1 to N");
        }
        Ok(Self { index, count })
    }
}

impl IngestPlan {
    /// Searches a folder and its subfolders for archives.
    ///
    /// # Errors
    /// [`ArchiveStoreError`] if a folder or a file cannot be read.
    pub fn of(dir: &Path) -> Result<Self, ArchiveStoreError> {
        let mut files = Vec::new();
        find(dir, "", &mut files)?;
        files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut plan = Self::default();
        for source in files {
            match classify(&source)? {
                Found::Documents(documents, month) => plan.add(documents, month, source),
                Found::Packed(packing) => plan.packed.push((source.name, packing)),
                Found::Other => plan.passed_over.push(source.name),
            }
        }
        plan.units.sort_by_key(|unit| (unit.month, unit.documents));
        Ok(plan)
    }

    fn add(&mut self, documents: Documents, month: Month, source: ArchiveFile) {
        let is_it = |unit: &&mut Unit| (unit.documents, unit.month) == (documents, month);
        match self.units.iter_mut().find(is_it) {
            Some(unit) => unit.sources.push(source),
            None => self.units.push(Unit { documents, month, sources: vec![source] }),
        }
    }

    /// Keeps only months within these bounds, both included, and in the share.
    pub fn keep(&mut self, since: Option<Month>, until: Option<Month>, shard: Option<Shard>) {
        self.units.retain(|unit| {
            since.is_none_or(|since| since <= unit.month)
                && until.is_none_or(|until| unit.month <= until)
                && shard.is_none_or(|shard| shard.has(unit.month))
        });
    }
}

/// Lists the files in a folder; links to folders are not followed, because they might lead back to
/// a parent.
fn find(dir: &Path, name: &str, files: &mut Vec<ArchiveFile>) -> Result<(), ArchiveStoreError> {
    for entry in fs::read_dir(dir).map_err(ArchiveStoreError::io(dir, "read"))? {
        let entry = entry.map_err(ArchiveStoreError::io(dir, "read"))?;
        let (path, own) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let name = if name.is_empty() { own } else { format!("{name}/{own}") };
        let kind = entry.file_type().map_err(ArchiveStoreError::io(&path, "read"))?;
        if kind.is_dir() {
            find(&path, &name, files)?;
        } else if path.is_file() {
            files.push(ArchiveFile { path, name });
        }
    }
    Ok(())
}

/// The content of a file.
enum Found {
    Documents(Documents, Month),
    /// An unsupported packing.
    Packed(Packing),
    /// Other content.
    Other,
}

/// The content of a file, by its name or its first document.
fn classify(source: &ArchiveFile) -> Result<Found, ArchiveStoreError> {
    let by_name = kind_by_name(&source.name);
    if by_name == Some(None) {
        return Ok(Found::Other);
    }
    let (kind, month) = (by_name.flatten(), Month::within(&source.name));
    if let (Some(kind), Some(month)) = (kind, month) {
        return Ok(Found::Documents(kind, month));
    }
    let head = head(&source.path)?;
    if let Some(packing) = Packing::of(&head) {
        return Ok(Found::Packed(packing));
    }
    let found = look(&unix(&head));
    let kind = kind.or_else(|| found.map(|(kind, _)| kind));
    let month = month.or_else(|| found.and_then(|(_, secs)| Month::of(secs)));
    Ok(kind.zip(month).map_or(Found::Other, |(kind, month)| Found::Documents(kind, month)))
}

/// The kind of documents by a file's name: `Some(None)` for kinds that are not read, `None` if the
/// name is not recognised.
fn kind_by_name(name: &str) -> Option<Option<Documents>> {
    const NAMES: [(&str, Option<Documents>); 14] = [
        (".csv", None),
        (".json", None),
        (".md", None),
        (".html", None),
        ("extra-info", None),
        ("votes", None),
        ("-vote-", None),
        ("torperf", None),
        ("exit-list", None),
        ("bridge", None),
        ("server-descriptors", Some(Documents::Descriptors)),
        ("consensus", Some(Documents::Consensuses)),
        // CollecTor stores the consensuses of that flavour among microdescriptors.
        ("microdescs", Some(Documents::Consensuses)),
        ("bandwidths-", Some(Documents::BandwidthFiles)),
    ];
    NAMES.iter().find(|(part, _)| name.contains(part)).map(|&(_, kind)| kind)
}

/// The beginning of a file, unpacked as far as possible.
fn head(path: &Path) -> Result<Vec<u8>, ArchiveStoreError> {
    let fail = || ArchiveStoreError::io(path, "read");
    let mut head = Vec::new();
    let file = File::open(path).map_err(fail())?;
    BufReader::new(file).take(HEAD_BYTES).read_to_end(&mut head).map_err(fail())?;
    if head.starts_with(b"\xfd7zXZ\0") {
        let mut unpacked = Vec::new();
        let unpacking = unpack(&*head).map_err(fail())?;
        // A truncated or broken file gives the bytes before the error.
        let _ = unpacking.take(HEAD_BYTES).read_to_end(&mut unpacked);
        head = unpacked;
    }
    if head.get(257..262) == Some(b"ustar") {
        let mut archive = tar::Archive::new(&*head);
        let entries = archive.entries().into_iter().flatten().filter_map(Result::ok);
        let mut content = Vec::new();
        for mut entry in entries.filter(|entry| entry.header().entry_type().is_file()).take(1) {
            let _ = entry.read_to_end(&mut content);
        }
        return Ok(content);
    }
    Ok(head)
}

/// The kind and the time of the first document of a file.
fn look(head: &[u8]) -> Option<(Documents, u64)> {
    let is_annotation = |line: &scan::Line<'_>| matches!(line.keyword, [] | [b'@', ..]);
    let is_of_bridges =
        |line: scan::Line<'_>| line.keyword == b"@type" && line.rest.starts_with(b"bridge-");
    if scan::Lines::of(head).take_while(is_annotation).any(is_of_bridges) {
        return None;
    }
    let mut lines = scan::Lines::of(head);
    let first = lines.by_ref().find(|line| !is_annotation(line))?;
    let (kind, keyword): (_, &[u8]) = match first.keyword {
        b"network-status-version" => (Documents::Consensuses, b"valid-after"),
        b"router" => (Documents::Descriptors, b"published"),
        digits => return Some((Documents::BandwidthFiles, scan::number(digits)?)),
    };
    let line = lines.find(|line| line.keyword == keyword)?;
    Some((kind, scan::time(line.rest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_files_are_and_else_their_first_document_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |name: &str, content: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, content).expect("written");
        };
        put("consensuses-2019-01.tar.xz", "");
        put("recent/consensuses/2019-01-07-12-00-00-consensus", "");
        put("server-descriptors-2018-12.tar.xz", "");
        put("extra-infos-2019-01.tar.xz", "");
        put("notes", "hello\n");
        fs::write(dir.path().join("notes.gz"), b"\x1f\x8b\x08\0").expect("written");
        put("20190325.v3bw", "@type bandwidth-file 1.0\n1553519349\nversion=1.4.0\n");
        put("cached", "network-status-version 3\nvalid-after 2019-02-01 00:00:00\n");
        let router = "router a 10.2.3.4 1 0 0\npublished 2019-02-02 00:00:00\n";
        put("others", &format!("@type bridge-server-descriptor 1.2\n{router}"));
        // With a byte order mark and DOS line ends.
        put("descriptors", "\u{feff}router a 1.2.3.4 1 0 0\r\npublished 2019-02-02 00:00:00\r\n");
        let mut plan = IngestPlan::of(dir.path()).expect("a plan");
        let units = |plan: &IngestPlan| -> Vec<(String, &str, usize)> {
            let unit =
                |unit: &Unit| (unit.month.to_string(), unit.documents.name(), unit.sources.len());
            plan.units.iter().map(unit).collect()
        };
        let all = [
            ("2018-12".to_owned(), "descriptors", 1),
            ("2019-01".to_owned(), "consensuses", 2),
            ("2019-02".to_owned(), "consensuses", 1),
            ("2019-02".to_owned(), "descriptors", 1),
            ("2019-03".to_owned(), "bandwidth_files", 1),
        ];
        assert_eq!(units(&plan), all);
        assert_eq!(plan.passed_over, ["extra-infos-2019-01.tar.xz", "notes", "others"]);
        assert_eq!(plan.packed, [("notes.gz".to_owned(), Packing::Gzip)]);
        let mut seen = 0;
        for shard in ["1/3", "2/3", "3/3"] {
            let mut part = plan.clone();
            part.keep(None, None, shard.parse().ok());
            assert!(part.units.len() < all.len());
            seen += part.units.len();
        }
        assert_eq!(seen, all.len(), "every month is in one shard");
        plan.keep("2019-01".parse().ok(), "2019-02".parse().ok(), None);
        assert_eq!(units(&plan), all[1..4]);
        for odd in ["0/3", "4/3", "1", "1/", "a/b", "1/0", "-1/3"] {
            odd.parse::<Shard>().expect_err(odd);
        }
    }
}
