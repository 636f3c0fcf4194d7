//! Commands for tor, from any task: a thread sends them one after the other.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use ff_lab::Control;
use tokio::sync::oneshot;

use super::table::{CircuitState, Slot, Table};
use crate::client::Fault;

/// Where commands go; the thread ends with the last of these.
#[derive(Clone)]
pub(super) struct Commands(mpsc::Sender<Command>);

/// A command, and where its answer goes.
enum Command {
    /// Answer to nobody.
    Tell(String),
    /// Answer with the first line of the reply.
    Ask(String, oneshot::Sender<Result<String, Fault>>),
    /// Answer with the new circuit's number, and where its news come.
    Extend(String, oneshot::Sender<Result<(String, Slot<CircuitState>), Fault>>),
}

impl Commands {
    /// Starts the thread. The last command is sent when nobody has any more.
    pub(super) fn start(mut control: Control, table: Arc<Table>, last: String) -> io::Result<Self> {
        let (sender, commands) = mpsc::channel();
        let run = move || {
            for command in commands {
                // A reply that came late would be taken for that of the next command.
                if let Err(error) = carry_out(command, &mut control, &table) {
                    return table.lost(&error);
                }
            }
            let _ = control.command(&last);
        };
        thread::Builder::new().name("tor commands".to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Sends a command that nobody waits for.
    pub(super) fn tell(&self, line: String) {
        let _ = self.0.send(Command::Tell(line));
    }

    /// Sends a command; the first line of its reply.
    pub(super) async fn ask(&self, line: String) -> Result<String, Fault> {
        let (sender, answer) = oneshot::channel();
        let _ = self.0.send(Command::Ask(line, sender));
        answer.await.unwrap_or_else(|_| Err(Fault::client(GONE)))
    }

    /// Has tor begin a circuit.
    pub(super) async fn extend(&self, line: String) -> Result<(String, Slot<CircuitState>), Fault> {
        let (sender, answer) = oneshot::channel();
        let _ = self.0.send(Command::Extend(line, sender));
        answer.await.unwrap_or_else(|_| Err(Fault::client(GONE)))
    }
}

/// What is said when the thread has ended.
const GONE: &str = "the control connection is gone";

/// Sends one command. What is wrong if the connection cannot be used any more.
fn carry_out(command: Command, control: &mut Control, table: &Arc<Table>) -> Result<(), String> {
    let mut broken = None;
    let mut send = |line: &str| {
        let reply = control.command(line).map_err(|error| match error {
            // What tor refuses, it has a reason for; what it does not even answer is nobody else's fault.
            ff_lab::Error::Refused { .. } => Fault::relay(error),
            error => {
                broken = Some(error.to_string());
                Fault::client(error)
            }
        })?;
        Ok::<_, Fault>(reply.text().to_owned())
    };
    match command {
        // It may be closed already.
        Command::Tell(line) => drop(send(&line)),
        // Whoever does not wait any more has given up.
        Command::Ask(line, answer) => drop(answer.send(send(&line))),
        Command::Extend(line, answer) => {
            let begun = send(&line).and_then(|text| {
                let id = text.strip_prefix("EXTENDED ").ok_or_else(|| Fault::relay(&text))?;
                Ok((id.to_owned(), table.expect_circuit(id)))
            });
            if let Err(Ok((id, _))) = answer.send(begun) {
                table.forget_circuit(&id);
                let _ = send(&format!("CLOSECIRCUIT {id}"));
            }
        }
    }
    broken.map_or(Ok(()), Err)
}
