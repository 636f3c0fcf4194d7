//! The invariants under any faults, checked with the targets' messages, the store and the published
//! file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ff_dir::bandwidth::{Reading, Severity};
use ff_store::{Seconds, Store, StoreError};

use crate::documents::now;
use crate::pulse::Pulse;
use crate::target::{Heard, Said};
use crate::world::{MEASUREMENT, TARGETS, World};

/// How long a target may be limited beyond what it was asked for, or beyond its coordinator's life,
/// while it runs.
pub(crate) const AFTER: Duration = Duration::from_secs(2);
/// How long a target keeps what it has granted, if nobody comes (PROTOCOL.md §7).
const GRANT_KEPT: Duration = Duration::from_secs(30);

/// A measurement as its target saw it.
#[derive(Clone, Debug)]
struct Measurement {
    /// Its name.
    name: String,
    /// When it was granted.
    granted: Instant,
    /// Since when clients were limited.
    started: Option<Instant>,
    /// When it was over, in the target's view or by its death.
    ended: Option<Instant>,
    /// Whether it went to its end as planned.
    is_complete: bool,
}

/// The witness's records of a target.
#[derive(Default)]
struct Seen {
    /// Its measurements.
    measurements: Vec<Measurement>,
    /// Its refusals, by code.
    refused: BTreeMap<String, u64>,
    /// When it ran: it stands still where the test has stopped it, and where the machine is busy.
    pulse: Pulse,
}

impl Seen {
    /// The measurement with this name, of the target with that number.
    fn find(&mut self, target: usize, name: &str) -> &mut Measurement {
        let found = self.measurements.iter_mut().rev().find(|one| one.name == name);
        found.unwrap_or_else(|| panic!("t{target}: {name} was never granted"))
    }
}

/// An attempt in the store: these values must not change later.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Whose.
    fingerprint: [u8; 20],
    /// When it was over.
    finished: u64,
    /// The result: its verdict, or a failure's code.
    result: &'static str,
}

/// The witness.
pub(crate) struct Witness {
    /// The records of targets.
    targets: Vec<Seen>,
    /// Attempts that are finished, by id.
    rows: BTreeMap<i64, Row>,
    /// How many of them are older than the coordinator's process.
    before_start: usize,
    /// How often which result was seen.
    pub(crate) results: BTreeMap<&'static str, u64>,
    /// The watch on the published file.
    file: FileWatch,
}

impl Witness {
    /// One that has seen nothing yet.
    pub(crate) fn new(world: &World) -> Self {
        Self {
            targets: (0..TARGETS).map(|_| Seen::default()).collect(),
            rows: BTreeMap::new(),
            before_start: 0,
            results: BTreeMap::new(),
            file: FileWatch::start(world.path("v3bw/latest.v3bw")),
        }
    }

    /// Takes in what a target has said.
    pub(crate) fn hear(&mut self, heard: &Heard) {
        let (target, at) = (heard.target, heard.at);
        let seen = &mut self.targets[target];
        match &heard.said {
            Said::Granted(name) => seen.measurements.push(Measurement {
                name: name.clone(),
                granted: at,
                started: None,
                ended: None,
                is_complete: false,
            }),
            Said::Started(name) => seen.find(target, name).started = Some(at),
            Said::Ended(name, early) => {
                let one = seen.find(target, name);
                (one.ended, one.is_complete) = (Some(at), early.is_none());
            }
            Said::Refused(code) => *seen.refused.entry(code.clone()).or_default() += 1,
            Said::Up => {}
            Said::Pulse => seen.pulse.note(at),
            Said::Down => {
                let last = seen.pulse.last().unwrap_or(at);
                let open = seen.measurements.iter_mut().filter(|one| one.ended.is_none());
                open.for_each(|one| one.ended = Some(last.max(one.granted)));
                seen.pulse.end();
            }
        }
    }

