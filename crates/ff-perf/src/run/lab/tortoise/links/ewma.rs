//! The limit together with EWMA, tor's own order of circuits (the paper's §7): how long a byte on
//! one client's idle circuit takes while other clients fill their guard.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::super::lab::{Tor, renew_links};
use super::{Bench, LinkFigure, SETTLE, Way};

/// The guard, and its rate in bytes per second: the others would take more.
const GUARD: ((Tor, usize), u64) = ((Tor::Ours, 1), 1_000_000);
/// The limit, in bytes per second: together the others take less than the guard's rate.
const LIMIT: u64 = 200_000;
/// Bulk of each other client: streams, and their circuits.
const LOAD: (usize, usize) = (5, 5);
/// Bytes sent for each figure, and the pause between them.
const PROBES: (usize, Duration) = (30, Duration::from_millis(200));
/// Time after which a byte is lost.
const LOST: Duration = Duration::from_secs(60);
/// Expected time with both, as a part of that with EWMA alone: the limit costs nothing.
const EXPECTED: [f64; 2] = [0.0, 1.1];
/// Halflives of a circuit's past in seconds: so short that circuits are served nearly in turn, as
/// without EWMA, which tor cannot turn off (it takes 0 for the default); and the default.
const HALFLIVES: [(&str, &str); 2] = [("circuits nearly in turn", "0.02"), ("EWMA", "30")];

/// Measures with and without the limit, with EWMA and with circuits nearly in turn.
pub(super) fn run(bench: &mut Bench<'_>, _is_short: bool) -> Result<()> {
    let (guard, rate) = GUARD;
    let set = format!("SETCONF BandwidthRate={rate} BandwidthBurst={rate}");
    bench.guard(guard.0, guard.1).control()?.command(&set)?;
    let mut medians = Vec::new();
    for (ewma, halflife) in HALFLIVES {
        let node = bench.guard(guard.0, guard.1);
        node.control()?.setconf("CircuitPriorityHalflife", halflife)?;
        for (limited, limit) in [("no limit", None), ("limit of 200 kB/s", Some(LIMIT))] {
            let samples = millis(bench, limit).with_context(|| format!("{ewma}, {limited}"))?;
            medians.push(ff_report::stats::median(samples.clone()).context("no byte came back")?);
            let name = format!("a byte beside other clients' bulk: {ewma}, {limited}");
            let figure = LinkFigure::new(name, "ms there and back", samples, None);
            bench.add(figure.context("no byte came back")?);
        }
    }
    let [.., ewma_alone, both] = medians[..] else { bail!("not all were measured") };
    let name = "a byte beside other clients' bulk: EWMA and limit / EWMA alone".to_owned();
    let figure = LinkFigure::new(name, "times", vec![both / ewma_alone], Some(EXPECTED));
    bench.add(figure.context("no sample")?);
    Ok(())
}

/// Times of bytes there and back, in ms.
fn millis(bench: &Bench<'_>, limit: Option<u64>) -> Result<Vec<f64>> {
    let guard = GUARD.0;
    bench.limit(guard, limit)?;
    let others = 1..bench.size.busy;
    for client in 0..bench.size.busy {
        renew_links(bench.client(client), bench.timers)?;
    }
    let mut echo = bench.network.echo_through(bench.client(0), &bench.path(guard))?;
    let start = |client: usize| bench.bulk(client, guard, Way::Down, LOAD);
    let bulk = others.map(start).collect::<Result<Vec<_>>>()?;
    bench.timers.sleep(SETTLE)?;
    let mut times = Vec::new();
    for _ in 0..PROBES.0 {
        times.push(echo.round_trip(LOST)?.as_secs_f64() * 1e3);
        bench.timers.sleep(PROBES.1)?;
    }
    if let Some(error) = bulk.iter().flat_map(|one| one.errors()).next() {
        bail!("a stream of bulk ended: {error}");
    }
    Ok(times)
}
