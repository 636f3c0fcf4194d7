//! Rows for people, which may stay unread.

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Says rows from a thread of its own: a terminal that does not read (Ctrl-S) holds nobody up. What
/// comes meanwhile is not said.
#[derive(Debug, Default)]
pub struct Teller(Option<SyncSender<String>>);

impl Teller {
    /// One that tells if standard error is a terminal.
    #[must_use]
    pub fn of_terminal() -> Self {
        if io::stderr().is_terminal() { Self::to(io::stderr()) } else { Self::default() }
    }

    /// One that tells there.
    pub(crate) fn to(mut there: impl Write + Send + 'static) -> Self {
        // A terminal that is gone ends nothing.
        let say = move |row: String| drop(writeln!(there, "{row}"));
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    /// A pipe holds 64 KiB; a writer of more than that waits.
    #[test]
    fn who_does_not_read_holds_nobody_up_and_has_whole_rows_in_their_order() {
        const ROWS: usize = 100_000;
        let (reader, writer) = io::pipe().unwrap();
        let teller = Teller::to(writer);
        // Ends only if none of these waits.
        (0..ROWS).for_each(|row| teller.tell(|| format!("{row:05} of {ROWS}")));
        drop(teller);
        let end = format!(" of {ROWS}");
        let number = |row: io::Result<String>| row.unwrap().strip_suffix(&end).unwrap().parse();
        let rows: Vec<usize> =
            BufReader::new(reader).lines().map(|row| number(row).unwrap()).collect();
        assert!(rows.is_sorted_by(|one, next| one < next) && rows[0] == 0, "{rows:?}");
        assert!(rows.len() < ROWS, "all were told");
    }

    #[test]
    fn nobody_has_no_rows_made() {
        Teller::default().tell(|| panic!("nobody reads it"));
    }
}
