//! Delays between hosts.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::no_host;
use crate::error::{Error, Result};
use crate::link::{HostId, MAX_DELAY, PairDelays};

/// One-way delays between access links.
#[derive(Clone, Debug, PartialEq)]
pub enum Delays {
    /// The same delay between all hosts.
    Uniform(Duration),
    /// By location. Each host is at a random place in one of six regions, most in Europe and North
    /// America as Tor's relays are. The delay is `NEAR` plus 5 µs per km of cable, and cables are
    /// `DETOUR` times as long as the shortest way. A model for labs, not a map of the Internet.
    Regions,
    /// From a table; see [`Delays::table`].
    Table(Vec<(String, String, Duration)>),
}

/// Length of cables relative to the great-circle distance.
const DETOUR: f64 = 1.6;

/// Delay between hosts at the same place.
const NEAR: Duration = Duration::from_micros(500);

/// Seconds per km at two thirds of the speed of light.
const SECS_PER_KM: f64 = 5e-6;

/// Radius of the Earth.
const EARTH_KM: f64 = 6371.0;

/// Regions: share of hosts, latitude, longitude. Shares are rounded shares of Tor's relays.
const REGIONS: [(f64, f64, f64); 6] = [
    (0.60, 50.0, 8.0),
    (0.20, 41.0, -76.0),
    (0.10, 37.0, -120.0),
    (0.04, 35.0, 137.0),
    (0.03, 1.0, 104.0),
    (0.03, -23.0, -46.0),
];

/// Largest distance of a host from its region's centre, in degrees.
const SPREAD_DEGREES: f64 = 6.0;

impl Delays {
    /// Parses a table. Each line has two hosts and the one-way delay between them in ms, for both
    /// directions unless another line sets the other one. Pairs without a line have no delay. Empty
    /// lines and lines with `#` are ignored.
    ///
    /// # Errors
    /// [`Error::Profile`] with the line and `file`, which is only for the message.
    pub fn table(file: &str, text: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.split_whitespace().collect::<Vec<_>>();
            let row = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [from, to, ms] => delay_ms(ms).map(|delay| (from.to_owned(), to.to_owned(), delay)),
                _ => None,
            };
            let form = "is not a pair of hosts and a delay from 0 to 60000 ms";
            let what = || format!("line {}: {:?} {form}", index + 1, line.trim());
            let row = row.ok_or_else(|| Error::Profile { file: file.to_owned(), what: what() })?;
            rows.push(row);
        }
        Ok(Self::Table(rows))
    }

    /// Delays between hosts of these names.
    pub(super) fn pairs(&self, names: &[String], seed: u64) -> Result<PairDelays> {
        match self {
            Self::Uniform(delay) => Ok(uniform(names.len(), *delay)),
            Self::Regions => Ok(by_place(names.len(), seed)),
            Self::Table(rows) => by_table(names, rows),
        }
    }
}

/// Parses a delay in ms.
fn delay_ms(text: &str) -> Option<Duration> {
    let ms = text.parse::<f64>().ok()?;
    let max_ms = MAX_DELAY.as_secs_f64() * 1e3;
    (0.0..=max_ms).contains(&ms).then(|| Duration::from_secs_f64(ms / 1e3))
}

/// The same delay between all hosts, and none from a host to itself.
fn uniform(hosts: usize, delay: Duration) -> PairDelays {
    let mut pairs = PairDelays::uniform(hosts, delay);
    (0..hosts).for_each(|host| pairs.set(HostId(host), HostId(host), Duration::ZERO));
    pairs
}

/// Delays by distance on the globe.
fn by_place(hosts: usize, seed: u64) -> PairDelays {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let places = (0..hosts).map(|_| place(&mut rng)).collect::<Vec<_>>();
    let mut pairs = uniform(hosts, Duration::ZERO);
    for (from, there) in places.iter().enumerate() {
        for (to, here) in places.iter().enumerate().filter(|(to, _)| *to != from) {
            let secs = distance_km(*there, *here) * DETOUR * SECS_PER_KM;
            pairs.set(HostId(from), HostId(to), NEAR + Duration::from_secs_f64(secs));
        }
    }
    pairs
}

