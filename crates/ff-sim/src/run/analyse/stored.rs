//! `analyse` for the hours of a store, and for archives.

use std::path::Path;

use anyhow::{Context, Result};
use ff_archives::network::Flags;
use ff_archives::store::gaps::Between;
use ff_archives::store::history::History;
use ff_archives::store::ingest;
use ff_archives::store::place::ArchiveStore;
use ff_report::progress::ProgressLine;

use super::errors::{Beside, report};
use super::{by, new_relays};
use crate::analysis::engine::{Engine, EngineSettings};
use crate::analysis::new_relays::NewRelays;
use crate::cli::{AnalyseArgs, By};
use crate::run::Reading;

/// Analyses archives by means of a temporary store.
pub(super) fn collector(dir: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let temporary = tempfile::tempdir().context("Failed to make a temporary folder for a store")?;
    let store = ArchiveStore::create(&temporary.path().join("store"))?;
    let done = crate::run::ingest::take(&store, dir, &args.stored.span, None)?;
    reading.skips.extend(ingest::skips_of(&done, Between::Missing));
    history(&store, args, reading)
}

/// Analyses all hours of a store.
pub(super) fn history(
    store: &ArchiveStore,
    args: &AnalyseArgs,
    reading: &mut Reading,
) -> Result<()> {
    by::check(&args.by, "a store", &[By::Flag, By::Family, By::Version, By::Age])?;
    let span = &args.stored.span;
    let mut history = History::new(store, span.since, span.until, args.stored.allow_mixed)?;
    for manifest in history.manifests() {
        reading.inputs.read(&manifest)?;
    }
    let windows = args.windows.0.clone();
    let (step_secs, least_share) = (args.gap_hours() * 3600, args.least_share);
    let mut engine = Engine::new(EngineSettings { windows, step_secs, from: None, least_share });
    let (mut new, window) = (NewRelays::default(), new_relays::window(&args.windows.0));
    let progress = ProgressLine::of("ff-sim");
    let mut times = 0_u64;
    history.each(|time, now| {
        times += 1;
        progress.say(|| format!("{times} hours analysed"));
        let step = engine.push(time, now).context("Failed to analyse an hour of the store")?;
        new.push(step, window, now);
        anyhow::Ok(())
    })?;
    anyhow::ensure!(times > 0, "{} has no consensus that lists descriptors", store.dir().display());
    anyhow::ensure!(
        history.joined() > 0,
        "its consensuses list no descriptor in {}; --allow-mixed uses other descriptors of the same relays",
        store.dir().display()
    );
    let outcome = engine.finish();
    let has_families = args.by.contains(&By::Family);
    let families = if has_families { history.families()? } else { Vec::new() };
    let label = |by, relay: u32| {
        let label = history.labels().get(relay as usize)?;
        match by {
            By::Flag => Some(Flags::from(label.flags).position().name().to_owned()),
            By::Version if label.series.is_empty() => Some("not known".to_owned()),
            By::Version => Some(label.series.clone()),
            By::Family => {
                let first =
                    families.get(relay as usize).and_then(|&first| history.relays().get(first));
                first.map(hex::encode_upper)
            }
            By::Age | By::Country => None,
        }
    };
    let groups = by::of_outcome(&outcome, &args.by, label);
    let is_overloaded = |relay: u32| history.labels().get(relay as usize)?.is_overloaded();
    let beside = Beside {
        relays: history.relays(),
        groups,
        new: &new,
        is_overloaded: Ok(&is_overloaded),
        without_weights: "its consensuses have no weights",
    };
    report(&outcome, beside, args, reading)
}
