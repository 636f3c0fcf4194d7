//! The command `paths`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ff_sim::input::Inputs;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::show;
use crate::cli::paths::PathsArgs;
use crate::paths::{Generator, file};

/// Carries `paths` out.
///
/// # Errors
/// When the network cannot be read or has no path, or the file cannot be written.
pub(super) fn run(args: &PathsArgs) -> Result<ExitCode> {
    let mut inputs = Inputs::default();
    let (network, _) =
        ff_sim::source::described(&args.network, args.descriptors.as_deref(), &mut inputs)?;
    let name = args.network.display();
    let has = |what: fn(&ff_sim::network::Flags) -> bool| {
        network.relays.iter().any(|relay| relay.flags.running && what(&relay.flags))
    };
    ensure!(has(|flags| flags.exit && !flags.bad_exit), "{name} has no running exit");
    ensure!(has(|flags| flags.guard), "{name} has no running guard");
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    let (rules, lengths) = (args.select.into(), args.lengths.clone());
    let generator =
        Generator::new(&network, rules, lengths, args.guards, args.any_subnet, &mut rng);
    let mut paths = Vec::new();
    for number in 0..args.count {
        let path = generator.draw(&mut rng).with_context(|| {
            format!("{name}: no path {} can be drawn: its relays have too few weights, families or /16s", number + 1)
        })?;
        let id = |relay: u32| hex::encode_upper(network.relays[relay as usize].fingerprint);
        paths.push(path.into_iter().map(id).collect::<Vec<_>>());
    }
    let comment = format!("{} paths of {name}, seed {}", paths.len(), args.seed);
    let text = file::render(&comment, paths.iter().map(Vec::as_slice));
    match &args.out {
        Some(path) => write(path, &text).map(|()| ExitCode::SUCCESS),
        None => show(&text),
    }
}

/// Writes a file under another name and renames it.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}
