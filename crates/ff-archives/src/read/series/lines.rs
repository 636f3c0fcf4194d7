//! Lines of plain text or xz, with a limited length.

use std::io::{self, BufRead, BufReader};

use ff_report::input::{XZ_MAGIC, unpack};

/// The greatest length of a line; longer ones are skipped.
pub const MOST_LINE_BYTES: usize = 1 << 22;

/// A line, without its line end.
#[derive(Debug)]
pub(super) enum Line<'a> {
    Whole(&'a [u8]),
    /// A line longer than [`MOST_LINE_BYTES`], which was skipped.
    TooLong,
    /// The error that ends reading; an incomplete line before it is lost.
    Cut(io::Error),
}

/// The lines of a file.
pub(super) struct Lines<'a> {
    from: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    number: usize,
    /// Whether the end was reached.
    is_over: bool,
}

impl<'a> Lines<'a> {
    /// Plain text or xz is recognised by the file's first bytes.
    pub(super) fn new(mut from: impl BufRead + 'a) -> io::Result<Self> {
        let from: Box<dyn BufRead + 'a> = if from.fill_buf()?.starts_with(XZ_MAGIC) {
            Box::new(BufReader::with_capacity(1 << 16, unpack(from)?))
        } else {
            Box::new(from)
        };
        Ok(Self { from, line: Vec::new(), number: 0, is_over: false })
    }

    /// The next line, with its number from 1.
    pub(super) fn next(&mut self) -> Option<(usize, Line<'_>)> {
        if self.is_over {
            return None;
        }
        self.line.clear();
        self.number += 1;
        let mut is_too_long = false;
        loop {
            let buffer = match self.from.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.is_over = true;
                    return Some((self.number, Line::Cut(error)));
                }
            };
            if buffer.is_empty() {
                self.is_over = true;
                return self.last(is_too_long);
            }
            let end = memchr::memchr(b'\n', buffer);
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            is_too_long |= self.line.len() + part.len() > MOST_LINE_BYTES;
            if !is_too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            if end.is_some() {
                let line = if is_too_long { Line::TooLong } else { Line::Whole(&self.line) };
                return Some((self.number, line));
            }
        }
    }

    /// The text after the last line end, if there is any.
    fn last(&self, is_too_long: bool) -> Option<(usize, Line<'_>)> {
        if is_too_long {
            return Some((self.number, Line::TooLong));
        }
        (!self.line.is_empty()).then_some((self.number, Line::Whole(&self.line)))
    }
}
