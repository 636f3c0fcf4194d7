//! Checks whether a relay serves clients as well as measurements.
//!
//! FlashFlow cannot detect a relay that serves measurers and not clients. So clients make ordinary
//! downloads through the relay at unpredictable times ([`plan`]). Each is starved or not, and the
//! share of starved ones gives a [`RelayVerdict`].
//!
//! A relay with a measured capacity of `C` bytes a second, of which it reports the part `u` in use,
//! has `C (1 - u)` to spare, and a client gets that or more. A download is starved if it got less
//! than [`STARVED`] of that and of the median rate of downloads of its size through the other
//! relays of its place (a short download over a long path does not fill a relay). It is ignored if
//! it got half of what another relay of its path has to spare, and it is unclear if the relay is so
//! much farther away than the others. A failed one is also starved, unless it failed before the
//! relay on the path: messages to a later hop go through the relay. One that did not end in time is
//! starved if even all of it in that time would have been too slow, and otherwise unclear. A relay
//! that starves the share `s` of clients is caught by at least one of `k` downloads with
//! probability `1 - (1 - s)^k` ([`found`]). But downloads also fail and are slow for other reasons,
//! so the verdict compares the share with that of all other relays of the same place: paths through
//! guards, middles and exits have other relays, which fail and are slow in their own ways. There is
//! no accusation that a single other relay of the paths could have caused: it must also hold
//! without the downloads through any one of these. Two relays that act together are not detected,
//! and if all paths have one exit, or one guard, no relay can be accused.
//!
//! This assumes that most relays of a place serve their clients. Relays that are too busy to be
//! judged are not evidence of the usual rate, nor are those that carry all that they have to spare
//! if that is less than this relay has. With fewer than [`LEAST_OTHERS`] others the usual rate is
//! unknown: then a download that is slow for what the relays have to spare is unclear, and may be
//! starved or not.
//!
//! Limits: a relay that was down meanwhile counts as starving its clients. A target that blocks an
//! exit's address makes that exit seem to starve. A guard sees the address of the checking client,
//! and an exit the target, in every probe: only middles cannot distinguish a probe from a client.
//! The reported use of a relay is a mean over a day.
//!
//! Decisions: doc/decisions.md, "An accusation needs more than one failure".

pub mod history;
pub mod plan;
mod probe;
mod usual;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF};

use self::usual::{Share, Usual, medians};

pub use self::probe::{Known, LEAST_SPARE, Outcome, Probe};
pub use self::usual::{FARTHEST_SECS, LEAST_OTHERS, NEAR_SECS, STARVED};

/// The part outside of a 95 % interval at each end.
const TAIL: f64 = 0.025;

/// The verdict about a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayVerdict {
    /// It starves a larger share of its clients than the others: the intervals do not overlap.
    Starves,
    /// It starves at most the share that was asked about.
    Serves,
    /// It may or may not starve clients.
    Undecided,
    /// It has too little to spare.
    TooBusy,
}

/// The finding about a relay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The number of downloads that count.
    pub probes: u64,
    /// The number of starved downloads.
    pub starved: u64,
    /// The number of downloads that may be starved: too few other relays show the usual rate, the
    /// relay is far away, or the time limit ended them.
    pub unclear: u64,
    /// The starved share of those that are clear.
    pub share: Option<f64>,
    /// The lower bound of the 95 % interval of the starved share (Clopper and Pearson), if no
    /// unclear download is starved.
    pub share_from: f64,
    /// The upper bound of that interval, if all unclear downloads are starved.
    pub share_to: f64,
    /// The median rate of downloads that arrived, in bytes a second.
    pub median_bytes_per_sec: Option<f64>,
    /// The relay's spare capacity, in bytes a second.
    pub spare_bytes_per_sec: f64,
    /// The verdict.
    pub verdict: RelayVerdict,
    /// Another relay of the paths, by its number, that may be the cause of this relay's larger
    /// share.
    #[serde(skip)]
    pub perhaps_of: Option<usize>,
}

/// The probability that `probes` downloads catch a relay that starves this share of its clients.
#[must_use]
pub fn found(share: f64, probes: u64) -> f64 {
    1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(probes as f64)
}

