//! All relays: the store, the consensus and the bandwidth files, joined by fingerprint.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use ff_base::identity::Fingerprint;
use ff_base::utc::now_unix_secs as now;
use ff_plan::publish::v3bw::Publication;
use ff_plan::publish::{Last, Shelf};
use ff_proto::failure::FailureKind;
use ff_store::Known;

use super::super::pool::{AskError, Work};
use super::super::site::Site;
use crate::watch::search::Search;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// The nickname.
    Nickname,
    /// The number in the last bandwidth file.
    Bw,
    /// The verdict of the newest attempt.
    Verdict,
    /// The age of that attempt.
    Age,
    /// The change of `bw` in a day.
    Change,
    /// The weight in the consensus.
    Weight,
}

impl Column {
    /// All columns, in the order of the table.
    pub(super) const ALL: [Self; 6] =
        [Self::Nickname, Self::Bw, Self::Verdict, Self::Age, Self::Change, Self::Weight];

    /// The column with this name in an address.
    pub(super) fn of(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.key() == key)
    }

    /// Its name in an address.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Nickname => "nickname",
            Self::Bw => "bw",
            Self::Verdict => "verdict",
            Self::Age => "age",
            Self::Change => "change",
            Self::Weight => "weight",
        }
    }

    /// Its title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Nickname => "Relay",
            Self::Bw => "bw, kB/s",
            Self::Verdict => "Last verdict",
            Self::Age => "Last attempt",
            Self::Change => "Change",
            Self::Weight => "Consensus weight, kB/s",
        }
    }

    /// Whether its values are numbers.
    pub(super) fn is_number(self) -> bool {
        !matches!(self, Self::Nickname | Self::Verdict)
    }

    /// Whether its greatest values come first by default.
    pub(super) fn begins_with_greatest(self) -> bool {
        matches!(self, Self::Bw | Self::Change | Self::Weight)
    }

    /// An order in words.
    pub(super) fn order(self, is_descending: bool) -> &'static str {
        match (self, is_descending) {
            (Self::Age, false) => "newest first",
            (Self::Age, true) => "oldest first",
            (Self::Nickname | Self::Verdict, false) => "A to Z",
            (Self::Nickname | Self::Verdict, true) => "Z to A",
            (_, false) => "smallest first",
            (_, true) => "largest first",
        }
    }
}

/// A row of the table: a relay.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) fingerprint: Fingerprint,
    /// Its nickname in the consensus, or else in its last measurement.
    pub(super) nickname: Option<String>,
    /// The same in lower case, for searching and sorting; empty without a nickname.
    folded: String,
    /// Its number in the last bandwidth file, in kilobytes a second.
    pub(super) bw: Option<u64>,
    /// The verdict of its newest attempt, in words.
    pub(super) verdict: Option<String>,
    /// Whether the attempt failed, and not for lack of FlashFlow.
    pub(super) is_bad: bool,
    /// When its newest attempt began, in seconds since 1970.
    pub(super) started_unix_secs: Option<u64>,
    /// The relative change of `bw` since the file of the day before.
    pub(super) change: Option<f64>,
    /// Its weight in the consensus, in kilobytes a second.
    pub(super) weight: Option<u64>,
    /// Whether the consensus calls the weight unmeasured.
    pub(super) is_unmeasured: bool,
}

/// All relays that were ever measured or attempted, are in the consensus or in the last bandwidth
/// file.
pub(in super::super) struct List {
    pub(super) made_unix_secs: u64,
    /// The name of the last bandwidth file, if any, or why it cannot be read.
    pub(super) file: Result<Option<String>, String>,
    /// The name of the earlier file with which it is compared.
    pub(super) file_before: Option<String>,
    /// Sorted by fingerprint.
    rows: Vec<Row>,
}

