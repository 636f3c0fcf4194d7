//! `downloads run --arms`: arms take turns, each download with its arm's client and paths.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ff_circuits::record::CircuitRecord;
use ff_report::input::Inputs;
use ff_report::teller::Teller;

use super::client::{Chosen, Job, State as StateDir, say, with_client};
use super::measure::{self, Came, Ready};
use super::paths::weigh;
use crate::arms::{Arm, TorrcLine, parse, turn};
use crate::cli::measure::{ClientKind, MeasureArgs, Measuring};
use crate::cli::paths::Drawing;
use crate::client::Client;
use crate::client::tor::{Tor, TorLock, find};
use crate::course::{Ended, Keeper, RunCounts, State, ToFile};
use crate::path::PathPlan;
use crate::schedule::{Gate, ScheduleLimits, Task};
use crate::signals::Signals;
use crate::store::{CircuitRunOptions, Opened, Store};

/// Default rate of new circuits, per second.
const PER_SEC: f64 = 1.0;

/// An arm, read and checked.
struct ReadyArm {
    name: String,
    measuring: Measuring,
    /// Options for tor, by name and value.
    torrc: Vec<(String, String)>,
    ready: Ready,
    plan: PathPlan,
    /// Keeps other processes from changing its tor's options.
    _lock: Option<Arc<TorLock>>,
}

/// Downloads with each arm in turn.
///
/// # Errors
/// If something cannot be read or written, if tor refuses an arm's options, or if too many circuits
/// fail.
pub(super) fn run(args: &MeasureArgs, file: &Path) -> Result<ExitCode> {
    let mut inputs = Inputs::default();
    let arms = read(file, &args.measuring, &mut inputs)?;
    let states = states(&args.measuring, &arms)?;
    let ready = |arm: &Arm| ready(args, arm, file, states.path(), &mut inputs);
    let mut arms = arms.iter().map(ready).collect::<Result<Vec<_>>>()?;
    let sha256 = inputs.all().iter().map(|input| input.sha256.clone());
    let paths = arms.iter().filter_map(|arm| arm.ready.paths_sha256.clone());
    let arms_sha256: Vec<String> = sha256.chain(paths).collect();
    let per_sec = args.rate.unwrap_or(PER_SEC);
    let Some(first) = arms.first() else { bail!("{} has no arms", file.display()) };
    let options = measure::options(&args.measuring, &first.ready, per_sec);
    let options = CircuitRunOptions { path_file: None, arms_sha256, ..options };
    let came = take_turns(args, &mut arms, &options)?;
    super::output::show(&measure::summary(&args.recording, &came.counts))?;
    came.judged().map(|()| ExitCode::SUCCESS)
}

/// Reads the arms of a file; the run's client is the default.
///
/// # Errors
/// If the file cannot be read or is invalid, with its line.
pub(super) fn read(file: &Path, run: &Measuring, inputs: &mut Inputs) -> Result<Vec<Arm>> {
    let text = String::from_utf8(inputs.read(file)?).with_context(|| file.display().to_string())?;
    parse(file, &text, run.client, run.as_client).map_err(anyhow::Error::msg)
}

/// Folder for the state of each arm whose Arti chooses its own paths.
///
/// # Errors
/// If it cannot be created, or if a folder is given that no arm needs.
pub(super) fn states(run: &Measuring, arms: &[Arm]) -> Result<StateDir> {
    if run.state.is_some() && !arms.iter().any(has_state) {
        bail!(
            "--state is only for arms with client = \"arti\" and as-client = true, and there is none: leave it out"
        );
    }
    StateDir::new(run.state.as_deref())
}

/// Whether the arm's client keeps its state in our folder.
fn has_state(arm: &Arm) -> bool {
    arm.as_client && arm.client == ClientKind::Arti
}

/// The run's options with those of an arm; Arti's state is below `states`.
pub(super) fn measuring(arm: &Arm, run: &Measuring, states: &Path) -> Measuring {
    Measuring {
        client: arm.client,
        path_file: arm.path_file.clone(),
        drawing: Drawing { rules: arm.rules(&run.drawing.rules), seed: run.drawing.seed },
        as_client: arm.as_client,
        state: has_state(arm).then(|| states.join(&arm.name)),
        ..run.clone()
    }
}

/// Applies the weights of an arm's bandwidth file, if it has one, to its network.
///
/// # Errors
/// If the weights cannot be used.
pub(super) fn weigh_for(arm: &Arm, ready: &mut Ready, inputs: &mut Inputs) -> Result<()> {
    let Some(file) = &arm.weights else { return Ok(()) };
    weigh(&mut ready.network.pool, ready.choice.rules, file, inputs)
        .with_context(|| format!("arm {}", arm.name))
}

/// No tor can check the options of an arm.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotAsked(String);

