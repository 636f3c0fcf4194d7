//! Rows O1 to O3 of the ledger of OnionPerf on mobile links, and plans computed by hand.

use std::time::Duration;

use super::*;
use crate::budget::Budget;
use crate::clocks::Now;

/// The start of 2026-11, a month of 30 days, in seconds since 1970.
const NOVEMBER: u64 = 1_793_491_200;

/// OnionPerf's old mix and interval, for this many targets.
fn settings(targets: u64) -> PlanSettings {
    PlanSettings {
        mix: "12:2:1".parse().expect("a mix"),
        every_secs: 300,
        targets,
        data_bytes: None,
        directory_bytes: 5_000_000,
        link: None,
    }
}

/// Whether two numbers differ by at most `by`.
fn near(one: f64, other: f64, by: f64) -> bool {
    (one - other).abs() <= by
}

/// O1: 12:2:1 every five minutes is 4.58 GB of payload a month for a target, and 9.2 GB for two. If
/// client and server are one host, as in OnionPerf on mobile links, that is 18.3 GB, and with
/// overhead the paper's "over 20 GB a month".
#[test]
fn o1_two_targets_with_both_ends_take_over_20_gb_a_month() {
    let one = DownloadPlan::of(&settings(1));
    assert_eq!((one.downloads_a_month, one.days_a_month), (8640, 30));
    assert_eq!(one.month.downloads.payload, 4_581_752_832);
    let two = DownloadPlan::of(&settings(2));
    assert_eq!(two.month.downloads.payload, 9_163_505_664);
    let both_ends = 2.0 * two.month.downloads.payload as f64 / 1e9;
    assert!(near(both_ends, 18.3, 0.05), "{both_ends}");
    let with_overhead = 2.0 * two.month.all as f64 / 1e9;
    assert!((20.0..23.0).contains(&with_overhead), "{with_overhead}");
}

/// O2: files of 5 MiB are 65.9 % of the bytes (the paper: 65 %) and 6.7 % of the downloads (the
/// paper: 5 %).
#[test]
fn o2_two_thirds_of_the_bytes_are_a_fifteenth_of_the_downloads() {
    let plan = DownloadPlan::of(&settings(2));
    let large = plan.sizes.last().expect("5 MiB");
    assert_eq!((large.bytes, large.downloads_a_month), (5_242_880, 576));
    assert!(near(large.of_payload, 0.659, 0.0005), "{}", large.of_payload);
    assert!(near(large.of_downloads, 1.0 / 15.0, 1e-9), "{}", large.of_downloads);
}

/// O3: of 20 GB the smaller files are 34 %, about 7 GB, which partial times of the large ones save;
/// those of 1 MiB alone are 26.4 %, about 5 GB.
#[test]
fn o3_partial_times_save_a_third() {
    let plan = DownloadPlan::of(&settings(2));
    let [small, middle, _] = &plan.sizes[..] else { panic!("three: {plan:?}") };
    let saved = small.of_payload + middle.of_payload;
    assert!(near(saved, 0.341, 0.0005) && near(20.0 * saved, 7.0, 0.25), "{saved}");
    let middle = middle.of_payload;
    assert!(near(middle, 0.264, 0.0005) && near(20.0 * middle, 5.0, 0.3), "{middle}");
}

#[test]
fn bytes_add_up_and_a_day_is_a_thirtieth() {
    let plan = DownloadPlan::of(&settings(1));
    let Wire { payload, cells, tls_tcp } = plan.month.downloads;
    assert_eq!((payload + cells + tls_tcp, plan.month.directory), (5_305_704_192, 150_000_000));
    assert_eq!(plan.month.all, 5_455_704_192);
    assert!(plan.month.all.abs_diff(plan.day.all * 30) < 150, "{plan:?}");
    // One round and a third of another, of a mix of three downloads.
    let odd = PlanSettings { mix: "1000=2,4000=1".parse().expect("a mix"), ..settings(1) };
    let round = odd.downloads(3);
    assert_eq!(round, traffic::of_download(1000).times(2).and(&traffic::of_download(4000)));
    assert_eq!(odd.downloads(4).payload, 8000);
}

#[test]
fn medians_have_the_interval_of_the_sign_test() {
    let plan = DownloadPlan::of(&settings(1));
    // Indices from exact sums of binomial coefficients: 3375 of 6912, 543 of 1152, 264 of 576.
    for (size, place) in plan.sizes.iter().zip([3375.0, 543.0, 264.0]) {
        let [low, high] = size.median_percentiles.expect("enough");
        let expected = 100.0 * place / (size.downloads_a_month + 1) as f64;
        assert!(near(low, expected, 1e-9) && near(high, 100.0 - expected, 1e-9), "{size:?}");
    }
    let rare = DownloadPlan::of(&PlanSettings {
        mix: "50KiB=999,5MiB=1".parse().expect("a mix"),
        every_secs: 600,
        ..settings(1)
    });
    let [_, large] = &rare.sizes[..] else { panic!("two: {rare:?}") };
    assert_eq!((large.downloads_a_month, large.median_percentiles), (4, None));
    assert!(rare.text().contains("too few"), "{}", rare.text());
}

