//! Valid and invalid rows.

use std::io::Write;

use super::*;

/// A fingerprint of one repeated digit.
fn relay(digit: u8) -> String {
    String::from_utf8(vec![digit; 40]).expect("a digit")
}

/// The table in a text, and the lines that were left out.
fn read(kind: SeriesKind, text: &[u8]) -> (Series, Vec<usize>) {
    let (series, skips) = Series::read("t.csv", kind, text).expect("a slice can be read");
    (series, skips.all.iter().filter_map(|skipped| skipped.line).collect())
}

/// All values of a relay.
fn row(series: &Series, relay: usize) -> Vec<Option<u64>> {
    (0..series.times.len()).map(|time| series.value(relay, time)).collect()
}

#[test]
fn blanks_repeats_and_short_rows_are_understood() {
    let text = format!(
        "# c\nrelays_published,2025-08-01T01:00:00,2025-08-01T09:00:00,2025-08-02\n\
         commit,a,b,c\n{},5,=,\n{},,7\r\n{},0,,=\n{}\n",
        relay(b'A'),
        relay(b'b'),
        relay(b'1'),
        relay(b'2'),
    );
    let (series, bad) = read(SeriesKind::BytesPerSec, text.as_bytes());
    assert_eq!(bad, [0; 0]);
    assert_eq!(series.times, [1_754_010_000, 1_754_038_800, 1_754_092_800]);
    assert_eq!(row(&series, 0), [Some(5), Some(5), None]);
    assert_eq!(row(&series, 1), [None, Some(7), None]);
    assert_eq!(row(&series, 2), [Some(0), None, Some(0)]);
    assert_eq!(row(&series, 3), [None; 3]);
    assert_eq!(series.value(9, 0), None);
    let (mut cursor, mut listed) = (series.cursor(), Vec::new());
    assert_eq!(cursor.next_into(&mut listed), Some(1_754_010_000));
    assert_eq!(listed, [(0, 5), (2, 0)]);
    assert_eq!(cursor.next_into(&mut listed), Some(1_754_038_800));
    assert_eq!(listed, [(0, 5), (1, 7)]);
    assert_eq!(cursor.next_into(&mut listed), Some(1_754_092_800));
    assert_eq!(listed, [(2, 0)]);
    assert_eq!(cursor.next_into(&mut listed), None);
}

#[test]
fn every_bad_row_is_left_out_and_listed() {
    let good = relay(b'A');
    let text = [
        format!("{good},1,2"), // 1: before the times
        "relays,2025-08-01T01:00:00,2025-08-01T09:00:00".to_owned(),
        format!("{},=,1", relay(b'1')),   // 3: nothing to repeat
        format!("{},1,2,3", relay(b'2')), // 4: too many cells
        format!("{},1,2,", relay(b'2')),  // 5: too many cells, if blank
        format!("{}0,1,2", relay(b'3')),  // 6: 41 digits
        format!("{},{},1", relay(b'4'), (1_u64 << 53) + 1), // 7: above 2^53
        format!("{},-1,1", relay(b'5')),  // 8
        format!("{},1.5,1", relay(b'6')), // 9
        format!("{},+1,1", relay(b'7')),  // 10
        format!("{},99999999999999999999999,1", relay(b'8')), // 11
        format!("{good},{},0", 1_u64 << 53),
        format!("{good},1,1"),            // 13: a second time
        "commit,a,b".to_owned(),          // 14: words after relays
        "Z,1,1".to_owned(),               // 15
        format!("{},==,1", relay(b'9')),  // 16
        format!("{},1,NaN", relay(b'9')), // 17
    ]
    .join("\n");
    let mut text = text.into_bytes();
    text.extend_from_slice(b"\n\xFF\xFE,1\n"); // 18
    let (series, bad) = read(SeriesKind::BytesPerSec, &text);
    assert_eq!(bad, [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18]);
    assert_eq!(series.relays, [[0xAA; 20]]);
    assert_eq!(row(&series, 0), [Some(1 << 53), Some(0)]);
}

#[test]
fn a_column_without_a_time_of_its_own_is_left_out() {
    let text = format!(
        "t,2025-08-01T01:00:00,2025-08-01T01:00:00,2025-07-01,soon,2006-01-01,2200-01-01,2025-08-02\n\
         {},1,2,3,4,5,6,=\n",
        relay(b'A')
    );
    let (series, bad) = read(SeriesKind::BytesPerSec, text.as_bytes());
    assert_eq!(bad, [1; 5]);
    assert_eq!(series.times.len(), 2);
    // The value repeated by = is in a column that is left out.
    assert_eq!(row(&series, 0), [Some(1), Some(6)]);
}

