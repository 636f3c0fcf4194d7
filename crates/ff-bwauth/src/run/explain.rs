//! The command `explain`.
//!
//! A relay's number depends on all others: on the median, on relays that had its addresses, and on
//! the times in which most had no value. So the command reads the counted values of all attempts of
//! a month. With ten thousand relays these are 300,000 rows, which take SQLite alone 0.2 s. A
//! relay's page, which shows the same, has them in memory and takes a tenth of that.

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Result, anyhow, bail};
use ff_base::identity::Fingerprint;
use ff_base::utc::now_unix_secs;
use ff_dir::consensus::Consensus;
use ff_measurer::console::{note, print};
use ff_plan::publish::{PublishRules, Shelf};
use ff_store::{Known, Reader, Store, StoreError};

use crate::cli::ExplainArgs;
use crate::config::Config;
use crate::watch::documents::{self, Descriptions, publication_around};
use crate::watch::explain::{Explanation, fingerprint};
use crate::watch::search::Search;

/// The most relays of one name that are listed.
const MOST: usize = 20;

/// Carries the command out.
///
/// # Errors
/// When the store, the documents or the last file cannot be read, or when the name fits several
/// relays.
pub(super) fn run(options: &ExplainArgs) -> Result<ExitCode> {
    let config = Config::load(&options.config)?;
    let now = now_unix_secs();
    let rules = PublishRules {
        max_relay_factor: config.publish.max_relay_factor,
        ..PublishRules::default()
    };
    let max_age_secs = rules.max_age_secs;
    // Each of the three takes a while with ten thousand relays.
    let (consensus, store, descriptions) = thread::scope(|scope| {
        let consensus = scope.spawn(|| documents::consensus(&config.network));
        let store = scope.spawn(|| {
            let reader = Store::open_read_only(&config.store())?;
            let memory = reader.memory(now, max_age_secs)?;
            Ok::<_, StoreError>((reader, memory))
        });
        let descriptions = Descriptions::read(&config.network);
        let consensus = consensus.join().unwrap_or_else(|_| Err("reading it failed".to_owned()));
        (consensus, store.join(), descriptions)
    });
    let consensus = consensus.map_err(|error| anyhow!("the last consensus: {error}"))?;
    // Without descriptors, operators' limits and families are missing; the rest can be explained.
    let without = |error: &String| note(&format!("ff-bwauth: without descriptors: {error}"));
    let descriptions = descriptions.inspect_err(without).ok();
    let (reader, memory) = store.map_err(|_| anyhow!("reading the store failed"))??;
    let relay = find(&options.relay, &consensus, &reader)?;
    let shelf = shelf(&config.publish_dir);
    let last = shelf.as_ref().and_then(Shelf::last);
    let beside = memory.beside(&relay);
    let network = publication_around(&consensus, descriptions.as_ref(), &beside, &relay, now);
    let explanation = Explanation::of(&reader, &memory, &network, &rules, last, &relay)?;
    print(&if options.json {
        format!("{}\n", serde_json::to_string(&explanation)?)
    } else {
        explanation.to_string()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The directory of bandwidth files, if it can be read.
fn shelf(dir: &Path) -> Option<Shelf> {
    if !dir.is_dir() {
        return None;
    }
    Shelf::open(dir)
        .map_err(|error| note(&format!("ff-bwauth: without the last bandwidth file: {error}")))
        .ok()
}

/// The relay with this fingerprint or nickname, otherwise the result of a [`Search`] in the store's
/// relays.
fn find(text: &str, consensus: &Consensus, reader: &Reader) -> Result<Fingerprint> {
    if let Some(relay) = fingerprint(text) {
        return Ok(relay);
    }
    let named = consensus.relays.iter().filter(|relay| relay.nickname.eq_ignore_ascii_case(text));
    let mut found: Vec<_> =
        named.map(|relay| (relay.fingerprint, Some(relay.nickname.clone()))).collect();
    if found.is_empty() && !text.trim().is_empty() {
        let search = Search::new(text);
        let is_found = |known: &Known| {
            let nickname = known.nickname.as_deref().unwrap_or_default().to_lowercase();
            search.finds(&known.fingerprint, &nickname)
        };
        let known = reader.known()?.into_iter().filter(is_found);
        found.extend(known.map(|known| (known.fingerprint, known.nickname)));
    }
    match &found[..] {
        [(relay, _)] => Ok(*relay),
        [] => bail!(
            "no relay in the consensus or the store matches {text:?}: give the beginning of a \
             fingerprint, or a part of a nickname"
        ),
        many => {
            let line = |(relay, name): &(Fingerprint, Option<String>)| {
                let name = name.as_deref().unwrap_or("-").escape_debug().to_string();
                format!("\n  {} {name}", hex::encode_upper(relay))
            };
            let lines: String = many.iter().take(MOST).map(line).collect();
            bail!("{} relays match {text:?}; give a whole fingerprint:{lines}", many.len())
        }
    }
}
