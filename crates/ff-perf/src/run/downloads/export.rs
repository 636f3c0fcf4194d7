//! The command `downloads export`.
//!
//! Days are written one at a time. While inputs are read, downloads are kept in one file per day,
//! in a temporary folder below `--out`: 300,000 of them would take gigabytes of memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ff_circuits::onionperf::day::{self, Maker};
use ff_circuits::read::downloads::{DownloadRecord, DownloadRecords};
use ff_circuits::record::CircuitRecord;
use ff_report::input::Inputs;
use tempfile::TempDir;

use crate::cli::downloads::ExportArgs;
use crate::run::output::show;

/// Runs the command.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create the folder {}", args.out.display()))?;
    let mut days = Days::new(args)?;
    let read = DownloadRecords::each(&args.paths, &mut Inputs::default(), |all| days.add(all))?;
    ensure!(
        !days.counts.is_empty() || days.undated > 0,
        "the inputs have no downloads: give files with downloads"
    );
    let mut text = String::new();
    let address = args.address.map(|address| address.to_string());
    let maker = Maker { host: &args.host, address: address.as_deref() };
    for day in days.counts.keys() {
        let files = day::files(&days.of(*day)?, maker)?;
        day::write(&args.out, &files)?;
        for file in &files {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", args.out.join(&file.name).display());
        }
    }
    let damaged = read.damaged.count;
    if damaged > 0 {
        let _ = writeln!(text, "{damaged} records could not be read and were left out");
    }
    if days.undated > 0 {
        let count = days.undated;
        let _ = writeln!(
            text,
            "{count} downloads did not begin between the years 1970 and 9999 and were left out"
        );
    }
    show(&text)
}

/// Downloads by the day on which they began, as lines in files.
struct Days {
    /// Folder of the files.
    dir: TempDir,
    /// Number of downloads per day of UTC, counted since 1970.
    counts: BTreeMap<u64, usize>,
    /// Downloads without a day.
    undated: u64,
}

impl Days {
    fn new(args: &ExportArgs) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix(".export-").tempdir_in(&args.out);
        let dir =
            dir.with_context(|| format!("cannot write to the folder {}", args.out.display()))?;
        Ok(Self { dir, counts: BTreeMap::new(), undated: 0 })
    }

    /// Adds the downloads of a file.
    fn add(&mut self, all: Vec<DownloadRecord>) -> Result<()> {
        let mut lines = BTreeMap::<u64, Vec<u8>>::new();
        for DownloadRecord { circuit, .. } in all {
            let Some(day) = day::day_of(&circuit) else {
                self.undated += 1;
                continue;
            };
            *self.counts.entry(day).or_default() += 1;
            let into = lines.entry(day).or_default();
            serde_json::to_writer(&mut *into, &circuit).context("Failed to encode a download")?;
            into.push(b'\n');
        }
        for (day, lines) in lines {
            let path = self.dir.path().join(day.to_string());
            let file = OpenOptions::new().create(true).append(true).open(&path);
            file.and_then(|mut file| file.write_all(&lines))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Downloads of a day, in the order of their requests.
    fn of(&self, day: u64) -> Result<Vec<CircuitRecord>> {
        let path = self.dir.path().join(day.to_string());
        let failed = || format!("cannot read {}", path.display());
        let file = BufReader::new(File::open(&path).with_context(failed)?);
        let mut all = Vec::with_capacity(self.counts.get(&day).copied().unwrap_or_default());
        for line in file.lines() {
            let line = line.with_context(failed)?;
            all.push(serde_json::from_str::<CircuitRecord>(&line).with_context(failed)?);
        }
        all.sort_by_key(CircuitRecord::asked_unix_us);
        Ok(all)
    }
}
