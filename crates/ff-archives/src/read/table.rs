//! CSV tables of limited size, and the line numbers of their rows.

use std::io::Read;

use ff_report::skipped::Skips;
use serde::de::DeserializeOwned;

/// The greatest size of a table, in bytes.
pub const MOST_BYTES: u64 = 64 << 20;

/// Reads the complete lines in the first `most` bytes of a table. The rest of a larger table is
/// left out and listed, and so are lines that cannot be read.
#[must_use]
pub fn lines(name: &str, from: impl Read, most: u64, skips: &mut Skips) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = from.take(most.saturating_add(1)).read_to_end(&mut bytes) {
        skips.add(name, None, Some(1 + newlines(&bytes)), error.to_string());
    }
    if bytes.len() as u64 > most {
        // An incomplete line could be read as another number.
        let whole = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        let whole = &bytes[..whole];
        let end = whole.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(end);
        let reason =
            format!("it has more than {most} bytes: everything from this line on is left out");
        skips.add(name, None, Some(1 + newlines(&bytes)), reason);
    }
    bytes
}

/// Passes the rows of a table to `take`, which returns an error to leave out a row. Such rows are
/// listed with their lines.
pub fn rows<T: DeserializeOwned>(
    name: &str,
    from: impl Read,
    skips: &mut Skips,
    mut take: impl FnMut(T) -> Result<(), String>,
) {
    let table = lines(name, from, MOST_BYTES, skips);
    let mut reader = csv::Reader::from_reader(&*table);
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => return skips.add(name, None, Some(1), reason(&error)),
    };
    for record in reader.records() {
        let (at, taken) = match record {
            Ok(record) => {
                let row = record.deserialize(Some(&header)).map_err(|error| reason(&error));
                (line(&table, record.position()), row.and_then(&mut take))
            }
            Err(error) => (line(&table, error.position()), Err(reason(&error))),
        };
        match taken {
            Ok(()) => skips.read += 1,
            Err(reason) => skips.add(name, None, at, reason),
        }
    }
}

/// The message of an error without the line, which the csv crate counts differently.
#[must_use]
pub fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        csv::ErrorKind::Utf8 { err, .. } => err.to_string(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} cells instead of {expected_len}")
        }
        _ => error.to_string(),
    }
}

/// The line, from 1, on which a row of this table begins, from the reader's position before it:
/// empty lines, and the second byte of a line end, may be in between.
#[must_use]
pub fn line(table: &[u8], position: Option<&csv::Position>) -> Option<usize> {
    let position = position?;
    let behind = table.get(usize::try_from(position.byte()).ok()?..)?;
    let row = behind.iter().position(|byte| !matches!(byte, b'\n' | b'\r'));
    let between = behind.get(..row.unwrap_or(behind.len()))?;
    Some(usize::try_from(position.line()).ok()? + newlines(between))
}

/// The number of line ends in these bytes.
fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_on_the_lines_that_an_editor_shows() {
        for end in ["\n", "\r\n"] {
            // Lines 2 and 3 are empty, the second row has a line end in quotes.
            let text = ["a,b", "", "", "1,2", "\"3", "\",4", "", "5,6"].join(end);
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let found: Vec<_> = reader
                .records()
                .map(|row| line(text.as_bytes(), row.expect("a row").position()))
                .collect();
            assert_eq!(found, [Some(4), Some(5), Some(8)], "{text:?}");
        }
        assert_eq!(line(b"", None), None);
    }

    #[test]
    fn what_is_too_long_ends_with_a_whole_line_and_is_listed() {
        let read = |most| {
            let mut skips = Skips::default();
            let bytes = lines("t.csv", b"ab\ncd\nef".as_slice(), most, &mut skips);
            (String::from_utf8(bytes).expect("UTF-8"), skips.all)
        };
        assert_eq!(read(8), ("ab\ncd\nef".to_owned(), vec![]));
        for (most, text, line) in [(7, "ab\ncd\n", 3), (5, "ab\n", 2), (2, "", 1), (0, "", 1)] {
            let (found, skipped) = read(most);
            assert_eq!((found.as_str(), skipped.len()), (text, 1), "{most}");
            assert_eq!(skipped[0].line, Some(line), "{most}");
            assert!(skipped[0].reason.contains("more than"), "{skipped:?}");
        }
    }
}
