//! What one client's link carries behind its burst, as a part of its limit.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::super::lab::Tor;
use super::{Bench, LinkFigure, SETTLE, Way};

/// The limits, one for each guard, in bytes per second.
const LIMITS: [u64; 4] = [100_000, 200_000, 1_000_000, 4_000_000];
/// Expected result.
const EXPECTED: [f64; 2] = [0.97, 1.03];
/// Expected result in a short run, where bytes in flight count more.
const SHORT_EXPECTED: [f64; 2] = [0.9, 1.1];

/// Measures all limits at once, each with a client and a guard of its own.
pub(super) fn run(bench: &mut Bench<'_>, is_short: bool) -> Result<()> {
    let (secs, expected) = if is_short { (8, SHORT_EXPECTED) } else { (30, EXPECTED) };
    for tor in [Tor::Ours, Tor::Stock] {
        for (number, limit) in LIMITS.into_iter().enumerate() {
            bench.limit((tor, number), Some(limit))?;
        }
        for way in Way::BOTH {
            let parts = parts(bench, tor, way, Duration::from_secs(secs))?;
            for (limit, part) in LIMITS.into_iter().zip(parts) {
                let kb = limit / 1000;
                let figure = format!("{}, {}, limit of {kb} kB/s", tor.name(), way.name());
                let bounds = (tor == Tor::Ours).then_some(expected);
                let figure = LinkFigure::new(figure, "of the limit", vec![part], bounds);
                bench.add(figure.context("no sample")?);
            }
        }
    }
    Ok(())
}

/// What each link carries in a direction, as a part of its limit.
fn parts(bench: &Bench<'_>, tor: Tor, way: Way, time: Duration) -> Result<Vec<f64>> {
    let start = |number: usize| bench.bulk(number, (tor, number), way, (1, 1));
    let bulk = (0..LIMITS.len()).map(start).collect::<Result<Vec<_>>>()?;
    bench.timers.sleep(SETTLE)?;
    let look = |number: usize| -> Result<(Instant, u64)> {
        let bytes = bench.link_bytes((tor, number), number..number + 1)?;
        Ok((Instant::now(), bytes.of(way)))
    };
    let all = || (0..LIMITS.len()).map(look).collect::<Result<Vec<_>>>();
    let before = all()?;
    bench.timers.sleep(time)?;
    let after = all()?;
    if let Some(error) = bulk.iter().flat_map(|one| one.errors()).next() {
        bail!("{}, {}: a stream ended early: {error}", tor.name(), way.name());
    }
    let looks = before.into_iter().zip(after).zip(LIMITS);
    let parts = looks.map(|(((began, first), (ended, last)), limit)| {
        last.saturating_sub(first) as f64 / (ended - began).as_secs_f64() / limit as f64
    });
    Ok(parts.collect())
}
