//! CPU time that the limit costs a guard with a thousand links, of which a hundred have more bulk
//! than their limit lets through.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ff_lab::console::note;

use super::super::lab::Tor;
use super::{Bench, LinkFigure, SETTLE, Way, client_name};

/// The guard.
const GUARD: (Tor, usize) = (Tor::Ours, 0);
/// The limit, in bytes per second.
const LIMIT: u64 = 100_000;
/// Number of samples with and without the limit.
const ROUNDS: usize = 10;
/// Duration of a sample.
const TIME: Duration = Duration::from_secs(10);
/// Expected part of a core that the limit costs.
const EXPECTED: [f64; 2] = [-1.0, 0.03];

/// Measures with the limit, and with as slow clients without it, in turn.
pub(super) fn run(bench: &mut Bench<'_>, _is_short: bool) -> Result<()> {
    let (busy, clients) = (bench.size.busy, bench.size.clients);
    let mut idle = Vec::new();
    for client in busy..clients {
        let stream = bench.network.echo_through(bench.client(client), &bench.path(GUARD));
        idle.push(stream.with_context(|| format!("the idle link of {}", client_name(client)))?);
        if idle.len() % 100 == 0 {
            note(&format!("ff-perf: {} idle links are open", idle.len()));
        }
    }
    let start = |client: usize| {
        bench.set_rate(client, Some(LIMIT))?;
        bench.bulk(client, GUARD, Way::Down, (1, 1))
    };
    let bulk = (0..busy).map(start).collect::<Result<Vec<_>>>()?;
    let links = bench.link_bytes(GUARD, 0..clients)?.connections;
    let (mut cores, mut more) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..ROUNDS {
        let [off, on] = [sample(bench, false)?, sample(bench, true)?];
        cores[0].push(off.cpu_secs / off.secs);
        cores[1].push(on.cpu_secs / on.secs);
        // The clients' own rate lets a little less through than the limit.
        more.push(on.cpu_secs / on.secs - off.cpu_secs * (on.bytes / off.bytes) / off.secs);
    }
    if let Some(error) = bulk.iter().flat_map(|one| one.errors()).next() {
        bail!("a stream of bulk ended: {error}");
    }
    let left = bench.link_bytes(GUARD, 0..clients)?.connections;
    if left < clients {
        bail!("{left} links were left of {clients} clients");
    }
    let of = format!("a guard with {links} links, {busy} of them with bulk");
    let [off, on] = cores;
    for (what, samples, bounds) in [
        ("clients as slow as the limit", off, None),
        ("limit of 100 kB/s", on, None),
        ("what the limit costs", more, Some(EXPECTED)),
    ] {
        let figure = format!("CPU time of {of}: {what}");
        bench.add(LinkFigure::new(figure, "of a core", samples, bounds).context("no round")?);
    }
    Ok(())
}

/// What the guard does with the limit, or without it for clients with such a rate of their own.
fn sample(bench: &Bench<'_>, is_limited: bool) -> Result<super::Load> {
    bench.limit(GUARD, is_limited.then_some(LIMIT))?;
    for client in 0..bench.size.busy {
        bench.set_rate(client, (!is_limited).then_some(LIMIT))?;
    }
    bench.timers.sleep(SETTLE)?;
    bench.observe(GUARD, 0..bench.size.busy, TIME)
}
