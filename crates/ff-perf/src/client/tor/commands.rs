//! Commands to tor from any task: a thread sends them one after the other. Dropping a circuit sends
//! the command that closes it.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ff_lab::Control;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::lock::TorLock;
use super::options::Taken;
use super::refusal::RejectsInternal;
use super::stream::{TOLD, ended};
use super::table::{CircuitState, Slot, Table};
use crate::client::Fault;

/// Sends commands; the thread ends when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Commands(Arc<mpsc::Sender<Command>>);

/// Reports changed options; does not keep the thread running.
pub(super) struct Watch(Weak<mpsc::Sender<Command>>);

impl Watch {
    /// The sender of commands, if it still exists.
    fn commands(&self) -> Option<Commands> {
        self.0.upgrade().map(Commands)
    }

    /// Has changed options set again.
    pub(super) fn hold(&self) {
        if let Some(commands) = self.0.upgrade() {
            let _ = commands.send(Command::Hold);
        }
    }
}

/// A command, with the sender of its answer.
enum Command {
    /// Set changed options again.
    Hold,
    /// No answer.
    Tell(String),
    /// Answers with the first line of the reply.
    Ask(String, oneshot::Sender<Result<String, Fault>>),
    /// Answers with the new circuit, which is closed if nobody receives it.
    Extend(String, oneshot::Sender<Result<TorCircuit, Fault>>),
}

/// Longest wait for tor's options to be restored: more than two replies of its control connection.
const BACK: Duration = Duration::from_secs(2 * Control::REPLY_TIMEOUT.as_secs() + 5);

/// The end of changed options in a tor: reports whether they were restored. Dropping it waits for
/// that too, so that a panic does not leave them changed; only then may another process change
/// options.
pub struct Ending {
    /// The report; `None` after waiting for it.
    end: Option<mpsc::Receiver<Result<(), ff_lab::Error>>>,
    _lock: Arc<TorLock>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Already done, unless something has gone wrong.
        let _ = self.end.take().map(|end| end.recv_timeout(BACK));
    }
}

impl Ending {
    /// Waits for this report, and holds the tor's lock until then.
    pub(super) const fn new(
        end: mpsc::Receiver<Result<(), ff_lab::Error>>,
        lock: Arc<TorLock>,
    ) -> Self {
        Self { end: Some(end), _lock: lock }
    }

    /// Waits until the options are restored; call it when nothing uses the tor any more.
    ///
    /// # Errors
    /// One sentence if tor's options may still be changed.
    pub fn wait(mut self) -> Result<(), String> {
        let Some(end) = self.end.take() else { return Ok(()) };
        let ended = end.recv_timeout(BACK).map_err(|error| error.to_string());
        ended.and_then(|back| back.map_err(|error| error.to_string())).map_err(|error| {
            format!(
                "cannot restore tor's options ({error}): if tor still runs, send it SIGHUP to restore those of its torrc"
            )
        })
    }
}

impl Commands {
    /// Starts the thread. tor's options are restored when the last clone is dropped.
    pub(super) fn start(
        mut taken: Taken,
        lock: Arc<TorLock>,
        table: Arc<Table>,
        rejects: RejectsInternal,
    ) -> io::Result<(Self, Ending)> {
        let (sender, commands) = mpsc::channel();
        let (end, ending) = mpsc::sync_channel(1);
        let sender = Self(Arc::new(sender));
        let own = sender.watch();
        let run = move || {
            for command in commands {
                // A late reply would be taken for that of the next command.
                if let Err(error) = carry_out(command, &mut taken, &table, &rejects, &own) {
                    table.lost(&error);
                    break;
                }
            }
            // A dropped receiver needs no answer.
            let _ = end.send(taken.give_back());
        };
        thread::Builder::new().name("tor commands".to_owned()).spawn(run)?;
        Ok((sender, Ending::new(ending, lock)))
    }

    /// A reporter of changed options.
    pub(super) fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.0))
    }

    /// Sends a command without an answer.
    pub(super) fn tell(&self, line: String) {
        let _ = self.0.send(Command::Tell(line));
    }

    /// Sends a command and returns the first line of its reply.
    pub(super) async fn ask(&self, line: String) -> Result<String, Fault> {
        let (sender, answer) = oneshot::channel();
        let _ = self.0.send(Command::Ask(line, sender));
        answer.await.unwrap_or_else(|_| Err(Fault::client(GONE)))
    }

    /// Has tor begin a circuit.
    pub(super) async fn extend(&self, line: String) -> Result<TorCircuit, Fault> {
        let (sender, answer) = oneshot::channel();
        let _ = self.0.send(Command::Extend(line, sender));
        answer.await.unwrap_or_else(|_| Err(Fault::client(GONE)))
    }
}