#[test]
fn a_budget_says_how_many_downloads_fit() {
    let fits = |data_bytes| {
        let plan = DownloadPlan::of(&PlanSettings { data_bytes, ..settings(1) });
        plan.data.map(|data| data.downloads_a_month)
    };
    assert_eq!(fits(None), None);
    assert_eq!(fits(Some(6_000_000_000)), Some(8640));
    assert_eq!(fits(Some(5_455_704_192)), Some(8640), "to the last byte");
    // 4.85 GB without directory documents are 526 rounds of 9.21 MB and half a round.
    assert_eq!(fits(Some(5_000_000_000)), Some(526 * 15 + 7));
    assert_eq!(fits(Some(1)), Some(0));
    let plan = DownloadPlan::of(&PlanSettings { data_bytes: Some(5_000_000_000), ..settings(1) });
    let text = plan.text();
    assert!(text.contains("109.1% of 5.00 GB: 7897 of 8640 downloads fit"), "{text}");
}

/// The numbers of downloads and bytes in a simulated month, with the order and the budget of
/// `downloads serve`.
fn simulated(settings: &PlanSettings) -> (u64, u64) {
    let at = |secs| Now { unix_secs: NOVEMBER + secs, elapsed: Duration::from_secs(secs) };
    let mut budget = Budget::new(settings.data_bytes, None, at(0));
    for slot in 0..DAYS * DAY_SECS / settings.every_secs {
        let now = at(slot * settings.every_secs);
        let size = settings.mix.at(budget.spent().begun, 7);
        if budget.hold(traffic::most(size), now).is_ok() {
            budget.settle(traffic::of_download(size).all(), now);
        }
    }
    assert_eq!(budget.spent().month, "2026-11");
    (budget.spent().begun, budget.spent().bytes)
}

#[test]
fn a_simulated_month_is_within_a_twentieth_of_its_plan() {
    for (mix, data_bytes) in [
        ("12:2:1", None),
        ("12:2:1", Some(5_500_000_000)),
        ("12:2:1", Some(4_000_000_000)),
        ("12:2:1", Some(1_000_000_000)),
        ("5MiB=1", Some(5_000_000_000)),
    ] {
        let mix = mix.parse().expect("a mix");
        let settings = PlanSettings { mix, data_bytes, directory_bytes: 0, ..settings(1) };
        let plan = DownloadPlan::of(&settings);
        let downloads = plan.data.map_or(plan.downloads_a_month, |data| data.downloads_a_month);
        let bytes = data_bytes.unwrap_or(u64::MAX).min(plan.month.all);
        let (begun, took) = simulated(&settings);
        for (planned, came) in [(downloads, begun), (bytes, took)] {
            let share = came as f64 / planned as f64;
            assert!(near(share, 1.0, 0.05), "{settings:?}: {came} of {planned}");
        }
    }
}

/// EDGE as in OnionPerf on mobile links: 240 kbit/s, 840 ms.
#[test]
fn a_link_has_its_least_times() {
    let link = |bytes_per_sec| PlanLink { name: "edge".to_owned(), bytes_per_sec, rtt_secs: 0.84 };
    let plan = DownloadPlan::of(&PlanSettings { link: Some(link(Some(30_000))), ..settings(2) });
    let large = plan.sizes.last().and_then(|size| size.least_secs).expect("a time");
    // The payload alone takes 174.8 s.
    assert!(near(large, 174.763 * WIRE + 8.0 * 0.84, 0.01), "{large}");
    let busy = plan.busy.expect("a share");
    let mean = 7_954_432.0 / 15.0 * WIRE / 30_000.0 + 8.0 * 0.84;
    assert!(near(busy, 2.0 * mean / 300.0, 1e-9), "{busy}");
    let free = DownloadPlan::of(&PlanSettings { link: Some(link(None)), ..settings(1) });
    assert_eq!(free.sizes[0].least_secs, Some(8.0 * 0.84));
    let often = PlanSettings { link: Some(link(Some(30_000))), every_secs: 10, ..settings(1) };
    let text = DownloadPlan::of(&often).text();
    assert!(text.contains("downloads will begin late"), "{text}");
}

#[test]
fn odd_settings_are_no_end() {
    let odd = PlanSettings {
        mix: "1000000MB=1000".parse().expect("a mix"),
        every_secs: 1,
        targets: 1000,
        data_bytes: Some(u64::MAX),
        directory_bytes: u64::MAX,
        link: Some(PlanLink { name: "x".to_owned(), bytes_per_sec: Some(0), rtt_secs: 0.0 }),
    };
    let plan = DownloadPlan::of(&odd);
    assert_eq!(plan.month.all, u64::MAX);
    assert!(plan.text().contains("of 1000 targets"));
    let json = serde_json::to_value(&plan).expect("JSON");
    assert_eq!(json["month"]["directory"], u64::MAX);
}
