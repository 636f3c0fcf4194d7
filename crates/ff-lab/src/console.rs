//! Standard output and standard error of programs.

use std::io::{self, Write};

/// Writes to standard output. A reader that has closed it, as `head` does, is not an error.
///
/// # Errors
/// When writing fails for another reason, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to standard error; an error of that is ignored.
pub fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
