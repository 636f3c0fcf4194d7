//! How long a byte on a client's idle circuit takes while the same client's other circuits have
//! bulk.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::super::lab::{Tor, renew_links};
use super::{Bench, LinkFigure, SETTLE, Way};

/// The limit, in bytes per second.
const LIMIT: u64 = 100_000;
/// The guards, with their limits.
const SETTINGS: [(Tor, Option<u64>); 3] =
    [(Tor::Ours, Some(LIMIT)), (Tor::Ours, None), (Tor::Stock, Some(LIMIT))];
/// Streams of bulk, and their circuits.
const LOADS: [(usize, usize); 4] = [(1, 1), (5, 5), (20, 20), (50, 20)];
/// Greatest expected time beyond that without bulk and limit, in ms. Downwards it is a small part
/// of what a link's bucket lets out at once. Upwards it is what kernels hold, as `ss` shows it: 0.4
/// s of the limit in the relay's receive buffer, which Linux makes twice as large as asked for, and
/// 1 s in the client's. Its window is 0.25 s; in slow start Linux lets the congestion window become
/// twice what it sends, and KIST fills the kernel with two of those. A bucket is refilled each 0.1
/// s.
const MORE_MS: [f64; 2] = [50.0, 1500.0];
/// The same in a short run, during which other programs may run.
const SHORT_MORE_MS: [f64; 2] = [500.0, 5000.0];
/// Bytes sent for each figure, and the time after which no more are sent.
const PROBES: (usize, Duration) = (20, Duration::from_secs(20));
/// Pause between bytes.
const BETWEEN: Duration = Duration::from_millis(150);
/// Time after which a byte is lost.
const LOST: Duration = Duration::from_secs(120);

/// Measures all loads in both directions.
pub(super) fn run(bench: &mut Bench<'_>, is_short: bool) -> Result<()> {
    let without = millis(bench, Tor::Ours, None, Way::Down, (0, 0))?;
    let idle = ff_report::stats::median(without.clone()).context("no byte came back")?;
    add(bench, "no bulk, no limit".to_owned(), without, None)?;
    let loads = if is_short { &LOADS[1..2] } else { &LOADS[..] };
    let more = if is_short { SHORT_MORE_MS } else { MORE_MS };
    for (way, more) in Way::BOTH.into_iter().zip(more) {
        for &load in loads {
            for (tor, limit) in SETTINGS {
                let found = millis(bench, tor, limit, way, load)
                    .with_context(|| format!("{}, {}", tor.name(), way.name()))?;
                let limited = if limit.is_some() { "100 kB/s" } else { "no limit" };
                let (streams, circuits) = load;
                let figure = format!(
                    "{}, {limited}, bulk {} of {streams} streams on {circuits} circuits",
                    tor.name(),
                    way.name()
                );
                let is_judged = tor == Tor::Ours && limit.is_some();
                add(bench, figure, found, is_judged.then_some([0.0, idle + more]))?;
            }
        }
    }
    Ok(())
}

/// Records a figure.
fn add(
    bench: &mut Bench<'_>,
    figure: String,
    samples: Vec<f64>,
    bounds: Option<[f64; 2]>,
) -> Result<()> {
    let figure = format!("a byte on an idle circuit: {figure}");
    let figure = LinkFigure::new(figure, "ms there and back", samples, bounds);
    bench.add(figure.context("no byte came back")?);
    Ok(())
}

/// Times of bytes there and back, in ms.
fn millis(
    bench: &Bench<'_>,
    tor: Tor,
    limit: Option<u64>,
    way: Way,
    load: (usize, usize),
) -> Result<Vec<f64>> {
    let guard = (tor, 0);
    bench.limit(guard, limit)?;
    // Without a limit, TCP's window of the last link has grown, and the kernel holds as much.
    renew_links(bench.client(0), bench.timers)?;
    let mut echo = bench.network.echo_through(bench.client(0), &bench.path(guard))?;
    let bulk = if load.0 > 0 { Some(bench.bulk(0, guard, way, load)?) } else { None };
    bench.timers.sleep(SETTLE)?;
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < PROBES.0 && (times.is_empty() || began.elapsed() < PROBES.1) {
        times.push(echo.round_trip(LOST)?.as_secs_f64() * 1e3);
        bench.timers.sleep(BETWEEN)?;
    }
    if let Some(error) = bulk.iter().flat_map(|bulk| bulk.errors()).next() {
        bail!("a stream of bulk ended: {error}");
    }
    Ok(times)
}