/// A random place in a random region: degrees of latitude and longitude.
fn place(rng: &mut impl Rng) -> (f64, f64) {
    let mut point = rng.random::<f64>();
    let mut found = REGIONS[0];
    for region in REGIONS {
        found = region;
        if point < region.0 {
            break;
        }
        point -= region.0;
    }
    let mut off = || (rng.random::<f64>() * 2.0 - 1.0) * SPREAD_DEGREES;
    (found.1 + off(), found.2 + off())
}

/// Great-circle distance (haversine formula).
fn distance_km(from: (f64, f64), to: (f64, f64)) -> f64 {
    let (from_lat, to_lat) = (from.0.to_radians(), to.0.to_radians());
    let lat = ((to_lat - from_lat) / 2.0).sin().powi(2);
    let lon = ((to.1 - from.1).to_radians() / 2.0).sin().powi(2);
    let chord = lat + from_lat.cos() * to_lat.cos() * lon;
    2.0 * EARTH_KM * chord.sqrt().min(1.0).asin()
}

fn by_table(names: &[String], rows: &[(String, String, Duration)]) -> Result<PairDelays> {
    let find = |name: &String| {
        let index = names.iter().position(|found| found == name);
        let unknown = || Error::Misuse(format!("delays: {}", no_host(name, names)));
        index.map(HostId).ok_or_else(unknown)
    };
    let mut pairs = uniform(names.len(), Duration::ZERO);
    // Both directions first, so that a line for the other direction overrides, wherever it stands.
    for (from, to, delay) in rows {
        pairs.set(find(to)?, find(from)?, *delay);
    }
    for (from, to, delay) in rows {
        pairs.set(find(from)?, find(to)?, *delay);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("n{number}")).collect()
    }

    fn ms(pairs: &PairDelays, from: usize, to: usize) -> f64 {
        pairs.get(HostId(from), HostId(to)).as_secs_f64() * 1e3
    }

    #[test]
    fn distances_are_those_of_the_globe() {
        // A quarter of the circumference, and pole to pole.
        let quarter = std::f64::consts::FRAC_PI_2 * EARTH_KM;
        assert!((distance_km((0.0, 0.0), (0.0, 90.0)) - quarter).abs() < 1e-6);
        assert!((distance_km((90.0, 0.0), (-90.0, 123.0)) - 2.0 * quarter).abs() < 1e-6);
        // Frankfurt and New York: 6,200 km.
        assert!((distance_km((50.1, 8.7), (40.7, -74.0)) - 6200.0).abs() < 30.0);
    }

    #[test]
    fn regions_are_the_same_for_a_seed_and_the_same_both_ways() {
        let find = |seed| Delays::Regions.pairs(&names(100), seed).unwrap();
        let pairs = find(7);
        assert_eq!(pairs, find(7));
        assert_ne!(pairs, find(8));
        for from in 0..100 {
            assert_eq!(ms(&pairs, from, from), 0.0);
            for to in 0..from {
                assert_eq!(ms(&pairs, from, to), ms(&pairs, to, from));
                assert!((0.5..170.0).contains(&ms(&pairs, from, to)));
            }
        }
        let near = (1..100).filter(|to| ms(&pairs, 0, *to) < 15.0).count();
        assert!((1..99).contains(&near), "{near} of 99 are near");
    }

    #[test]
    fn a_table_has_both_directions_unless_it_says_otherwise() {
        let text = "# who with whom\nn1 n0 9\nn0 n1 20.5\n\nn1 n2 7\n";
        let pairs = Delays::table("t", text).unwrap().pairs(&names(3), 1).unwrap();
        assert_eq!((ms(&pairs, 0, 1), ms(&pairs, 1, 0)), (20.5, 9.0));
        assert_eq!((ms(&pairs, 1, 2), ms(&pairs, 2, 1), ms(&pairs, 0, 2)), (7.0, 7.0, 0.0));
    }

    #[test]
    fn bad_tables_are_named_by_line() {
        let error = |text| Delays::table("d.txt", text).unwrap_err().to_string();
        assert!(error("n0 n1 5\nn0 n1\n").contains("d.txt: line 2: \"n0 n1\""));
        assert!(error("n0 n1 -5\n").contains("line 1"));
        assert!(error("n0 n1 nan\n").contains("line 1"));
        let unknown = Delays::table("d.txt", "n0 n9 5\n").unwrap().pairs(&names(2), 1);
        assert!(unknown.unwrap_err().to_string().contains("n9"));
    }
}
