//! The process of a node: start, stop, signals and resources.

use std::fs::File;
use std::process::Command;
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Node, Role};
use crate::control::{Control, SOCKET};
use crate::error::{Error, Result};
use crate::hosts::inside;
use crate::keys::Identity;
use crate::leftovers::mark;
use crate::process::{self, Connection, Process};
use crate::torrc::EMPTY_FILE;

/// Longest wait for steps that take tor a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    /// tor ends when this connection closes, as it does when the test is killed.
    owner: Option<Control>,
}

impl Node {
    /// Ends the process, if it runs.
    pub fn stop(&self) {
        *self.running() = None;
    }

    /// Ends the process if it runs, and starts it with the same keys and ports.
    ///
    /// Returns when the control port answers, and for a client when it has bootstrapped. Other
    /// nodes lose their connections to it.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of the log, for example if the torrc is invalid.
    pub fn restart(&self) -> Result<()> {
        self.stop();
        self.spawn()?;
        self.wait_until_controllable()?;
        if self.role == Role::Client { self.wait_until_bootstrapped() } else { Ok(()) }
    }

    /// Asks tor to read its torrc again (SIGHUP), without waiting.
    ///
    /// For a relay at its `BandwidthRate` with `CountPrivateBandwidth`: control connections also
    /// wait for their share of the rate, perhaps longer than [`Self::reload`] waits.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn ask_to_reload(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Has tor read its torrc again (SIGHUP), and waits until it has.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of the log: a tor that cannot read its torrc ends.
    pub fn reload(&self) -> Result<()> {
        let mut control = self.control()?;
        control.subscribe(&["SIGNAL"])?;
        self.ask_to_reload()?;
        let what = format!("{} did not reload", self.name);
        self.wait_until(&what, PATIENCE, || match control.next_event(Duration::from_millis(100)) {
            Ok(event) => Ok(event.filter(|event| event.text == "RELOAD").map(drop)),
            // The connection closes a moment before the process ends.
            Err(_) => Ok(None),
        })
    }

    /// Waits until tor knows enough of the network to build circuits. A client with cached
    /// documents does so before it reports that it has bootstrapped.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the end of the log, and [`Error::Exited`].
    pub fn wait_for_enough_documents(&self) -> Result<()> {
        let mut control = self.control()?;
        let what = format!("{} did not learn enough about the network", self.name);
        self.wait_until(&what, PATIENCE, || {
            Ok((control.getinfo("status/enough-dir-info")? == "1").then_some(()))
        })
    }

    /// The process id.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub fn pid(&self) -> Result<u32> {
        let not_running = || Error::NotRunning { node: self.name.clone() };
        self.running().as_ref().map(|running| running.process.pid()).ok_or_else(not_running)
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.check_running().is_ok()
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// If the process does not run.
    pub fn rss_bytes(&self) -> Result<u64> {
        process::rss_bytes(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// CPU time since the process's start, in the scheduler's precision (ns).
    ///
    /// # Errors
    /// If the process does not run.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// Number of open sockets, including listening ones.
    ///
    /// # Errors
    /// If the process does not run.
    pub fn open_connections(&self) -> Result<usize> {
        process::open_sockets(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// TCP connections of the process.
    pub(crate) fn connections(&self) -> Result<Vec<Connection>> {
        process::connections(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// Starts the process without waiting for it.
    pub(crate) fn spawn(&self) -> Result<()> {
        let path = self.dir.join(SOCKET);
        if path.as_os_str().len() > 107 {
            return Err(Error::PathTooLong { path });
        }
        let mut command = Command::new(&self.tor);
        command.arg("-f").arg(self.torrc());
        // The machine's defaults must not apply here.
        command.arg("--defaults-torrc").arg(self.dir.join(EMPTY_FILE));
        File::create(self.dir.join(EMPTY_FILE)).map_err(Error::io("create an empty file"))?;
        // A tor that loses its owner ends by itself, but 0.4.9 sometimes hangs in its exit, where
        // its threads wait for each other. The mark lets the next network end it.
        mark(&mut command)?;
        let spawn = || Process::spawn(&mut command, &self.dir.join("out"), self.core);
        let process = inside(self.host(), spawn)?
            .map_err(|source| Error::Program { program: self.tor.clone(), source })?;
        *self.running() = Some(Running { process, owner: None });
        Ok(())
    }

    /// Waits until the control port answers, takes ownership of tor, and stores its identity.
    pub(crate) fn wait_until_controllable(&self) -> Result<()> {
        let what = format!("{} did not open its control port", self.name);
        let mut owner = self.wait_until(&what, PATIENCE, || Ok(Control::open(&self.dir).ok()))?;
        owner.command("TAKEOWNERSHIP")?;
        if let Some(running) = &mut *self.running() {
            running.owner = Some(owner);
        }
        if self.role != Role::Client && self.identity.get().is_none() {
            let _ = self.identity.set(Identity::read(&self.dir)?);
        }
        Ok(())
    }

    pub(crate) fn wait_until_bootstrapped(&self) -> Result<()> {
        let mut control = self.control()?;
        let what = format!("{} did not bootstrap", self.name);
        self.wait_until(&what, PATIENCE, || {
            let phase = control.getinfo("status/bootstrap-phase")?;
            Ok(phase.contains("PROGRESS=100 ").then_some(()))
        })
    }

    /// Polls until `look` returns a value; fails early if the process ends or the end is asked for.
    pub(crate) fn wait_until<T>(
        &self,
        what: &str,
        after: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + after;
        loop {
            let found = look();
            self.ending.check()?;
            // A tor that has ended is the cause of all other failures.
            self.check_running()?;
            if let Some(found) = found? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let detail = format!("; the end of its log:\n{}", self.log_tail());
                return Err(Error::Timeout { what: what.to_owned(), after, detail });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the process, if it runs.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let mut running = self.running();
        let sent = running.as_mut().map_or(Ok(()), |running| running.process.signal(signal));
        sent.map_err(Error::io(format!("signal {}", self.name)))
    }

    /// Fails if the process does not run or has ended by itself.
    pub(crate) fn check_running(&self) -> Result<()> {
        let mut running = self.running();
        let Some(Running { process, .. }) = &mut *running else {
            return Err(Error::NotRunning { node: self.name.clone() });
        };
        match process.exit_status() {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                node: self.name.clone(),
                status: status.to_string(),
                log: self.log_tail(),
            }),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
