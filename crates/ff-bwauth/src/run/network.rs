//! The command `network`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ff_base::files::{Readers, write_atomically};
use ff_base::utc::Utc;
use ff_live::{DirectoryClient, Documents, LiveConfig, runtime};
use ff_measurer::config::not_readable;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::cli::NetworkArgs;

/// The part of a config that this command reads; other tables are ignored.
#[derive(Deserialize)]
struct ConfigFile {
    /// The network, and the directory of its documents.
    network: LiveConfig,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    /// Why the documents could not be updated, if so.
    error: Option<String>,
    /// The documents, if there are any.
    documents: Option<Summary>,
    /// The files that were written.
    files: Vec<PathBuf>,
}

/// Documents in numbers.
#[derive(Serialize)]
struct Summary {
    /// When the consensus became valid.
    valid_after: String,
    /// The consensus's age.
    age_secs: u64,
    /// Whether a newer consensus is not expected yet.
    is_fresh: bool,
    /// Whether the consensus is no longer valid.
    is_stale: bool,
    /// The source of the consensus.
    from: String,
    /// Relays in the consensus.
    relays: usize,
    /// Number of their descriptors.
    descriptors: usize,
    /// Number of their microdescriptors.
    microdescriptors: usize,
    /// Bytes of all documents.
    bytes: usize,
    /// Problems while fetching.
    problems: Vec<String>,
}

/// Carries the command out. The exit status is 1 when the documents could not be brought up to
/// date.
///
/// # Errors
/// When nothing can be fetched or written at all.
pub(super) async fn run(args: &NetworkArgs) -> Result<ExitCode> {
    let runtime = runtime().context("Failed to start a runtime")?;
    let mut client = DirectoryClient::new(runtime, &config(args)?)?;
    let deadline = Instant::now() + Duration::from_secs(args.deadline.into());
    let (documents, error) = match client.refresh(deadline).await {
        Ok(documents) => (Some(documents), None),
        Err(error) => (client.last().await?, Some(error.to_string())),
    };
    let mut files = Vec::new();
    if let (Some(dir), Some(documents)) = (&args.out, &documents) {
        write(dir, documents, &mut files)?;
    }
    let is_good = error.is_none();
    let report = Report { error, documents: documents.as_ref().map(Summary::new), files };
    let text = if args.json {
        format!("{}\n", serde_json::to_string(&report).context("Failed to make the JSON")?)
    } else {
        report.text()
    };
    ff_measurer::console::print(&text)?;
    if let Some(error) = &report.error {
        ff_measurer::console::note(&format!("ff-bwauth: {error}"));
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The config that the options describe.
fn config(args: &NetworkArgs) -> Result<LiveConfig> {
    let Some(path) = &args.config else {
        let tor = LiveConfig::tor(&args.cache);
        return Ok(LiveConfig { private_network: args.private_network.clone(), ..tor });
    };
    let text =
        fs::read_to_string(path).with_context(|| format!("Failed to read {}", path.display()))?;
    let mut file: ConfigFile =
        toml::from_str(&text).map_err(|error| not_readable(path, &text, &error))?;
    file.network.make_absolute(path.parent().unwrap_or(Path::new(".")));
    Ok(file.network)
}

/// Writes the documents; notes each file.
fn write(dir: &Path, documents: &Documents, files: &mut Vec<PathBuf>) -> Result<()> {
    fs::create_dir_all(dir)
        .with_context(|| format!("Failed to make the directory {}", dir.display()))?;
    let mut write = |name: &str, text: &str| -> Result<()> {
        let path = dir.join(name);
        write_atomically(&path, text.as_bytes(), Readers::Everybody)?;
        files.push(path);
        Ok(())
    };
    write("consensus", &documents.consensus)?;
    if let Some(consensus) = &documents.microdesc_consensus {
        write("consensus-microdesc", consensus)?;
    }
    write("descriptors", &documents.descriptors_text())?;
    write("microdescriptors", &documents.microdescriptors_text())
}

impl Summary {
    /// The numbers of these documents.
    fn new(documents: &Documents) -> Self {
        let now = SystemTime::now();
        let valid_after = Utc::from_unix_secs(documents.valid_after_secs);
        let pieces = documents.descriptors.iter().chain(&documents.microdescriptors);
        let consensuses = [Some(&documents.consensus), documents.microdesc_consensus.as_ref()];
        let bytes = pieces.chain(consensuses.into_iter().flatten()).map(|text| text.len()).sum();
        Self {
            valid_after: valid_after
                .map_or_else(|error| error.to_string(), |time| time.to_string()),
            age_secs: documents.age_secs(now),
            is_fresh: documents.is_fresh(now),
            is_stale: documents.is_stale(now),
            from: documents.from.clone(),
            relays: documents.relays,
            descriptors: documents.descriptors.len(),
            microdescriptors: documents.microdescriptors.len(),
            bytes,
            problems: documents.problems.clone(),
        }
    }
}

impl Report {
    /// The report as text.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:>16}  {value}");
        };
        let Some(documents) = &self.documents else {
            row("consensus", "none".to_owned());
            return text;
        };
        let state = match (documents.is_fresh, documents.is_stale) {
            (true, _) => "fresh",
            (false, false) => "valid",
            (false, true) => "no longer valid",
        };
        let Summary { valid_after, age_secs, from, .. } = documents;
        row("consensus", format!("{valid_after} UTC, {age_secs} s ago, {state}, from {from}"));
        row("relays", documents.relays.to_string());
        row("descriptors", documents.descriptors.to_string());
        row("microdescriptors", documents.microdescriptors.to_string());
        row("bytes", documents.bytes.to_string());
        documents.problems.iter().for_each(|problem| row("problem", problem.clone()));
        self.files.iter().for_each(|file| row("file", file.display().to_string()));
        text
    }
}
