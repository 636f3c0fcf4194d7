//! The numbers printed by NavigaTor, for comparison. No computation uses them.

/// The paper's numbers for a selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Printed {
    /// The selection's name in results.
    pub selection: &'static str,
    /// Table 1: average median time to first byte, in ms.
    pub ttfb_median_ms: Option<f64>,
    /// Table 1: average 90th percentile of it.
    pub ttfb_p90_ms: Option<f64>,
    /// Table 3: average median throughput, in Mbit/s.
    pub mbit: Option<f64>,
    /// Table 2 and section 7.4: "normalised entropy".
    pub entropy: Option<f64>,
    /// Section 7.4: "Gini coefficient".
    pub gini: Option<f64>,
    /// Table 5: mean and standard deviation of latency over ten minutes, in ms.
    pub latency_ms: Option<(f64, f64)>,
}

/// A selection in tables 1, 2, 3 and 5.
const fn row(
    selection: &'static str,
    ttfb: (f64, f64),
    mbit: f64,
    anonymity: (f64, f64),
    latency: (f64, f64),
) -> Printed {
    Printed {
        selection,
        ttfb_median_ms: Some(ttfb.0),
        ttfb_p90_ms: Some(ttfb.1),
        mbit: Some(mbit),
        entropy: Some(anonymity.0),
        gini: Some(anonymity.1),
        latency_ms: Some(latency),
    }
}

/// A selection in table 5 only.
const fn latency(selection: &'static str, latency: (f64, f64)) -> Printed {
    Printed {
        selection,
        ttfb_median_ms: None,
        ttfb_p90_ms: None,
        mbit: None,
        entropy: None,
        gini: None,
        latency_ms: Some(latency),
    }
}

/// All selections. Table 4 is separate because its rows come from another experiment.
pub const PRINTED: [Printed; 7] = [
    row("all", (339.0, 617.0), 2.72, (0.842, 0.222), (352.0, 142.0)),
    row("build80", (309.0, 541.0), 3.24, (0.672, 0.232), (315.0, 128.0)),
    row("rtt80", (300.0, 499.0), 3.30, (0.697, 0.239), (307.0, 127.0)),
    row("build50", (255.0, 465.0), 4.30, (0.452, 0.259), (271.0, 116.0)),
    row("rtt50", (218.0, 385.0), 4.70, (0.436, 0.279), (252.0, 116.0)),
    latency("congestion80", (339.0, 125.0)),
    latency("congestion50", (326.0, 113.0)),
];

/// Table 4: median time to first byte in ms, throughput in Mbit/s, "normalised entropy".
pub const TABLE4: [(&str, f64, f64, f64); 4] = [
    ("all", 295.0, 4.51, 0.941),
    ("rtt80", 251.0, 5.08, 0.776),
    ("congestion_best_of_3", 274.0, 5.04, 0.302),
    ("congestion33", 259.0, 5.27, 0.380),
];

/// Section 7.2: Spearman's rho with time to first byte.
pub const RHO: [(&str, f64); 3] = [("rtt", 0.825), ("build", 0.588), ("congestion", 0.191)];

