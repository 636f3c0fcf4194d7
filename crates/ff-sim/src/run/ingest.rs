//! The command `ingest`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ff_archives::spare::give_back_what_is_large;
use ff_archives::store::gaps::Between;
use ff_archives::store::ingest::{self, Done};
use ff_archives::store::month::Month;
use ff_archives::store::place::ArchiveStore;
use ff_archives::store::plan::{Documents, IngestPlan, Shard};
use ff_report::markup::Visible;
use ff_report::progress::ProgressLine;
use ff_report::skipped::left_out;
use serde::Serialize;

use super::{Reading, Table, rows, tell_drawn};
use crate::cli::store::{IngestArgs, SpanArgs};

/// Runs `ingest`.
///
/// # Errors
/// If the store is not a store of this program, or a file cannot be read or written.
pub(super) fn ingest(args: &IngestArgs) -> Result<ExitCode> {
    give_back_what_is_large();
    let store = ArchiveStore::create(&args.store)?;
    let done = take(&store, &args.collector, &args.span, args.shard)?;
    // Hours missing in one of several shares may be in the others: `merge` lists the missing ones.
    let between = if args.shard.is_some() { Between::NotKnown } else { Between::Missing };
    ingest::write_errors(&store, between)?;
    let mut reading = Reading::default();
    for one in &done {
        reading.inputs.read(&store.manifest_path(one.documents, one.month))?;
    }
    reading.skips = ingest::skips_of(&done, between);
    let before = ingest::hours_missing_before(&done, between);
    let found: Vec<Ingested> =
        done.iter().zip(before).map(|(done, before)| Ingested::of(done, before)).collect();
    let was_there = done.iter().filter(|one| one.was_there).count();
    let sum = |of: fn(&Ingested) -> u64| found.iter().map(of).sum::<u64>().to_string();
    let text = rows(&[
        ("months of documents", done.len().to_string()),
        ("already stored", was_there.to_string()),
        ("documents", sum(|one| one.read)),
        ("left out", sum(|one| one.left_out)),
        ("duplicates", sum(|one| one.duplicates)),
        ("lines left out", sum(|one| one.lines_left_out)),
        ("hours missing", sum(|one| one.missing_before_hours + one.missing_hours)),
        ("gaps", reading.skips.missing.len().to_string()),
        ("rows", sum(|one| one.rows)),
        ("megabytes", sum(|one| one.bytes / 1_000_000)),
    ]);
    let tables = [table(&found)];
    tell_drawn("ingest", &args.out, &reading, None, &found, &text, &tables, Vec::new)?;
    Ok(reading.status(args.strict))
}

/// Reads a folder of archives into a store.
///
/// # Errors
/// If a file cannot be read or written, or the folder has no known archives.
pub(super) fn take(
    store: &ArchiveStore,
    collector: &Path,
    span: &SpanArgs,
    shard: Option<Shard>,
) -> Result<Vec<Done>> {
    let mut plan = IngestPlan::of(collector)?;
    if let Some((first, packing)) = plan.packed.first() {
        note!(
            "ff-sim: skipped files not compressed with xz: {}; the first is compressed with {}: {} (decompress it with {})",
            plan.packed.len(),
            packing.name(),
            Visible(first),
            packing.command()
        );
    }
    anyhow::ensure!(
        !plan.units.is_empty(),
        "{} has no consensuses, server descriptors or bandwidth files: \
         give a folder of CollecTor's archives, such as consensuses-2020-02.tar.xz",
        collector.display()
    );
    if let Some(first) = plan.passed_over.first() {
        note!("ff-sim: skipped files of other kinds: {}, such as {first}", plan.passed_over.len());
    }
    plan.keep(span.since, span.until, shard);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.context("Failed to get the time: the clock is before 1970")?.as_secs();
    let progress = ProgressLine::of("ff-sim");
    Ok(ingest::ingest(store, &plan.units, span.jobs.into(), now, &progress)?)
}

/// The results for a month's documents of one kind.
#[derive(Serialize)]
struct Ingested {
    documents: Documents,
    month: Month,
    /// Whether they were in the store before.
    was_there: bool,
    /// The number of files from which they were read.
    files: u64,
    /// The number of documents that were read.
    read: u64,
    /// The number of documents that were left out.
    left_out: u64,
    /// The number of these that were duplicates.
    duplicates: u64,
    /// The number of lines left out of documents that were read.
    lines_left_out: u64,
    /// Missing hours between the last one of an earlier month and the first one of this month.
    missing_before_hours: u64,
    /// Missing hours between the first and the last one of this month.
    missing_hours: u64,
    /// The number of rows in all tables.
    rows: u64,
    /// Their size on disk, in bytes.
    bytes: u64,
}

impl Ingested {
    /// A unit, with the number of missing hours before it.
    fn of(done: &Done, missing_before_hours: u64) -> Self {
        let manifest = &done.manifest;
        Self {
            documents: done.documents,
            month: done.month,
            was_there: done.was_there,
            files: manifest.sources.len() as u64,
            read: manifest.read,
            left_out: left_out(&manifest.skipped).saturating_sub(manifest.lines_left_out),
            duplicates: manifest.duplicates,
            lines_left_out: manifest.lines_left_out,
            missing_before_hours,
            missing_hours: manifest.missing_hours,
            rows: manifest.parts.iter().map(|part| part.rows).sum(),
            bytes: manifest.parts.iter().map(|part| part.bytes).sum(),
        }
    }
}

/// Months as a table.
fn table(found: &[Ingested]) -> Table {
    let header = &[
        "documents",
        "month",
        "was_there",
        "files",
        "documents_read",
        "documents_left_out",
        "documents_twice",
        "lines_left_out",
        "missing_before_hours",
        "missing_hours",
        "rows",
        "size_bytes",
    ];
    let row = |one: &Ingested| {
        let mut row = vec![one.documents.name().to_owned(), one.month.to_string()];
        row.push(u8::from(one.was_there).to_string());
        let counts = [one.files, one.read, one.left_out, one.duplicates, one.lines_left_out];
        let hours = [one.missing_before_hours, one.missing_hours];
        let counts = counts.into_iter().chain(hours).chain([one.rows, one.bytes]);
        row.extend(counts.map(|count| count.to_string()));
        row
    };
    ("months.csv", header, found.iter().map(row).collect())
}
