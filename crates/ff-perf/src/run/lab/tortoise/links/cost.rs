//! CPU time that the limit costs a guard, for each gigabyte of its clients' links, in rounds of a
//! sample of each setting.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::super::lab::Tor;
use super::{Bench, LinkFigure, SETTLE, Way};

/// Number of rounds.
const ROUNDS: usize = 10;
/// Duration of a sample.
const TIME: Duration = Duration::from_secs(12);
/// What each client's link carries in all settings, in bytes per second.
const RATE: u64 = 2_000_000;
/// A limit that no client reaches.
const HIGH: u64 = 100_000_000;

/// A setting of a guard.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    tor: Tor,
    limit: Option<u64>,
}

impl Setting {
    const ALL: [Self; 4] = [
        Self { name: "stock", tor: Tor::Stock, limit: None },
        Self { name: "off", tor: Tor::Ours, limit: None },
        Self { name: "on, not biting", tor: Tor::Ours, limit: Some(HIGH) },
        Self { name: "on, biting", tor: Tor::Ours, limit: Some(RATE) },
    ];

    /// The clients' own rate: they are as fast without a limit as with it.
    fn client_rate(&self) -> Option<u64> {
        (self.limit != Some(RATE)).then_some(RATE)
    }
}

/// Pairs of settings, by their places, with the expected ratio of the second to the first. The
/// paper's figure 4 has 26.4 to 24.7 % of a CPU where the limit bites.
const PAIRS: [(usize, usize, [f64; 2]); 3] =
    [(0, 1, [0.99, 1.01]), (1, 2, [0.0, 1.01]), (1, 3, [0.0, 1.07])];

/// Measures all settings in turn, and compares those of one round.
pub(super) fn run(bench: &mut Bench<'_>, _is_short: bool) -> Result<()> {
    let mut rounds: Vec<[f64; 4]> = Vec::new();
    for _ in 0..ROUNDS {
        let mut round = [0.0; 4];
        for (place, setting) in round.iter_mut().zip(Setting::ALL) {
            *place = secs_per_gb(bench, setting)?;
        }
        rounds.push(round);
    }
    for (place, setting) in Setting::ALL.into_iter().enumerate() {
        let name = format!("CPU time of a guard, {}", setting.name);
        let samples = rounds.iter().map(|round| round[place]).collect();
        bench.add(LinkFigure::new(name, "s/GB", samples, None).context("no round")?);
    }
    for (one, other, bounds) in PAIRS {
        let [first, second] = [one, other].map(|place| Setting::ALL[place].name);
        let name = format!("CPU time of a guard, {second} / {first}");
        let samples = rounds.iter().map(|round| round[other] / round[one]).collect();
        bench.add(LinkFigure::new(name, "times", samples, Some(bounds)).context("no round")?);
    }
    Ok(())
}

/// CPU seconds of a guard for each gigabyte of its clients' links.
fn secs_per_gb(bench: &Bench<'_>, setting: Setting) -> Result<f64> {
    let clients = 0..bench.size.busy;
    for client in clients.clone() {
        bench.set_rate(client, setting.client_rate())?;
    }
    let guard = (setting.tor, 0);
    bench.limit(guard, setting.limit)?;
    let start = |client: usize| bench.bulk(client, guard, Way::Down, (1, 1));
    let bulk = clients.clone().map(start).collect::<Result<Vec<_>>>()?;
    bench.timers.sleep(SETTLE)?;
    let load = bench.observe(guard, clients, TIME)?;
    if let Some(error) = bulk.iter().flat_map(|one| one.errors()).next() {
        bail!("{}: a stream of bulk ended: {error}", setting.name);
    }
    Ok(load.cpu_secs / (load.bytes / 1e9))
}
