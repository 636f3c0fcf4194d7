//! Written rows are read back.

use rand::{RngExt as _, SeedableRng as _};

use super::super::load::PartFile;
use super::super::schema::{Column, ColumnKind};
use super::*;

const fn column(name: &'static str, kind: ColumnKind, is_nullable: bool) -> Column {
    Column { name, kind, is_nullable }
}

/// A table with columns of all kinds.
static ALL: Table = Table {
    name: "all",
    columns: &[
        column("time", ColumnKind::Time, false),
        column("int", ColumnKind::Int, true),
        column("small", ColumnKind::Small, true),
        column("bool", ColumnKind::Bool, true),
        column("text", ColumnKind::Text, false),
        column("none", ColumnKind::Text, true),
        column("id", ColumnKind::Bytes(20), false),
        column("long", ColumnKind::Text, true),
    ],
};

/// The number of rows of a document: more than the least of a group.
const DOCUMENT: usize = 150_000;
/// Rows of three groups, the last one smaller.
const ROWS: usize = 2 * DOCUMENT + 12_345;

/// The values of a row.
struct Row {
    /// Equal in a thousand rows.
    time: u64,
    /// One of 70,000 values, so numbers need three bytes.
    int: Option<u64>,
    /// One of 200 values.
    small: Option<u64>,
    /// Sometimes none.
    is_true: Option<bool>,
    /// Sometimes empty.
    text: String,
    /// Unique in each row.
    id: [u8; 20],
    /// Unique and longer; missing in some rows.
    long: Option<String>,
}

impl Row {
    /// The row with this number.
    fn of(row: usize) -> Self {
        let number = row as u64;
        let mut id = [0; 20];
        id[12..].copy_from_slice(&number.to_be_bytes());
        Self {
            time: 1_500_000_000 + number / 1000,
            int: (!row.is_multiple_of(997)).then_some(number % 70_000 * 1_000_003),
            small: (!row.is_multiple_of(3)).then_some(number % 200),
            is_true: (!row.is_multiple_of(5)).then_some(row.is_multiple_of(7)),
            text: "x".repeat(row % 9),
            id,
            long: (!row.is_multiple_of(2)).then(|| format!("{row:090}")),
        }
    }

    fn cells(&self) -> [Cell<'_>; 8] {
        [
            Cell::Int(self.time),
            self.int.into(),
            self.small.into(),
            self.is_true.map_or(Cell::None, Cell::Bool),
            self.text.as_str().into(),
            Cell::None,
            Cell::Bytes(&self.id),
            self.long.as_deref().into(),
        ]
    }
}

/// Checks that a partition has the first `rows` rows.
fn check(path: &Path, rows: usize) {
    let part = PartFile::open_checked(path, &ALL).expect("a partition");
    let mut at = 0;
    for (group, len) in part.groups().into_iter().enumerate() {
        let names = ["time", "int", "small", "bool", "text", "none", "id", "long"];
        let columns = part.columns(group, names).expect("columns");
        let [time, int, small, is_true, text, none, id, long] = &columns;
        for row in 0..usize::try_from(len).expect("few") {
            let wanted = Row::of(at + row);
            assert_eq!(time.int(row), Some(wanted.time));
            assert_eq!((int.int(row), small.int(row)), (wanted.int, wanted.small), "{row}");
            assert_eq!(is_true.is_true(row), wanted.is_true == Some(true));
            assert_eq!((text.text(row), none.bytes(row)), (wanted.text.as_str(), None));
            assert_eq!(id.id(row), Some(wanted.id));
            assert_eq!(long.bytes(row), wanted.long.as_deref().map(str::as_bytes));
        }
        at += usize::try_from(len).expect("few");
    }
    assert_eq!(at, rows);
}

#[test]
fn all_kinds_of_values_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("part.parquet");
    let mut part = Partition::create(&path, &ALL).expect("a partition");
    for row in 0..ROWS {
        part.push(&Row::of(row).cells());
        if (row + 1).is_multiple_of(DOCUMENT) {
            part.end_document();
        }
    }
    let written = part.finish().expect("written");
    assert_eq!(written.rows, ROWS as u64);
    assert_eq!(written.bytes, fs::metadata(&path).expect("a file").len());
    check(&path, ROWS);
}

