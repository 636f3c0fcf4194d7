//! Stores the circuits of `serve` and decides when new ones may begin.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use ff_circuits::network;
use ff_circuits::record::{CircuitRecord, Client, Stage, Whose};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::orders::Orders;
use super::waiting::Waiting;
use crate::cli::serve::ServeArgs;
use crate::clocks::{Now, now};
use crate::course::{Ended, Keeper, Refusal, failure};
use crate::figures::Figures;
use crate::probe::not_begun;
use crate::run::client::say;
use crate::schedule::Gate;
use crate::store::CircuitRunOptions;
use crate::store::shelf::Shelf;
use crate::target::StreamTarget;

/// Time for circuits to finish after a signal.
const GRACE: Duration = Duration::from_secs(5);
/// Failures in a row that are reported.
const MANY: u32 = 10;
/// Faults of the client in a row after which it is replaced.
const CLIENT_FAULTS: u32 = 3;
/// Reason of a slot without a download while Arti is starting.
const NOT_READY: &str = "Arti does not have the network's documents yet";
/// Interval of attempts to write a day's file.
const DAYS_AGAIN: Duration = Duration::from_secs(60);

/// Reads the clocks.
pub(super) type Clock = Box<dyn Fn() -> Now>;

/// Stores the circuits and controls the run.
pub(super) struct Serving {
    shelf: Shelf,
    figures: Figures,
    /// Lines that could not be written yet.
    unwritten: Waiting,
    /// When to try OnionPerf's files again, by the monotonic clock.
    days_from: Duration,
    /// Last error of the daily files.
    days_trouble: Option<String>,
    /// Number of the next circuit.
    next: u64,
    /// Number of lines written.
    written: u64,
    /// Number of signals received.
    signals: watch::Receiver<u32>,
    /// Time of the first signal.
    ending: Option<Instant>,
    /// Circuits in flight.
    in_flight: usize,
    documents: Documents,
    /// Failures since the last success.
    failures: u32,
    /// Faults of the client in a row.
    client_faults: u32,
    client: Client,
    /// Whether the client chooses its own paths.
    as_client: bool,
    /// Arm of the circuits, if there are arms.
    arm: Option<String>,
    /// Attempts so far to read the network's documents again.
    looks: u64,
    /// Target of downloads.
    target: Option<StreamTarget>,
    /// Sizes and budget, if only downloads are measured: then each slot gets a line.
    orders: Option<Orders>,
    /// Clocks of files and budgets.
    clock: Clock,
    /// Whether postponed downloads were logged.
    has_said_put_off: bool,
}

/// State of the network's documents.
struct Documents {
    dir: PathBuf,
    /// Interval of checks.
    every: Duration,
    /// Time of the next check.
    next: Instant,
    /// Files at the last check: path, time, length.
    stamp: Vec<(PathBuf, SystemTime, u64)>,
    /// Whether they have changed.
    are_new: bool,
    /// Last error of the lines, or of the client.
    trouble: Option<String>,
}

impl Serving {
    /// Starts with a shelf and the number of the next circuit.
    pub(super) fn new(
        args: &ServeArgs,
        dir: &Path,
        (shelf, next): (Shelf, u64),
        figures: Figures,
        signals: watch::Receiver<u32>,
    ) -> Self {
        let (every, began) = (Duration::from_secs(args.keeping.refresh), Instant::now());
        let documents = Documents {
            dir: dir.to_owned(),
            every,
            next: Instant::now() + every,
            stamp: network::stamp(dir),
            are_new: false,
            trouble: None,
        };
        Self {
            shelf,
            figures,
            unwritten: Waiting::default(),
            days_from: Duration::ZERO,
            days_trouble: None,
            next,
            written: 0,
            signals,
            ending: None,
            in_flight: 0,
            documents,
            failures: 0,
            client_faults: 0,
            client: args.measuring.client.into(),
            as_client: args.measuring.as_client,
            arm: None,
            looks: 0,
            target: args.measuring.target.clone(),
            orders: None,
            clock: Box::new(move || now(began)),
            has_said_put_off: false,
        }
    }

    /// Sets sizes and budget of downloads, if any, and the clocks.
    pub(super) fn set_orders(&mut self, orders: Option<Orders>, clock: Clock) {
        (self.orders, self.clock) = (orders, clock);
        self.tell_left();
    }

    /// Sets the client of the following circuits, whether it chooses its own paths, and their arm,
    /// if there are arms.
    pub(super) fn set_arm(&mut self, client: Client, as_client: bool, arm: Option<String>) {
        (self.client, self.as_client, self.arm) = (client, as_client, arm);
    }

