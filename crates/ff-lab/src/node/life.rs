//! The process of a node: starting, stopping, signals, and what it uses.

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

/// How long a tor may take for things that take it a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running tor.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    /// Tor ends when this connection closes, as it does when the test is killed.
    owner: Option<Control>,
}

impl Node {
    /// Ends the process; does nothing if it is not running.
    pub fn stop(&self) {
        *self.running() = None;
    }

    /// Ends the process if it is running, and starts it with the same keys and ports.
    ///
    /// Returns when its control port answers, and for a client when it has bootstrapped. Other
    /// nodes lose their connections to it.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log, if it does not like its torrc for instance.
    pub fn restart(&self) -> Result<()> {
        self.stop();
        self.spawn()?;
        self.wait_until_controllable()?;
        if self.role == Role::Client { self.wait_until_bootstrapped() } else { Ok(()) }
    }

    /// Asks it to read its torrc again (SIGHUP), and does not wait until it has.
    ///
    /// For a relay at its `BandwidthRate`: with `CountPrivateBandwidth`, its control connections
    /// wait for their share of that, too, and may do so for longer than [`Self::reload`] waits.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn ask_to_reload(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Has it read its torrc again (SIGHUP), and waits until it has.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log: a tor that cannot read its torrc then ends.
    pub fn reload(&self) -> Result<()> {
        let mut control = self.control()?;
        control.subscribe(&["SIGNAL"])?;
        self.ask_to_reload()?;
        let what = format!("{} did not reload", self.name);
        self.wait_until(&what, PATIENCE, || match control.next_event(Duration::from_millis(100)) {
            Ok(event) => Ok(event.filter(|event| event.text == "RELOAD").map(drop)),
            // The connection closes a moment before the process has ended.
            Err(_) => Ok(None),
        })
    }

    /// Waits until it knows enough of the network to build circuits; a client with cached documents
    /// does before it says that it has bootstrapped.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the end of its log, and [`Error::Exited`].
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

    /// Whether the process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.check_running().is_ok()
    }

    /// Its resident memory.
    ///
    /// # Errors
    /// When it is not running.
    pub fn rss_bytes(&self) -> Result<u64> {
        process::rss_bytes(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// The CPU time it has used since its start, to the nanosecond.
    ///
    /// # Errors
    /// When it is not running.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// How many sockets it has open, those it listens on included.
    ///
    /// # Errors
    /// When it is not running.
    pub fn open_connections(&self) -> Result<usize> {
        process::open_sockets(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// The TCP connections that it holds.
    pub(crate) fn connections(&self) -> Result<Vec<Connection>> {
        process::connections(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// Starts the process and does not wait for it.
    pub(crate) fn spawn(&self) -> Result<()> {
        let path = self.dir.join(SOCKET);
        if path.as_os_str().len() > 107 {
            return Err(Error::PathTooLong { path });
        }
        let mut command = Command::new(&self.tor);
        command.arg("-f").arg(self.torrc());
        // The machine's own defaults are none of this network's business.
        command.arg("--defaults-torrc").arg(self.dir.join(EMPTY_FILE));
        File::create(self.dir.join(EMPTY_FILE)).map_err(Error::io("create an empty file"))?;
        // A tor that loses its owner ends by itself, but 0.4.9 sometimes hangs in its exit, where
        // its threads wait for each other. By the mark the next network ends it.
        mark(&mut command)?;
        let spawn = || Process::spawn(&mut command, &self.dir.join("out"), self.core);
        let process = inside(self.host(), spawn)?
            .map_err(|source| Error::Program { program: self.tor.clone(), source })?;
        *self.running() = Some(Running { process, owner: None });
        Ok(())
    }

    /// Waits until its control port answers, makes tor ours, and notes its identity.
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

    /// Waits until it can build circuits.
    pub(crate) fn wait_until_bootstrapped(&self) -> Result<()> {
        let mut control = self.control()?;
        let what = format!("{} did not bootstrap", self.name);
        self.wait_until(&what, PATIENCE, || {
            let phase = control.getinfo("status/bootstrap-phase")?;
            Ok(phase.contains("PROGRESS=100 ").then_some(()))
        })
    }

    /// Waits until a look at something has a result; fails early if the process ends, or is to.
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
            // A tor that has ended is the reason of all other failures.
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

    /// Sends a signal to the process, if there is one.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let mut running = self.running();
        let sent = running.as_mut().map_or(Ok(()), |running| running.process.signal(signal));
        sent.map_err(Error::io(format!("signal {}", self.name)))
    }

    /// Fails if the process is not there or has ended by itself.
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

    /// The process, while there is one.
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
