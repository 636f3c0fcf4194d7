//! `v3bw write`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ff_plan::outcome::Outcome;
use ff_plan::publish::scaling::ScalingComparison;
use ff_plan::publish::v3bw::{Decisions, Publication};
use ff_plan::publish::{self, Prepared, PublishRules, Published, Refused, Shelf, results, view};
use ff_store::Store;
use serde_json::{Value, json};

use crate::cli::WriteArgs;
use crate::run::documents;

/// Carries the command out.
///
/// # Errors
/// When something cannot be read or written, or there is nothing to publish. A broken limit is not
/// an error, but gives an exit status and a sentence on standard error.
pub(super) fn run(args: &WriteArgs) -> Result<ExitCode> {
    let rules =
        PublishRules { force: args.force.iter().copied().collect(), ..PublishRules::default() };
    let mut publication = publication(args)?;
    let outcomes = match &args.store {
        Some(store) => stored(store, &rules, &mut publication)?,
        None => results::read::outcomes(&args.results)?,
    };
    if !args.dry_run {
        fs::create_dir_all(&args.out)
            .with_context(|| format!("Failed to make the directory {}", args.out.display()))?;
    }
    let shelf = Shelf::open(&args.out)?;
    let previous_total = shelf.last().map_or(0, |last| last.reading.total_kilobytes());
    let scaling = scaling(args, &shelf, &rules, &outcomes, &publication)?;
    let prepared = publish::prepare(&shelf, &rules, &outcomes, publication.clone())?;
    let written = if args.dry_run || !prepared.broken.is_empty() {
        None
    } else {
        Some(publish::publish(&args.out, &rules, &outcomes, publication)?)
    };
    let prepared = written.as_ref().map_or(&prepared, |published| &published.prepared);
    ff_measurer::console::print(&if args.json {
        format!("{}\n", object(prepared, written.as_ref(), previous_total, scaling.as_ref())?)
    } else {
        text(prepared, written.as_ref(), previous_total, scaling.as_ref())
    })?;
    if prepared.broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    ff_measurer::console::note(&format!("ff-bwauth: {}", Refused::Limits(prepared.broken.clone())));
    Ok(ExitCode::FAILURE)
}

/// Reads the store's results of the days that count, and adds its data to the documents'.
fn stored(
    path: &Path,
    rules: &PublishRules,
    publication: &mut Publication,
) -> Result<Vec<Outcome>> {
    let reader = Store::open_read_only(path)?;
    publication.max_age_secs = rules.max_age_secs;
    reader.complete(publication)?;
    let now = publication.now_unix_secs;
    Ok(reader.outcomes(now.saturating_sub(rules.max_age_secs)..now.saturating_add(1))?)
}

/// The data of the documents.
fn publication(args: &WriteArgs) -> Result<Publication> {
    let consensus = documents::consensus(&args.consensus)?;
    let described = documents::descriptors(&args.descriptors, &consensus)?;
    if consensus.valid_after_unix_secs().is_none() {
        bail!("{}: valid-after cannot be read", args.consensus.display());
    }
    let now = args.now.unwrap_or_else(ff_base::utc::now_unix_secs);
    let dirauth_nickname = args.dirauth_nickname.clone();
    let groups = view::groups(&view::relays(&consensus, &described), args.families);
    Ok(Publication { dirauth_nickname, groups, ..view::publication(&consensus, &described, now) })
}

/// The weights by another formula, if one is chosen.
fn scaling(
    args: &WriteArgs,
    shelf: &Shelf,
    rules: &PublishRules,
    outcomes: &[Outcome],
    publication: &Publication,
) -> Result<Option<ScalingComparison>> {
    let Some(formula) = args.scaling.formula() else { return Ok(None) };
    let publication = publish::beside(shelf.last(), rules, publication.clone());
    Ok(Some(ScalingComparison::of(formula, &Decisions::of(outcomes, &publication)?)))
}

/// The sum of a file's numbers.
fn total(prepared: &Prepared) -> u64 {
    prepared.file.relays().iter().map(|line| u64::from(line.bw_kilobytes().get())).sum()
}

/// The report of the written file, as text.
fn text(
    prepared: &Prepared,
    written: Option<&Published>,
    previous_total: u64,
    scaling: Option<&ScalingComparison>,
) -> String {
    let mut text = scaling.map(ScalingComparison::to_string).unwrap_or_default();
    let file = &prepared.file;
    let held = file.relays().iter().filter(|line| line.held.is_some()).count();
    let votes =
        if file.is_under_minimum() { ": too few, so authorities do not vote with it" } else { "" };
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:>10}  {value}");
    };
    let all = file.header().consensus_relays;
    line("relays", format!("{} of the consensus' {all}{votes}", file.relays().len()));
    line("no result", format!("{} relays were tried", file.unmeasured().len()));
    line("total", format!("{} kB/s, previously {previous_total} kB/s", total(prepared)));
    line(
        "moved",
        format!("{} relays by more than the limit, {held} of them wait", prepared.moved.len()),
    );
    for broken in &prepared.overridden {
        line("overridden", broken.to_string());
    }
    for broken in &prepared.broken {
        line("refused", broken.to_string());
    }
    match written {
        Some(published) => line("file", published.path.display().to_string()),
        None => line("file", "none written".to_owned()),
    }
    text
}

/// The report as JSON.
fn object(
    prepared: &Prepared,
    written: Option<&Published>,
    previous_total: u64,
    scaling: Option<&ScalingComparison>,
) -> Result<Value> {
    let file = &prepared.file;
    let held = file.relays().iter().filter(|line| line.held.is_some()).count();
    let scaling = serde_json::to_value(scaling).context("Failed to make the JSON")?;
    let path = |path: &std::path::Path| path.display().to_string();
    Ok(json!({
        "file": written.map(|published| path(&published.path)),
        "relays": file.relays().len(),
        "unmeasured_relays": file.unmeasured().len(),
        "consensus_relays": file.header().consensus_relays,
        "is_voted": !file.is_under_minimum(),
        "total_bw": total(prepared),
        "previous_total_bw": previous_total,
        "held_relays": held,
        "moved": prepared.moved,
        "broken": prepared.broken,
        "overridden": prepared.overridden,
        "deleted": written.map(|published| {
            published.deleted.iter().map(|name| path(name)).collect::<Vec<_>>()
        }),
        "scaling": scaling,
    }))
}