    /// Attempts so far to read the network's documents again.
    pub(super) const fn looks(&self) -> u64 {
        self.looks
    }

    /// Compares options that were unknown at the start with those of the lines; returns a note to
    /// log, if any.
    ///
    /// # Errors
    /// If they differ.
    pub(super) fn check(&self, options: &CircuitRunOptions) -> Result<Option<String>> {
        Ok(self.shelf.check(options)?)
    }

    /// Number of the next circuit.
    pub(super) const fn next_number(&self) -> u64 {
        self.next
    }

    /// Whether a signal was received.
    pub(super) const fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether a second signal asks not to wait for circuits.
    fn is_hurried(&self) -> bool {
        *self.signals.borrow() > 1
    }

    /// Whether the client has stopped working.
    pub(super) const fn is_client_lost(&self) -> bool {
        self.client_faults >= CLIENT_FAULTS
    }

    /// Resets the client's faults, for a new client.
    pub(super) fn has_client(&mut self) {
        self.client_faults = 0;
    }

    /// Records that no client could be started; the slot of a download gets a line nevertheless.
    pub(super) fn no_client(&mut self, reason: &str, run_began: Instant) {
        self.complain(reason);
        let Some(orders) = &self.orders else {
            self.figures.note_no_client();
            return;
        };
        let asked = self.target.as_ref().map(|target| target.asked(orders.wanted()));
        let (number, reason) = (self.next, reason.to_owned());
        let mut line = not_begun(self.client, number, run_began, Stage::Client, reason);
        line.download = asked;
        self.take(line);
    }

    /// Stores a finished circuit.
    fn take(&mut self, circuit: CircuitRecord) {
        let (as_client, arm) = (self.as_client, self.arm.clone());
        let circuit = CircuitRecord { as_client, arm, ..circuit };
        self.figures.note(&circuit);
        self.judge(&circuit);
        self.next = self.next.max(circuit.number + 1);
        if let Some(orders) = &mut self.orders {
            orders.ended(&circuit, (self.clock)());
        }
        if !self.unwritten.add(circuit) {
            self.figures.note_dropped();
        }
        self.write();
        self.write_day();
        self.tell_left();
    }

    /// Writes OnionPerf's file of a day that is over, if any. No circuit may be in flight
    /// meanwhile: it would be late, and may belong to that day.
    fn write_day(&mut self) {
        let now = (self.clock)();
        if now.elapsed < self.days_from || !self.unwritten.is_empty() {
            return;
        }
        match self.shelf.write_day(now) {
            Ok(None) => {}
            Ok(Some(path)) => {
                say(&format!("wrote {}", path.display()));
                self.days_trouble = None;
            }
            Err(error) => {
                self.days_from = now.elapsed.saturating_add(DAYS_AGAIN);
                let trouble = Some(error.to_string());
                if self.days_trouble != trouble {
                    say(&format!("{error}; trying again every minute"));
                    self.days_trouble = trouble;
                }
            }
        }
    }

    /// Updates the metrics of the bytes left.
    fn tell_left(&self) {
        let data = self.orders.as_ref().and_then(Orders::left_bytes);
        self.figures.left(data, self.shelf.left_bytes());
    }

    /// Records that the network's documents were read again, with the time in seconds since 1970
    /// from which they are valid, or could not be.
    pub(super) fn looked(&mut self, read: Result<u64, String>) {
        self.documents.are_new = false;
        self.looks += 1;
        match read {
            Ok(valid_after_unix_secs) => {
                self.figures.documents(valid_after_unix_secs);
                self.documents.trouble = None;
            }
            Err(reason) => self.complain(&format!("{reason}; the previous documents stay in use")),
        }
    }

