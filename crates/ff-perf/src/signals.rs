//! The signals that end a program in good order: Ctrl-C, and what service managers send.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// They are listened for as long as this is there, and from then on do not end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    /// Ctrl-C.
    interrupt: Signal,
    /// What service managers send.
    terminate: Signal,
}

impl Signals {
    /// Listens, inside of a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> io::Result<Self> {
        let (interrupt, terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    /// Waits for one; one that came before counts.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
