//! `tortoise --today`: each limit with each burst in today's network, and no limit.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ff_flow::parallel;
use ff_flow::tortoise::bucket::LinkLimit;
use ff_flow::tortoise::engine::simulate;
use ff_flow::tortoise::experiment::TortoiseSetting;
use ff_flow::tortoise::figure::today::figures;
use ff_flow::tortoise::outcome::TortoiseOutcome;
use ff_flow::tortoise::tables::today::{TodayReport, tables, text};
use ff_flow::tortoise::today::{TodayResults, USED_PART, world};
use ff_report::progress::ProgressLine;
use ff_report::stats;

use crate::cli::TortoiseArgs;
use crate::run::{Reading, tell_drawn};

/// The number of relays in a network of scale 1.
const RELAYS: u32 = 144;
/// The least number of relays with two guards and an exit for every client.
const FEWEST_RELAYS: u32 = 20;
/// The number of clients per relay with which the fit begins.
const FIRST_CLIENTS: u32 = 4;
/// The greatest number of tries of the fit.
const TRIES: u32 = 8;
/// The tolerance of relays' utilisation at which the fit ends, and the greatest accepted one. Each
/// bulk user changes the utilisation by a step.
const TOLERANCES: (f64, f64) = (0.005, 0.05);

/// Simulates today's network, and prints the results.
///
/// # Errors
/// If a burst is too small for a limit, no number of clients fits, or the results cannot be
/// written.
pub(super) fn today(
    args: &TortoiseArgs,
    seeds: &[u64],
    setting: TortoiseSetting,
) -> Result<ExitCode> {
    let limits = limits(args)?;
    let rates: Vec<f64> = args.limits.iter().copied().map(f64::from).collect();
    let relays = setting.count(RELAYS, 1.0).max(FEWEST_RELAYS);
    let progress = ProgressLine::of("ff-sim");
    let work = Work { seeds, setting, relays, rates: &rates, jobs: args.jobs, progress };
    let (clients, base) = work.fit()?;
    let limited = work.simulate(&limits, clients, "experiments")?;
    let cells = [(None, base)].into_iter().chain(limits.into_iter().zip(limited)).collect();
    let (seeds, rates) = (seeds.to_vec(), work.rates.to_vec());
    let results = TodayResults { seeds, relays, clients, rates, cells };
    let report = TodayReport::new(&results, setting.secs);
    let (text, tables) = (text(&report), tables(&results));
    let (reading, seed) = (Reading::default(), Some(args.seed));
    let draw = || figures(&results);
    tell_drawn("tortoise", &args.out, &reading, seed, &report, &text, &tables, draw)?;
    Ok(ExitCode::SUCCESS)
}

/// Each limit with each burst, and no limit.
fn limits(args: &TortoiseArgs) -> Result<Vec<Option<LinkLimit>>> {
    let mut limits = Vec::new();
    for &rate in &args.limits {
        for burst in &args.bursts {
            let burst = burst.bytes(rate).map_err(anyhow::Error::msg)?;
            let limit = LinkLimit { rate: rate.into(), burst: burst.into() };
            if limits.contains(&Some(limit)) {
                bail!(
                    "--limits and --bursts name {} MB/s twice with the same burst",
                    limit.rate / 1e6
                );
            }
            limits.push(Some(limit));
        }
    }
    Ok(limits)
}

/// The common data of all simulations.
struct Work<'a> {
    seeds: &'a [u64],
    /// The settings of all simulations.
    setting: TortoiseSetting,
    /// The number of relays.
    relays: u32,
    /// Rates above which bytes between relays are counted, in bytes per second.
    rates: &'a [f64],
    /// The number of parallel simulations.
    jobs: u32,
    progress: ProgressLine,
}

impl Work<'_> {
    /// Fits the number of clients with which relays carry the traffic of May 2024 without a limit;
    /// returns it with the results.
    fn fit(&self) -> Result<(u32, Vec<TortoiseOutcome>)> {
        let mut clients = self.relays * FIRST_CLIENTS;
        let mut best: Option<(f64, u32, Vec<TortoiseOutcome>)> = None;
        for _ in 0..TRIES {
            let mut found = self.simulate(&[None], clients, "fitting the clients")?;
            let outcomes = found.pop().context("internal error: nothing was simulated")?;
            let parts: Vec<f64> = outcomes.iter().map(|outcome| outcome.used).collect();
            let used = stats::mean(&parts).context("internal error: no seeds")?;
            note!("ff-sim: {clients} clients use {:.1} % of {} relays", used * 100.0, self.relays);
            let off = (used - USED_PART).abs();
            if best.as_ref().is_none_or(|(least, ..)| off < *least) {
                best = Some((off, clients, outcomes));
            }
            let next = times(clients, (USED_PART / used).clamp(0.25, 4.0));
            if off <= TOLERANCES.0 || next == clients {
                break;
            }
            clients = next;
        }
        match best {
            Some((off, clients, outcomes)) if off <= TOLERANCES.1 => Ok((clients, outcomes)),
            _ => bail!(
                "no number of clients uses {:.1} % of the relays; with a larger --scale or more --minutes one does",
                USED_PART * 100.0
            ),
        }
    }

    /// The results of all seeds for each limit, in the order of the limits.
    fn simulate(
        &self,
        limits: &[Option<LinkLimit>],
        clients: u32,
        what: &str,
    ) -> Result<Vec<Vec<TortoiseOutcome>>> {
        let with_seeds = |limit: &Option<LinkLimit>| {
            let limit = *limit;
            self.seeds.iter().map(move |seed| (limit, *seed))
        };
        let runs: Vec<(Option<LinkLimit>, u64)> = limits.iter().flat_map(with_seeds).collect();
        let work = |(limit, seed): &(Option<LinkLimit>, u64)| {
            let world = world(*limit, self.rates, self.relays, clients, *seed);
            Ok(simulate(&world, self.setting.warm_up_secs, self.setting.secs))
        };
        let tell = |done: usize, (_, seed): &(Option<LinkLimit>, u64), _: &TortoiseOutcome| {
            let all = runs.len();
            self.progress.say(|| format!("{what}: {done} of {all}, seed {seed}"));
        };
        let jobs = usize::try_from(self.jobs).unwrap_or(1);
        let found = parallel::map(&runs, jobs, work, tell)?;
        Ok(found.chunks(self.seeds.len().max(1)).map(<[TortoiseOutcome]>::to_vec).collect())
    }
}

/// A number of clients times a factor, at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
fn times(clients: u32, factor: f64) -> u32 {
    (f64::from(clients) * factor).round().max(1.0) as u32
}
