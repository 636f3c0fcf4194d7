//! What of the input was left out: counted, and listed with file, entry and line.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// A document, an entry or a line that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The file.
    pub file: String,
    /// The entry in it, if it is an archive.
    pub entry: Option<String>,
    /// The line, from 1, if it is known.
    pub line: Option<usize>,
    /// Why.
    pub reason: String,
}

/// All that was left out, beside how much was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    /// What was left out, in the order of reading.
    pub all: Vec<Skipped>,
    /// How many documents (or rows of a table) were read.
    pub read: u64,
    /// What is not there at all, as hours of a month: listed, and no part of what was left out.
    pub missing: Vec<Skipped>,
}

impl Skips {
    /// More than this part of the input may not be left out: one in a thousand.
    pub const MOST: f64 = 0.001;

    /// Notes something that was left out.
    pub fn add(
        &mut self,
        file: impl Into<String>,
        entry: Option<&str>,
        line: Option<usize>,
        reason: impl Into<String>,
    ) {
        let entry = entry.map(str::to_owned);
        self.all.push(Skipped { file: file.into(), entry, line, reason: reason.into() });
    }

    /// Takes over what another reader has read and left out.
    pub fn extend(&mut self, other: Self) {
        self.all.extend(other.all);
        self.read += other.read;
        self.missing.extend(other.missing);
    }

    /// What was left out first, behind a colon and with its line; nothing if nothing was.
    #[must_use]
    pub fn first(&self) -> String {
        let Some(first) = self.all.first() else { return String::new() };
        let line = first.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!(": {line}{}", first.reason)
    }

    /// Which part of all was left out; 0 of nothing.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub fn share(&self) -> f64 {
        let all = self.read + self.all.len() as u64;
        if all == 0 { 0.0 } else { self.all.len() as f64 / all as f64 }
    }

    /// Whether more was left out than may be.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.share() > Self::MOST
    }

    /// Writes `errors.csv`: what was left out, and behind it what is missing.
    ///
    /// # Errors
    /// When that fails.
    pub fn write_csv(&self, to: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        csv.write_record(["file", "entry", "line", "reason"])?;
        for one in self.all.iter().chain(&self.missing) {
            let line = one.line.map(|line| line.to_string()).unwrap_or_default();
            csv.write_record([
                &one.file,
                one.entry.as_deref().unwrap_or_default(),
                &line,
                &one.reason,
            ])?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_thousand_is_allowed_and_no_more() {
        let mut skips = Skips { read: 999, ..Skips::default() };
        assert_eq!(skips.share().total_cmp(&0.0), std::cmp::Ordering::Equal);
        skips.add("a.tar.xz", Some("b"), Some(3), "it is \"cut\"");
        assert!(!skips.is_too_much(), "{}", skips.share());
        skips.add("c", None, None, "odd");
        assert!(skips.is_too_much(), "{}", skips.share());
        let share = skips.share();
        skips.missing.push(Skipped {
            file: "d".into(),
            entry: None,
            line: None,
            reason: "hour".into(),
        });
        assert_eq!(skips.share().total_cmp(&share), std::cmp::Ordering::Equal);
        let mut text = Vec::new();
        skips.write_csv(&mut text).expect("a vector takes all");
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(
            text,
            "file,entry,line,reason\na.tar.xz,b,3,\"it is \"\"cut\"\"\"\nc,,,odd\nd,,,hour\n"
        );
    }
}
