//! Signals that end a program in an orderly way: Ctrl-C, those of service managers, and the end of
//! a terminal.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use ff_lab::Ending;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Catches signals while it exists; after its first creation they do not end the process by
/// themselves.
#[derive(Debug)]
pub struct Signals(Vec<Signal>);

impl Signals {
    /// Listens for [`Ending::signals`]; call it within a runtime.
    ///
    /// # Errors
    /// The system's error.
    pub fn listen() -> io::Result<Self> {
        let listen = |number| signal(SignalKind::from_raw(number));
        Ending::signals()?.into_iter().map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for a signal; one received before counts.
    pub async fn recv(&mut self) {
        poll_fn(|context| {
            let is_here = |signal: &mut Signal| signal.poll_recv(context).is_ready();
            if self.0.iter_mut().any(is_here) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
