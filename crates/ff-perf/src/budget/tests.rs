//! Tests with simulated clocks.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// 2026-11-20, in seconds since 1970.
const NOVEMBER: u64 = 1_795_132_800;
const DAY: u64 = 86_400;

/// Clocks: days after 2026-11-20, and days of the monotonic clock.
fn at(days: i64, elapsed_days: u64) -> Now {
    let unix_secs = NOVEMBER.saturating_add_signed(days * 86_400);
    Now { unix_secs, elapsed: Duration::from_secs(elapsed_days * DAY) }
}

/// Runs a download that takes all bytes held for it; returns whether it began.
fn download(budget: &mut Budget, bytes: u64, now: Now) -> bool {
    let begins = budget.hold(bytes, now).is_ok();
    if begins {
        budget.settle(bytes, now);
    }
    begins
}

#[test]
fn a_month_has_its_budget_and_the_next_one_another() {
    let mut budget = Budget::new(Some(1000), None, at(0, 0));
    budget.hold(600, at(0, 0)).expect("room");
    assert_eq!(budget.left_bytes(), Some(400));
    budget.settle(500, at(0, 0));
    let full = budget.hold(501, at(1, 1)).expect_err("too much");
    assert_eq!(
        full.to_string(),
        "500 bytes are left of the data budget of 2026-11, and this download may take 501"
    );
    assert_eq!(budget.left_bytes(), Some(500), "nothing has changed");
    assert!(download(&mut budget, 500, at(2, 2)));
    assert!(!download(&mut budget, 1, at(10, 10)), "2026-11-30");
    assert!(download(&mut budget, 1000, at(11, 11)), "2026-12-01");
    assert_eq!((budget.spent().month.as_str(), budget.spent().begun), ("2026-12", 3));
    let mut without = Budget::new(None, None, at(0, 0));
    assert!(download(&mut without, u64::MAX, at(0, 0)));
    assert_eq!(without.left_bytes(), None);
}

#[test]
fn traffic_without_downloads_is_set_aside_for_the_rest_of_the_month() {
    let mut budget = Budget::new(Some(1000), None, at(0, 0));
    budget.read(Counter { interface: "eth0".to_owned(), bytes: 7, ..Counter::default() });
    // 10 a day for two days; nine days are left, and one more is reserved.
    for day in [1, 2] {
        budget.spend_otherwise(10, at(day, u64::try_from(day).expect("a day")));
    }
    let full = budget.hold(881, at(2, 2)).expect_err("too much").to_string();
    assert!(full.contains("980 bytes are left") && full.contains("(100 of them for"), "{full}");
    assert!(download(&mut budget, 880, at(2, 2)));
    // A download of unknown size needs no reserve.
    assert_eq!((budget.spent().other_bytes, budget.spent().other_secs), (20, 2 * DAY));
    for (unix_secs, days) in [(NOVEMBER, 11), (NOVEMBER + 11 * DAY, 31), (NOVEMBER + 42 * DAY, 31)]
    {
        assert_eq!(rest_of_month(unix_secs), days * DAY, "{unix_secs}");
    }
}

#[test]
fn a_download_over_the_end_of_a_month_is_held_in_both() {
    let mut budget = Budget::new(Some(1000), None, at(10, 0));
    budget.hold(600, at(10, 0)).expect("room");
    budget.spend(0, at(11, 1));
    assert_eq!(budget.left_bytes(), Some(400), "of the next month");
    budget.settle(550, at(11, 1));
    assert_eq!(budget.left_bytes(), Some(450));
}

#[test]
fn a_run_that_was_killed_has_spent_what_was_held() {
    let mut budget = Budget::new(Some(1000), None, at(0, 0));
    budget.hold(600, at(0, 0)).expect("room");
    let text = serde_json::to_string(budget.spent()).expect("text");
    let kept: Spent = serde_json::from_str(&text).expect("what was spent");
    let after = Budget::new(Some(1000), Some(kept.clone()), at(1, 0));
    assert_eq!((after.left_bytes(), after.spent().begun), (Some(400), 1));
    let less = Budget::new(Some(100), Some(kept), at(1, 0));
    assert_eq!(less.left_bytes(), Some(0), "a smaller budget than was spent");
}

#[test]
fn a_file_with_the_largest_numbers_ends_nothing() {
    let (month, most) = ("2026-11".to_owned(), u64::MAX);
    let before = Spent { month, age_secs: most, begun: most, other_secs: most, ..Spent::default() };
    let mut budget = Budget::new(Some(1000), Some(before), at(0, 0));
    budget.hold(600, at(0, 0)).expect("room");
    assert_eq!(budget.spent().begun, 0);
    budget.release();
    assert_eq!((budget.spent().begun, budget.left_bytes()), (most, Some(1000)));
    let before =
        Spent { bytes: most, held_bytes: most, other_bytes: most, ..budget.spent().clone() };
    let mut budget = Budget::new(Some(1000), Some(before), at(0, 0));
    assert!(budget.hold(1, at(0, 0)).is_err());
    // The next month.
    assert_eq!(budget.left_bytes(), Some(0));
    budget.spend(1, at(11, 11));
    assert_eq!(budget.left_bytes(), Some(999));
}