    /// Whether nothing is granted or running anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        let mut all = self.targets.iter().flat_map(|seen| &seen.measurements);
        all.all(|one| one.ended.is_some())
    }

    /// Whether all is over that was granted until then.
    pub(crate) fn is_over_until(&self, until: Instant) -> bool {
        let mut all = self.targets.iter().flat_map(|seen| &seen.measurements);
        all.all(|one| one.ended.is_some() || one.granted > until)
    }

    /// How many measurements each target has seen to their end as planned.
    pub(crate) fn complete(&self) -> Vec<usize> {
        let complete = |seen: &Seen| seen.measurements.iter().filter(|one| one.is_complete).count();
        self.targets.iter().map(complete).collect()
    }

    /// Fails unless all holds. `killed` is when the coordinator was killed, if that was the fault.
    pub(crate) fn check(&mut self, world: &World, killed: Option<Instant>) {
        for (number, seen) in self.targets.iter().enumerate() {
            check_target(number, seen, &world.proxies, killed);
        }
        self.check_store(world);
        self.file.check();
    }

    /// Notes that the coordinator is dead and will be started again.
    pub(crate) fn note_restart(&mut self, world: &World) {
        self.check_store(world);
        self.before_start = self.rows.len();
    }

    /// Fails if the store has lost or changed something, or does not know of what a target was
    /// asked.
    fn check_store(&mut self, world: &World) {
        let status = ff_bwauth::watch::client::status(&format!("http://{}", world.page));
        let store = Store::open_read_only(&world.path("state/store.sqlite")).expect("the store");
        let mut rows = BTreeMap::new();
        let mut plans = BTreeMap::<_, u64>::new();
        let all = store.attempts::<StoreError>(0..u64::MAX, Seconds::Without, |attempt| {
            let result = match &attempt.outcome.result {
                Ok(_) => attempt.outcome.verdict_name(),
                Err(failure) => failure.code(),
            };
            if let Some(plan) = attempt.plan {
                *plans.entry(plan).or_default() += 1;
            }
            let (fingerprint, finished) = (attempt.fingerprint, attempt.finished_unix_secs);
            rows.insert(attempt.id.0, Row { fingerprint, finished, result });
            Ok(())
        });
        all.expect("every attempt has a result or a known failure");
        for (id, row) in &self.rows {
            assert_eq!(rows.get(id), Some(row), "the attempt {id} was finished");
        }
        assert!(plans.values().all(|count| *count == 1), "a row of the plan is carried out once");
        if let Ok(status) = status {
            let saved = usize::try_from(status.finished - status.unsaved).expect("a small number");
            let stored = rows.len() - self.before_start;
            assert!(stored >= saved, "{stored} of {saved} finished are stored");
        }
        let running = store.running().expect("what is running");
        for (fingerprint, seen) in world.fingerprints.iter().zip(&self.targets) {
            let stored = rows.values().filter(|row| row.fingerprint == *fingerprint).count()
                + running.iter().filter(|one| one.begin.fingerprint == *fingerprint).count();
            let granted = seen.measurements.len();
            assert!(granted <= stored, "a target granted {granted}, the store knows of {stored}");
        }
        for (id, row) in &rows {
            if !self.rows.contains_key(id) {
                *self.results.entry(row.result).or_default() += 1;
            }
        }
        self.rows = rows;
    }

    /// How many attempts are finished.
    pub(crate) fn finished(&self) -> usize {
        self.rows.len()
    }

    /// How many bandwidth files were seen.
    pub(crate) fn files(&self) -> u64 {
        self.file.shared.files.load(Ordering::Relaxed)
    }

    /// The targets' refusals, by code.
    pub(crate) fn refusals(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (code, count) in self.targets.iter().flat_map(|seen| &seen.refused) {
            *all.entry(code.clone()).or_default() += count;
        }
        all
    }
}

/// Fails if a target was asked too often or limited too long, by its own clock and while it ran. It
/// learns of its coordinator's death by proxies.
fn check_target(number: usize, seen: &Seen, proxies: &Pulse, killed: Option<Instant>) {
    assert!(!seen.refused.contains_key("too_soon"), "t{number} was asked beyond its grants");
    for one in &seen.measurements {
        let end = one.ended.or(seen.pulse.last()).unwrap_or(one.granted);
        let since = |when: Instant| end.saturating_duration_since(when);
        let still = seen.pulse.still(one.granted, end);
        let limited = one.started.map_or(Duration::ZERO, since);
        let most = MEASUREMENT + AFTER + still;
        assert!(limited <= most, "t{number} was limited for {limited:.1?}: {one:?}");
        let waited = one.started.unwrap_or(end).saturating_duration_since(one.granted);
        let most = GRANT_KEPT + AFTER + still;
        assert!(waited <= most, "t{number} waited for {waited:.1?}: {one:?}");
        let Some(killed) = killed.filter(|killed| one.granted <= *killed && end > *killed) else {
            continue;
        };
        let after = end - killed;
        let most = AFTER + seen.pulse.still(killed, end) + proxies.still(killed, end);
        assert!(after <= most, "t{number}: {after:.1?} after its coordinator's death: {one:?}");
    }
}

/// Looks at the published file all the time.
struct FileWatch {
    /// The findings.
    shared: Arc<Found>,
}

/// The findings of the watch.
#[derive(Default)]
struct Found {
    /// The first error found.
    wrong: Mutex<Option<String>>,
    /// How many files there were.
    files: AtomicU64,
    /// Whether the watch should end.
    is_over: AtomicBool,
}

impl FileWatch {
    /// Begins to look.
    fn start(path: PathBuf) -> Self {
        let shared = Arc::new(Found::default());
        let found = shared.clone();
        std::thread::spawn(move || {
            let mut last = Vec::new();
            while !found.is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                match std::fs::read(&path) {
                    Ok(bytes) if bytes == last => {}
                    Ok(bytes) => {
                        found.look(&bytes);
                        last = bytes;
                    }
                    // Once there is one, there always is.
                    Err(error) if !last.is_empty() => found.tell(error.to_string()),
                    Err(_) => {}
                }
            }
        });
        Self { shared }
    }

    /// Fails if something was wrong with a file.
    fn check(&self) {
        let wrong = self.shared.wrong.lock().expect("nobody panicked with it").clone();
        assert_eq!(wrong, None, "a bandwidth file was not whole");
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

impl Found {
    /// Looks at a file: authorities would take all of it, and it has all relays that it speaks of.
    fn look(&self, bytes: &[u8]) {
        self.files.fetch_add(1, Ordering::Relaxed);
        let reading = Reading::of(bytes, now());
        let bad = reading.findings.iter().find(|finding| finding.severity >= Severity::Skipped);
        if let Some(bad) = bad {
            self.tell(format!("{bad:?}"));
        }
        if bytes.last() != Some(&b'\n') {
            self.tell("it ends within a line".to_owned());
        }
    }

    /// Notes what is wrong, if nothing was before.
    fn tell(&self, what: String) {
        let mut wrong = self.wrong.lock().expect("nobody panicked with it");
        wrong.get_or_insert(what);
    }
}
