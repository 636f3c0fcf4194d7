//! The parts of the ledger: functions, and the figures that each computes. A test compares the list
//! with `doc/ledger.toml`, so that no figure is forgotten.

use anyhow::Result;

use super::{Data, Value};
use super::{attacks, flows, models, public};

/// A function that computes some figures.
pub(super) struct Part {
    /// The name in progress messages.
    pub(super) name: &'static str,
    /// The figures, by row.
    pub(super) figures: &'static [(&'static str, &'static [&'static str])],
    pub(super) run: fn(&mut Data<'_>) -> Result<Vec<Value>>,
}

/// A median and a maximum for each window, the figures of A3 and A6.
const MEDIANS_AND_MOST: &[&str] = &[
    "median, 1 d",
    "median, 7 d",
    "median, 30 d",
    "median, 1 y, a quarter of it",
    "most, 1 d",
    "most, 7 d",
    "most, 30 d",
    "most, 1 y, a quarter of it",
];

pub(super) const PARTS: [Part; 18] = [
    Part {
        name: "new relays",
        figures: &[
            ("B6", &["median", "most"]),
            ("B8", &["one measurement, exact", "one measurement, with the paper's errors"]),
        ],
        run: models::newcomers,
    },
    Part {
        name: "relays whose capacity is known",
        figures: &[("B9", &["at once"])],
        run: models::known,
    },
    Part {
        name: "relays on one host",
        figures: &[(
            "C2",
            &[
                "8 of 100 Mbit/s, least",
                "8 of 100 Mbit/s, most",
                "4 of 200 Mbit/s, least",
                "4 of 200 Mbit/s, most",
                "2 of 400 Mbit/s, least",
                "2 of 400 Mbit/s, most",
            ],
        )],
        run: models::at_once,
    },
    Part {
        name: "weights of Shadow's networks",
        figures: &[(
            "C4",
            &[
                "FlashFlow",
                "consensus",
                "FlashFlow, part of the consensus",
                "under-weighted by the consensus",
            ],
        )],
        run: models::shadow,
    },
    Part {
        name: "schedules",
        figures: &[
            ("B1", &["f"]),
            ("B2", &["608 Gbit/s", "592 Gbit/s", "621 Gbit/s", "608 Gbit/s, hours"]),
            ("B3", &["2019-07-14"]),
            ("B7", &["608 Gbit/s", "new relays a day"]),
        ],
        run: super::schedules,
    },
    Part {
        name: "two more consensuses of July 2019",
        figures: &[("B3-later", &["2019-07-17", "2019-07-20"])],
        run: super::later,
    },
    Part {
        name: "weights of January 2019",
        figures: &[
            ("A4", &["January 2019", "January 2019, as far as allowed"]),
            ("A5", &["January 2019", "January 2019, as far as allowed"]),
        ],
        run: super::relays_of_january,
    },
    Part {
        name: "slots for the network of May 2024",
        figures: &[("B4-2024", &["797 Gbit/s"])],
        run: super::slots_of_may,
    },
    Part {
        name: "weights of May 2024",
        figures: &[("A4", &["May 2024"]), ("A5", &["May 2024, by time of running"])],
        run: super::may,
    },
    Part {
        name: "descriptors of February 2020",
        figures: &[(
            "A10",
            &["descriptors", "joined", "part of all weight", "weight error among them"],
        )],
        run: super::february,
    },
    Part {
        name: "new relays of January 2019",
        figures: &[("B5", &["median", "most", "all"])],
        run: super::january,
    },
    Part {
        name: "errors of capacities",
        figures: &[
            ("A1", &["median, 1 d", "median, 7 d", "median, 30 d", "median, 1 y, a quarter of it"]),
            (
                "A2",
                &[
                    "not zero, 1 d",
                    "not zero, 7 d",
                    "not zero, 30 d",
                    "not zero, 1 y, a quarter of it",
                    "75th percentile, 1 d",
                    "75th percentile, 7 d",
                    "75th percentile, 30 d",
                    "75th percentile, 1 y, a quarter of it",
                ],
            ),
            ("A3", MEDIANS_AND_MOST),
            ("A6", MEDIANS_AND_MOST),
        ],
        run: super::capacities,
    },
    Part {
        name: "deviations of weights",
        figures: &[("A7", &["median, 1 d", "median, 7 d", "median, 30 d"])],
        run: super::weights,
    },
    Part {
        name: "the speed test of 2019",
        figures: &[("A8", &["gain", "part"]), ("E9", &["the network on 2019-08-16"])],
        run: super::test_of_2019,
    },
    Part {
        name: "what is simulated",
        figures: &[(
            "D1",
            &[
                "relays",
                "clients of users",
                "clients that download",
                "limit, 50 KiB",
                "limit, 1 MiB",
                "limit, 5 MiB",
            ],
        )],
        run: public::setting,
    },
    Part {
        name: "the public Tor of 2019",
        figures: &[(
            "D8",
            &[
                "public Tor, 50 KiB",
                "public Tor, 1 MiB",
                "public Tor, 5 MiB",
                "public Tor, failed",
                "Shadow, failed",
                "Shadow is slower, 50 KiB",
                "Shadow is slower, 1 MiB",
                "Shadow is slower, 5 MiB",
            ],
        )],
        run: public::statistics,
    },
    Part {
        name: "attacks",
        figures: &[
            ("E1", &["false background"]),
            ("E2", &["forged cells"]),
            (
                "E3",
                &[
                    "capacity in a share of the slots",
                    "n = 5",
                    "n = 6",
                    "n = 9",
                    "capacity in a share of the slots, refusing in others",
                    "q = 0.293, a refusal is free",
                    "refusing on slow days",
                    "40 times as much for some days, in any order",
                    "a burst under new identities",
                    "what days without a value cost an honest relay",
                ],
            ),
            (
                "E4",
                &[
                    "denial of service in a share of the slots",
                    "harm by a quarter of the slots, n = 9",
                    "harm by half of the slots, n = 9",
                    "a flood of new relays",
                    "wait, 5,000 on 8 addresses",
                    "wait, 5,000 addresses in 20 networks",
                    "wait, 5,000 networks",
                    "relays that dispute a measurer",
                ],
            ),
            (
                "E5",
                &[
                    "several relays on one machine",
                    "2 apart",
                    "4 apart",
                    "16 apart",
                    "twins that begin apart",
                    "relays of one machine that come and go",
                ],
            ),
            ("E6", &["a false descriptor, in one step", "by 342 Mbit/s"]),
            (
                "E7",
                &[
                    "slow liars, 5 % trusted",
                    "slow liars, 20 % trusted",
                    "slow liars, 50 % trusted",
                    "slow liars of a made-up network, 20 % trusted",
                    "the same, 50 % over 5 % trusted",
                    "liars who praise each other",
                    "honest relays framed by increase",
                ],
            ),
            ("E8", &["traffic with half of the trusted relays only"]),
            ("E10", &["a host that bursts"]),
            (
                "E11",
                &[
                    "echoes held back",
                    "as it is, 30 s, lying",
                    "by the median alone, 10 s",
                    "by the median alone, 10 s, lying",
                    "by the median alone, 30 s",
                    "by the median alone, 30 s, lying",
                ],
            ),
            ("E9", &["time to measure the network"]),
        ],
        run: attacks::attacks,
    },
    Part {
        name: "flows",
        figures: &[
            ("C4-loop", &["TorFlow, closed loop", "FlashFlow, part of that"]),
            (
                "D2",
                &[
                    "median, 50 KiB",
                    "median, 50 KiB, end of the interval",
                    "median, 1 MiB",
                    "median, 1 MiB, end of the interval",
                    "median, 5 MiB",
                    "median, 5 MiB, end of the interval",
                    "deviation, 50 KiB",
                    "deviation, 50 KiB, end of the interval",
                    "deviation, 1 MiB",
                    "deviation, 1 MiB, end of the interval",
                    "deviation, 5 MiB",
                    "deviation, 5 MiB, end of the interval",
                ],
            ),
            (
                "D3",
                &[
                    "load 115 %",
                    "load 130 %",
                    "load 115 %, beyond 100 %",
                    "load 130 %, beyond 100 %",
                ],
            ),
            ("D4", &["50 KiB", "1 MiB", "5 MiB"]),
            (
                "D5",
                &[
                    "TorFlow, load 100 %",
                    "TorFlow, load 115 %",
                    "TorFlow, load 130 %",
                    "TorFlow, from 100 to 115 %",
                    "TorFlow, from 115 to 130 %",
                    "TorFlow, from 100 to 130 %",
                    "FlashFlow, load 100 %",
                    "FlashFlow, load 115 %",
                    "FlashFlow, load 130 %",
                ],
            ),
            (
                "D6",
                &[
                    "FlashFlow, load 115 %",
                    "FlashFlow, load 130 %",
                    "TorFlow, load 115 %",
                    "TorFlow, load 130 %",
                    "TorFlow below FlashFlow, load 115 %",
                    "TorFlow below FlashFlow, load 130 %",
                ],
            ),
            (
                "D7",
                &[
                    "first byte",
                    "50 KiB",
                    "1 MiB",
                    "5 MiB",
                    "throughput",
                    "first byte, from 1.0 to 1.2",
                    "50 KiB, from 1.0 to 1.2",
                    "1 MiB, from 1.0 to 1.2",
                    "5 MiB, from 1.0 to 1.2",
                    "throughput, from 1.0 to 1.2",
                ],
            ),
            ("D8", &["ours is slower, 50 KiB", "ours is slower, 1 MiB", "ours is slower, 5 MiB"]),
        ],
        run: flows::figures,
    },
];
