//! Does a relay give clients what it gives to measurements?
//!
//! FlashFlow cannot see a relay that serves measurers and not clients. So clients look: ordinary downloads through the
//! relay at times that nobody announces ([`plan`]), each of which is starved or not, and what share of them is ([`Verdict`]).
//!
//! A relay that is measured at `C` bytes a second and says that `u` of it is in use has `C (1 - u)` to spare, and a
//! client gets that or more of it. A download is starved if it got less than [`STARVED`] of the least of three things:
//! what the relay has to spare, what the other relays of its path have, and what downloads of its size get through the
//! other relays of the list in the middle (a short download over a long way fills no relay). One that failed is starved,
//! too, unless it failed elsewhere on the path. Who starves a share `s` of clients is caught by at least one of `k`
//! downloads with a chance of `1 - (1 - s)^k` ([`found`]); but downloads fail and are slow without anybody's intent, so
//! the verdict compares the share with that of all other relays.
//!
//! So it is taken for granted that most relays of the list serve their clients. Others that are too busy to be judged say
//! nothing of what is usual, nor do those that carry all they have to spare where that is less than this one has. With
//! fewer than [`LEAST_OTHERS`] that do, nobody knows: a download that is slow for what the relays have to spare is
//! unclear then, and may be starved or not.

pub mod history;
pub mod plan;
mod usual;

use ff_sim::stats;
use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF};

use self::usual::{Share, Usual};

/// Below this part of what it should have got, a download is starved.
pub const STARVED: f64 = 0.5;
/// A relay with less to spare than this part of its capacity cannot be judged: its clients are slow without its fault.
pub const LEAST_SPARE: f64 = 0.1;
/// Of fewer other relays the middle is nothing to go by: one of two could be the relay's own accomplice.
pub const LEAST_OTHERS: usize = 3;
/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;

/// What is known of a relay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// What it was measured at, in bytes a second.
    pub capacity: f64,
    /// The part of it that it says is in use, from 0 to 1.
    pub busy: f64,
}

impl Known {
    /// What it has to spare, in bytes a second.
    #[must_use]
    pub fn spare(self) -> f64 {
        self.capacity * (1.0 - self.busy.clamp(0.0, 1.0))
    }

    /// Whether it has enough to spare to be judged.
    #[must_use]
    pub fn can_be_judged(self) -> bool {
        self.busy <= 1.0 - LEAST_SPARE
    }
}

/// A download through a relay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// The relay: a place in the list.
    pub relay: usize,
    /// How much was asked for, in bytes: what is comparable has the same size.
    pub size: u64,
    /// What the other relays of the path have to spare, in bytes a second.
    pub others_spare: f64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It arrived, at so many bytes a second.
    Arrived(f64),
    /// The relay, or the link to it, failed.
    FailedHere,
    /// Something else failed.
    FailedElsewhere,
}

/// What is to be thought of a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More of its clients are starved than of the others': the intervals do not meet.
    Starves,
    /// It starves no more clients than what was asked about.
    Serves,
    /// It may or may not.
    Undecided,
    /// It has too little to spare.
    TooBusy,
}

/// What was found of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Downloads that count.
    pub probes: u64,
    /// Those that were starved.
    pub starved: u64,
    /// Those that may have been, because too few other relays say what is usual.
    pub unclear: u64,
    /// The share of those that were.
    pub share: Option<f64>,
    /// The 95 % interval of what is starved (Clopper and Pearson): from here, if nothing unclear is, to what it is if all is.
    pub share_from: f64,
    /// See [`Self::share_from`].
    pub share_to: f64,
    /// The median of what arrived, in bytes a second.
    pub median_bytes_per_sec: Option<f64>,
    /// What the relay has to spare, in bytes a second.
    pub spare_bytes_per_sec: f64,
    /// See [`Verdict`].
    pub verdict: Verdict,
}

/// The chance that `probes` downloads catch a relay that starves this share of its clients.
#[must_use]
pub fn found(share: f64, probes: u64) -> f64 {
    1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(probes as f64)
}