/// Checks with tor the options of an arm from this file.
///
/// # Errors
/// [`NotAsked`]; if tor refuses an option, with its line and tor's message.
pub(super) fn check_options(arm: &Arm, file: &Path, ready: &Ready) -> Result<Option<Arc<TorLock>>> {
    if arm.client != ClientKind::Tor {
        return Ok(None);
    }
    let not_asked = |reason| NotAsked(format!("arm {}: {reason}", arm.name));
    let lock = TorLock::take(&find(&ready.dir).map_err(not_asked)?).map_err(anyhow::Error::msg)?;
    let left_over = Tor::not_of_torrc(&ready.dir, &arm.options()).map_err(not_asked)?;
    if !left_over.is_empty() {
        say(&format!(
            "arm {}: tor has options that are not in its torrc: {}. If a killed run left them, send SIGHUP to tor; otherwise \
             they apply to all arms",
            arm.name,
            left_over.join(", ")
        ));
    }
    let refused = Tor::refused(&ready.dir, &arm.options()).map_err(not_asked)?;
    if let Some((line, reply)) = refused.and_then(|(at, reply)| Some((arm.torrc.get(at)?, reply))) {
        let TorrcLine { line, option, .. } = line;
        bail!("{}, line {line}: tor refuses {option} of arm {}: {reply}", file.display(), arm.name);
    }
    Ok(Some(lock))
}

/// Reads the inputs of an arm.
fn ready(
    args: &MeasureArgs,
    arm: &Arm,
    file: &Path,
    states: &Path,
    inputs: &mut Inputs,
) -> Result<ReadyArm> {
    let name = || format!("arm {}", arm.name);
    let measuring = measuring(arm, &args.measuring, states);
    let mut ready = measure::ready(args, &measuring).with_context(name)?;
    weigh_for(arm, &mut ready, inputs)?;
    let lock = check_options(arm, file, &ready)?;
    let (choice, given) = (&ready.choice, ready.given.clone());
    let plan = measure::plan(&measuring, &ready.network, choice, given, u64::MAX, HashSet::new());
    let plan = plan.with_context(name)?;
    let (name, torrc) = (arm.name.clone(), arm.options());
    Ok(ReadyArm { name, measuring, torrc, ready, plan, _lock: lock })
}

/// Downloads until the last one, or until something ends the run.
fn take_turns(
    args: &MeasureArgs,
    arms: &mut [ReadyArm],
    options: &CircuitRunOptions,
) -> Result<Came> {
    let recording = &args.recording;
    let Opened { mut store, done, note } = Store::open(&recording.out, options, recording.resume)?;
    note.iter().for_each(|note| say(note));
    let per_sec = args.rate.unwrap_or(PER_SEC);
    let limits = measure::limits(&args.measuring, per_sec, recording.failures);
    let mut state = State::new(limits, Box::new(std::iter::empty()));
    let (mut counts, mut ended) = (RunCounts::default(), Ok(Ok(())));
    let count = arms.len();
    for number in 0..args.count {
        let arm = &mut arms[turn(count, number, args.measuring.drawing.seed)];
        // Draw the path of a finished download too, so that later paths are the same as without a
        // break.
        let Some(task) = arm.plan.next() else { break };
        if done.contains(&number) {
            continue;
        }
        let (arm, task) = (&*arm, Task { number, ..task });
        let (state, store, counts) = (&mut state, &mut store, &mut counts);
        let slot = Slot { arm, task, limits, state, store, counts };
        let (Ready { dir, network, .. }, torrc) = (&arm.ready, arm.torrc.as_slice());
        let &Measuring { client: kind, as_client, ref state, .. } = &arm.measuring;
        let chosen = Chosen { kind, as_client, state: state.as_deref(), torrc, dir, network };
        ended = with_client(chosen, slot).with_context(|| format!("arm {}", arm.name));
        if !matches!(ended, Ok(Ok(()))) {
            break;
        }
    }
    store.finish()?;
    let wanted = args.count.saturating_sub(done.len() as u64);
    Ok(Came { counts, wanted, ended: ended? })
}

/// One download.
struct Slot<'a> {
    arm: &'a ReadyArm,
    task: Task,
    /// Limits of the schedule.
    limits: ScheduleLimits,
    /// Progress of the run.
    state: &'a mut State,
    store: &'a mut Store,
    /// Counts of the run so far.
    counts: &'a mut RunCounts,
}

impl Job for Slot<'_> {
    type Done = Result<(), Ended>;

    async fn run<C: Client>(self, client: C, signals: Signals) -> Result<Self::Done> {
        let Self { arm, task, limits, state, store, counts } = self;
        let (ready, client) = (&arm.ready, Arc::new(client));
        let target = ready.target.clone();
        let course = measure::course(&arm.measuring, limits, client, &ready.network, target);
        state.scheduler.renew(course.tasks(std::iter::once(task)));
        let before = std::mem::take(counts);
        let teller = Teller::default();
        let file = ToFile { store, counts: before, signals, is_over: false, teller };
        let mut keeper = ToArm { arm: &arm.name, file };
        let ended = course.run(state, &mut keeper).await;
        *counts = keeper.file.counts;
        Ok(ended)
    }
}

/// Stores circuits with the name of their arm.
struct ToArm<'a> {
    arm: &'a str,
    file: ToFile<'a>,
}

impl Keeper for ToArm<'_> {
    fn keep(&mut self, circuit: CircuitRecord) -> Result<(), Ended> {
        self.file.keep(CircuitRecord { arm: Some(self.arm.to_owned()), ..circuit })
    }

    fn gate(&mut self, in_flight: usize) -> Result<Gate, Ended> {
        self.file.gate(in_flight)
    }

    fn second(&mut self, in_flight: usize) {
        self.file.second(in_flight);
    }

    async fn called(&mut self) {
        self.file.called().await;
    }
}
