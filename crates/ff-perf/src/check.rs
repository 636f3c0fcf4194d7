//! Does a relay give clients what it gives to measurements?
//!
//! FlashFlow cannot see a relay that serves measurers and not clients. So clients look: ordinary downloads through the
//! relay at times that nobody announces ([`plan`]), each of which is starved or not, and what share of them is ([`Verdict`]).
//!
//! A relay that is measured at `C` bytes a second and says that `u` of it is in use has `C (1 - u)` to spare, and a
//! client gets that or more of it. A download is starved if it got less than [`STARVED`] of that and of what downloads of
//! its size get through the other relays of the list in the middle (a short download over a long way fills no relay). It
//! says nothing if it got half of what another relay of its path has to spare, and it is unclear if the relay is so much
//! farther away than the others. One that failed is starved, too, unless it failed elsewhere on the path; where one relay
//! was to reach another, it counts for both. Who starves a share `s` of clients is caught by at least one of `k` downloads
//! with a chance of `1 - (1 - s)^k` ([`found`]); but downloads fail and are slow without anybody's intent, so the verdict
//! compares the share with that of all other relays. And it is none that a single other relay of the paths could have
//! brought about: without the downloads through any one of these, it stands as well.
//! Two that act together are not seen so, and where all paths have one exit, or one guard, nobody can be accused.
//!
//! So it is taken for granted that most relays of the list serve their clients. Others that are too busy to be judged say
//! nothing of what is usual, nor do those that carry all they have to spare where that is less than this one has. With
//! fewer than [`LEAST_OTHERS`] that do, nobody knows: a download that is slow for what the relays have to spare is
//! unclear then, and may be starved or not.

pub mod history;
pub mod plan;
mod usual;

use std::collections::HashMap;

use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF};

use self::usual::{Share, Usual, medians};

/// Below this part of what it should have got, a download is starved.
pub const STARVED: f64 = 0.5;
/// A relay with less to spare than this part of its capacity cannot be judged: its clients are slow without its fault.
pub const LEAST_SPARE: f64 = 0.1;
/// Of fewer other relays the middle is nothing to go by: one of two could be the relay's own accomplice.
pub const LEAST_OTHERS: usize = 3;
/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;
/// A relay that is less than this much farther away than others, in seconds of a circuit's round trip, is as near.
pub const NEAR_SECS: f64 = 0.01;

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// The relay: a place in the list.
    pub relay: usize,
    /// How much was asked for, in bytes: what is comparable has the same size.
    pub size: u64,
    /// What the other relays of the path have to spare, in bytes a second.
    pub others_spare: f64,
    /// The other relays of the path, by any numbers that they have.
    pub others: Vec<usize>,
    /// How long a round trip of the circuit took when it was built, in seconds, if that is known.
    pub trip_secs: Option<f64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a download.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Outcome {
    /// It arrived, at so many bytes a second.
    Arrived(f64),
    /// The relay, or the link to it, failed.
    FailedHere,
    /// It never came, or its target ended it, as the exit says: the relay may have done that, or not.
    NeverCame,
    /// Something else failed.
    #[default]
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
    /// Another relay of the paths, by its number, whose doing it may be that this one comes off worse than others.
    #[serde(skip)]
    pub perhaps_of: Option<usize>,
}

/// The chance that `probes` downloads catch a relay that starves this share of its clients.
#[must_use]
pub fn found(share: f64, probes: u64) -> f64 {
    1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(probes as f64)
}

