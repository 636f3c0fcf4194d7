//! The relays that hold cells back, from a file, and a comparison with them.
//!
//! The file has one fingerprint per line; the rest of a line, empty lines and text after `#` are
//! ignored.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::paths::file::{fingerprint, words};

/// A line that is not a fingerprint.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct NoTruth {
    /// The file.
    pub file: String,
    /// The line number, from 1.
    pub line: usize,
    /// The error, with advice.
    pub reason: String,
}

/// The comparison of the relays found with the truth, by fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compared {
    /// Relays that hold cells back and were found.
    pub hits: Vec<String>,
    /// Relays that hold cells back and were not found.
    pub misses: Vec<String>,
    /// Relays that were found and hold nothing back.
    pub false_alarms: Vec<String>,
    /// Relays that were found and hold nothing back, but cannot be distinguished from one that
    /// does.
    pub not_told_apart: Vec<String>,
    /// Relays that hold cells back and are on no analysed circuit.
    pub not_looked_at: Vec<String>,
    /// The number of analysed relays that hold nothing back.
    pub innocent: u64,
}

/// Reads a file of relays that hold cells back. `file` is used in errors only.
///
/// # Errors
/// [`NoTruth`] for the first line that is not a fingerprint, and for a duplicate.
pub fn parse(file: &str, text: &str) -> Result<BTreeSet<String>, NoTruth> {
    let mut all = BTreeSet::new();
    for (line, content) in (1..).zip(text.lines()) {
        let failed = |reason| NoTruth { file: file.to_owned(), line, reason };
        let Some(word) = words(content).next() else { continue };
        let id = fingerprint(word).map_err(failed)?;
        if !all.insert(id) {
            return Err(failed(format!("{word} is listed twice: delete one")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::tests::id;

    #[test]
    fn files_are_read_and_mistakes_named() {
        let text = format!("# limited\n{} 300000\n\n${},x # slow\n", id('A'), id('b'));
        assert_eq!(parse("f", &text), Ok(BTreeSet::from([id('A'), id('B')])));
        for (text, said) in [
            ("exit0\n".to_owned(), "f, line 1: \"exit0\" is not a fingerprint"),
            (format!("{}\n{}\n", id('A'), id('a')), "f, line 2: aaa"),
        ] {
            let error = parse("f", &text).expect_err("a mistake").to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