    /// Waits, with the work of every second; returns whether a signal was received.
    pub(super) fn pause(&mut self, time: Duration) -> Result<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("Failed to start the runtime")?;
        Ok(runtime.block_on(self.idle(time)))
    }

    /// The same within a runtime.
    async fn idle(&mut self, time: Duration) -> bool {
        let waiting = async {
            while !self.is_ending() {
                self.breathe().await;
                self.second(0);
                self.figures.stand(0, self.unwritten.len());
            }
        };
        // A timeout is not an error.
        let _ = timeout(time, waiting).await;
        self.is_ending()
    }

    /// Waits for a client that starts; each slot of this time gets a line. Returns whether a signal
    /// was received. With several arms, waits for one slot only.
    pub(super) async fn await_client(
        &mut self,
        slot: Duration,
        arms: u64,
        run_began: Instant,
    ) -> bool {
        while !self.idle(slot).await {
            self.no_client(NOT_READY, run_began);
            if arms > 1 {
                return false;
            }
        }
        true
    }

    /// Waits a second, or until a signal.
    pub(super) async fn breathe(&mut self) {
        tokio::select! {
            () = self.called() => {}
            () = sleep(Duration::from_secs(1)) => {}
        }
    }

    /// Writes waiting lines, logs how the run ended, and syncs all lines to the disk.
    ///
    /// # Errors
    /// If lines are lost.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write();
        let cause = match (self.is_ending(), self.is_hurried()) {
            (true, true) => "a second signal",
            (true, false) => "a signal",
            (false, _) => "an error",
        };
        let (written, given_up) = (self.written, self.in_flight);
        say(&format!(
            "ended by {cause}: {written} circuits written, {given_up} in flight given up"
        ));
        let kept = self.shelf.finish();
        if let Some(reason) = self.unwritten.full() {
            bail!("{} circuits could not be written: {reason}", self.unwritten.len());
        }
        Ok(kept?)
    }

    /// Writes waiting lines, as far as possible.
    fn write(&mut self) {
        self.written += self.unwritten.write(&mut self.shelf, (self.clock)());
    }

    /// Logs an error, but not repeatedly.
    fn complain(&mut self, reason: &str) {
        if self.documents.trouble.as_deref() != Some(reason) {
            say(reason);
            self.documents.trouble = Some(reason.to_owned());
        }
    }

    /// Counts consecutive failures.
    fn judge(&mut self, circuit: &CircuitRecord) {
        let Some(fault) = &circuit.failure else {
            if self.failures >= MANY {
                say("circuits succeed again");
            }
            (self.failures, self.client_faults) = (0, 0);
            return;
        };
        if matches!(fault.stage, Stage::Budget | Stage::Disk) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let is_ours = fault.whose == Whose::Client;
        self.client_faults = if is_ours { self.client_faults.saturating_add(1) } else { 0 };
        if self.failures == MANY {
            let last = failure(circuit);
            say(&format!(
                "the last {MANY} circuits failed; trying again; the last failure: {last}"
            ));
        }
    }
}

impl Keeper for Serving {
    fn keep(&mut self, circuit: CircuitRecord) -> Result<(), Ended> {
        self.take(circuit);
        Ok(())
    }

    fn order(&mut self, bytes: u64) -> Result<u64, Refusal> {
        let Some(orders) = &mut self.orders else { return Ok(bytes) };
        if let Some(reason) = self.unwritten.full() {
            return Err(Refusal { stage: Stage::Disk, reason: reason.to_owned() });
        }
        let order = orders.next((self.clock)());
        match &order {
            Err(reason) if !self.has_said_put_off => {
                say(&format!("{reason}; downloads are put off until there is room"));
            }
            Ok(_) if self.has_said_put_off => say("downloads continue"),
            _ => {}
        }
        self.has_said_put_off = order.is_err();
        order.map_err(|reason| Refusal { stage: Stage::Budget, reason })
    }

    fn gate(&mut self, in_flight: usize) -> Result<Gate, Ended> {
        self.in_flight = in_flight;
        self.figures.stand(in_flight, self.unwritten.len());
        if let Some(since) = self.ending {
            let is_over = since.elapsed() > GRACE || self.is_hurried();
            return if is_over { Err(Ended::Signal) } else { Ok(Gate::Closed) };
        }
        if self.documents.are_new || self.is_client_lost() {
            return Ok(Gate::Closed);
        }
        // While the disk is full, a slot of a download gets a line but no download.
        let is_open = self.unwritten.is_empty() || self.orders.is_some();
        Ok(if is_open { Gate::Open } else { Gate::Held })
    }

    fn second(&mut self, in_flight: usize) {
        self.write();
        if in_flight == 0 {
            self.write_day();
        }
        let documents = &mut self.documents;
        if Instant::now() >= documents.next {
            documents.next = Instant::now() + documents.every;
            let stamp = network::stamp(&documents.dir);
            documents.are_new |= stamp != documents.stamp || documents.trouble.is_some();
            documents.stamp = stamp;
        }
    }

    async fn called(&mut self) {
        if self.signals.changed().await.is_err() {
            // Without a listener for signals none will come.
            std::future::pending::<()>().await;
        }
        self.ending.get_or_insert_with(Instant::now);
    }
}

#[cfg(test)]
mod tests;