#[test]
fn a_clock_that_jumps_repeats_no_month_and_ends_nothing() {
    let mut budget = Budget::new(Some(1000), None, at(0, 0));
    assert!(download(&mut budget, 1000, at(0, 0)));
    // The clock jumps back to October and to 1970, and returns.
    for days in [-40, -20_000, 0] {
        assert!(!download(&mut budget, 1, at(days, 1)));
    }
    // The clock jumps ahead: that month begins, and none when it returns.
    assert!(download(&mut budget, 1000, at(36_500, 2)));
    for days in [2, 11, 20] {
        assert!(!download(&mut budget, 1, at(days, u64::try_from(days).expect("days"))));
    }
    // After 31 days of the monotonic clock there is a new budget for 31 days, also after a restart.
    let mut budget = Budget::new(Some(1000), Some(budget.spent().clone()), at(20, 0));
    assert!(!download(&mut budget, 1, at(32, 12)));
    assert!(download(&mut budget, 1000, at(33, 13)));
    assert!(!download(&mut budget, 1, at(60, 43)));
    assert!(download(&mut budget, 1000, at(64, 44)));
}

#[test]
fn counters_of_an_interface_are_compared_with_those_of_the_same_one() {
    let counter = |interface: &str, bytes| Counter {
        interface: interface.to_owned(),
        bytes,
        ..Counter::default()
    };
    let now = counter("eth0", 700);
    assert_eq!(now.since(Some(&counter("eth0", 500))), 200);
    assert_eq!(now.since(Some(&counter("eth0", 900))), 700, "the host has been started again");
    assert_eq!(now.since(Some(&counter("wlan0", 500))), 0);
    assert_eq!(now.since(None), 0);
}

#[test]
fn all_bytes_of_an_interface_that_was_created_anew_count() {
    let counter = |index: Option<&str>, boot: Option<&str>, bytes| Counter {
        interface: "eth0".to_owned(),
        bytes,
        index: index.map(str::to_owned),
        boot: boot.map(str::to_owned),
    };
    let now = counter(Some("7"), Some("b"), 700);
    for (index, boot, expected) in [
        (Some("7"), Some("b"), 200),
        (Some("6"), Some("b"), 700),
        (Some("7"), Some("a"), 700),
        // A file of an older version.
        (None, None, 200),
        (None, Some("a"), 700),
    ] {
        assert_eq!(now.since(Some(&counter(index, boot, 500))), expected, "{index:?} {boot:?}");
    }
    assert_eq!(counter(None, None, 700).since(Some(&now)), 0, "nothing is known now");
    let text = r#"{"interface":"eth0","bytes":500}"#;
    let old: Counter = serde_json::from_str(text).expect("a counter of an older version");
    assert_eq!(now.since(Some(&old)), 200);
    assert_eq!(serde_json::to_string(&old).expect("JSON"), text);
}

proptest! {
    /// With any clocks, and killed at any time: a month spends no more than its budget, months do
    /// not go back, and none gets a second budget.
    #[test]
    fn no_month_ever_spends_more_than_its_budget(
        most in 0_u64..5000,
        steps in proptest::collection::vec((0_u64..1000, 0_u64..=100, 0_u64..5000, -4000_i64..4000, any::<u8>()), 0..300),
    ) {
        let (mut unix, mut elapsed) = (NOVEMBER, 0);
        let now = |unix_secs, secs| Now { unix_secs, elapsed: Duration::from_secs(secs) };
        let mut budget = Budget::new(Some(most), None, now(unix, elapsed));
        let mut months = BTreeMap::<String, u64>::new();
        let mut last = budget.spent().month.clone();
        for (bytes, percent, secs, jump_hours, what) in steps {
            // At most four days in all, so that the monotonic clock renews nothing.
            (unix, elapsed) = (unix + secs, elapsed + secs);
            if what < 40 {
                unix = unix.saturating_add_signed(jump_hours * 3600);
            }
            if budget.hold(bytes, now(unix, elapsed)).is_ok() {
                prop_assert!(budget.spent().bytes + budget.spent().held_bytes <= most);
                if what % 5 == 0 {
                    // Killed.
                    let kept = budget.spent().clone();
                    budget = Budget::new(Some(most), Some(kept), now(unix, elapsed));
                } else {
                    budget.settle(bytes * percent / 100, now(unix, elapsed + 1));
                }
                *months.entry(budget.spent().month.clone()).or_default() += bytes * percent / 100;
            }
            prop_assert!(budget.spent().month >= last);
            last.clone_from(&budget.spent().month);
        }
        prop_assert!(months.values().all(|spent| *spent <= most), "{months:?} of {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// With correct clocks each month of a year has its whole budget and no more.
    #[test]
    fn a_year_spends_what_it_may(size in 50_000_u64..6_000_000, every in 600_u64..4000) {
        let most = 2_000_000_000;
        let mut budget = Budget::new(Some(most), None, at(0, 0));
        let mut months = BTreeMap::<String, u64>::new();
        for slot in 0..(365 * DAY / every) {
            let now = Now { unix_secs: NOVEMBER + slot * every, elapsed: Duration::from_secs(slot * every) };
            if download(&mut budget, size, now) {
                *months.entry(budget.spent().month.clone()).or_default() += size;
            }
        }
        // The first and last month are partial.
        prop_assert_eq!(months.len(), 13);
        let wanted = 28 * DAY / every * size;
        for (month, spent) in months.iter().skip(1).take(11) {
            prop_assert!(*spent <= most, "{month}: {spent}");
            prop_assert!(*spent + size > most.min(wanted), "{month}: {spent}");
        }
    }
}
