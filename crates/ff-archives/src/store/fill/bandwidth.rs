//! Turns bandwidth files into rows, by the reader that judges them as tor does.

use std::collections::HashSet;

use ff_dir::DocumentError;
use ff_dir::bandwidth::{Reading, Severity};
use sha2::{Digest, Sha256};

use super::{Bounds, Fill, Filled, check_len, finish, wrong};
use crate::read::archive::Document;
use crate::read::consensus::MOST_BANDWIDTH;
use crate::read::consensus::scan;
use crate::store::batch::Cell;
use crate::store::error::ArchiveStoreError;
use crate::store::partition::Partition;

/// The greatest size of a bandwidth file, in bytes.
const MOST_BYTES: usize = 1 << 24;
/// The greatest size of its header, in bytes.
const MOST_HEADER_BYTES: usize = 1 << 20;
/// The greatest number of its lines.
const MOST_LINES: usize = 100_000;
/// The greatest number of files in a month.
const MOST_FILES: usize = 100_000;

/// Receives bandwidth files.
pub(super) struct Files {
    bounds: Bounds,
    /// One row per file.
    files: Partition,
    /// One row per relay line.
    lines: Partition,
    hashes: HashSet<[u8; 32]>,
    /// The number of duplicate files.
    duplicates: u64,
    /// The number of lines that were kept.
    kept: u64,
    /// Lines left out of the last file.
    left_out: Vec<DocumentError>,
}

impl Files {
    /// Before the first file.
    pub(super) fn new(bounds: Bounds, files: Partition, lines: Partition) -> Self {
        let (hashes, left_out) = (HashSet::new(), Vec::new());
        Self { bounds, files, lines, hashes, duplicates: 0, kept: 0, left_out }
    }

    /// Adds the rows of a file.
    fn add(&mut self, document: Document<'_>, hash: [u8; 32], read: &Reading) {
        let lines = || read.lines.iter().filter(|line| line.bw <= MOST_BANDWIDTH);
        let header: Vec<String> =
            read.header.iter().map(|line| format!("{}={}", line.key, line.value)).collect();
        self.files.push(&[
            Cell::Bytes(&hash),
            Cell::Int(read.unix_secs),
            read.header("version").into(),
            read.header("software").into(),
            Cell::Int(lines().count() as u64),
            header.join("\n").as_str().into(),
            document.file.into(),
            document.entry.into(),
        ]);
        self.files.end_document();
        for line in lines() {
            self.kept += 1;
            self.lines.push(&[
                Cell::Bytes(&hash),
                Cell::Int(read.unix_secs),
                Cell::Int(line.line as u64),
                Cell::Bytes(&line.fingerprint),
                Cell::Int(line.bw),
                Cell::Bool(line.votes),
                line.nickname.as_deref().into(),
            ]);
        }
        self.lines.end_document();
    }
}

impl Fill for Files {
    fn take(&mut self, document: Document<'_>) -> Result<(), DocumentError> {
        if self.files.is_lost() || self.lines.is_lost() {
            return Ok(());
        }
        check_len(document, "bandwidth file", MOST_BYTES)?;
        if memchr::memchr_iter(b'\n', document.bytes).nth(MOST_LINES).is_some() {
            return Err(wrong(format!("it has more than {MOST_LINES} lines")));
        }
        if self.hashes.len() >= MOST_FILES {
            return Err(wrong(format!("there are more than {MOST_FILES} files of this month")));
        }
        // The file is judged as of its own time: its age in a vote does not matter here.
        let mut all = scan::Lines::of(document.bytes);
        let first = all.find(|line| !line.keyword.starts_with(b"@"));
        let time = first.and_then(|line| scan::number(line.keyword)).unwrap_or(0);
        let read = Reading::of(document.bytes, time);
        let refused = read.findings.iter().find(|finding| finding.severity == Severity::Refused);
        if let Some(finding) = refused {
            return Err(DocumentError { line: finding.line, reason: finding.text.clone() });
        }
        self.bounds.check(read.unix_secs)?;
        let header_bytes: usize =
            read.header.iter().map(|line| line.key.len() + line.value.len()).sum();
        if header_bytes > MOST_HEADER_BYTES {
            return Err(wrong("its header has more than 1 MiB"));
        }
        let hash: [u8; 32] = Sha256::digest(document.bytes).into();
        if !self.hashes.insert(hash) {
            self.duplicates += 1;
            return Err(wrong("the bandwidth file is there twice: the first is kept"));
        }
        self.add(document, hash, &read);
        // Lines that authorities skip are left out, and the rest of the file is kept.
        let skipped = read.findings.iter().filter(|one| one.severity == Severity::Skipped);
        let skipped = skipped.map(|one| (one.line, one.text.as_str()));
        let above = read.lines.iter().filter(|line| line.bw > MOST_BANDWIDTH);
        let left_out = skipped.chain(above.map(|line| (line.line, "bw is above 2^53")));
        let mut left_out: Vec<(usize, &str)> = left_out.collect();
        left_out.sort_unstable();
        let list = left_out.into_iter().map(|(line, reason)| (line, reason.to_owned()));
        self.left_out = list.map(|(line, reason)| DocumentError { line, reason }).collect();
        Ok(())
    }

    fn left_out(&mut self) -> Vec<DocumentError> {
        std::mem::take(&mut self.left_out)
    }

    fn finish(self: Box<Self>) -> Result<Filled, ArchiveStoreError> {
        let mut filled = finish([self.files, self.lines])?;
        filled.counts.duplicates = self.duplicates;
        filled.counts.lines = self.kept;
        Ok(filled)
    }
}
