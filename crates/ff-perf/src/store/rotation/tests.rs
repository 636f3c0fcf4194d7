//! Tests of rules, without a disk.

use proptest::prelude::*;

use super::*;

const DAY: Rule = Rule { keep: 3, is_daily: true, file_bytes: 1000, disk_bytes: u64::MAX };

/// A time: day and hour of the host's clock, and hours of the monotonic clock.
fn at(day: u64, hour: u64, elapsed_hours: u64) -> Now {
    let unix_secs = day * DAY_SECS + hour * 3600;
    Now { unix_secs, elapsed: Duration::from_secs(elapsed_hours * 3600) }
}

/// Adds a line; returns the number and day of its file, and the files removed for it.
fn add(rotation: &mut Rotation, bytes: u64, now: Now) -> (u64, u64, Vec<u64>) {
    let LinePlace { forget, new } = rotation.place(bytes, now);
    let number = |old: &OldFile| match old {
        OldFile::Lines(name) => Some(name.number),
        OldFile::Day(_) => None,
    };
    let gone = forget.iter().filter_map(number).collect();
    forget.into_iter().for_each(|old| rotation.forgot(old));
    new.into_iter().for_each(|name| rotation.began(name, now));
    rotation.added(bytes);
    let last = rotation.last().expect("a file");
    (last.number, last.day, gone)
}

#[test]
fn names_are_read_as_they_are_written() {
    let name = Name { number: 12, day: 20_782 };
    assert_eq!(name.file(), "circuits-000012-2026-11-25.jsonl");
    assert_eq!(Name::parse(&name.file()), Some(name));
    let late = Name { number: 2_000_000, day: u64::MAX / 2 };
    assert_eq!(late.file(), "circuits-2000000-9999-12-31.jsonl");
    for odd in [
        "circuits-000.jsonl",
        "circuits-12-2026-11-25.jsonl",
        "circuits-000001-x.jsonl",
        // There would be no numbers for the files after it.
        "circuits-18446744073709551615-2026-11-25.jsonl",
    ] {
        assert_eq!(Name::parse(odd), None, "{odd}");
    }
}

#[test]
fn a_day_begins_a_file_and_so_do_its_bytes() {
    let mut rotation = Rotation::new(DAY, Vec::new(), at(7, 0, 0));
    assert_eq!(add(&mut rotation, 600, at(7, 1, 1)), (1, 7, vec![]));
    assert_eq!(add(&mut rotation, 400, at(7, 2, 2)), (1, 7, vec![]));
    assert_eq!(add(&mut rotation, 1, at(7, 3, 3)), (2, 7, vec![]));
    assert_eq!(add(&mut rotation, 1, at(8, 0, 24)), (3, 8, vec![]));
    assert_eq!(add(&mut rotation, 5000, at(9, 0, 48)), (4, 9, vec![1]), "a long line alone");
    assert_eq!(add(&mut rotation, 1, at(9, 0, 48)), (5, 9, vec![2]));
}

#[test]
fn a_start_goes_on_with_the_last_file() {
    let files = [3, 1, 2, 4].map(|number| (Name { number, day: 6 }, 10));
    let mut rotation = Rotation::new(DAY, files.to_vec(), at(6, 9, 0));
    assert_eq!(add(&mut rotation, 10, at(6, 9, 0)), (4, 6, vec![]));
    assert_eq!(add(&mut rotation, 10, at(7, 9, 5)), (5, 7, vec![1, 2]), "fewer are kept now");
}

#[test]
fn a_clock_that_jumps_costs_one_file_and_orders_none() {
    let mut rotation = Rotation::new(DAY, Vec::new(), at(100, 0, 0));
    assert_eq!(add(&mut rotation, 1, at(100, 1, 1)).0, 1);
    // The clock goes back over midnight, and to 1970: nothing happens.
    assert_eq!(add(&mut rotation, 1, at(99, 23, 2)).0, 1);
    assert_eq!(add(&mut rotation, 1, at(0, 0, 3)).0, 1);
    // The clock jumps ahead by a century, and back: one file, which ends after a day of the
    // monotonic clock.
    assert_eq!(add(&mut rotation, 1, at(36_600, 0, 4)), (2, 36_600, vec![]));
    for hour in 5..28 {
        assert_eq!(add(&mut rotation, 1, at(100, hour, hour)).0, 2);
    }
    assert_eq!(add(&mut rotation, 1, at(101, 4, 28)), (3, 101, vec![]));
    assert_eq!(add(&mut rotation, 1, at(102, 0, 48)), (4, 102, vec![1]));
}

