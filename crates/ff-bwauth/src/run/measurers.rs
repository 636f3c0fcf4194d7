//! The command `measurers`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ff_base::utc::now_unix_secs;
use ff_measurer::console::{note, print};
use ff_measurer::{key, measurer_id};
use ff_store::{MeasurerRow, Store, StoreError};
use ff_team::RemoteMeasurer;
use ff_team::exchange::{Found, Partner, exchange};
use serde_json::json;

use crate::cli::MeasurersArgs;
use crate::config::{Config, MeasurerTable};
use crate::daemon::request;
use crate::watch::measurers::MeasurerShown;

/// Exit status: a measurer was not measured.
const NOT_ALL: u8 = 3;

/// The result of `--measure`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// Not asked for.
    Nothing,
    /// Whether all measurers have been measured.
    Measured(bool),
    /// The running coordinator will do it.
    Asked,
}

/// Carries the command out.
///
/// # Errors
/// When the config, the key or the store cannot be read.
pub(super) async fn run(options: &MeasurersArgs) -> Result<ExitCode> {
    let config = Config::load(&options.config)?;
    if let Some(name) = &options.trust {
        trust(&config, name)?;
    }
    let secs = options.duration.unwrap_or(config.exchange.duration_secs);
    let done = if options.measure { measure(&config, secs).await? } else { Done::Nothing };
    show(&config, done, options.json)?;
    Ok(if done == Done::Measured(false) { ExitCode::from(NOT_ALL) } else { ExitCode::SUCCESS })
}

/// Trusts a measurer again, or has the running coordinator do so.
fn trust(config: &Config, name: &str) -> Result<()> {
    let Some(table) = config.measurers.iter().find(|table| table.name == name) else {
        let names: Vec<_> = config.measurers.iter().map(|table| table.name.as_str()).collect();
        bail!("the config has no measurer {name:?}; it has {}", names.join(", "));
    };
    let key = key::load(&config.key)?;
    match Store::open(&config.store(), measurer_id(&key).0) {
        Ok(mut store) => store.trust(table.identity.0, now_unix_secs())?,
        Err(StoreError::InUse { .. }) => {
            request::trust(&config.state_dir, &table.identity)?;
            note("the coordinator runs: it will trust the measurer within a second");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    note(&format!("{name} is trusted again"));
    Ok(())
}

/// Measures the team, or has the running coordinator do so.
async fn measure(config: &Config, secs: u16) -> Result<Done> {
    let key = key::load(&config.key)?;
    let mut store = match Store::open(&config.store(), measurer_id(&key).0) {
        Ok(store) => store,
        Err(StoreError::InUse { .. }) => {
            request::exchange(&config.state_dir)?;
            note(
                "the coordinator runs: it will measure the measurers once no relay is being measured",
            );
            return Ok(Done::Asked);
        }
        Err(error) => return Err(error.into()),
    };
    let partner = |table: &MeasurerTable| -> Result<Partner> {
        let remote = RemoteMeasurer::new(&table.name, &table.address, table.identity, &key);
        let remote = remote.map_err(anyhow::Error::msg);
        let remote = remote.with_context(|| format!("the measurer {:?}", table.name))?;
        Ok(Partner { remote, stated: table.capacity })
    };
    let partners = config.measurers.iter().map(partner).collect::<Result<Vec<_>>>()?;
    note(&format!("{} measurers exchange with each other for {secs} s", partners.len()));
    let found = exchange(&partners, secs).await;
    for (table, found) in config.measurers.iter().zip(&found) {
        let id = table.identity.0;
        store.put_measurer(id, &table.name, Some(table.capacity))?;
        store.set_measured(id, &table.address, found, now_unix_secs())?;
        if let Err(reason) = found {
            note(&format!("ff-bwauth: the measurer {} was not measured: {reason}", table.name));
        }
    }
    Ok(Done::Measured(found.iter().all(Found::is_ok)))
}

/// Prints the measurers.
fn show(config: &Config, done: Done, is_json: bool) -> Result<()> {
    let rows = match Store::open_read_only(&config.store()) {
        Ok(reader) => reader.measurers()?,
        // Nothing has been stored yet.
        Err(StoreError::Missing(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let shown = config.measurers.iter().map(|table| shown(table, &rows)).collect::<Vec<_>>();
    if is_json {
        let exchange = match done {
            Done::Nothing => None,
            Done::Measured(_) => Some("measured"),
            Done::Asked => Some("asked"),
        };
        return print(&format!("{}\n", json!({ "measurers": shown, "exchange": exchange })));
    }
    let mut text = String::new();
    for one in &shown {
        one.write(&mut text, now_unix_secs()).context("Failed to make the text")?;
    }
    if let [_] = &shown[..] {
        text.push_str(
            "It is the only measurer, and an exchange needs two: its configured capacity is used.\n",
        );
    }
    print(&text)
}

/// A measurer of the config with its row of the store.
fn shown(table: &MeasurerTable, rows: &[MeasurerRow]) -> MeasurerShown {
    let row = rows.iter().find(|row| row.identity == table.identity.0);
    let identity = key::identity_text(&table.identity);
    MeasurerShown::new((&table.name, &table.address, identity), table.capacity, row)
}
