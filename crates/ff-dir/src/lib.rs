#![doc = include_str!("../README.md")]

pub mod bandwidth;
pub mod consensus;
pub mod descriptors;
pub mod family;
pub mod microdescriptors;

use ff_base::identity::key_base64;
use time::{Date, Month};

/// A document that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct DocumentError {
    /// In which line, from 1.
    pub line: usize,
    /// The problem.
    pub reason: String,
}

impl DocumentError {
    /// About this line.
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// A line of a document, with the object after it if there is one (dir-spec 1.2).
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The line's number, from 1.
    pub line: usize,
    /// Its first word; keywords may be marked as optional.
    pub keyword: &'a str,
    /// The text after it.
    pub rest: &'a str,
    /// The text between the object's first and last line.
    pub object: Option<&'a str>,
    /// Where it begins in the text.
    pub start: usize,
}

/// A document's lines without the objects between them: whatever stands in one is not for us.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    /// The document.
    text: &'a str,
    /// How much of it has been read.
    at: usize,
    /// Lines that have been read.
    line: usize,
    /// Whether it ends within an object.
    is_cut: bool,
}

impl<'a> Items<'a> {
    /// The items of a document.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        Self { text, at: 0, line: 0, is_cut: false }
    }

    /// The next line.
    fn next_line(&mut self) -> Option<&'a str> {
        let line = self.text.get(self.at..)?.split_inclusive('\n').next()?;
        self.at += line.len();
        self.line += 1;
        Some(line.trim_end_matches(['\r', '\n']))
    }

    /// Takes the object that begins here, if there is one.
    fn object(&mut self) -> Option<&'a str> {
        if !self.text.get(self.at..)?.starts_with("-----BEGIN ") {
            return None;
        }
        self.next_line()?;
        let (start, mut end) = (self.at, self.at);
        while let Some(line) = self.next_line() {
            if line.starts_with("-----END ") {
                return self.text.get(start..end);
            }
            end = self.at;
        }
        self.is_cut = true;
        None
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        // An object in front of all lines belongs to none.
        self.object();
        let start = self.at;
        let line = self.next_line()?;
        let number = self.line;
        let line = line.strip_prefix("opt ").unwrap_or(line);
        let (keyword, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        Some(Item { line: number, keyword, rest, object: self.object(), start })
    }
}

/// The words of a line's rest.
pub fn words(rest: &str) -> impl DoubleEndedIterator<Item = &str> {
    rest.split([' ', '\t']).filter(|word| !word.is_empty())
}

/// A key of 32 bytes in base64, padded or not (dir-spec 2.1.1, `ntor-onion-key`).
fn x25519_key(rest: &str) -> Option<[u8; 32]> {
    key_base64(words(rest).next()?)
}

/// The key of `id ed25519 KEY`; of another kind of key, or of `none`, there is nothing to know.
fn ed25519_id(rest: &str) -> Result<Option<[u8; 32]>, ()> {
    match words(rest).collect::<Vec<_>>()[..] {
        ["ed25519", "none", ..] => Ok(None),
        ["ed25519", key, ..] => key_base64(key).map(Some).ok_or(()),
        _ => Ok(None),
    }
}

/// A time as documents have it, `2019-07-14 00:00:00` in UTC, in seconds since 1970.
fn unix_secs(text: &str) -> Option<u64> {
    let numbers: Option<Vec<u32>> =
        text.split(['-', ' ', ':']).map(|number| number.parse().ok()).collect();
    let [year, month, day, hour, minute, second] = numbers?.try_into().ok()?;
    let small = |number: u32| u8::try_from(number).ok();
    let month = Month::try_from(small(month)?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, small(day)?).ok()?;
    let time = date.with_hms(small(hour)?, small(minute)?, small(second)?).ok()?;
    u64::try_from(time.assume_utc().unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_times_are_none() {
        assert_eq!(unix_secs("2019-07-14 00:00:00"), Some(1_563_062_400));
        for odd in [
            "",
            "2019-07-14",
            "2019-02-30 00:00:00",
            "2019-07-14 24:00:00",
            "2019-07-14 0:0:0:0",
            "1969-12-31 23:59:59",
            "4294967295-01-01 00:00:00",
        ] {
            assert_eq!(unix_secs(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn identities_are_read_where_there_are_any() {
        let key = "ZvqpuklQLcKavDEtXqanT2qZow3ShBA9bRjj3wODzrQ";
        assert_eq!(ed25519_id(&format!("ed25519 {key}")).map(|key| key.is_some()), Ok(true));
        assert_eq!(key_base64(key), key_base64(&format!("{key}=")));
        for none in ["ed25519 none", "rsa1024 x", ""] {
            assert_eq!(ed25519_id(none), Ok(None), "{none:?}");
        }
        assert_eq!(ed25519_id("ed25519 x"), Err(()));
    }
}