/// Reads the data and makes the list.
pub(in super::super) async fn look(site: &Site) -> Result<List, AskError> {
    let network = site.options.network.as_ref().and_then(|network| network.borrow().clone());
    let publish_dir = site.options.publish_dir.clone();
    let made_unix_secs = now();
    let reading = site.pool.ask(Work::Much, move |reader| {
        let known = reader.known()?;
        let files = publish_dir.as_deref().filter(|dir| dir.exists()).map(files);
        let files = files.unwrap_or(Ok((None, None)));
        Ok(List::new(made_unix_secs, known, network.as_deref(), files))
    });
    reading.await
}

/// The last bandwidth file of a directory, and the one of the day before.
type Files = (Option<Last>, Option<Last>);

/// Reads both files.
fn files(dir: &Path) -> Result<Files, String> {
    let shelf = Shelf::open(dir).map_err(|error| error.to_string())?;
    // If the earlier file cannot be read, changes are not shown.
    let before = shelf.day_before().ok().flatten();
    Ok((shelf.last().cloned(), before))
}

impl List {
    /// Joins these sources.
    fn new(
        made_unix_secs: u64,
        known: Vec<Known>,
        network: Option<&Publication>,
        files: Result<Files, String>,
    ) -> Self {
        let mut rows = BTreeMap::<Fingerprint, Row>::new();
        for one in known {
            rows.entry(one.fingerprint).or_default().set_known(one);
        }
        for (relay, facts) in network.into_iter().flat_map(|network| &network.directory) {
            let row = rows.entry(*relay).or_default();
            row.weight = facts.consensus_bandwidth.map(|rate| rate.get() / 1000);
            row.is_unmeasured = facts.consensus_is_unmeasured == Some(true);
            let nickname = network.and_then(|network| network.nicknames.get(relay));
            row.nickname = nickname.cloned().or(row.nickname.take());
        }
        let name = |last: &Last| last.name.display().to_string();
        let (file, file_before) = match &files {
            Ok((last, before)) => (Ok(last.as_ref().map(name)), before.as_ref().map(name)),
            Err(reason) => (Err(reason.clone()), None),
        };
        if let Ok((Some(last), before)) = files {
            set_bw(&mut rows, &last, before.as_ref());
        }
        let finish = |(fingerprint, row): (Fingerprint, Row)| {
            let folded = row.nickname.as_deref().map(str::to_lowercase).unwrap_or_default();
            Row { fingerprint, folded, ..row }
        };
        let rows = rows.into_iter().map(finish).collect();
        Self { made_unix_secs, file, file_before, rows }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The relays that match a text, as [`Search`] finds them, in the order of a column. Relays
    /// without a value come last in both directions; relays with equal values are in the order of
    /// their fingerprints.
    pub(super) fn sorted(&self, text: &str, column: Column, is_descending: bool) -> Vec<&Row> {
        let search = Search::new(text);
        let is_found = |row: &&Row| search.finds(&row.fingerprint, &row.folded);
        let mut found: Vec<&Row> = self.rows.iter().filter(is_found).collect();
        found.sort_by(|one, other| column.compare(one, other, is_descending));
        found
    }

    /// Relays `relay0` and so on, with increasing fingerprints and times.
    #[cfg(test)]
    pub(super) fn made_up(relays: u16) -> Self {
        let known = |relay: u16| {
            let mut fingerprint = [0; 20];
            fingerprint[..2].copy_from_slice(&relay.to_be_bytes());
            Known {
                fingerprint,
                nickname: Some(format!("relay{relay}")),
                started_unix_secs: relay.into(),
                verdict: "conclusive".to_owned(),
                failure: None,
            }
        };
        Self::new(0, (0..relays).map(known).collect(), None, Ok((None, None)))
    }
}

/// Sets the numbers in the last bandwidth file and their changes.
fn set_bw(rows: &mut BTreeMap<Fingerprint, Row>, last: &Last, before: Option<&Last>) {
    for line in &last.reading.lines {
        let row = rows.entry(line.fingerprint).or_default();
        row.bw = Some(line.bw);
        row.nickname = row.nickname.take().or_else(|| line.nickname.clone());
    }
    for line in before.into_iter().flat_map(|before| &before.reading.lines) {
        if let Some(row) = rows.get_mut(&line.fingerprint) {
            row.change = row.bw.and_then(|bw| change(line.bw, bw));
        }
    }
}

/// The relative change of a number.
#[expect(clippy::cast_precision_loss, reason = "kilobytes a second lie far below 2^53")]
fn change(before: u64, now: u64) -> Option<f64> {
    (before > 0).then(|| now as f64 / before as f64 - 1.0)
}

impl Row {
    /// Its nickname in lower case, if it has one.
    fn name(&self) -> Option<&str> {
        Some(self.folded.as_str()).filter(|name| !name.is_empty())
    }