/// Judges relays by downloads; a relay serves if it surely starves a smaller share than `most`.
#[must_use]
pub fn judge(relays: &[Known], probes: &[Probe], most: f64) -> Vec<Finding> {
    let usual = Usual::of(probes, relays);
    let mut counts = vec![Counts::default(); relays.len()];
    for probe in probes {
        let relay = relays.get(probe.relay).zip(counts.get_mut(probe.relay));
        let Some((known, count)) = relay else { continue };
        match usual.share(*known, probe) {
            Some(Share::Starved) => count.starved += 1,
            Some(Share::Served) => count.served += 1,
            Some(Share::Unclear) => count.unclear += 1,
            None => {}
        }
    }
    let judged = relays.iter().zip(&counts).filter(|(known, _)| known.can_be_judged());
    let sum = judged.fold((0, 0), |sum, (_, one)| (sum.0 + one.all(), sum.1 + one.most()));
    let finding = |(relay, counts): (usize, &Counts)| {
        let (known, all, starved) = (relays[relay], counts.all(), counts.starved);
        let ((from, _), (_, to)) = (interval(starved, all), interval(counts.most(), all));
        let verdict = if known.can_be_judged() {
            // What happens to everybody is no relay's doing. Without others, what a relay may do stands for that.
            let (_, others) = interval(sum.1 - counts.most(), sum.0 - all);
            let usual = if sum.0 == all { most } else { others };
            verdict(from, to, usual, most)
        } else {
            Verdict::TooBusy
        };
        Finding {
            probes: all,
            starved,
            unclear: counts.unclear,
            share: (all > 0).then(|| starved as f64 / all as f64),
            share_from: from,
            share_to: to,
            median_bytes_per_sec: stats::median(arrived(probes, relay)),
            spare_bytes_per_sec: known.spare(),
            verdict,
        }
    };
    counts.iter().enumerate().map(finding).collect()
}

/// How many of a relay's downloads had what share.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// See [`Share::Starved`].
    starved: u64,
    /// See [`Share::Served`].
    served: u64,
    /// See [`Share::Unclear`].
    unclear: u64,
}

impl Counts {
    /// All of them.
    const fn all(&self) -> u64 {
        self.starved + self.served + self.unclear
    }

    /// Those that may have been starved.
    const fn most(&self) -> u64 {
        self.starved + self.unclear
    }
}

/// What a share's interval says, beside what is usual at most.
fn verdict(from: f64, to: f64, usual: f64, most: f64) -> Verdict {
    if from > usual {
        Verdict::Starves
    } else if to < most {
        Verdict::Serves
    } else {
        Verdict::Undecided
    }
}

/// The rates of a relay's downloads.
fn arrived(probes: &[Probe], relay: usize) -> Vec<f64> {
    let rate = |probe: &Probe| match probe.outcome {
        Outcome::Arrived(rate) if probe.relay == relay => Some(rate),
        _ => None,
    };
    probes.iter().filter_map(rate).collect()
}