#[test]
fn groups_are_closed_by_what_their_values_take_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("part.parquet");
    let mut part = Partition::create(&path, &ALL).expect("a partition");
    for row in 0..40 {
        let (row, long) = (Row::of(row), format!("{row:02}").repeat(700_000));
        let mut cells = row.cells();
        cells[7] = long.as_str().into();
        part.push(&cells);
        part.end_document();
        assert!(part.batch.value_bytes() < GROUP_BYTES + 1_400_004);
    }
    part.finish().expect("written");
    let part = PartFile::open_checked(&path, &ALL).expect("a partition");
    // The last document before a group can be repeated in the group, too.
    assert!(part.groups().len() >= 4, "{:?}", part.groups());
    assert_eq!(part.groups().iter().sum::<u64>(), 40);
}

#[test]
fn rows_of_the_last_document_come_again_with_what_has_changed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, other) = (dir.path().join("part.parquet"), dir.path().join("other.parquet"));
    let mut part = Partition::create(&path, &ALL).expect("a partition");
    let mut plain = Partition::create(&other, &ALL).expect("a partition");
    let mut again = 0;
    let len = GROUP_ROWS / 2;
    for document in 0..4 {
        for row in 0..len {
            let (now, before) =
                (Row::of(document * len + row), Row::of(document.max(1) * len - len + row));
            let (cells, old) = (now.cells(), before.cells());
            let changes = cells.iter().copied().enumerate();
            let is_again =
                part.push_again(row, changes.filter(|(index, cell)| *cell != old[*index]));
            again += usize::from(is_again);
            if !is_again {
                part.push(&cells);
            }
            plain.push(&cells);
        }
        assert!(!part.push_again(len, []));
        part.end_document();
        plain.end_document();
    }
    // Nothing precedes the first document; the third begins a group.
    assert_eq!(again, 3 * len);
    part.finish().expect("written");
    check(&path, 4 * len);
    plain.finish().expect("written");
    check(&other, 4 * len);
}

#[test]
fn a_value_that_has_to_be_there_and_is_not_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("part.parquet");
    let mut part = Partition::create(&path, &ALL).expect("a partition");
    let row = Row::of(0);
    let mut cells = row.cells();
    cells[6] = Cell::Bytes(b"too short");
    part.push(&cells);
    let error = part.finish().expect_err("it has no id");
    assert!(format!("{error:?}").contains("id has no value"), "{error:?}");
    assert!(!path.exists());
}

/// Reads a file completely, as if its manifest had its hash; returns the number of values.
fn read_whatever(path: &Path) -> Result<usize, ArchiveStoreError> {
    let part = PartFile::open_checked(path, &ALL)?;
    let mut values = 0;
    for group in 0..part.groups().len() {
        let names = ["time", "int", "small", "bool", "text", "none", "id", "long"];
        for column in part.columns(group, names)? {
            values += usize::from(column.int(0).is_some() || column.bytes(0).is_some());
        }
    }
    Ok(values)
}

#[test]
fn changed_files_whose_manifests_were_changed_alike_are_errors_and_no_panics() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("part.parquet");
    let mut part = Partition::create(&path, &ALL).expect("a partition");
    (0..300).for_each(|row| part.push(&Row::of(row).cells()));
    part.end_document();
    part.finish().expect("written");
    let whole = fs::read(&path).expect("a file");
    let seed = rand::random::<u64>();
    let mut rng = rand_chacha::ChaCha12Rng::seed_from_u64(seed);
    let mut errors = 0;
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        // Also the length field at the end.
        if rng.random_bool(0.1) {
            bytes.truncate(rng.random_range(0..bytes.len()));
        }
        fs::write(&path, &bytes).expect("written");
        errors += usize::from(read_whatever(&path).is_err());
    }
    assert!(errors > 200, "seed {seed}: {errors} errors");
}
