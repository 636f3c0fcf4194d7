//! The arms that take turns in `downloads serve --arms`; without a file of arms, one arm with the
//! options.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ff_base::text::read_file;
use ff_circuits::network::CircuitNetwork;
use ff_circuits::paths::{Choice, file};
use ff_report::input::Inputs;

use crate::arms::Arm;
use crate::cli::measure::Measuring;
use crate::cli::serve::ServeArgs;
use crate::client::tor::TorLock;
use crate::path::PathPlan;
use crate::run::arms::{self, NotAsked};
use crate::run::client::{State as StateDir, say};
use crate::run::measure::{self, Ready};
use crate::run::paths::weigh;
use crate::store::is_shelf;

/// Highest rate of new circuits per second on the Internet: six per minute.
const PUBLIC_RATE: f64 = 0.1;
/// Longest file of paths that is read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// All arms.
pub(super) struct Ways {
    pub(super) all: Vec<Way>,
    /// SHA-256 of the file of arms and its files of paths, hexadecimal.
    pub(super) arms_sha256: Vec<String>,
    /// Folder for the state of each arm whose Arti chooses its own paths.
    _states: Option<StateDir>,
}

impl Ways {
    /// Reads the arms, or the options as one arm.
    ///
    /// # Errors
    /// If an input cannot be read or is not allowed, or tor refuses an arm's options.
    pub(super) fn read(args: &ServeArgs) -> Result<Self> {
        let ready = |measuring: &Measuring| Ready::new(measuring, args.rate, PUBLIC_RATE);
        let Some(file) = &args.arms else {
            let (args, ready, torrc) = (args.clone(), ready(&args.measuring)?, Vec::new());
            let only = Way { name: None, args, torrc, weights: None, ready, looks: 0, _lock: None };
            return Ok(Self { all: vec![only], arms_sha256: Vec::new(), _states: None });
        };
        let (mut inputs, mut ways) = (Inputs::default(), Vec::new());
        let all = arms::read(file, &args.measuring, &mut inputs)?;
        let states = arms::states(&args.measuring, &all)?;
        for arm in all {
            let measuring = arms::measuring(&arm, &args.measuring, states.path());
            let mut ready = ready(&measuring).with_context(|| format!("arm {}", arm.name))?;
            // Bandwidth files are not part of the digest: they change while the run continues.
            arms::weigh_for(&arm, &mut ready, &mut Inputs::default())?;
            let lock = match arms::check_options(&arm, file, &ready) {
                Err(error) if error.is::<NotAsked>() && has_lines(args) => {
                    say(&format!("{error}; tried again in this arm's turns"));
                    None
                }
                checked => checked?,
            };
            let (args, torrc) = (ServeArgs { measuring, ..args.clone() }, arm.options());
            let Arm { name, weights, .. } = arm;
            let name = Some(name);
            ways.push(Way { name, args, torrc, weights, ready, looks: 0, _lock: lock });
        }
        let sha256 = inputs.all().iter().map(|input| input.sha256.clone());
        let paths = ways.iter().filter_map(|way: &Way| way.ready.paths_sha256.clone());
        let arms_sha256 = sha256.chain(paths).collect();
        Ok(Self { all: ways, arms_sha256, _states: Some(states) })
    }

    /// Inputs of the first arm.
    ///
    /// # Errors
    /// If there are no arms.
    pub(super) fn first(&self) -> Result<&Ready> {
        self.all.first().map(|way| &way.ready).context("there are no arms")
    }

    /// When the network's documents become valid, in seconds since 1970.
    ///
    /// # Errors
    /// If there are no arms.
    pub(super) fn valid_after_unix_secs(&self) -> Result<u64> {
        Ok(self.first()?.network.valid_after_unix_secs)
    }
}

/// How circuits are measured: by the options, or by an arm.
pub(super) struct Way {
    /// Name of the arm.
    pub(super) name: Option<String>,
    pub(super) args: ServeArgs,
    /// Options for a tor, by name and value.
    pub(super) torrc: Vec<(String, String)>,
    /// Bandwidth file whose weights are used to draw paths.
    weights: Option<PathBuf>,
    /// Inputs of the measurement, read again when they change.
    pub(super) ready: Ready,
    /// Value of `Serving::looks` when they were read.
    pub(super) looks: u64,
    /// Keeps other processes from changing the options of an arm's tor.
    _lock: Option<Arc<TorLock>>,
}

impl Way {
    /// Reads the network again if it was read for another arm since. If that fails, the old one
    /// stays.
    pub(super) fn keep_up(&mut self, looks: u64) {
        if self.looks != looks {
            self.looks = looks;
            if let Err(error) = self.renew() {
                say(&format!("{error:#}; the previous documents stay in use"));
            }
        }
    }

    /// Reads the network again. If that fails, the old one stays.
    ///
    /// # Errors
    /// If an input cannot be read or is not allowed.
    pub(super) fn renew(&mut self) -> Result<()> {
        let Self { args, ready, weights, .. } = self;
        let measuring = &args.measuring;
        let mut network = measure::read_network(measuring, &ready.dir, args.rate, PUBLIC_RATE)?;
        if let Some(weights) = weights {
            weigh(&mut network.pool, ready.choice.rules, weights, &mut Inputs::default())?;
        }
        let given = match &measuring.path_file {
            Some(file) => {
                let text =
                    read_file(file, MOST_BYTES).with_context(|| file.display().to_string())?;
                Some(usable(&text, &network).with_context(|| file.display().to_string())?)
            }
            None => measuring.as_client.then(measure::no_paths),
        };
        plan(args, &network, &ready.choice, given.clone())?;
        (ready.network, ready.given) = (network, given);
        Ok(())
    }
}

/// Paths that can still be used: relays come and go.
fn usable(text: &str, network: &CircuitNetwork) -> Result<Vec<Vec<usize>>> {
    let find = |id: &str| network.find(id);
    let paths = text.lines().filter_map(|line| file::find("", line, find).ok());
    let paths: Vec<_> = paths.flatten().collect();
    if paths.is_empty() {
        bail!("the network no longer has relays for any of the paths");
    }
    Ok(paths)
}

/// Whether downloads have lines already; then each further slot gets one too.
pub(super) fn has_lines(args: &ServeArgs) -> bool {
    args.terms.is_some() && is_shelf(&args.keeping.dir)
}

/// Endless circuits.
pub(super) fn plan(
    args: &ServeArgs,
    network: &CircuitNetwork,
    choice: &Choice,
    given: Option<Vec<Vec<usize>>>,
) -> Result<PathPlan> {
    measure::plan(&args.measuring, network, choice, given, u64::MAX, Default::default())
}
