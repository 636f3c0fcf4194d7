//! `analyse` for one moment, and for the days around a speed test.

use std::path::Path;

use anyhow::{Context, Result};
use ff_archives::read::series::daily;
use ff_report::stats;
use serde::Serialize;

use super::by;
use super::said::{Summary, optional};
use crate::analysis::moment::{CapacityKind, Scale, weight_error};
use crate::analysis::ranks::under_weighted;
use crate::analysis::speed_test::{BEGIN_2019, speed_test};
use crate::cli::{AnalyseArgs, By};
use crate::figure::errors::{relay_weights, speed_test as days_figure};
use crate::run::{Reading, rows, tell_drawn};

/// Errors of the weights at one moment.
#[derive(Serialize)]
struct OfMoment {
    /// The number of relays.
    relays: usize,
    /// Eq. 6, by the capacities of relays.
    network_weight_error: Option<f64>,
    /// The same by usable capacities: at most the operators' limits, as in `flow` and `compare`.
    network_weight_error_by_usable_capacity: Option<f64>,
    /// The same with capacities and weights multiplied by the share of time in which relays were
    /// running.
    network_weight_error_by_running: Option<f64>,
    /// Eq. 5: weight share over capacity share.
    relay_weight_error: Option<Summary>,
    /// The share of relays that are under-weighted.
    under_weighted: Option<f64>,
    /// The share of total weight of relays with capacity 0 or unknown.
    weight_left_out: f64,
    /// Groups of relays, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<by::Row>,
}

/// Analyses a network at one moment.
pub(super) fn moment(path: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let network = reading.network(path, &args.described)?;
    anyhow::ensure!(
        network.capacities != ff_archives::network::CapacitySource::Weights,
        "{} has weights but no capacities, so weights have no errors: give --descriptors",
        path.display()
    );
    by::check(&args.by, "a network of one moment", &[By::Flag, By::Country, By::Family])?;
    let now = weight_error(&network, CapacityKind::Known, Scale::None, |_| true);
    let by_usable = weight_error(&network, CapacityKind::Usable, Scale::None, |_| true);
    let by_running = weight_error(&network, CapacityKind::Known, Scale::Running, |_| true);
    let errors = stats::sorted(now.relay_errors.iter().flatten().copied().collect());
    let found = OfMoment {
        relays: network.relays.len(),
        network_weight_error: now.weight_error,
        network_weight_error_by_usable_capacity: by_usable.weight_error,
        network_weight_error_by_running: by_running.weight_error,
        under_weighted: under_weighted(&errors),
        relay_weight_error: Summary::of(&errors),
        weight_left_out: now.weight_left_out,
        groups: by::of_moment(&network, &now, &args.by),
    };
    let percent =
        |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0));
    let text = rows(&[
        ("relays", found.relays.to_string()),
        ("network weight error", percent(found.network_weight_error)),
        ("by usable capacity", percent(found.network_weight_error_by_usable_capacity)),
        ("by time of running", percent(found.network_weight_error_by_running)),
        ("under-weighted relays", percent(found.under_weighted)),
        ("weight without capacity", percent(Some(found.weight_left_out))),
    ]) + &by::text(&found.groups);
    let row = |(relay, error): (&ff_archives::network::Relay, &Option<f64>)| {
        let capacity = relay.capacity.map(|capacity| capacity.get().to_string());
        let name = hex::encode_upper(relay.fingerprint);
        vec![name, capacity.unwrap_or_default(), relay.weight.to_string(), optional(*error)]
    };
    let header: &[&str] = &["fingerprint", "capacity_bytes_per_sec", "weight", "weight_error_part"];
    let relays = network.relays.iter().zip(&now.relay_errors).map(row).collect();
    let mut tables = vec![("relays.csv", header, relays)];
    tables.extend((!found.groups.is_empty()).then(|| by::table(&found.groups)));
    let by_weights = [("weights of the network".to_owned(), errors)];
    let figures = || {
        vec![relay_weights(
            "fig3",
            "Relays' weights over capacities (Fig. 3, one moment)",
            &by_weights,
        )]
    };
    tell_drawn("analyse", &args.out, reading, None, &found, &text, &tables, figures)
}

/// The increase found by a speed test, for the results.
#[derive(Serialize)]
struct Test {
    /// The number of days in the table.
    days: usize,
    /// The network's advertised bandwidth at the start of the test of 2019, in Gbit/s.
    before_gbit_per_sec: Option<f64>,
    /// The greatest increase within ten days, in Gbit/s.
    gain_gbit_per_sec: Option<f64>,
    /// The increase as a part of the bandwidth before.
    gain_part: Option<f64>,
}

/// Finds the speed test of August 2019 in a table of daily totals.
pub(super) fn days(path: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let bytes = reading.inputs.read_so_far(path, &mut reading.skips)?;
    let name = path.display().to_string();
    let read = daily::read(&name, &*bytes);
    let (days, skips) = read.with_context(|| format!("{name} cannot be read as a table"))?;
    reading.skips.extend(skips);
    anyhow::ensure!(!days.is_empty(), "{name} has no days");
    let test = speed_test(&days, BEGIN_2019);
    let found = Test {
        days: days.len(),
        before_gbit_per_sec: test.map(|test| test.before),
        gain_gbit_per_sec: test.map(|test| test.gain()),
        gain_part: test.map(|test| test.part()),
    };
    let told = test.map_or("its days are not in the table".to_owned(), |test| {
        let (before, gain, part) = (test.before, test.gain(), test.part() * 100.0);
        format!("{gain:.1} Gbit/s, {part:.1} % of {before:.1} Gbit/s")
    });
    let text = rows(&[("days", found.days.to_string()), ("speed test of 2019", told)]);
    let row = |day: &daily::Day| {
        vec![day.unix_secs.to_string(), optional(day.advertised), optional(day.used)]
    };
    let header: &[&str] = &["unix_secs", "advertised_gbit_per_sec", "used_gbit_per_sec"];
    let tables = [("days.csv", header, days.iter().map(row).collect())];
    let figures = || vec![days_figure(&days)];
    tell_drawn("analyse", &args.out, reading, None, &found, &text, &tables, figures)
}
