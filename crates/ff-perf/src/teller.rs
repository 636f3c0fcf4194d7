//! Rows for a terminal, which may not read them.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Says rows on standard error from a thread of its own: a terminal that does not read (Ctrl-S) holds nobody up. What comes
/// meanwhile is not said.
#[derive(Debug, Default)]
pub struct Teller(Option<SyncSender<String>>);

impl Teller {
    /// One that tells if standard error is a terminal.
    #[must_use]
    pub fn of_terminal() -> Self {
        if !io::stderr().is_terminal() {
            return Self::default();
        }
        // A terminal that is gone ends nothing.
        let say = |row: String| drop(writeln!(io::stderr(), "{row}"));
        let (sender, rows) = sync_channel(1);
        let run = move |rows: Receiver<String>| rows.into_iter().for_each(say);
        let thread = thread::Builder::new().name("rows".to_owned()).spawn(move || run(rows));
        Self(thread.ok().map(|_| sender))
    }

    /// Tells a row, which is made only if somebody is told.
    pub fn tell(&self, row: impl FnOnce() -> String) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send(row());
        }
    }
}
