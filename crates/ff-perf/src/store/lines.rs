//! Reads the lines of a file of circuits in bounded memory, even if another program has written to
//! it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;

use serde::Deserialize;

use super::error::{StoreError, io_error};
use super::rotation::MOST_NUMBER;

/// Longest line that is read, in bytes; the longest that options allow has about 2 MB.
const MOST_BYTES: usize = 16 << 20;

/// Passes each line to `take`, with its number from 1 and without its end, until `take` breaks. A
/// line longer than [`MOST_BYTES`] is passed as `None`.
///
/// # Errors
/// If the lines cannot be read.
pub(super) fn each(
    mut lines: impl BufRead,
    mut take: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
) -> io::Result<()> {
    let (mut line, mut place) = (Vec::new(), 0);
    loop {
        line.clear();
        let most = MOST_BYTES as u64 + 1;
        if lines.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        place += 1;
        let is_long = line.len() > MOST_BYTES && !line.ends_with(b"\n");
        if is_long {
            lines.skip_until(b'\n')?;
        }
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        if take(place, (!is_long).then_some(content)).is_break() {
            return Ok(());
        }
    }
}

/// Numbers of a file's circuits.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) all: HashSet<u64>,
    /// [`StoreError::Line`] of the first line that is not a circuit, if any.
    pub(super) bad: Option<StoreError>,
    /// Number of further lines that are not circuits.
    pub(super) more_bad: u64,
}

/// The part of a line that a continued run needs.
#[derive(Deserialize)]
struct Number {
    number: u64,
}

impl Numbers {
    /// Reads the numbers from the start of a file. Empty lines are skipped, as by all readers of
    /// circuits.
    ///
    /// # Errors
    /// [`StoreError::Io`] with the file's name.
    pub(super) fn read(file: &mut File, path: &Path) -> Result<Self, StoreError> {
        file.rewind().map_err(io_error(path))?;
        let mut found = Self::default();
        let read = each(BufReader::new(file), |place, line| {
            if line.is_none_or(|line| !line.trim_ascii().is_empty()) {
                found.add(path, place, number_of(line));
            }
            ControlFlow::Continue(())
        });
        read.map_err(io_error(path))?;
        Ok(found)
    }

    /// Adds a line: the number of its circuit, or why it is not a circuit.
    fn add(&mut self, path: &Path, line: usize, number: Result<u64, String>) {
        match number {
            Ok(number) => drop(self.all.insert(number)),
            Err(_) if self.bad.is_some() => self.more_bad += 1,
            Err(reason) => {
                let reason = format!("this is not a circuit ({reason}): delete the line");
                self.bad = Some(StoreError::Line { path: path.to_owned(), line, reason });
            }
        }
    }
}

/// The number of the circuit in a line, or why it is not a circuit.
fn number_of(line: Option<&[u8]>) -> Result<u64, String> {
    let line = line.ok_or_else(|| format!("it is longer than {MOST_BYTES} bytes"))?;
    let Number { number } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if number > MOST_NUMBER {
        return Err(format!("its number {number} is greater than {MOST_NUMBER}"));
    }
    Ok(number)
}

/// Cuts off bytes after the last complete line; returns the new length of the file, in bytes.
pub(super) fn cut_half_line(file: &mut File) -> io::Result<u64> {
    const STEP: u64 = 65_536;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut buffer = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        buffer.clear();
        (&*file).take(end - begin).read_to_end(&mut buffer)?;
        if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
            end = begin + at as u64 + 1;
            break;
        }
        end = begin;
    }
    file.set_len(end)?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the lines; `None` for those that are too long.
    fn lengths(text: &[u8]) -> Vec<Option<usize>> {
        let mut found = Vec::new();
        let read = each(BufReader::new(text), |place, line| {
            found.push(line.map(<[u8]>::len));
            assert_eq!(place, found.len());
            ControlFlow::Continue(())
        });
        read.expect("memory can be read");
        found
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let longest = vec![b'x'; MOST_BYTES];
        let text = [&longest[..], b"\nab\n\n", &longest, b"y\n", &longest, b"yyy\ncd"].concat();
        let expected = [Some(MOST_BYTES), Some(2), Some(0), None, None, Some(2)];
        assert_eq!(lengths(&text), expected);
        assert_eq!(lengths(&[&longest[..], b"y"].concat()), [None::<usize>], "the last one");
        assert!(lengths(b"").is_empty());
    }

    #[test]
    fn lines_are_read_only_until_it_is_enough() {
        let mut count = 0;
        let read = each(&b"a\nb\nc\n"[..], |_, _| {
            count += 1;
            if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        read.expect("memory can be read");
        assert_eq!(count, 2);
    }

    #[test]
    fn numbers_that_leave_no_room_and_long_lines_are_not_circuits() {
        let most = MOST_NUMBER;
        let long = vec![b' '; MOST_BYTES + 1];
        let head = format!("{{\"number\":{}}}\n\n \n{{\"number\":{most}}}\n", u64::MAX);
        let text = [head.as_bytes(), &long, b"\n{\"number\":7}\r\n"].concat();
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lines");
        std::fs::write(&path, text).expect("written");
        let mut file = File::open(&path).expect("a file");
        let found = Numbers::read(&mut file, &path).expect("read");
        assert_eq!((found.all, found.more_bad), (HashSet::from([most, 7]), 1));
        let bad = found.bad.expect("the first line").to_string();
        assert!(bad.contains("lines, line 1: ") && bad.contains("18446744073709551615"), "{bad}");
    }
}