/// The 95 % interval of a share by Clopper and Pearson; all there is if nothing was seen.
#[must_use]
pub fn interval(hits: u64, of: u64) -> (f64, f64) {
    let (hits, misses) = (hits.min(of) as f64, of.saturating_sub(hits) as f64);
    let quantile = |a: f64, b: f64, part: f64| Beta::new(a, b).map(|beta| beta.inverse_cdf(part));
    let low = if hits > 0.0 { quantile(hits, misses + 1.0, TAIL).unwrap_or(0.0) } else { 0.0 };
    let high = quantile(hits + 1.0, misses, 1.0 - TAIL);
    (low, if misses > 0.0 { high.unwrap_or(1.0) } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha12Rng;

    use super::*;
    use crate::chance;

    /// A megabyte a second, a quarter of it in use.
    const RELAY: Known = Known { capacity: 1e6, busy: 0.25 };

    /// Downloads through relays that starve these shares of their clients.
    fn probes(shares: &[f64], each: usize, rng: &mut ChaCha12Rng) -> Vec<Probe> {
        let mut all = Vec::new();
        for (relay, &share) in shares.iter().enumerate() {
            for _ in 0..each {
                let rate = if rng.random_bool(share) { 1e5 } else { rng.random_range(6e5..9e5) };
                let outcome = Outcome::Arrived(rate);
                all.push(Probe { relay, size: 1 << 20, others_spare: 5e6, outcome });
            }
        }
        all
    }

    #[test]
    fn intervals_are_those_of_tables() {
        // Clopper and Pearson, 95 %, by scipy.stats.binomtest(...).proportion_ci().
        for (hits, of, low, high) in [
            (0, 10, 0.0, 0.308_497_1),
            (1, 10, 0.002_528_6, 0.445_016_1),
            (5, 20, 0.086_571_5, 0.491_045_9),
            (10, 10, 0.691_502_9, 1.0),
            (0, 0, 0.0, 1.0),
        ] {
            let found = interval(hits, of);
            assert!(
                (found.0 - low).abs() < 1e-6 && (found.1 - high).abs() < 1e-6,
                "{hits} {found:?}"
            );
        }
    }

    #[test]
    fn who_starves_is_found_as_often_as_the_formula_says() {
        let mut rng = chance::generator();
        for (share, each) in [(0.1, 5), (0.3, 3), (0.5, 2)] {
            let runs = 2000;
            let hit = (0..runs).filter(|_| {
                let all = probes(&[share, 0.0, 0.0, 0.0], each, &mut rng);
                judge(&[RELAY; 4], &all, 0.1)[0].starved > 0
            });
            let (hit, truth) = (hit.count() as f64 / f64::from(runs), found(share, each as u64));
            let most = 4.0 * (truth * (1.0 - truth) / f64::from(runs)).sqrt();
            assert!((hit - truth).abs() < most, "{hit} beside {truth}");
        }
    }

    #[test]
    fn verdicts_name_the_one_that_starves_and_no_other() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let all = probes(&[0.0, 0.4, 0.0, 0.02, 0.0], 60, &mut rng);
        let mut relays = [RELAY; 5];
        relays[4].busy = 0.95;
        let found: Vec<_> = judge(&relays, &all, 0.15).iter().map(|found| found.verdict).collect();
        let [serves, starves, busy] = [Verdict::Serves, Verdict::Starves, Verdict::TooBusy];
        assert_eq!(found, [serves, starves, serves, serves, busy]);
        let few = probes(&[0.0, 0.0], 5, &mut rng);
        assert_eq!(judge(&[RELAY; 2], &few, 0.15)[0].verdict, Verdict::Undecided);
    }

    #[test]
    fn what_fails_elsewhere_or_is_slow_for_all_is_no_relays_fault() {
        let probe = |relay, outcome| Probe { relay, size: 1, others_spare: 5e6, outcome };
        let mut all = Vec::new();
        for relay in 0..4 {
            // A short download fills no relay.
            all.extend((0..40).map(|_| probe(relay, Outcome::Arrived(3e4))));
            all.extend((0..9).map(|_| probe(relay, Outcome::FailedElsewhere)));
        }
        for found in judge(&[RELAY; 4], &all, 0.1) {
            assert_eq!((found.probes, found.starved, found.verdict), (40, 0, Verdict::Serves));
        }
        all.extend((0..20).map(|_| probe(2, Outcome::FailedHere)));
        assert_eq!(judge(&[RELAY; 4], &all, 0.1)[2].verdict, Verdict::Starves);
        // Alone, one download that fails says nothing, and many do.
        let alone = |fails: usize| {
            let outcome = |at| if at < fails { Outcome::FailedHere } else { Outcome::Arrived(3e4) };
            let all: Vec<_> = (0..30).map(|at| probe(0, outcome(at))).collect();
            judge(&[RELAY], &all, 0.15)[0].verdict
        };
        assert_eq!([1, 12].map(alone), [Verdict::Undecided, Verdict::Starves]);
        // A slow neighbour on the path explains a slow download.
        let slow = Probe { others_spare: 4e4, ..probe(0, Outcome::Arrived(3e4)) };
        let fast = [1, 2, 3].map(|relay| probe(relay, Outcome::Arrived(7e5)));
        let counts = |all: &[Probe]| {
            let found = judge(&[RELAY; 4], all, 0.1)[0];
            (found.starved, found.unclear, found.probes)
        };
        assert_eq!(counts(&[&[slow], &fast[..]].concat()), (0, 0, 1));
        let alone = Probe { others_spare: 5e6, ..slow };
        assert_eq!(counts(&[&[alone], &fast[..]].concat()), (1, 0, 1));
        assert_eq!(counts(&[&[alone], &fast[..2]].concat()), (0, 1, 1));
    }

    #[test]
    fn who_starves_clients_is_not_its_own_measure() {
        let mut rng = ChaCha12Rng::seed_from_u64(8);
        // Alone it is compared with nobody: it gets the benefit of the doubt, and no acquittal.
        for share in [0.3, 0.8, 1.0] {
            let found = judge(&[RELAY], &probes(&[share], 40, &mut rng), 0.15)[0];
            assert_eq!((found.verdict, found.starved), (Verdict::Undecided, 0), "{found:?}");
            assert!(found.share_to >= share, "{found:?}");
        }
        let served = judge(&[RELAY], &probes(&[0.0], 40, &mut rng), 0.15)[0];
        assert_eq!((served.verdict, served.unclear), (Verdict::Serves, 0));
        // Beside others it is found whatever it starves, and two of five, too.
        let found = judge(&[RELAY; 4], &probes(&[1.0, 0.0, 0.0, 0.0], 40, &mut rng), 0.15);
        assert_eq!(found[0].verdict, Verdict::Starves);
        let found = judge(&[RELAY; 5], &probes(&[0.9, 0.9, 0.0, 0.0, 0.0], 40, &mut rng), 0.15);
        let found: Vec<_> = found.iter().map(|found| found.verdict).collect();
        let [starves, serves] = [Verdict::Starves, Verdict::Serves];
        assert_eq!(found, [starves, starves, serves, serves, serves]);
    }

    #[test]
    fn those_who_are_busy_or_full_do_not_say_what_is_usual() {
        let through = |relay, rate| Probe {
            relay,
            size: 1 << 20,
            others_spare: 5e6,
            outcome: Outcome::Arrived(rate),
        };
        let all = |own: f64, other: f64| -> Vec<Probe> {
            let rate = |relay| if relay == 0 { own } else { other };
            (0..120).map(|at| through(at % 4, rate(at % 4))).collect()
        };
        let busy = Known { busy: 0.95, ..RELAY };
        let found = judge(&[RELAY, busy, busy, busy], &all(2e4, 3e4), 0.15)[0];
        assert_eq!((found.verdict, found.unclear), (Verdict::Undecided, 30), "{found:?}");
        let small = Known { capacity: 1e5, busy: 0.0 };
        let found = judge(&[RELAY, small, small, small], &all(6e4, 9e4), 0.15);
        assert_eq!((found[0].verdict, found[0].unclear), (Verdict::Undecided, 30), "{found:?}");
        assert_eq!(found[1].verdict, Verdict::Serves);
    }

    #[test]
    fn nobody_starves_if_the_others_may_starve_as_many() {
        let probe = |relay, outcome| Probe { relay, size: 1, others_spare: 5e6, outcome };
        let (fast, slow) = (Outcome::Arrived(7e5), Outcome::Arrived(1e5));
        let mut all: Vec<_> = (0..14).map(|_| probe(0, fast)).collect();
        all.extend((0..6).map(|_| probe(0, Outcome::FailedHere)));
        all.extend((0..30).map(|_| probe(1, fast)));
        assert_eq!(judge(&[RELAY; 2], &all, 0.15)[0].verdict, Verdict::Starves);
        all.extend((0..10).map(|_| probe(1, slow)));
        assert_eq!(judge(&[RELAY; 2], &all, 0.15)[0].verdict, Verdict::Undecided);
    }

    proptest! {
        #[test]
        fn any_downloads_have_findings(
            all in proptest::collection::vec((0_usize..6, 0_u64..3, any::<f64>(), 0_u8..3), 0..60),
            busy in any::<f64>(),
        ) {
            let probe = |&(relay, size, rate, kind): &(usize, u64, f64, u8)| {
                let outcome = match kind {
                    0 => Outcome::Arrived(rate),
                    1 => Outcome::FailedHere,
                    _ => Outcome::FailedElsewhere,
                };
                Probe { relay, size, others_spare: rate, outcome }
            };
            let all: Vec<_> = all.iter().map(probe).collect();
            let found = judge(&[Known { capacity: 1e6, busy }; 4], &all, 0.1);
            prop_assert_eq!(found.len(), 4);
            for found in found {
                prop_assert!(found.starved + found.unclear <= found.probes);
                prop_assert!(found.share_from <= found.share_to);
            }
        }
    }
}
