//! A bandwidth file as a directory authority reads it: any version, by whatever software.
//!
//! The rules are those of tor's `bwauth.c` (dirserv_read_measured_bandwidths): what it does not
//! take is a finding, and so is what bandwidth-file-spec forbids and tor takes all the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use ff_base::identity::{Fingerprint, fingerprint_hex};
use ff_base::utc::{DAY_SECS, Utc};

/// tor's `MAX_MEASUREMENT_AGE`: a file whose newest result is older is refused. A good greatest
/// age of single results, too: with one measurement a day, two may be missed.
pub const MAX_FILE_AGE_SECS: u64 = 3 * DAY_SECS;
/// Characters that a line may have without its end (bandwidth-file-spec §2.1): tor before 0.3.5
/// skips longer ones, and parsers may.
pub const MAX_LINE: usize = 510;
/// The line after the headers.
const TERMINATOR: &str = "=====";
/// Header lines that go into an authority's vote: tor's 50 (MAX_BW_FILE_HEADER_COUNT_IN_VOTE), of
/// which the timestamp is one.
const MAX_HEADERS: usize = 49;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The specification forbids it, and authorities read it all the same.
    Against,
    /// Authorities skip the line.
    Skipped,
    /// Authorities do not use the file.
    Refused,
}

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileFinding {
    /// In which line, from 1.
    pub line: usize,
    /// How bad it is.
    pub severity: Severity,
    /// The finding's text.
    pub text: String,
}

/// A line of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLine {
    /// Its number, from 1.
    pub line: usize,
    /// The text before the first `=`.
    pub key: String,
    /// The text after it.
    pub value: String,
}

/// A relay's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLine {
    /// Its number, from 1.
    pub line: usize,
    /// The relay.
    pub fingerprint: Fingerprint,
    /// Its weight in kilobytes a second.
    pub bw: u64,
    /// Whether authorities vote with it: not if it says `vote=0`.
    pub votes: bool,
    /// Its nickname, if the line has one.
    pub nickname: Option<String>,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When the newest result was obtained.
    pub unix_secs: u64,
    /// The header.
    pub header: Vec<HeaderLine>,
    /// The relays.
    pub lines: Vec<ReadLine>,
    /// The problems, by line.
    pub findings: Vec<FileFinding>,
}