    /// Sets the values from the store.
    fn set_known(&mut self, known: Known) {
        let words = |name: &str| name.replace('_', " ");
        (self.verdict, self.is_bad) = match known.failure.as_deref() {
            None => (Some(words(&known.verdict)), false),
            // Relays without FlashFlow are not failures.
            Some(code) if code == FailureKind::NotSupported.code() => (Some(words(code)), false),
            Some(code) => (Some(format!("failed: {}", words(code))), true),
        };
        self.nickname = known.nickname;
        self.started_unix_secs = Some(known.started_unix_secs);
    }
}

impl Column {
    /// The order of two relays.
    fn compare(self, one: &Row, other: &Row, is_descending: bool) -> Ordering {
        // The attempt that began last has the smallest age.
        let age = |row: &Row| row.started_unix_secs.map(std::cmp::Reverse);
        let order = match self {
            Self::Nickname => order(one.name(), other.name(), is_descending, Ord::cmp),
            Self::Bw => order(one.bw, other.bw, is_descending, u64::cmp),
            Self::Verdict => {
                order(one.verdict.as_ref(), other.verdict.as_ref(), is_descending, Ord::cmp)
            }
            Self::Age => order(age(one), age(other), is_descending, Ord::cmp),
            Self::Change => order(one.change, other.change, is_descending, f64::total_cmp),
            Self::Weight => order(one.weight, other.weight, is_descending, u64::cmp),
        };
        order.then_with(|| one.fingerprint.cmp(&other.fingerprint))
    }
}

/// The order of two values; a missing one comes last.
fn order<T>(
    one: Option<T>,
    other: Option<T>,
    is_descending: bool,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) if is_descending => compare(&other, &one),
        (Some(one), Some(other)) => compare(&one, &other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ff_dir::bandwidth::Reading;
    use ff_plan::publish::v3bw::DirectoryFacts;
    use ff_proto::units::BytesPerSec;

    use super::*;

    /// The store's data about a relay.
    fn known(relay: u8, nickname: &str, started: u64, failure: Option<&str>) -> Known {
        Known {
            fingerprint: [relay; 20],
            nickname: Some(nickname.to_owned()),
            started_unix_secs: started,
            verdict: if failure.is_some() { "failed" } else { "lower_bound" }.to_owned(),
            failure: failure.map(str::to_owned),
        }
    }

    /// A bandwidth file with these relays and numbers.
    fn file(name: &str, relays: &[(u8, u64)]) -> Last {
        let mut text = "1795165200\nversion=1.5.0\nsoftware=flashflow\n=====\n".to_owned();
        for (relay, bw) in relays {
            text += &format!("node_id=${} bw={bw}\n", hex::encode_upper([*relay; 20]));
        }
        let reading = Reading::of(text.as_bytes(), 0);
        assert_eq!(reading.lines.len(), relays.len(), "{:?}", reading.findings);
        Last { name: PathBuf::from(name), made_unix_secs: None, reading }
    }

    /// Four relays: in the store, in the consensus, in both, and only in the file.
    fn list() -> List {
        let store = vec![
            known(1, "Alpha", 100, None),
            known(2, "beta", 300, Some("timeout")),
            known(3, "gamma", 200, Some("not_supported")),
        ];
        let facts = |kilobytes: u64| DirectoryFacts {
            is_listed: true,
            consensus_bandwidth: Some(BytesPerSec::new(kilobytes * 1000)),
            consensus_is_unmeasured: Some(kilobytes < 50),
            ..DirectoryFacts::default()
        };
        let network = Publication {
            directory: [([3; 20], facts(20)), ([4; 20], facts(70))].into(),
            nicknames: [([3; 20], "renamed".to_owned())].into(),
            ..Publication::default()
        };
        let last = file("last", &[(1, 100), (3, 300), (5, 50)]);
        let before = file("before", &[(1, 200), (3, 200), (9, 7)]);
        List::new(7, store, Some(&network), Ok((Some(last), Some(before))))
    }

    /// The first byte of the fingerprints of the relays found.
    fn found(text: &str, column: Column, is_descending: bool) -> Vec<u8> {
        let list = list();
        list.sorted(text, column, is_descending).iter().map(|row| row.fingerprint[0]).collect()
    }

    #[test]
    fn what_is_known_is_joined_by_fingerprint() {
        let list = list();
        assert_eq!((list.len(), list.file.as_ref()), (5, Ok(&Some("last".to_owned()))));
        let [alpha, beta, gamma, unmeasured, unknown] = &list.rows[..] else { panic!("five") };
        assert_eq!((alpha.bw, alpha.change, alpha.weight), (Some(100), Some(-0.5), None));
        assert_eq!((alpha.verdict.as_deref(), alpha.is_bad), (Some("lower bound"), false));
        assert_eq!((beta.verdict.as_deref(), beta.is_bad), (Some("failed: timeout"), true));
        assert_eq!((gamma.verdict.as_deref(), gamma.is_bad), (Some("not supported"), false));
        assert_eq!((gamma.nickname.as_deref(), gamma.weight), (Some("renamed"), Some(20)));
        assert!(gamma.is_unmeasured && !unmeasured.is_unmeasured);
        assert_eq!((unmeasured.bw, unmeasured.started_unix_secs), (None, None));
        assert_eq!((unknown.bw, unknown.change), (Some(50), None));
    }

    #[test]
    fn each_column_sorts_both_ways_and_what_is_missing_comes_last() {
        for (column, ascending, descending) in [
            (Column::Nickname, [1, 2, 3, 4, 5], [3, 2, 1, 4, 5]),
            (Column::Bw, [5, 1, 3, 2, 4], [3, 1, 5, 2, 4]),
            (Column::Verdict, [2, 1, 3, 4, 5], [3, 1, 2, 4, 5]),
            (Column::Age, [2, 3, 1, 4, 5], [1, 3, 2, 4, 5]),
            (Column::Change, [1, 3, 2, 4, 5], [3, 1, 2, 4, 5]),
            (Column::Weight, [3, 4, 1, 2, 5], [4, 3, 1, 2, 5]),
        ] {
            assert_eq!(found("", column, false), ascending, "{column:?}");
            assert_eq!(found("", column, true), descending, "{column:?}");
            assert_eq!(Column::of(column.key()), Some(column));
        }
    }

    #[test]
    fn relays_are_found_by_nickname_and_by_fingerprint() {
        let find = |text: &str| found(text, Column::Nickname, false);
        assert_eq!(find("ALPHA"), [1]);
        assert_eq!(find("eta"), [2], "also in the middle");
        assert_eq!(find("0404"), [4]);
        assert_eq!(find(&format!("${}", "05".repeat(20))), [5]);
        assert_eq!(find("0303 0303"), [3]);
        for nothing in ["%", "_", "'", "06", &"04".repeat(21), "é"] {
            assert!(find(nothing).is_empty(), "{nothing:?}");
        }
    }
}