/// Judges relays by downloads; a relay serves if it certainly starves a smaller share than `most`.
/// Relays of one place are compared with each other.
#[must_use]
pub fn judge(relays: &[Known], probes: &[Probe], most: f64) -> Vec<Finding> {
    let judged = relays.iter().filter(|known| known.can_be_judged()).count();
    // With many relays some fail the test by chance (Bonferroni), in any place.
    let tail = TAIL / judged.max(1) as f64;
    let judge = |peers: Peers| {
        let findings = judge_peers(&peers.relays, &peers.probes, most, tail);
        peers.members.into_iter().zip(findings)
    };
    let mut findings: Vec<_> = peers(relays, probes).into_values().flat_map(judge).collect();
    findings.sort_unstable_by_key(|(relay, _)| *relay);
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// The relays of one place.
#[derive(Default)]
struct Peers {
    /// Their indices in the list.
    members: Vec<usize>,
    relays: Vec<Known>,
    /// The downloads through them, with the relay's index among the members.
    probes: Vec<Probe>,
}

/// The relays of each place.
fn peers(relays: &[Known], probes: &[Probe]) -> BTreeMap<usize, Peers> {
    // A relay without downloads counts in no place.
    let mut places = vec![0; relays.len()];
    for probe in probes {
        if let Some(place) = places.get_mut(probe.relay) {
            *place = probe.place;
        }
    }
    let (mut all, mut numbers) = (BTreeMap::<usize, Peers>::new(), Vec::new());
    for (relay, (&known, &place)) in relays.iter().zip(&places).enumerate() {
        let peers = all.entry(place).or_default();
        numbers.push(peers.members.len());
        peers.members.push(relay);
        peers.relays.push(known);
    }
    for probe in probes {
        let Some(&relay) = numbers.get(probe.relay) else { continue };
        let peers = all.entry(places[probe.relay]).or_default();
        peers.probes.push(Probe { relay, ..probe.clone() });
    }
    all
}

/// Judges the relays of one place; `tail` is the part outside of an interval at each end for an
/// accusation.
fn judge_peers(relays: &[Known], probes: &[Probe], most: f64, tail: f64) -> Vec<Finding> {
    let shares = shares(relays, probes);
    let counts: Vec<Counts> = shares.iter().map(|own| Counts::of(own)).collect();
    let judged = relays.iter().zip(&counts).filter(|(known, _)| known.can_be_judged());
    let bench = Bench::of(judged.map(|(_, counts)| counts), most, tail);
    let medians = medians(probes, relays.len());
    let finding = |relay: usize| {
        let (known, counts) = (relays[relay], counts[relay]);
        let (share_from, share_to) = counts.range();
        let (verdict, perhaps_of) = bench.verdict(known, counts, &shares[relay]);
        Finding {
            probes: counts.all,
            starved: counts.starved,
            unclear: counts.unclear,
            share: (counts.all > 0).then(|| counts.starved as f64 / counts.all as f64),
            share_from,
            share_to,
            median_bytes_per_sec: medians[relay],
            spare_bytes_per_sec: known.spare(),
            verdict,
            perhaps_of,
        }
    };
    (0..relays.len()).map(finding).collect()
}

/// A download that counts, with its share.
type Counted<'a> = (&'a Probe, Share);

/// The downloads of each relay that count.
fn shares<'a>(relays: &[Known], probes: &'a [Probe]) -> Vec<Vec<Counted<'a>>> {
    let usual = Usual::of(probes, relays);
    let mut shares = vec![Vec::new(); relays.len()];
    for probe in probes {
        let Some(known) = relays.get(probe.relay) else { continue };
        shares[probe.relay].extend(usual.share(*known, probe).map(|share| (probe, share)));
    }
    shares
}

/// Counts of downloads.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Downloads that count.
    all: u64,
    /// See [`Share::Starved`].
    starved: u64,
    /// See [`Share::Unclear`].
    unclear: u64,
}

