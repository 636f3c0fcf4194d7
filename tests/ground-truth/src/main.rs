#![doc = include_str!("../README.md")]

mod arti;
mod case;
mod cli;
mod distance;
mod lab;
mod namespace;
mod observed;
mod pace;
mod parameters;
mod phase;
mod relay;
mod sample;
mod table;
mod transit;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use case::{Case, Witness};
use cli::{Cli, Command};
use ff_measurer::transit::TransitError;
use lab::{Lab, Subject};
use phase::Bench;
use sample::{Sample, Work};
use table::{Row, Series};

/// How often a sample is taken that does not count.
const ATTEMPTS: u32 = 3;

fn main() -> ExitCode {
    let cli = Cli::read();
    let result = match &cli.command {
        Some(Command::Distance(args)) => distance::run(args),
        Some(Command::Parameters(args)) => parameters::run(args),
        None => namespace::enter(cli.mtu).and_then(|()| run(&cli)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ground-truth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all cases; whether they are as expected.
fn run(cli: &Cli) -> Result<bool> {
    fs::create_dir_all(&cli.out)
        .with_context(|| format!("Failed to make {}", cli.out.display()))?;
    let start = Instant::now();
    if cli.arti_relay.is_some() {
        arti::prepare()?;
    }
    let cases = cli.cases();
    let no_samples = |case: &Case| Series { case: case.clone(), samples: Vec::new() };
    let mut series: Vec<_> = cases.iter().map(no_samples).collect();
    let rounds = cases.iter().map(|case| case.rounds).max().unwrap_or(0);
    for round in 0..rounds {
        // What forwarding and echoing cost differs from network to network.
        let lab = Lab::start(cli, &cases)?;
        eprintln!(
            "[{:4.0} s] round {} of {rounds}: the relays are ready after {:.1} s",
            start.elapsed().as_secs_f64(),
            round + 1,
            lab.start_time().as_secs_f64()
        );
        for (index, case) in cases.iter().enumerate().filter(|(_, case)| round < case.rounds) {
            let secs = start.elapsed().as_secs_f64();
            eprintln!("[{secs:4.0} s] {} as {}", case.limit, case.relay());
            let mut bench = Bench::open(&lab, case)?;
            for _ in 0..case.turns {
                series[index].samples.extend(turn_of(&mut bench, case, round)?);
            }
            // So that nothing is lost.
            store(cli, &series)?;
        }
    }
    let table = table::markdown(&series);
    ff_lab::console::print(&table)?;
    eprintln!(
        "done in {:.0} s; all samples are in {}",
        start.elapsed().as_secs_f64(),
        cli.out.join("samples.csv").display()
    );
    Ok(check(cli, &series))
}

/// One turn: the relay forwards, and is measured over each number of sockets.
fn turn_of(bench: &mut Bench<'_>, case: &Case, round: u16) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    if case.by != Witness::Transit {
        take(&mut samples, || bench.forward(round))?;
    }
    for &sockets in &case.sockets {
        if case.by != Witness::Downloads {
            take(&mut samples, || bench.transit(round, sockets))?;
        }
        take(&mut samples, || bench.echo(round, Subject::Target, sockets))?;
        if bench.has_direct() {
            take(&mut samples, || bench.echo(round, Subject::Direct, sockets))?;
        }
    }
    Ok(samples)
}

/// Takes a sample, several times when it does not count.
fn take(samples: &mut Vec<Sample>, mut sample: impl FnMut() -> Result<Sample>) -> Result<()> {
    for attempt in 1..=ATTEMPTS {
        let sample = match sample() {
            // tor ends new circuits now and then, when it looks for old ones at that moment.
            Err(error) if attempt < ATTEMPTS && is_circuit(&error) => {
                eprintln!("    repeating a failed sample: {error:#}");
                continue;
            }
            sample => sample?,
        };
        show(&sample);
        let counts = sample.rejected.is_none();
        samples.push(sample);
        if counts {
            break;
        }
    }
    Ok(())
}

/// Whether a circuit of cells in transit did not open.
fn is_circuit(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TransitError::Circuit { .. }))
}

fn show(sample: &Sample) {
    eprintln!(
        "    {:?}: {:.1} Mbit/s, {:.2} CPU s/GB, {:.3} bytes out/in{}",
        sample.work,
        sample.rate * 8.0 / 1e6,
        sample.cpu_per_gb(),
        sample.written_to_read(),
        sample.rejected.as_ref().map(|why| format!(", rejected: {why}")).unwrap_or_default(),
    );
}

/// Writes what there is so far.
fn store(cli: &Cli, series: &[Series]) -> Result<()> {
    for (name, text) in [("samples.csv", table::csv(series)), ("table.md", table::markdown(series))]
    {
        let path = cli.out.join(name);
        fs::write(&path, text).with_context(|| format!("Failed to write {}", path.display()))?;
    }
    Ok(())
}

/// Whether every ratio is as expected; says which are not.
fn check(cli: &Cli, series: &[Series]) -> bool {
    let Some((min, max)) = cli.expect else { return true };
    let mut is_good = true;
    for one in series {
        let rows = one.rows();
        for row in &rows {
            let (min, max) = match row.work {
                Work::DirectEcho { sockets } => {
                    (ratio_of(&rows, row.truth, Work::Echo { sockets }), f64::INFINITY)
                }
                _ => (min, max),
            };
            if !(min..=max).contains(&row.rates.ratio()) {
                is_good = false;
                eprintln!(
                    "ground-truth: {} as {}, {:?} by {:?}: the ratio is {:.3}, outside \
                     {min:.3}..{max:.3}",
                    one.case.limit,
                    one.case.relay(),
                    row.work,
                    row.truth,
                    row.rates.ratio(),
                );
            }
        }
    }
    is_good
}

/// The ratio of two kinds of work; not a number without samples that count.
fn ratio_of(rows: &[Row], truth: Work, work: Work) -> f64 {
    let row = rows.iter().find(|row| (row.truth, row.work) == (truth, work));
    row.map_or(f64::NAN, |row| row.rates.ratio())
}
