//! Rows D7 and D8: networks that were not used to fit constants, compared with Shadow's results for
//! them and with the public Tor.

use anyhow::{Context, Result};
use ff_archives::read::shadow::Results;
use ff_flow::sim::Summary;
use ff_report::stats;

use super::super::public::SIZES;
use super::super::{Value, value};
use super::{Kind, SHADOWS_LOAD, Simulated, known, percent};

/// The time to the first byte, the times to the last byte by size, and Gbit/s.
fn ours(summary: &Summary) -> [f64; 5] {
    let [small, middle, large] = summary.last_secs.map(|secs| secs.unwrap_or(f64::NAN));
    [summary.first_secs.unwrap_or(f64::NAN), small, middle, large, summary.gbit]
}

/// The same for Shadow.
fn shadows(results: &Results) -> [f64; 5] {
    let median = |values: Option<&Vec<f64>>| {
        values.and_then(|values| stats::median(values.clone())).unwrap_or(f64::NAN)
    };
    let last = |size: &str| median(results.time_to_last_byte_recv.get(size));
    let first = median(results.time_to_first_byte_recv.get("all"));
    let gbit = median(Some(&results.throughput())) * 8.0 / 1e9;
    [first, last("51200"), last("1048576"), last("5242880"), gbit]
}

/// The medians over the networks that are compared with Shadow.
fn middle(all: &Simulated<'_>, of: impl Fn(u8) -> Result<[f64; 5]>) -> Result<[f64; 5]> {
    let each = all.inputs.tests().iter().map(|&number| of(number)).collect::<Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|at| {
        stats::median(each.iter().map(|one| one[at]).collect()).unwrap_or(f64::NAN)
    }))
}

/// The results at a load for the networks that are compared.
fn of_load(all: &Simulated<'_>, load: u32, kind: Kind) -> Result<[f64; 5]> {
    middle(all, |number| {
        let of = |draw| Ok(ours(&all.of_draw((number, load, kind, draw))?.summary));
        let draws = (0..all.inputs.draws()).map(of).collect::<Result<Vec<_>>>()?;
        let mean =
            |at| stats::mean(&draws.iter().map(|one: &[f64; 5]| one[at]).collect::<Vec<_>>());
        Ok(std::array::from_fn(|at| known(mean(at))))
    })
}

/// D7: the difference of the medians over networks from Shadow's.
pub(super) fn beside_shadow(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let theirs = |is_second| {
        middle(all, |number| {
            let found = all.inputs.results.get(&(number, is_second));
            Ok(shadows(found.context("Shadow's results are missing")?))
        })
    };
    let (low, shadows_low) = (of_load(all, 100, Kind::Consensus)?, theirs(false)?);
    // The sample has one load.
    let [high, shadows_high] = match all.inputs.is_sample {
        true => [[f64::NAN; 5]; 2],
        false => [of_load(all, SHADOWS_LOAD, Kind::Shadows)?, theirs(true)?],
    };
    let names = ["first byte", "50 KiB", "1 MiB", "5 MiB", "throughput"];
    let mut values = Vec::new();
    for (at, name) in names.iter().enumerate() {
        values.push(value("D7", *name, percent(low[at], shadows_low[at])));
        let (change, theirs) =
            (percent(high[at], low[at]), percent(shadows_high[at], shadows_low[at]));
        values.push(value("D7", format!("{name}, from 1.0 to 1.2"), change - theirs));
    }
    Ok(values)
}

/// D8: compared with the public Tor.
pub(super) fn beside_tor(all: &Simulated<'_>, tor: [[f64; 2]; 3]) -> Result<Vec<Value>> {
    let [_, small, middle, large, _] = of_load(all, 100, Kind::Consensus)?;
    let slower = |((size, secs), [tor, _]): ((&&str, f64), [f64; 2])| {
        value("D8", format!("ours is slower, {size}"), percent(secs, tor))
    };
    Ok(SIZES.iter().zip([small, middle, large]).zip(tor).map(slower).collect())
}
