//! What programs say on their two outputs.

use std::io::{self, Write};

/// Writes to standard output. A reader that has gone, as `head` does when it has enough, is not an error.
///
/// # Errors
/// When standard output cannot be written to for another reason, as on a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Tells the user something on standard error, if anybody reads it.
pub fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