#[test]
fn probabilities_are_exact() {
    for (text, expected) in [
        ("1.5612843e-05", Some(15_612_843_000_000)),
        ("0.00021467659", Some(214_676_590_000_000)),
        ("0.0", Some(0)),
        ("0", Some(0)),
        ("0e999", Some(0)),
        ("1", Some(ONE)),
        ("1.0", Some(ONE)),
        ("10e-1", Some(ONE)),
        ("1E+0", Some(ONE)),
        ("1.1025514e-08", Some(11_025_514_000)),
        ("1e-19", Some(0)),
        ("1e-999", Some(0)),
        ("1.0000000000000000001", Some(ONE)),
        ("1.000000000000000001", None),
        ("1e999", None),
        ("1e1000", None),
        ("2", None),
        ("-0.5", None),
        ("nan", None),
        ("inf", None),
        (".5", None),
        ("1e", None),
        ("1e-", None),
        ("e5", None),
        ("0..5", None),
        ("0.0000000000000000000000000000000", None),
    ] {
        assert_eq!(number(SeriesKind::Probability, text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn a_table_of_weights_says_itself_of_which_kind_it_is() {
    let (one, other) = (relay(b'A'), relay(b'B'));
    for (cells, kind) in [
        ("0,1,20", SeriesKind::Weight),
        ("0,1,=,,0.5,20", SeriesKind::Probability),
        ("x,99999999999999999999,1e-05", SeriesKind::Probability),
        ("1.0", SeriesKind::Probability),
        ("1,0,=", SeriesKind::Probability),
        ("", SeriesKind::Probability),
    ] {
        let table = format!("t,2025-08-01\r\ncommits,7\n#{one},9\n{one},{cells}\r\n{other},");
        assert_eq!(SeriesKind::of_weights(table.as_bytes()), kind, "{cells}");
    }
    assert_eq!(number(SeriesKind::Weight, b"9007199254740993"), None);
    assert_eq!(number(SeriesKind::Weight, b"9007199254740992"), Some(1 << 53));
}

#[test]
fn what_came_before_a_cut_stays() {
    let mut text = b"t,2025-08-01,2025-08-02\n".to_vec();
    for number in 0..20_000_u64 {
        let relay = format!("{number:040x}");
        text.extend(format!("{relay},{},=\n", number * 7919 % 10_007).into_bytes());
    }
    let mut packer = liblzma::write::XzEncoder::new(Vec::new(), 1);
    packer.write_all(&text).expect("a vector takes all");
    let packed = packer.finish().expect("a vector takes all");
    let (whole, bad) = read(SeriesKind::BytesPerSec, &packed);
    assert_eq!((whole.relays.len(), bad), (20_000, vec![]));
    let (cut, bad) = read(SeriesKind::BytesPerSec, &packed[..packed.len() / 2]);
    assert!((1_000..19_000).contains(&cut.relays.len()), "{}", cut.relays.len());
    assert_eq!(bad, [cut.relays.len() + 2]);
    assert_eq!(cut.relays, whole.relays[..cut.relays.len()]);
    assert_eq!(row(&cut, 999), row(&whole, 999));
}

#[test]
fn a_line_without_an_end_costs_no_memory() {
    let mut text = b"t,2025-08-01\n".to_vec();
    text.resize(text.len() + MOST_LINE_BYTES + 1, b'1');
    text.extend(format!("\n{},4\n", relay(b'A')).into_bytes());
    let (series, bad) = read(SeriesKind::BytesPerSec, &text);
    assert_eq!((row(&series, 0), bad), (vec![Some(4)], vec![2]));
}

proptest::proptest! {
    /// Any bytes are read or listed, without a panic.
    #[test]
    fn no_bytes_make_it_panic(
        cells in proptest::collection::vec("[0-9=,.eE#\\n-]{0,12}|2025-0[1-9]-01", 0..60),
        tail in proptest::collection::vec(0_u8.., 0..80),
    ) {
        let head = format!("t,2025-08-01,2025-08-02\n{},", relay(b'A'));
        let text = [head.into_bytes(), cells.join(",").into_bytes(), tail].concat();
        for kind in [SeriesKind::BytesPerSec, SeriesKind::Probability, SeriesKind::of_weights(&text)] {
            let (series, _) = Series::read("t.csv", kind, text.as_slice()).expect("a slice");
            let (mut cursor, mut listed) = (series.cursor(), Vec::new());
            while cursor.next_into(&mut listed).is_some() {}
        }
    }
}

#[test]
fn what_is_too_large_is_a_mistake_and_not_a_part_of_a_table() {
    struct Endless(&'static [u8]);
    impl io::Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            match self.0.read(to)? {
                0 => Err(io::ErrorKind::FileTooLarge.into()),
                read => Ok(read),
            }
        }
    }
    let table = b"relay,2025-08-01 00:00\n0000000000000000000000000000000000000001,5\n";
    let read = Series::read("t", SeriesKind::BytesPerSec, io::BufReader::new(Endless(table)));
    assert_eq!(read.expect_err("no table").kind(), io::ErrorKind::FileTooLarge);
}
