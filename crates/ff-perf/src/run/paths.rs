//! The command `paths`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use ff_circuits::network::{self, CircuitNetwork, PUBLIC};
use ff_circuits::paths::pool::Pool;
use ff_circuits::paths::{Choice, Generator, Rules, file, weights};
use ff_report::input::Inputs;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::client::{check_internet, say};
use super::output::show;
use crate::cli::paths::PathsArgs;

/// Runs `paths`.
///
/// # Errors
/// If the network cannot be read or has no path, or the file cannot be written.
pub(super) fn run(args: &PathsArgs) -> Result<ExitCode> {
    let name = args.network.display();
    let (mut pool, is_private) = pool(args)?;
    let choice = args.rules.choice(is_private, None);
    if let Some(file) = &args.weights {
        weigh(&mut pool, choice.rules, file, &mut Inputs::default())?;
    }
    say_unknown(&args.network, &pool, &choice);
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    let mut generator =
        Generator::new(&pool, &choice, &mut rng).with_context(|| name.to_string())?;
    let mut paths = Vec::new();
    for number in 0..args.count {
        let path = generator.draw(&mut rng);
        let path = path.with_context(|| format!("{name}: no path {} can be drawn", number + 1))?;
        let id = |relay: u32| hex::encode_upper(pool.network.relays[relay as usize].fingerprint);
        paths.push(path.into_iter().map(id).collect::<Vec<_>>());
    }
    let comment = format!("{} paths of {name}, seed {}", paths.len(), args.seed);
    let text = file::render(&comment, paths.iter().map(Vec::as_slice));
    match &args.out {
        Some(path) => write(path, &text).map(|()| ExitCode::SUCCESS),
        None => show(&text),
    }
}

/// Applies the weights of a bandwidth file, and reports on standard error how many relays have
/// none.
///
/// # Errors
/// If the file cannot be read or used, or these rules do not draw by weight.
pub(super) fn weigh(pool: &mut Pool, rules: Rules, file: &Path, inputs: &mut Inputs) -> Result<()> {
    let (bytes, name) = (inputs.read(file)?, file.display().to_string());
    ensure!(
        matches!(rules, Rules::Tor | Rules::Weighted),
        "{name}: only --select tor and --select weighted draw relays by weight"
    );
    let without = weights::weigh(pool, &name, &bytes)?;
    if without > 0 {
        let all = pool.network.relays.len();
        say(&format!("{name}: {without} of {all} relays of the network have no weight in it"));
    }
    Ok(())
}

/// Relays to draw from, and whether the network is private: from a tor's directory, or a file that
/// ff-sim reads.
fn pool(args: &PathsArgs) -> Result<(Pool, bool)> {
    let is_public = args.network == Path::new(PUBLIC) && !args.network.exists();
    let is_table =
        ["relays.csv", "relays.csv.xz"].iter().any(|one| args.network.join(one).is_file());
    if !is_public && (!args.network.is_dir() || is_table) {
        let (from, mut inputs) = (args.descriptors.as_deref(), Inputs::default());
        return Ok((Pool::read(&args.network, from, &mut inputs)?, false));
    }
    ensure!(args.descriptors.is_none(), "--descriptors needs a consensus of the flavour ns");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let network = CircuitNetwork::read(&network::directory(&args.network), now)?;
    let is_internet = check_internet(&args.network, &network, args.public)?;
    Ok((network.pool, !is_internet))
}

/// Reports on standard error which data a network lacks, and what replaces them.
pub(super) fn say_unknown(name: &Path, pool: &Pool, choice: &Choice) {
    let name = name.display();
    if pool.left_out > 0 {
        say(&format!(
            "{name}: relays left out because their microdescriptors are not in the same directory: {}",
            pool.left_out
        ));
    }
    if pool.factors.is_none() && choice.rules == Rules::Tor {
        say(&format!(
            "{name}: no bandwidth-weights in its footer; they are computed from its relays"
        ));
    }
    if pool.policies.is_none() {
        say(&format!(
            "{name}: exit policies are not known; all relays with the flag Exit count for port {}",
            choice.port
        ));
    }
}

/// Writes a file whole or not at all.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    ff_lab::write_whole(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
