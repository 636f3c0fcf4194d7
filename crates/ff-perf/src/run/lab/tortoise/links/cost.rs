//! CPU time that the limit costs a guard, for each gigabyte of its client's link.
//!
//! A guard for each setting carries the same rate at the same time, so that what else the machine
//! does slows all of them. In the next round, each setting has another guard and another client.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::super::lab::Tor;
use super::{Bench, LinkFigure, SETTLE, Way};

/// Number of rounds.
const ROUNDS: usize = 30;
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

    /// The client's own rate: it is as fast without a limit as with it.
    fn client_rate(&self) -> Option<u64> {
        (self.limit != Some(RATE)).then_some(RATE)
    }
}

/// Pairs of settings, by their places, with the expected ratio of the second to the first. The
/// paper's figure 4 has 26.4 to 24.7 % of a CPU where the limit bites.
const PAIRS: [(usize, usize, [f64; 2]); 3] =
    [(0, 1, [0.99, 1.01]), (1, 2, [0.0, 1.01]), (1, 3, [0.0, 1.07])];

/// Measures all settings at once, and compares those of one round.
pub(super) fn run(bench: &mut Bench<'_>, _is_short: bool) -> Result<()> {
    let rounds = (0..ROUNDS).map(|number| round(bench, number)).collect::<Result<Vec<_>>>()?;
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

/// CPU seconds of each setting's guard for each gigabyte of its client's link.
fn round(bench: &Bench<'_>, number: usize) -> Result<Vec<f64>> {
    let of_setting = |(at, setting): (usize, &Setting)| {
        let place = (at + number) % Setting::ALL.len();
        ((setting.tor, place), place)
    };
    let places: Vec<_> = Setting::ALL.iter().enumerate().map(of_setting).collect();
    let mut bulk = Vec::new();
    for (setting, &(guard, client)) in Setting::ALL.iter().zip(&places) {
        bench.set_rate(client, setting.client_rate())?;
        bench.limit(guard, setting.limit)?;
        bulk.push(bench.bulk(client, guard, Way::Down, (1, 1))?);
    }
    bench.timers.sleep(SETTLE)?;
    let look = |&(guard, client): &((Tor, usize), usize)| -> Result<(Duration, u64)> {
        let cpu = bench.guard(guard.0, guard.1).cpu_time()?;
        Ok((cpu, bench.link_bytes(guard, client..client + 1)?.all()))
    };
    let looks = || places.iter().map(look).collect::<Result<Vec<_>>>();
    let before = looks()?;
    bench.timers.sleep(TIME)?;
    let after = looks()?;
    if let Some(error) = bulk.iter().flat_map(|one| one.errors()).next() {
        bail!("a stream of bulk ended: {error}");
    }
    let per_gb = before.into_iter().zip(after).map(|((cpu_before, first), (cpu_after, last))| {
        let bytes = last.saturating_sub(first) as f64;
        (cpu_after - cpu_before).as_secs_f64() / (bytes / 1e9)
    });
    Ok(per_gb.collect())
}