/// A circuit of a tor process; dropping it closes the circuit.
pub struct TorCircuit {
    /// tor's circuit id.
    pub(super) id: String,
    /// Closes the circuit.
    commands: Commands,
    table: Arc<Table>,
    /// Events of the circuit.
    pub(super) news: Mutex<Slot<CircuitState>>,
}

impl TorCircuit {
    /// A circuit that tor has just begun.
    fn new(id: String, commands: Commands, table: &Arc<Table>) -> Self {
        let news = Mutex::new(table.expect_circuit(&id));
        Self { id, commands, table: Arc::clone(table), news }
    }

    /// Why the circuit ended; tor reports that before the end of its streams.
    pub(super) fn destroyed(&self) -> Fault {
        self.end().unwrap_or_else(|| Fault::circuit("destroyed"))
    }

    /// Why the circuit ended, if tor has reported it.
    fn end(&self) -> Option<Fault> {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(state) = news.next_now() {
            if let CircuitState::Ended { reason, by_relay } = state {
                let fault = ended(reason, by_relay);
                return Some(Fault { reason: format!("destroyed ({})", fault.reason), ..fault });
            }
        }
        None
    }

    /// Why the circuit ended, waiting a little: events come on another connection than replies.
    pub(super) async fn destroyed_by_now(&self) -> Fault {
        let until = Instant::now() + TOLD;
        loop {
            match self.end() {
                Some(fault) => return fault,
                None if Instant::now() >= until => return self.destroyed(),
                None => sleep(TOLD / 100).await,
            }
        }
    }
}

impl Drop for TorCircuit {
    fn drop(&mut self) {
        self.table.forget_circuit(&self.id);
        self.commands.tell(format!("CLOSECIRCUIT {}", self.id));
    }
}

/// Error after the thread has ended.
const GONE: &str = "the control connection is gone";

/// Sends one command. Fails if the connection is lost.
fn carry_out(
    command: Command,
    taken: &mut Taken,
    table: &Arc<Table>,
    rejects: &RejectsInternal,
    own: &Watch,
) -> Result<(), String> {
    if matches!(command, Command::Hold) {
        let lost = |error| format!("tor's options were changed, and cannot be set again: {error}");
        return taken.hold().and_then(|_| rejects.look(taken.control())).map_err(lost);
    }
    let mut broken = None;
    let control = taken.control();
    let mut send = |line: &str| {
        let reply = control.command(line).map_err(|error| match error {
            // tor has a reason for a refusal; if it does not even answer, no other side is at
            // fault.
            ff_lab::Error::Refused { .. } => Fault::circuit(error),
            error => {
                broken = Some(error.to_string());
                Fault::client(error)
            }
        })?;
        Ok::<_, Fault>(reply.text().to_owned())
    };
    match command {
        Command::Hold => {}
        // It may be closed already.
        Command::Tell(line) => drop(send(&line)),
        // A dropped receiver has given up.
        Command::Ask(line, answer) => drop(answer.send(send(&line))),
        Command::Extend(_, answer) if answer.is_closed() => {}
        Command::Extend(line, answer) => {
            // A circuit that tor does not even begin is not a relay's fault: for example, tor's
            // documents lack a relay.
            let ours = |fault: Fault| Fault::client(fault.reason);
            let begun = send(&line).map_err(ours).and_then(|text| {
                let id = text.strip_prefix("EXTENDED ");
                id.map(str::to_owned).ok_or_else(|| Fault::client(&text))
            });
            match (begun, own.commands()) {
                (Ok(id), Some(commands)) => {
                    drop(answer.send(Ok(TorCircuit::new(id, commands, table))));
                }
                // Nothing uses it now.
                (Ok(id), None) => drop(send(&format!("CLOSECIRCUIT {id}"))),
                (Err(fault), _) => drop(answer.send(Err(fault))),
            }
        }
    }
    broken.map_or(Ok(()), Err)
}
