//! Traffic between relays of today's network, and how much of it is on links that are not exempt
//! from a limit.

use super::rules::{Rules, Today};
use super::world::{TortoiseCircuit, World};

/// The number of relays of May 2024 that ran for half of the month.
pub const ALL_RELAYS: u32 = 7_203;
/// The relays to which a link is exempt, as values of `FFIngressExempt`.
pub const EXEMPT: [&str; 2] = ["fast", "stable-fast"];
/// For each class of relays, in the order of
/// [`Position::ALL`](ff_archives::network::Position::ALL): its share of total weight, and the
/// shares of the class's weight without the flags of each of [`EXEMPT`], in the consensus of
/// 2022-11-19 10:00 (safexfj/safe_tor @5fcbb0c).
const FLAGS_2022: [(f64, [f64; 2]); 4] = [
    (0.366_019_6, [0.0, 0.0]),
    (0.337_478_0, [0.000_253_4, 0.637_448_7]),
    (0.077_587_3, [0.000_064_8, 0.582_237_5]),
    (0.218_915_1, [0.0, 0.0]),
];

/// The share of total weight of the relays with the flags Stable and Fast, in November 2022.
#[must_use]
pub fn stable_fast_part() -> f64 {
    FLAGS_2022.iter().map(|(part, [_, lacks])| part * (1.0 - lacks)).sum()
}

impl Today {
    /// The share of links between a circuit's relays that are not exempt, by each of [`EXEMPT`].
    fn limited_part(&self, circuit: &TortoiseCircuit) -> [f64; 2] {
        let hops = [1, 3, 5].map(|hop| circuit.hops[hop] as usize);
        let classes = hops.map(|hop| self.classes.get(hop).copied().unwrap_or_default());
        let has = |class: usize, rule: usize| 1.0 - FLAGS_2022[class].1[rule];
        // A link is exempt if both of its relays have the flags.
        [0, 1].map(|rule| {
            let [guard, middle, exit] = classes.map(|class| has(class, rule));
            1.0 - f64::midpoint(guard * middle, middle * exit)
        })
    }

    /// The sums of the squares of relays' probabilities to be the first, second and last of a
    /// circuit.
    fn squares(&self) -> [f64; 3] {
        self.sums.each_ref().map(|sums| {
            let all = sums.last().copied().unwrap_or_default();
            let mut before = 0.0;
            let square = |sum: &f64| {
                let part = (sum - before) / all;
                before = *sum;
                part * part
            };
            sums.iter().map(square).sum()
        })
    }
}

/// Circuits' traffic between relays in the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Between {
    /// Bytes on links between relays; a circuit has two such links.
    pub bytes: f64,
    /// Bytes above each rate of [`Today`]: on all links, and on links that are not exempt by each
    /// of [`EXEMPT`].
    pub above: Vec<[f64; 3]>,
    /// The sum over circuits of the seconds in which they carried bytes.
    circuit_secs: f64,
}

impl Between {
    /// Adds the bytes that a circuit carried in some seconds; ignores circuits of the paper's
    /// network.
    pub(super) fn add(&mut self, rules: &Rules, circuit: &TortoiseCircuit, bytes: f64, secs: f64) {
        let Rules::Today(today) = rules else { return };
        self.above.resize(today.rates.len(), [0.0; 3]);
        self.bytes += 2.0 * bytes;
        self.circuit_secs += secs;
        let [fast, stable_fast] = today.limited_part(circuit);
        for (above, rate) in self.above.iter_mut().zip(&today.rates) {
            let more = 2.0 * (bytes - rate * secs).max(0.0);
            for (above, part) in above.iter_mut().zip([1.0, fast, stable_fast]) {
                *above += more * part;
            }
        }
    }

    /// The mean number of other circuits with bytes on a circuit's link between two relays, over
    /// `secs` measured seconds and the links to and from the middle relay, scaled to the network of
    /// May 2024.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "some hundred relays")]
    pub fn others(&self, world: &World, secs: f64) -> f64 {
        let Rules::Today(today) = &world.rules else { return 0.0 };
        let [guard, middle, exit] = today.squares();
        // With more relays there are more circuits and lower probabilities for each relay, by the
        // same factor.
        let part = world.relays.len() as f64 / f64::from(ALL_RELAYS);
        self.circuit_secs / secs * f64::midpoint(guard * middle, middle * exit) * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::NO_RELAY;

    #[test]
    fn bytes_above_a_rate_are_counted_on_links_that_are_not_exempt() {
        let hops = [NO_RELAY, 0, NO_RELAY, 1, NO_RELAY, 2, NO_RELAY];
        let circuit = TortoiseCircuit { entry: 0, hops };
        let rules = Rules::Today(Today {
            classes: vec![0, 1, 3],
            rates: vec![1e5, 1e6],
            ..Today::default()
        });
        let mut between = Between::default();
        between.add(&rules, &circuit, 8e5, 2.0);
        assert_eq!((between.bytes, between.above[1]), (1.6e6, [0.0; 3]));
        // 600 kB above 100 kB/s on each of two links. Both include the middle relay, which lacks
        // the flags with these probabilities.
        let [all, fast, stable_fast] = between.above[0];
        assert!((all - 1.2e6).abs() < 1e-6, "{all}");
        assert!((fast / 1.2e6 - 0.000_253_4).abs() < 1e-9, "{fast}");
        assert!((stable_fast / 1.2e6 - 0.637_448_7).abs() < 1e-9, "{stable_fast}");
        assert!((stable_fast_part() - 0.7397).abs() < 1e-4, "{}", stable_fast_part());
    }
}
