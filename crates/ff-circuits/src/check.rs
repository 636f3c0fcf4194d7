//! Does a relay give clients what it gives to measurements?
//!
//! FlashFlow cannot see a relay that serves measurers and not clients. So clients look: ordinary
//! downloads through the relay at times that nobody announces ([`plan`]), each of which is starved
//! or not, and what share of them is ([`RelayVerdict`]).
//!
//! A relay that is measured at `C` bytes a second and says that `u` of it is in use has `C (1 - u)`
//! to spare, and a client gets that or more of it. A download is starved if it got less than
//! [`STARVED`] of that and of what downloads of its size get through the other relays of its place
//! in the middle (a short download over a long way fills no relay). It says nothing if it got half
//! of what another relay of its path has to spare, and it is unclear if the relay is so much
//! farther away than the others. One that failed is starved, too, unless it failed before the relay
//! on the path: what is to reach a later hop goes through it. One that did not end in time is
//! starved if all of it in that time would have been too slow, and else unclear. Who starves a
//! share `s` of clients is caught by at least one of `k` downloads with a chance of `1 - (1 - s)^k`
//! ([`found`]); but downloads fail and are slow without anybody's intent, so the verdict compares
//! the share with that of all other relays of the same place: through guards, middles and exits
//! other relays are drawn, which fail and are slow as they are. And it is none that a single other
//! relay of the paths could have brought about: without the downloads through any one of these, it
//! stands as well. Two that act together are not seen so, and where all paths have one exit, or one
//! guard, nobody can be accused.
//!
//! So it is taken for granted that most relays of a place serve their clients. Others that are too
//! busy to be judged say nothing of what is usual, nor do those that carry all they have to spare
//! where that is less than this one has. With fewer than [`LEAST_OTHERS`] that do, nobody knows: a
//! download that is slow for what the relays have to spare is unclear then, and may be starved or
//! not.
//!
//! What it cannot know: a relay that was down meanwhile counts as one that serves nobody. A target
//! that blocks an exit's address makes that exit look as if it starved. A guard sees the address of
//! who checks, and an exit the target, in every probe: only middles cannot tell a probe from a
//! client. How busy relays say they are is a mean of a day.
//!
//! Decisions: doc/decisions.md, "An accusation needs more than one failure".

pub mod history;
pub mod plan;
mod usual;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use statrs::distribution::{Beta, ContinuousCDF};

use self::usual::{Share, Usual, medians};

/// Below this part of what it should have got, a download is starved.
pub const STARVED: f64 = 0.5;
/// A relay with less to spare than this part of its capacity cannot be judged: its clients are slow
/// without its fault.
pub const LEAST_SPARE: f64 = 0.1;
/// Of fewer other relays of a place the middle is nothing to go by: one of two could be the relay's
/// own accomplice.
pub const LEAST_OTHERS: usize = 3;
/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;
/// A relay that is less than this much farther away than others, in seconds of a circuit's round
/// trip, is as near.
pub const NEAR_SECS: f64 = 0.01;
/// So much of what a relay is farther away than others, in seconds, excuses it, and no more: it may
/// hold back what a circuit is built with. Once around the earth takes light in fibre 0.2 s. Who
/// crosses the earth twice, as a middle may, is not accused either: half of what is usual is
/// enough.
pub const FARTHEST_SECS: f64 = 0.3;

/// The known facts of a relay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Its measured capacity, in bytes a second.
    pub capacity: f64,
    /// The part of it that it says is in use, from 0 to 1.
    pub busy: f64,
}

impl Known {
    /// Its spare capacity, in bytes a second.
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
    /// In which place of the path it is: 0 is the guard's. A relay has one.
    pub place: usize,
    /// How much was asked for, in bytes: what is comparable has the same size.
    pub size: u64,
    /// What the other relays of the path have to spare, in bytes a second.
    pub others_spare: f64,
    /// The other relays of the path, by any numbers that they have.
    pub others: Vec<usize>,
    /// How long a round trip of the circuit took when it was built, in seconds, if that is known.
    pub trip_secs: Option<f64>,
    /// The result.
    pub outcome: Outcome,
}

/// The outcome of a download.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Outcome {
    /// It arrived, at this rate in bytes a second.
    Arrived(f64),
    /// The relay, or the link to it, failed.
    FailedHere,
    /// It did not end in the time that it may take, so that it got less than this rate in bytes a
    /// second.
    TimedOut(f64),
    /// It never came, or its target ended it, as the exit says: the relay may have done that, or
    /// not.
    NeverCame,
    /// Something else failed.
    #[default]
    FailedElsewhere,
}

/// The verdict about a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelayVerdict {
    /// More of its clients are starved than of the others': the intervals do not meet.
    Starves,
    /// It starves no more clients than what was asked about.
    Serves,
    /// It may or may not.
    Undecided,
    /// It has too little to spare.
    TooBusy,
}