impl Reading {
    /// Reads a file at this time.
    #[must_use]
    pub fn of(bytes: &[u8], now_unix_secs: u64) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut reading = Self::default();
        let mut lines = (1..).zip(text.split_inclusive('\n'));
        let mut first = lines.next();
        if first.is_some_and(|(_, line)| line.starts_with("@type ")) {
            reading.find(1, Severity::Against, "an archive's annotation, which is passed over");
            first = lines.next();
        }
        let Some((number, line)) = first else {
            reading.find(1, Severity::Refused, "the file is empty");
            return reading;
        };
        if !reading.read_time(number, line, now_unix_secs) {
            return reading;
        }
        let (mut in_header, mut long) = (true, Vec::new());
        for (number, line) in lines {
            in_header = reading.read_line(number, line, in_header);
            long.extend((line.trim_end_matches('\n').len() > MAX_LINE).then_some(number));
        }
        if let Some(&first) = long.first() {
            let lines = if long.len() == 1 { "line has" } else { "lines have" };
            let text = format!(
                "{} {lines} more than {MAX_LINE} characters, which tor before 0.3.5 skips",
                long.len()
            );
            reading.find(first, Severity::Against, text);
        }
        reading.check_header();
        reading.check_relays();
        reading.findings.sort_by_key(|finding| finding.line);
        reading
    }

    /// The value of a header line.
    #[must_use]
    pub fn header(&self, key: &str) -> Option<&str> {
        self.header.iter().find(|line| line.key == key).map(|line| line.value.as_str())
    }

    /// The lines that authorities vote with; of a relay that has several, the last counts.
    #[must_use]
    pub fn votes(&self) -> BTreeMap<Fingerprint, &ReadLine> {
        let lines = self.lines.iter().filter(|relay| relay.votes);
        lines.map(|relay| (relay.fingerprint, relay)).collect()
    }

    /// The sum of all weights, in kilobytes a second.
    #[must_use]
    pub fn total_kilobytes(&self) -> u64 {
        self.votes().values().fold(0, |sum, line| sum.saturating_add(line.bw))
    }

    /// The worst finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Adds a finding.
    fn find(&mut self, line: usize, severity: Severity, text: impl Into<String>) {
        self.findings.push(FileFinding { line, severity, text: text.into() });
    }

    /// Reads the first line; whether the file can be used.
    fn read_time(&mut self, number: usize, line: &str, now: u64) -> bool {
        let Some(digits) = line.strip_suffix('\n') else {
            self.find(number, Severity::Refused, "the first line does not end: the file is cut");
            return false;
        };
        let Ok(time) = digits.trim_start().parse() else {
            let reason = if digits.starts_with('\u{feff}') {
                "the file begins with a byte order mark: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
            } else if digits.ends_with('\r') {
                "the file has DOS line ends: sed -i 's/\\r$//' FILE"
            } else {
                "the first line is not a time in seconds since 1970"
            };
            self.find(number, Severity::Refused, reason);
            return false;
        };
        self.unix_secs = time;
        if now.saturating_sub(time) > MAX_FILE_AGE_SECS {
            let hours = (now - time) / 3600;
            self.find(
                number,
                Severity::Refused,
                format!("the newest result is {hours} hours old; 72 at most"),
            );
        }
        if time > now {
            self.find(number, Severity::Against, "the newest result is in the future");
        }
        true
    }

    /// Reads another line; whether the header goes on behind it.
    fn read_line(&mut self, number: usize, line: &str, in_header: bool) -> bool {
        match parse_relay(number, line) {
            Ok(relay) => {
                // Of one that it does not vote with, tor does not know that it was a relay's.
                let goes_on = in_header && !relay.votes;
                self.lines.push(relay);
                return goes_on;
            }
            Err(None) => {}
            Err(Some(reason)) => {
                let Some(text) = line.strip_suffix('\n') else {
                    self.find(number, Severity::Skipped, "the line does not end: the file is cut");
                    return in_header;
                };
                if text == TERMINATOR {
                    return false;
                }
                match text.split_once('=').filter(|(key, _)| in_header && !key.is_empty()) {
                    Some((key, value)) if !text.contains(' ') && text != "====" => {
                        let (key, value) = (key.to_owned(), value.to_owned());
                        self.header.push(HeaderLine { line: number, key, value });
                    }
                    _ if in_header && text == "====" => {
                        self.find(number, Severity::Skipped, "the terminator must be =====");
                    }
                    _ => self.find(number, Severity::Skipped, reason),
                }
            }
        }
        in_header
    }

    /// Looks at the header as a whole.
    fn check_header(&mut self) {
        let (mut keys, mut found) = (HashSet::new(), Vec::new());
        for HeaderLine { line, key, .. } in &self.header {
            if !keys.insert(key.as_str()) {
                found.push((*line, format!("the header has {key:?} twice")));
            }
        }
        if let Some(first) = self.header.first().filter(|first| first.key != "version") {
            found.push((first.line, "the second line must be version=".to_owned()));
        }
        if let Some(line) = self.header.get(MAX_HEADERS) {
            let most = MAX_HEADERS + 1;
            let text = format!(
                "a vote has at most {most} header lines, including the timestamp; this and later ones are left out"
            );
            found.push((line.line, text));
        }
        for (line, text) in found {
            self.find(line, Severity::Against, text);
        }
        let time = Utc::from_unix_secs(self.unix_secs).map(|time| time.to_string());
        let latest = self.header.iter().find(|line| line.key == "latest_bandwidth");
        let is_other = |latest: &&HeaderLine| time.as_deref() != Ok(latest.value.as_str());
        if let Some(line) = latest.filter(is_other).map(|latest| latest.line) {
            self.find(
                line,
                Severity::Against,
                "latest_bandwidth is not the time of the first line",
            );
        }
    }

    /// Looks at the relays as a whole.
    fn check_relays(&mut self) {
        if self.lines.is_empty() {
            self.find(1, Severity::Against, "no line lists a relay");
        }
        let mut first = HashMap::new();
        let mut found = Vec::new();
        for relay in &self.lines {
            if let Some(line) = first.insert(relay.fingerprint, relay.line) {
                found.push((relay.line, format!("the relay of line {line} again")));
            }
            if relay.bw == 0 {
                found.push((relay.line, "bw is 0: the least is 1".to_owned()));
            } else if u32::try_from(relay.bw).is_err() {
                found.push((relay.line, "bw has more than the 32 bits that votes have".to_owned()));
            }
        }
        for (line, text) in found {
            self.find(line, Severity::Against, text);
        }
    }
}