/// Judges relays by downloads; a relay serves if it surely starves a smaller share than `most`.
#[must_use]
pub fn judge(relays: &[Known], probes: &[Probe], most: f64) -> Vec<Finding> {
    let usual_of = Usual::of(probes, relays);
    let counts = counts(&usual_of, relays, probes);
    let medians = medians(probes, relays.len());
    let judged = relays.iter().zip(&counts).filter(|(known, _)| known.can_be_judged());
    let sum = judged.clone().fold((0, 0), |sum, (_, one)| (sum.0 + one.all(), sum.1 + one.most()));
    // Of many relays some come off badly by chance (Bonferroni).
    let tail = TAIL / judged.count().max(1) as f64;
    let finding = |(relay, counts): (usize, &Counts)| {
        let (known, all, starved) = (relays[relay], counts.all(), counts.starved);
        let ((from, _), (_, to)) = (interval(starved, all), interval(counts.most(), all));
        let mut perhaps_of = None;
        let verdict = if known.can_be_judged() {
            // What happens to everybody is no relay's doing. Without others, what a relay may do stands for that.
            let (_, others) = interval(sum.1 - counts.most(), sum.0 - all);
            let usual = if sum.0 == all { most } else { others };
            let is_worse = |starved, all| interval_of(starved, all, tail).0 > usual;
            let is_accused = is_worse(starved, all);
            if is_accused {
                perhaps_of = whose_else(&of_relay(&usual_of, known, probes, relay), is_worse);
            }
            if is_accused && perhaps_of.is_none() {
                Verdict::Starves
            } else if to < most && from <= usual {
                Verdict::Serves
            } else {
                Verdict::Undecided
            }
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
            median_bytes_per_sec: medians[relay],
            spare_bytes_per_sec: known.spare(),
            verdict,
            perhaps_of,
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

/// How many of each relay's downloads had what share.
fn counts(usual: &Usual, relays: &[Known], probes: &[Probe]) -> Vec<Counts> {
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
    counts
}

/// Those downloads of a relay that count, and whether each was starved.
fn of_relay<'a>(
    usual: &Usual,
    known: Known,
    probes: &'a [Probe],
    relay: usize,
) -> Vec<(&'a Probe, bool)> {
    let own = probes.iter().filter(|probe| probe.relay == relay);
    let share = |probe| Some((probe, usual.share(known, probe)? == Share::Starved));
    own.filter_map(share).collect()
}

/// The other relay whose doing it may be that a relay is worse than others: without the downloads through that one, it is
/// not. Of several, the one through which most were starved.
fn whose_else(own: &[(&Probe, bool)], is_worse: impl Fn(u64, u64) -> bool) -> Option<usize> {
    let mut through: HashMap<usize, (u64, u64)> = HashMap::new();
    let (mut all, mut starved) = (0, 0);
    for (probe, is_starved) in own {
        (all, starved) = (all + 1, starved + u64::from(*is_starved));
        for &other in &probe.others {
            let sums = through.entry(other).or_default();
            *sums = (sums.0 + 1, sums.1 + u64::from(*is_starved));
        }
    }
    let is_possible = |sums: &(u64, u64)| !is_worse(starved - sums.1, all - sums.0);
    let possible = through.into_iter().filter(|(_, sums)| is_possible(sums));
    possible.max_by_key(|(other, sums)| (sums.1, *other)).map(|(other, _)| other)
}

/// The 95 % interval of a share by Clopper and Pearson; all there is if nothing was seen.
#[must_use]
pub fn interval(hits: u64, of: u64) -> (f64, f64) {
    interval_of(hits, of, TAIL)
}

/// The same, of which so much is left out at each end.
fn interval_of(hits: u64, of: u64, tail: f64) -> (f64, f64) {
    let (hits, misses) = (hits.min(of) as f64, of.saturating_sub(hits) as f64);
    let quantile = |a: f64, b: f64, part: f64| Beta::new(a, b).map(|beta| beta.inverse_cdf(part));
    let low = if hits > 0.0 { quantile(hits, misses + 1.0, tail).unwrap_or(0.0) } else { 0.0 };
    let high = quantile(hits + 1.0, misses, 1.0 - tail);
    (low, if misses > 0.0 { high.unwrap_or(1.0) } else { 1.0 })
}

#[cfg(test)]
mod tests;
