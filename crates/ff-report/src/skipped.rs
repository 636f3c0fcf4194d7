//! What of the input was left out: counted, and listed with file, entry and line.
//!
//! All is counted, and a list stays a list: it has the first [`MOST_OF_ONE`] of a document and
//! [`MOST_LISTED`] in all, and says of the rest how many they are.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// How many lines or parts of one document or file are listed.
pub const MOST_OF_ONE: usize = 1000;
/// How many are listed in all.
pub const MOST_LISTED: usize = 20_000;
/// The most bytes of an entry's name and of a reason.
pub const MOST_TEXT_BYTES: usize = 500;

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
    /// How many further ones were left out, which are not listed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more: u64,
}

/// Whether there are none; `serde` passes a reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
const fn is_none(more: &u64) -> bool {
    *more == 0
}

impl Skipped {
    /// Why it was left out, and how many more were.
    #[must_use]
    pub fn told(&self) -> Cow<'_, str> {
        match self.more {
            0 => Cow::Borrowed(&self.reason),
            more => format!("{}; {more} more after it are left out, too", self.reason).into(),
        }
    }
}

/// All that was left out, and how much was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    /// The parts that were left out and are listed, in the order of reading.
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
        let (file, mut reason) = (file.into(), reason.into());
        let mut entry = entry.map(str::to_owned);
        entry.iter_mut().chain([&mut reason]).for_each(cut);
        self.push(Skipped { file, entry, line, reason, more: 0 });
    }

    /// Lists something, or counts it.
    fn push(&mut self, one: Skipped) {
        let is_same = |other: &Skipped| (&other.file, &other.entry) == (&one.file, &one.entry);
        // The faults of a document are listed one after the other.
        let first = self.all.len().checked_sub(MOST_OF_ONE).and_then(|at| self.all.get(at));
        let is_full = self.all.len() >= MOST_LISTED || first.is_some_and(is_same);
        match self.all.last_mut().filter(|_| is_full) {
            Some(last) => last.more = last.more.saturating_add(one.more).saturating_add(1),
            None => self.all.push(one),
        }
    }

    /// Takes over what another reader has read and left out.
    pub fn extend(&mut self, other: Self) {
        other.all.into_iter().for_each(|one| self.push(one));
        self.read += other.read;
        self.missing.extend(other.missing);
    }

    /// How many were left out, listed or not.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        left_out(&self.all)
    }

    /// The first that was left out, with its line and after a colon; nothing if nothing was.
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
        let left_out = self.left_out();
        let all = self.read.saturating_add(left_out);
        if all == 0 { 0.0 } else { left_out as f64 / all as f64 }
    }

    /// Whether more was left out than may be.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.share() > Self::MOST
    }

    /// Writes `errors.csv`: what was left out, and after it what is missing.
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
                &one.told(),
            ])?;
        }
        csv.flush()
    }
}

/// How many a list stands for.
#[must_use]
pub fn left_out(all: &[Skipped]) -> u64 {
    all.iter().fold(0, |sum, one| sum.saturating_add(one.more).saturating_add(1))
}

/// Cuts a text that is too long for a list.
pub fn cut(text: &mut String) {
    if text.len() > MOST_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MOST_TEXT_BYTES));
        text.push('\u{2026}');
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
            more: 0,
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

    #[test]
    fn a_list_has_the_first_of_a_document_and_counts_the_rest() {
        let mut skips = Skips { read: 5_000_000, ..Skips::default() };
        skips.add("a", None, Some(1), "odd");
        for line in 1..=3000 {
            skips.add("a", Some("one"), Some(line), "odd");
        }
        skips.add("a", Some("two"), Some(1), "odd");
        assert_eq!((skips.all.len(), skips.left_out()), (1 + MOST_OF_ONE + 1, 3002));
        assert_eq!(skips.all[MOST_OF_ONE].told(), "odd; 2000 more after it are left out, too");
        for file in 0..MOST_LISTED {
            skips.add(file.to_string(), None, None, "odd");
        }
        let mut all = Skips::default();
        all.extend(skips.clone());
        assert_eq!(all, skips);
        all.extend(skips);
        assert_eq!((all.all.len(), all.left_out()), (MOST_LISTED, 2 * 23_002));
        assert!(all.is_too_much(), "what is not listed counts: {}", all.share());
        let last = all.all.pop().expect("the last");
        let text = serde_json::to_string(&last).expect("JSON");
        assert_eq!(serde_json::from_str::<Skipped>(&text).expect("the same"), last);
        let old = r#"{"file":"a","entry":null,"line":1,"reason":"odd"}"#;
        assert_eq!(serde_json::from_str::<Skipped>(old).expect("an older one").more, 0);
    }

    #[test]
    fn long_names_and_reasons_are_cut() {
        let mut skips = Skips::default();
        let long = "\u{e9}".repeat(MOST_TEXT_BYTES);
        skips.add("a", Some(&long), None, long.as_str());
        let one = &skips.all[0];
        assert_eq!(one.entry.as_deref(), Some(&*one.reason));
        assert_eq!(one.reason.chars().count(), MOST_TEXT_BYTES / 2 + 1);
    }
}