/// The paper's numbers for a selection.
#[must_use]
pub fn printed(selection: &str) -> Option<&'static Printed> {
    PRINTED.iter().find(|row| row.selection == selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1 without its last row: medians and 90th percentiles of all, CBT 80, RTT 80, CBT 50,
    /// RTT 50.
    const TABLE1: [[f64; 10]; 19] = [
        [340.0, 614.0, 307.0, 539.0, 299.0, 497.0, 258.0, 471.0, 214.0, 384.0],
        [342.0, 613.0, 307.0, 536.0, 300.0, 495.0, 257.0, 468.0, 215.0, 381.0],
        [332.0, 605.0, 301.0, 529.0, 294.0, 488.0, 249.0, 455.0, 209.0, 373.0],
        [316.0, 596.0, 289.0, 513.0, 278.0, 472.0, 228.0, 431.0, 196.0, 357.0],
        [300.0, 577.0, 269.0, 500.0, 262.0, 458.0, 204.0, 406.0, 177.0, 340.0],
        [331.0, 606.0, 300.0, 529.0, 292.0, 489.0, 244.0, 453.0, 204.0, 370.0],
        [411.0, 714.0, 383.0, 639.0, 372.0, 592.0, 341.0, 582.0, 289.0, 469.0],
        [312.0, 594.0, 283.0, 511.0, 274.0, 471.0, 219.0, 423.0, 190.0, 353.0],
        [307.0, 583.0, 278.0, 500.0, 270.0, 460.0, 213.0, 410.0, 186.0, 342.0],
        [329.0, 611.0, 299.0, 534.0, 292.0, 494.0, 241.0, 453.0, 204.0, 377.0],
        [299.0, 565.0, 267.0, 491.0, 259.0, 447.0, 202.0, 400.0, 176.0, 333.0],
        [306.0, 588.0, 276.0, 503.0, 266.0, 462.0, 208.0, 416.0, 180.0, 346.0],
        [308.0, 589.0, 278.0, 505.0, 268.0, 464.0, 214.0, 415.0, 186.0, 348.0],
        [345.0, 623.0, 310.0, 548.0, 306.0, 517.0, 262.0, 473.0, 234.0, 419.0],
        [322.0, 600.0, 294.0, 518.0, 284.0, 478.0, 232.0, 439.0, 199.0, 365.0],
        [348.0, 632.0, 316.0, 559.0, 305.0, 507.0, 268.0, 485.0, 222.0, 398.0],
        [322.0, 598.0, 298.0, 526.0, 283.0, 478.0, 240.0, 447.0, 200.0, 367.0],
        [336.0, 605.0, 304.0, 529.0, 300.0, 496.0, 254.0, 463.0, 214.0, 394.0],
        [539.0, 815.0, 521.0, 771.0, 505.0, 707.0, 507.0, 754.0, 444.0, 604.0],
    ];

    fn mean(column: usize) -> f64 {
        TABLE1.iter().map(|row| row[column]).sum::<f64>() / 19.0
    }

    #[test]
    fn the_averages_of_table_1_are_those_of_its_rows() {
        for (place, row) in PRINTED[..5].iter().enumerate() {
            let [median, p90] = [mean(2 * place), mean(2 * place + 1)];
            assert!(
                (median - row.ttfb_median_ms.expect("printed")).abs() < 0.6,
                "{row:?} {median}"
            );
            assert!((p90 - row.ttfb_p90_ms.expect("printed")).abs() < 0.6, "{row:?} {p90}");
        }
    }

    #[test]
    fn the_gains_of_section_7_3_follow_from_the_printed_averages() {
        // Ledger N17: in the order build80, rtt80, build50, rtt50. The text has 11.4, 19.2, 24.9
        // and 35.8.
        let gain = |of: fn(&Printed) -> Option<f64>| {
            let all = of(&PRINTED[0]).expect("printed");
            PRINTED[1..5].iter().map(move |row| 100.0 * (1.0 - of(row).expect("printed") / all))
        };
        let medians: Vec<f64> = gain(|row| row.ttfb_median_ms).collect();
        let p90s: Vec<f64> = gain(|row| row.ttfb_p90_ms).collect();
        for (found, expected) in medians.iter().zip([8.8, 11.5, 24.8, 35.7]) {
            assert!((found - expected).abs() < 0.06, "{medians:?}");
        }
        for (found, expected) in p90s.iter().zip([12.3, 19.1, 24.6, 37.6]) {
            assert!((found - expected).abs() < 0.06, "{p90s:?}");
        }
    }

    #[test]
    #[expect(clippy::approx_constant, reason = "a throughput in the paper")]
    fn the_averages_of_table_3_are_those_of_its_rows() {
        let rows = [
            [2.62, 3.10, 3.14, 4.00, 4.45],
            [3.21, 3.93, 4.00, 4.91, 5.31],
            [2.88, 3.49, 3.58, 4.70, 5.29],
            [3.21, 3.92, 3.98, 5.69, 6.34],
            [3.13, 3.88, 3.94, 5.77, 6.32],
            [2.71, 3.07, 3.11, 3.61, 3.80],
            [1.28, 1.31, 1.32, 1.40, 1.39],
        ];
        for (place, row) in PRINTED[..5].iter().enumerate() {
            let mean = rows.iter().map(|row| row[place]).sum::<f64>() / 7.0;
            assert!((mean - row.mbit.expect("printed")).abs() < 0.006, "{row:?} {mean}");
        }
    }
}