/// The finding about a relay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Downloads that count.
    pub probes: u64,
    /// Those that were starved.
    pub starved: u64,
    /// Those that may have been, because too few other relays say what is usual, the relay is far
    /// away, or time ran out.
    pub unclear: u64,
    /// The share of those that were.
    pub share: Option<f64>,
    /// The 95 % interval of what is starved (Clopper and Pearson): from here, if nothing unclear
    /// is, to what it is if all is.
    pub share_from: f64,
    /// See [`Self::share_from`].
    pub share_to: f64,
    /// The median of what arrived, in bytes a second.
    pub median_bytes_per_sec: Option<f64>,
    /// The relay's spare capacity, in bytes a second.
    pub spare_bytes_per_sec: f64,
    /// See [`RelayVerdict`].
    pub verdict: RelayVerdict,
    /// Another relay of the paths, by its number, whose doing it may be that this one comes off
    /// worse than others.
    #[serde(skip)]
    pub perhaps_of: Option<usize>,
}

/// The chance that `probes` downloads catch a relay that starves this share of its clients.
#[must_use]
pub fn found(share: f64, probes: u64) -> f64 {
    1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(probes as f64)
}

/// Judges relays by downloads; a relay serves if it surely starves a smaller share than `most`.
/// Those of one place are compared with each other.
#[must_use]
pub fn judge(relays: &[Known], probes: &[Probe], most: f64) -> Vec<Finding> {
    let judged = relays.iter().filter(|known| known.can_be_judged()).count();
    // Of many relays some fail the test by chance (Bonferroni), in any places.
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
    /// Their places in the list.
    members: Vec<usize>,
    relays: Vec<Known>,
    /// The downloads through them, of which each has its relay's place among these.
    probes: Vec<Probe>,
}

/// The relays of each place.
fn peers(relays: &[Known], probes: &[Probe]) -> BTreeMap<usize, Peers> {
    // A relay without downloads through it says nothing, in any place.
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

/// Judges relays of one place; `tail` is the part left out at each end of an interval before a
/// relay is accused.
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

/// A download that counts, and what share it had.
type Counted<'a> = (&'a Probe, Share);

/// For each relay, those of its downloads that count.
fn shares<'a>(relays: &[Known], probes: &'a [Probe]) -> Vec<Vec<Counted<'a>>> {
    let usual = Usual::of(probes, relays);
    let mut shares = vec![Vec::new(); relays.len()];
    for probe in probes {
        let Some(known) = relays.get(probe.relay) else { continue };
        shares[probe.relay].extend(usual.share(*known, probe).map(|share| (probe, share)));
    }
    shares
}

/// How many downloads had what share.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Those that count.
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

    /// Those that may have been starved.
    const fn most(self) -> u64 {
        self.starved + self.unclear
    }

    /// The interval of what is starved: from here, if nothing unclear is, to what it is if all is.
    fn range(self) -> (f64, f64) {
        (interval(self.starved, self.all).0, interval(self.most(), self.all).1)
    }
}

/// The relays that a relay is compared with: all those of its place that can be judged.
struct Bench {
    /// Their downloads.
    sum: Counts,
    /// The part of an interval that is left out at each end before a relay is accused.
    tail: f64,
    /// A relay that serves starves a smaller share.
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

    /// The verdict on a relay with these downloads, and who else may have brought it about that it
    /// comes off worse.
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

    /// The largest share that may be starved through the others, as a failure of all is not one
    /// relay's fault. Without others, the permitted share stands for that.
    fn usual(&self, own: Counts) -> f64 {
        if self.sum.all == own.all {
            return self.most;
        }
        interval(self.sum.most() - own.most(), self.sum.all - own.all).1
    }
}

/// The other relay whose doing it may be that a relay is worse than others: without the downloads
/// through that one, it is not. Of several, the one through which most were starved.
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

/// The 95 % interval of a share by Clopper and Pearson; all there is if nothing was seen.
#[must_use]
pub fn interval(hits: u64, of: u64) -> (f64, f64) {
    interval_of(hits, of, TAIL)
}

/// The same, with `tail` left out at each end.
fn interval_of(hits: u64, of: u64, tail: f64) -> (f64, f64) {
    let (hits, misses) = (hits.min(of) as f64, of.saturating_sub(hits) as f64);
    let quantile = |a: f64, b: f64, part: f64| Beta::new(a, b).map(|beta| beta.inverse_cdf(part));
    let low = if hits > 0.0 { quantile(hits, misses + 1.0, tail).unwrap_or(0.0) } else { 0.0 };
    let high = quantile(hits + 1.0, misses, 1.0 - tail);
    (low, if misses > 0.0 { high.unwrap_or(1.0) } else { 1.0 })
}

#[cfg(test)]
mod tests;