#[test]
fn files_by_size_know_no_days_and_the_bound_holds() {
    let rule = Rule { keep: 5, is_daily: false, file_bytes: 100, disk_bytes: u64::MAX };
    let mut rotation = Rotation::new(rule, Vec::new(), at(0, 0, 0));
    let mut files: VecDeque<(u64, u64)> = VecDeque::new();
    for step in 0..2000 {
        let bytes = step % 37 + 1;
        let (number, _, gone) = add(&mut rotation, bytes, at(step, 0, step * 24));
        files.retain(|(number, _)| !gone.contains(number));
        match files.back_mut().filter(|(last, _)| *last == number) {
            Some((_, sum)) => *sum += bytes,
            None => files.push_back((number, bytes)),
        }
        let sum: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        assert!(files.len() <= 5 && sum <= 500, "step {step}: {files:?}");
    }
    assert_eq!(files.len(), 5);
}

#[test]
fn a_file_that_could_not_be_made_is_asked_for_again() {
    let mut rotation = Rotation::new(DAY, Vec::new(), at(7, 0, 0));
    add(&mut rotation, 1, at(7, 0, 0));
    let place = rotation.place(1, at(8, 0, 24));
    assert_eq!(rotation.place(1, at(8, 0, 24)), place);
}

#[test]
fn all_files_together_have_a_bound_and_the_oldest_go_for_it() {
    let rule = Rule { keep: 100, is_daily: true, file_bytes: 100, disk_bytes: 250 };
    let mut rotation = Rotation::new(rule, Vec::new(), at(7, 0, 0));
    for expected in [(1, 7, vec![]), (2, 7, vec![]), (3, 7, vec![1]), (4, 7, vec![2])] {
        assert_eq!(add(&mut rotation, 90, at(7, 0, 0)), expected);
    }
    // One more line for the same file: an older file is removed even so.
    let files = [(1, 200), (2, 40)].map(|(number, bytes)| (Name { number, day: 7 }, bytes));
    let mut rotation = Rotation::new(rule, files.to_vec(), at(7, 0, 0));
    assert_eq!(add(&mut rotation, 20, at(7, 1, 1)), (2, 7, vec![1]));
    assert_eq!(rotation.bytes(), 60);
    // A new limit is below the current file's length: it is removed, and numbers continue.
    let mut rotation = Rotation::new(rule, vec![(Name { number: 9, day: 7 }, 5000)], at(7, 0, 0));
    assert_eq!(add(&mut rotation, 20, at(7, 1, 1)), (10, 7, vec![9]));
    assert_eq!((rotation.bytes(), rotation.disk_bytes()), (20, 250));
}

#[test]
fn lines_in_files_of_days_go_first_then_days_then_other_lines() {
    let rule = Rule { keep: 100, is_daily: false, file_bytes: 100, disk_bytes: 2000 };
    let files = [1, 2, 3].map(|number| (Name { number, day: 7 }, 100));
    let mut rotation = Rotation::new(rule, files.to_vec(), at(7, 0, 0));
    rotation.put_day(5, 400);
    rotation.put_day(6, 300);
    rotation.hold(Some(2));
    assert_eq!(rotation.bytes(), 300 + 700 + 2 * DAY_BYTES);
    let lines = |number| OldFile::Lines(Name { number, day: 7 });
    let order = [lines(1), OldFile::Day(5), OldFile::Day(6), lines(2), lines(3)];
    for (bytes, count) in [(1, 1), (77, 2), (1000, 3), (1700, 3), (1801, 4), (2000, 5)] {
        assert_eq!(rotation.place(bytes, at(7, 0, 0)).forget, order[..count], "{bytes}");
    }
    // For a day's file, the current file stays.
    for (bytes, count) in [(476, 2), (477, 3), (1288, 3), (1289, 4), (1388, 4)] {
        assert_eq!(rotation.place_day(bytes).as_deref(), Some(&order[..count]), "{bytes}");
    }
    assert_eq!(rotation.place_day(1389), None);
    rotation.forgot(OldFile::Day(5));
    assert!(!rotation.has_day(5) && rotation.has_day(6));
}

proptest! {
    #[test]
    fn neither_bound_is_ever_passed(
        keep in 2_usize..9,
        file_bytes in 1_u64..2000,
        disk_bytes in 300_u64..5000,
        lines in proptest::collection::vec((1_u64..300, -50_i64..50, 0_u64..30), 0..300),
    ) {
        let rule = Rule { keep, is_daily: true, file_bytes, disk_bytes };
        let mut rotation = Rotation::new(rule, Vec::new(), at(1000, 0, 0));
        let (mut day, mut elapsed, mut last) = (1000_u64, 0, 0);
        for (bytes, jump, hours) in lines {
            (day, elapsed) = (day.saturating_add_signed(jump), elapsed + hours);
            let (number, ..) = add(&mut rotation, bytes, at(day, 0, elapsed));
            prop_assert!(number >= last, "{number} after {last}");
            last = number;
            prop_assert!(rotation.bytes() <= disk_bytes, "{rotation:?}");
            prop_assert!(rotation.files.len() <= keep, "{rotation:?}");
        }
    }
}
