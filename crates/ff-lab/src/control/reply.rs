//! Parses replies and events on a control connection.
//!
//! A message is one or more lines `CODE SEP TEXT`. SEP is `-` if lines follow, `+` if data follows
//! until a line with a single dot, and a space in the last line (control-spec §2.3).

use std::str::FromStr;

use crate::error::{Error, Result};

/// One line of a [`Reply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyLine {
    /// The text after the code.
    pub text: String,
    /// Data after the line, if any; its lines end in `\n`.
    pub data: Option<String>,
}

/// A whole message: a reply to a command, or an event (code 650).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Code of the last line.
    pub code: u16,
    /// All lines.
    pub lines: Vec<ReplyLine>,
}

impl Reply {
    /// Whether the code is a success.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Text of the first line.
    #[must_use]
    pub fn text(&self) -> &str {
        self.lines.first().map_or("", |line| &line.text)
    }

    /// Value of a line `key=value`, or data of `key=`.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let value = line.text.strip_prefix(key)?.strip_prefix('=')?;
            Some(line.data.as_deref().unwrap_or(value))
        })
    }

    /// Parses the first message and returns it with its length; `None` if it is incomplete.
    ///
    /// # Errors
    /// [`Error::Control`] with the first invalid line.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        let mut reader = Lines { bytes, at: 0 };
        let mut lines = Vec::new();
        loop {
            let Some(line) = reader.next_line() else { return Ok(None) };
            let (code, separator, text) = split_line(&line)?;
            let data = if separator == '+' {
                let Some(data) = reader.next_data() else { return Ok(None) };
                Some(data)
            } else {
                None
            };
            lines.push(ReplyLine { text: text.to_owned(), data });
            if separator == ' ' {
                return Ok(Some((Self { code, lines }, reader.at)));
            }
        }
    }
}

/// An event: words, some of them `KEY=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// First word, such as `BW`.
    pub kind: String,
    /// Rest of the first line.
    pub text: String,
}

impl Event {
    /// Words after the kind.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace()
    }

    /// Value of a `KEY=value` word. Quoted values end at the first space.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.words().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Bytes read and written of a `BW` event.
    #[must_use]
    pub fn bandwidth(&self) -> Option<(u64, u64)> {
        let mut numbers = self.words().map(u64::from_str);
        (self.kind == "BW").then_some(())?;
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

impl From<Reply> for Event {
    fn from(reply: Reply) -> Self {
        let (kind, text) = reply.text().split_once(' ').unwrap_or((reply.text(), ""));
        Self { kind: kind.to_owned(), text: text.to_owned() }
    }
}

/// Splits bytes into lines.
struct Lines<'a> {
    bytes: &'a [u8],
    /// Offset of the next line.
    at: usize,
}

impl Lines<'_> {
    /// Next line without its end; `None` if incomplete.
    fn next_line(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += length + 1;
        let line = rest[..length].strip_suffix(b"\r").unwrap_or(&rest[..length]);
        Some(String::from_utf8_lossy(line).into_owned())
    }

    /// Lines up to one with a single dot, with dot-stuffing removed.
    fn next_data(&mut self) -> Option<String> {
        let mut data = String::new();
        loop {
            let line = self.next_line()?;
            if line == "." {
                return Some(data);
            }
            data.push_str(line.strip_prefix('.').unwrap_or(&line));
            data.push('\n');
        }
    }
}

/// Splits a line into code, separator and text.
fn split_line(line: &str) -> Result<(u16, char, &str)> {
    let parts = || {
        let digits = line.get(..3).filter(|all| all.bytes().all(|one| one.is_ascii_digit()))?;
        let code = digits.parse().ok()?;
        let separator = line.get(3..4)?.chars().next()?;
        matches!(separator, ' ' | '-' | '+').then_some(())?;
        Some((code, separator, line.get(4..)?))
    };
    parts().ok_or_else(|| Error::Control(format!("not a control reply: {line:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Reply {
        let (reply, length) = Reply::parse(text.as_bytes()).unwrap().expect("a whole reply");
        assert_eq!(length, text.len());
        reply
    }

    #[test]
    fn a_reply_of_several_lines_has_its_values() {
        let reply = parse("250-version=0.4.9.11\r\n250-empty=\r\n250 OK\r\n");
        assert!(reply.is_ok());
        assert_eq!(reply.value("version"), Some("0.4.9.11"));
        assert_eq!(reply.value("empty"), Some(""));
        assert_eq!(reply.value("vers"), None);
    }

    #[test]
    fn data_ends_at_the_dot_and_has_its_dots_back() {
        let reply = parse("250+ns/all=\r\nr one\r\n..two\r\n.\r\n250 OK\r\n");
        assert_eq!(reply.value("ns/all"), Some("r one\n.two\n"));
    }

    #[test]
    fn a_part_of_a_reply_is_waited_for() {
        let text = "250+a=\r\nb\r\n.\r\n250 OK\r\n";
        for length in 0..text.len() {
            assert_eq!(Reply::parse(&text.as_bytes()[..length]).unwrap(), None, "{length}");
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        for text in ["HTTP/1.0 200 OK\r\n", "250\r\n", "25\r\n", "250*x\r\n", "+25 x\r\n", "\r\n"] {
            assert!(Reply::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn events_have_words_and_pairs() {
        let event = Event::from(parse("650 BW 1023 77\r\n"));
        assert_eq!(event.bandwidth(), Some((1023, 77)));
        let event = Event::from(parse(
            "650 STREAM 5 NEW 0 127.0.0.1:80 SOURCE_ADDR=127.0.0.1:5 PURPOSE=USER\r\n",
        ));
        assert_eq!(
            (event.kind.as_str(), event.get("SOURCE_ADDR")),
            ("STREAM", Some("127.0.0.1:5"))
        );
        assert_eq!(event.words().nth(1), Some("NEW"));
        assert_eq!(event.bandwidth(), None);
        for odd in ["650 BW\r\n", "650 BW 1\r\n", "650 BW -1 x\r\n"] {
            assert_eq!(Event::from(parse(odd)).bandwidth(), None);
        }
    }
}