/// Reads a relay's line, or says why an authority would not; nothing of one that nobody votes with
/// anyway.
fn parse_relay(number: usize, line: &str) -> Result<ReadLine, Option<String>> {
    let words = || line.trim_end_matches('\n').split([' ', '\t']).filter(|word| !word.is_empty());
    let votes = !words().any(|word| word.starts_with("vote=0"));
    let bad = |reason: String| Some(reason).filter(|_| votes);
    if !line.ends_with('\n') {
        return Err(Some("the line does not end: the file is cut".to_owned()));
    }
    let (mut bw, mut fingerprint, mut nickname) = (None, None, None);
    for word in words() {
        if let Some(value) = word.strip_prefix("bw=") {
            let number = value.trim_end().parse::<i64>().ok().and_then(|bw| u64::try_from(bw).ok());
            let number = number.ok_or_else(|| bad(format!("{word:?} is not a number")))?;
            if bw.replace(number).is_some() {
                return Err(bad("bw twice".to_owned()));
            }
        } else if let Some(digits) = word.strip_prefix("node_id=$") {
            let plain = fingerprint_hex(digits).filter(|_| digits.len() == 40);
            let plain = plain.ok_or_else(|| bad(format!("{word:?} is not a fingerprint")))?;
            if fingerprint.replace(plain).is_some() {
                return Err(bad("node_id twice".to_owned()));
            }
        } else if let Some(value) = word.strip_prefix("nick=") {
            nickname = Some(value.to_owned());
        }
    }
    match (bw, fingerprint) {
        (Some(bw), Some(fingerprint)) => {
            Ok(ReadLine { line: number, fingerprint, bw, votes, nickname })
        }
        (None, _) => Err(bad("no bw".to_owned())),
        (_, None) => Err(bad("no node_id=$ and 40 digits".to_owned())),
    }
}

/// The difference between two files for one relay.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// Its nickname in the newer file, or in the older one.
    pub nickname: Option<String>,
    /// Its weight in the older file, if authorities voted with that, in kilobytes a second.
    pub old_bw: Option<u64>,
    /// Its weight in the newer file.
    pub new_bw: Option<u64>,
}