impl Counts {
    /// Of these downloads.
    fn of(own: &[Counted<'_>]) -> Self {
        let count = |which| own.iter().filter(|(_, share)| *share == which).count() as u64;
        let (starved, unclear) = (count(Share::Starved), count(Share::Unclear));
        Self { all: own.len() as u64, starved, unclear }
    }

    /// The number of downloads that may be starved.
    const fn most(self) -> u64 {
        self.starved + self.unclear
    }

    /// The interval of the starved share, from none to all of the unclear downloads.
    fn range(self) -> (f64, f64) {
        (interval(self.starved, self.all).0, interval(self.most(), self.all).1)
    }
}

/// The relays with which a relay is compared: all of its place that can be judged.
struct Bench {
    /// Their downloads.
    sum: Counts,
    /// The part outside of an interval at each end for an accusation.
    tail: f64,
    /// The share below which a relay serves.
    most: f64,
}

impl Bench {
    /// Of relays with these downloads.
    fn of<'a>(judged: impl Iterator<Item = &'a Counts>, most: f64, tail: f64) -> Self {
        let mut sum = Counts::default();
        for one in judged {
            sum.all += one.all;
            sum.starved += one.starved;
            sum.unclear += one.unclear;
        }
        Self { sum, tail, most }
    }

    /// The verdict on a relay with these downloads, and the other relay that may be the cause of
    /// its larger share.
    fn verdict(
        &self,
        known: Known,
        counts: Counts,
        own: &[Counted<'_>],
    ) -> (RelayVerdict, Option<usize>) {
        if !known.can_be_judged() {
            return (RelayVerdict::TooBusy, None);
        }
        let usual = self.usual(counts);
        let is_worse = |starved, all| interval_of(starved, all, self.tail).0 > usual;
        if is_worse(counts.starved, counts.all) {
            let perhaps_of = whose_else(own, is_worse);
            let is_alone = perhaps_of.is_none();
            return (
                if is_alone { RelayVerdict::Starves } else { RelayVerdict::Undecided },
                perhaps_of,
            );
        }
        let (from, to) = counts.range();
        let serves = to < self.most && from <= usual;
        (if serves { RelayVerdict::Serves } else { RelayVerdict::Undecided }, None)
    }

    /// The largest share that may be starved through the others, since a failure of all is not one
    /// relay's fault. Without others, the permitted share.
    fn usual(&self, own: Counts) -> f64 {
        if self.sum.all == own.all {
            return self.most;
        }
        interval(self.sum.most() - own.most(), self.sum.all - own.all).1
    }
}

/// The other relay that may be the cause of a relay's larger share: without the downloads through
/// it, the share is not larger. Of several, the one with the most starved downloads.
fn whose_else(own: &[Counted<'_>], is_worse: impl Fn(u64, u64) -> bool) -> Option<usize> {
    let mut through: HashMap<usize, (u64, u64)> = HashMap::new();
    let (mut all, mut starved) = (0, 0);
    for (probe, share) in own {
        let is_starved = u64::from(*share == Share::Starved);
        (all, starved) = (all + 1, starved + is_starved);
        for &other in &probe.others {
            let sums = through.entry(other).or_default();
            *sums = (sums.0 + 1, sums.1 + is_starved);
        }
    }
    let is_possible = |sums: &(u64, u64)| !is_worse(starved - sums.1, all - sums.0);
    let possible = through.into_iter().filter(|(_, sums)| is_possible(sums));
    possible.max_by_key(|(other, sums)| (sums.1, *other)).map(|(other, _)| other)
}

/// The 95 % interval of a share by Clopper and Pearson; 0 to 1 without data.
#[must_use]
pub fn interval(hits: u64, of: u64) -> (f64, f64) {
    interval_of(hits, of, TAIL)
}

/// The same with `tail` outside at each end.
fn interval_of(hits: u64, of: u64, tail: f64) -> (f64, f64) {
    let (hits, misses) = (hits.min(of) as f64, of.saturating_sub(hits) as f64);
    let quantile = |a: f64, b: f64, part: f64| Beta::new(a, b).map(|beta| beta.inverse_cdf(part));
    let low = if hits > 0.0 { quantile(hits, misses + 1.0, tail).unwrap_or(0.0) } else { 0.0 };
    let high = quantile(hits + 1.0, misses, 1.0 - tail);
    (low, if misses > 0.0 { high.unwrap_or(1.0) } else { 1.0 })
}

#[cfg(test)]
mod tests;
