//! Lines of text or of xz, of bounded length.

use std::io::{self, BufRead, BufReader};

use ff_report::input::{XZ_MAGIC, unpack};

/// A longer line is not read.
pub const MOST_LINE_BYTES: usize = 1 << 22;

/// A line, without what ends it.
#[derive(Debug)]
pub(super) enum Line<'a> {
    Whole(&'a [u8]),
    /// It is longer than [`MOST_LINE_BYTES`] and was passed over.
    TooLong,
    /// Nothing more can be read, for this reason; a part of a line before it is lost.
    Cut(io::Error),
}

/// The lines of a file.
pub(super) struct Lines<'a> {
    /// The text.
    from: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    number: usize,
    /// Whether the end has been reached.
    is_over: bool,
}

impl<'a> Lines<'a> {
    /// Of text or of xz, as the file's first bytes say.
    pub(super) fn new(mut from: impl BufRead + 'a) -> io::Result<Self> {
        let from: Box<dyn BufRead + 'a> = if from.fill_buf()?.starts_with(XZ_MAGIC) {
            Box::new(BufReader::with_capacity(1 << 16, unpack(from)?))
        } else {
            Box::new(from)
        };
        Ok(Self { from, line: Vec::new(), number: 0, is_over: false })
    }

    /// The next line, with its number, from 1.
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

    /// The text after the last end of a line, if there is any.
    fn last(&self, is_too_long: bool) -> Option<(usize, Line<'_>)> {
        if is_too_long {
            return Some((self.number, Line::TooLong));
        }
        (!self.line.is_empty()).then_some((self.number, Line::Whole(&self.line)))
    }
}