/// The relays' differences between two files as authorities vote with them, in the order of
/// fingerprints.
#[must_use]
pub fn diff(old: &Reading, new: &Reading) -> Vec<Change> {
    let (old, new) = (old.votes(), new.votes());
    let mut relays: Vec<_> = old.keys().chain(new.keys()).copied().collect();
    relays.sort_unstable();
    relays.dedup();
    let change = |relay: &Fingerprint| {
        let (before, after) = (old.get(relay).copied(), new.get(relay).copied());
        let bw = |line: Option<&ReadLine>| line.map(|line| line.bw);
        (bw(before) != bw(after)).then(|| Change {
            fingerprint: hex::encode_upper(relay),
            nickname: after.or(before).and_then(|line| line.nickname.clone()),
            old_bw: bw(before),
            new_bw: bw(after),
        })
    };
    relays.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the files of these tests are read.
    const NOW: u64 = 1_553_520_000;
    /// A good file.
    const FILE: &str = "1553519123\nversion=1.4.0\nlatest_bandwidth=2019-03-25T13:05:23\nsoftware=x\n=====\n\
        bw=7 node_id=$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA nick=one\n\
        node_id=$BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB bw=9 vote=0\n";

    /// The findings of a file, by line.
    fn findings(text: &str) -> Vec<(usize, Severity)> {
        let reading = Reading::of(text.as_bytes(), NOW);
        reading.findings.iter().map(|finding| (finding.line, finding.severity)).collect()
    }

    #[test]
    fn a_good_file_has_no_findings() {
        let reading = Reading::of(FILE.as_bytes(), NOW);
        assert_eq!(reading.findings, []);
        assert_eq!((reading.unix_secs, reading.header("software")), (1_553_519_123, Some("x")));
        let [one, two] = &reading.lines[..] else { panic!("{reading:?}") };
        assert_eq!((one.bw, one.votes, one.nickname.as_deref()), (7, true, Some("one")));
        assert_eq!((two.bw, two.votes, two.fingerprint), (9, false, [0xBB; 20]));
        // Version 1.0 has no header.
        let bare = FILE.lines().filter(|line| !line.contains("=") || line.contains("bw="));
        let bare: String =
            bare.filter(|line| !line.starts_with("latest")).flat_map(|l| [l, "\n"]).collect();
        assert_eq!(findings(&bare), [], "{bare}");
    }

    #[test]
    fn what_an_authority_does_not_take_is_named_by_line() {
        use Severity::{Against, Refused, Skipped};
        let cut = &FILE[..FILE.len() - 1];
        for (text, expected) in [
            (String::new(), vec![(1, Refused)]),
            (format!("@type bandwidth-file 1.0\n{FILE}"), vec![(1, Against)]),
            ("1553519123".to_owned(), vec![(1, Refused)]),
            (FILE.replace("1553519123", "now"), vec![(1, Refused)]),
            (
                FILE.replace("1553519123", "1553260799").replace("latest_bandwidth=", "l="),
                vec![(1, Refused)],
            ),
            (FILE.replace("1553519123", "1553260800").replace("latest_bandwidth=", "l="), vec![]),
            (
                FILE.replace("1553519123", "1553520001").replace("latest_bandwidth=", "l="),
                vec![(1, Against)],
            ),
            (FILE.replace("T13:05:23", "T13:05:22"), vec![(3, Against)]),
            (FILE.replace("version=1.4.0\n", ""), vec![(2, Against)]),
            (FILE.replace("software=x", "software=x\nsoftware=y"), vec![(5, Against)]),
            (FILE.replace("=====", "===="), vec![(5, Skipped)]),
            (FILE.replace("software=x", "software=x y"), vec![(4, Skipped)]),
            (FILE.replace("bw=7", "bw=7.5"), vec![(6, Skipped)]),
            (FILE.replace("bw=7", "bw=-7"), vec![(6, Skipped)]),
            (FILE.replace("bw=7", "bw=7 bw=8"), vec![(6, Skipped)]),
            (FILE.replace("bw=7", "bw=0"), vec![(6, Against)]),
            (FILE.replace("AA nick", "A nick"), vec![(6, Skipped)]),
            (FILE.replace("$AA", "$GA"), vec![(6, Skipped)]),
            (FILE.replace('B', "A"), vec![(7, Against)]),
            (FILE.replace("bw=9 vote=0", ""), vec![(7, Skipped)]),
            (FILE.replace("bw=9 ", ""), vec![]),
            (FILE.replace("bw=9 ", "bw=9.5 "), vec![]),
            (FILE.replace("bw=7", "bw=4294967296"), vec![(6, Against)]),
            (FILE.replace("bw=7", "bw=9223372036854775808"), vec![(6, Skipped)]),
            (FILE.replace("node_id=$A", "node_id=A"), vec![(6, Skipped)]),
            (FILE.replace(" nick=one\n", " bw=7\r\n").replacen("bw=7 ", "", 1), vec![]),
            (
                FILE.replace("=====\n", &(0..47).map(|n| format!("k{n}=v\n")).collect::<String>()),
                vec![(51, Against)],
            ),
            // With the timestamp 50.
            (
                FILE.replace("=====\n", &(0..46).map(|n| format!("k{n}=v\n")).collect::<String>()),
                vec![],
            ),
            (FILE.replace("version", "vote=0 bw=1\nversion"), vec![]),
            (cut.to_owned(), vec![(7, Skipped)]),
            (FILE.replace("nick=one", &format!("nick={}", "o".repeat(500))), vec![(6, Against)]),
            (FILE[..FILE.find("bw=7").expect("a line")].to_owned(), vec![(1, Against)]),
        ] {
            assert_eq!(findings(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_byte_order_mark_and_dos_line_ends_are_refused_by_their_names() {
        for (text, cause) in [
            (format!("\u{feff}{FILE}"), "byte order mark"),
            (FILE.replace('\n', "\r\n"), "DOS line ends"),
        ] {
            let reading = Reading::of(text.as_bytes(), NOW);
            let [finding] = reading.findings.as_slice() else { panic!("one: {reading:?}") };
            assert_eq!((finding.line, finding.severity), (1, Severity::Refused));
            assert!(finding.text.contains(cause), "{finding:?}");
        }
    }

    #[test]
    fn any_bytes_are_read() {
        for bytes in
            [&b"\xff\xfe"[..], b"1553519123\n\xff=\xff\nbw=1\tnode_id=\xff\n", b"\n\n\n", b"5\0\n"]
        {
            let _ = Reading::of(bytes, NOW);
        }
    }

    #[test]
    fn changes_are_those_that_authorities_vote_with() {
        let newer = FILE.replace("bw=7", "bw=8").replace(" vote=0", " vote=1");
        let [old, new] = [FILE, &newer].map(|text| Reading::of(text.as_bytes(), NOW));
        let changes = diff(&old, &new);
        let bws: Vec<_> = changes.iter().map(|change| (change.old_bw, change.new_bw)).collect();
        assert_eq!(bws, [(Some(7), Some(8)), (None, Some(9))]);
        assert_eq!(diff(&new, &new), []);
    }
}
