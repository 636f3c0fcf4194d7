//! Traffic of Tor users' circuits: tmodel's Markov models of streams and packets.
//!
//! A walk through the stream model gives a circuit's streams, each after a delay; a walk through
//! the packet model gives a stream's packets of 1,434 bytes in either direction (`+` to the server,
//! `-` to the client), each after a delay. `F` ends a walk. An emission is
//! `[probability, mu, sigma, lambda]`: its delay in microseconds is lognormal by mu and sigma, or
//! exponential by lambda if both of those are 0 (documentation of tmodel and TGen).
//!
//! An hour of the ten-percent network has two billion packets. So a [`Library`] holds some thousand
//! circuits that were sampled once, with their packets summed by time slot; each simulated circuit
//! is one of these. Limits: delays are at most 60 s and walks at most a million steps; packets do
//! not wait for each other.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use rand::{Rng, RngExt as _};
use serde::Deserialize;

/// Bytes of a packet of the model.
pub const PACKET_BYTES: u32 = 1_434;

/// The longest delay in seconds. Without a limit the lognormals' tails would let circuits last for
/// years; with this one, circuits carry as much as in Shadow's network: 3.28 MB on average.
const LONGEST_DELAY_SECS: f64 = 60.0;

/// The greatest number of steps of a walk.
const MOST_STEPS: u32 = 1_000_000;

/// The greatest number of states of a model.
const MOST_STATES: usize = 1_000;

/// The emission of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emitted {
    /// A packet to the server.
    Up,
    /// A packet to the client, or a stream.
    Down,
    End,
}

/// The distribution of a step's delay.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Delay {
    /// No delay.
    None,
    /// Lognormal by mu and sigma, in microseconds.
    Lognormal(f64, f64),
    /// Exponential, with this rate per microsecond.
    Exponential(f64),
}

impl Delay {
    /// Draws a delay, in seconds.
    fn draw(self, rng: &mut impl Rng) -> f64 {
        let micros = match self {
            Self::None => 0.0,
            Self::Lognormal(mu, sigma) => sigma.mul_add(normal(rng), mu).exp(),
            Self::Exponential(rate) => -(1.0 - rng.random::<f64>()).ln() / rate,
        };
        (micros / 1e6).min(LONGEST_DELAY_SECS)
    }
}

/// A standard normal deviate (Box-Muller).
pub(crate) fn normal(rng: &mut impl Rng) -> f64 {
    let (first, second) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
    (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

/// A choice by probability: options, each with the sum of probabilities up to it.
type Choice<T> = Vec<(f64, T)>;

/// Chooses an option; `None` if there are none.
fn choose<T: Copy>(choice: &Choice<T>, rng: &mut impl Rng) -> Option<T> {
    let point = rng.random::<f64>() * choice.last()?.0;
    choice.iter().find(|(sum, _)| *sum > point).or(choice.last()).map(|(_, found)| *found)
}

/// Sums up probabilities; options with probability 0 are left out.
fn sum_up<T>(items: impl IntoIterator<Item = (f64, T)>) -> anyhow::Result<Choice<T>> {
    let (mut choice, mut sum) = (Vec::new(), 0.0);
    for (probability, item) in items {
        if !(0.0..=1.0).contains(&probability) {
            bail!("{probability} is not a probability");
        }
        sum += probability;
        if probability > 0.0 {
            choice.push((sum, item));
        }
    }
    Ok(choice)
}

/// The possible emissions of a state, with their delays.
type Emissions = Choice<(Emitted, Delay)>;

/// A hidden Markov model.
#[derive(Clone, Debug)]
pub struct Model {
    /// The first state of a walk.
    start: Choice<usize>,
    /// Each state's emissions and next states.
    states: Vec<(Emissions, Choice<usize>)>,
}

/// A model as stored in JSON.
#[derive(Deserialize)]
struct Document {
    /// Names of states.
    state_space: Vec<String>,
    /// Probabilities of first states.
    start_probability: BTreeMap<String, f64>,
    /// Probabilities of next states.
    transition_probability: BTreeMap<String, BTreeMap<String, f64>>,
    /// Emissions of states.
    emission_probability: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
}

/// A file with one of the two models.
#[derive(Deserialize)]
struct Outer {
    /// The model, under either name.
    #[serde(alias = "packet_model", alias = "stream_model")]
    model: Document,
}

/// The stream model of tmodel-ccs2018.
const STREAMS: &[u8] = include_bytes!("../../ff-archives/tests/data/flow-tmodel-stream.json");
/// The packet model of tmodel-ccs2018.
const PACKETS: &[u8] = include_bytes!("../../ff-archives/tests/data/flow-tmodel-packet.json");

impl Model {
    /// The models of streams and of packets that are part of this program;
    /// ff-archives/tests/data/flow.md has
    /// their source.
    ///
    /// # Errors
    /// Never, as a test verifies.
    pub fn built_in() -> anyhow::Result<[Self; 2]> {
        Ok([Self::read(STREAMS)?, Self::read(PACKETS)?])
    }

    /// Reads `tmodel-packet.json` or `tmodel-stream.json`.
    ///
    /// # Errors
    /// If the text is not such a document, or has invalid numbers.
    pub fn read(text: &[u8]) -> anyhow::Result<Self> {
        let document = serde_json::from_slice::<Outer>(text).context("This is no model")?.model;
        if document.state_space.len() > MOST_STATES {
            bail!("a model has at most {MOST_STATES} states");
        }
        let names = document.state_space.iter().zip(0..);
        let indices: BTreeMap<&str, usize> = names.map(|(name, i)| (name.as_str(), i)).collect();
        let to_choice = |by_name: Option<&BTreeMap<String, f64>>| {
            let known = by_name.into_iter().flatten().map(|(name, probability)| {
                let index = indices.get(name.as_str()).with_context(|| format!("{name}?"))?;
                Ok((*probability, *index))
            });
            sum_up(known.collect::<anyhow::Result<Vec<_>>>()?)
        };
        let state = |name: &String| {
            let emissions = document.emission_probability.get(name).into_iter().flatten();
            let emissions = emissions.map(|(kind, numbers)| emission(kind, numbers));
            let emissions = sum_up(emissions.collect::<anyhow::Result<Vec<_>>>()?)?;
            Ok((emissions, to_choice(document.transition_probability.get(name))?))
        };
        let states = document.state_space.iter().map(state).collect::<anyhow::Result<_>>()?;
        Ok(Self { start: to_choice(Some(&document.start_probability))?, states })
    }

    /// Walks through the model, and calls `on` with each packet or stream and its time in seconds
    /// from the start.
    fn walk(&self, rng: &mut impl Rng, mut on: impl FnMut(&mut dyn Rng, f64, Emitted)) {
        let (mut at, mut now) = (choose(&self.start, rng), 0.0);
        for _ in 0..MOST_STEPS {
            let Some((emissions, next)) = at.and_then(|at| self.states.get(at)) else { return };
            match choose(emissions, rng) {
                None | Some((Emitted::End, _)) => return,
                Some((emitted, delay)) => {
                    now += delay.draw(rng);
                    on(rng, now, emitted);
                }
            }
            at = choose(next, rng);
        }
    }
}

/// Parses an emission from its kind and its numbers.
fn emission(kind: &str, numbers: &[f64]) -> anyhow::Result<(f64, (Emitted, Delay))> {
    let emitted = match kind {
        "+" => Emitted::Up,
        "-" | "$" => Emitted::Down,
        "F" => Emitted::End,
        _ => bail!("{kind:?} is not an emission"),
    };
    let delay = match numbers {
        [_] => Delay::None,
        [_, mu, sigma, rate] if mu.is_finite() && *sigma >= 0.0 && sigma.is_finite() => {
            let is_lognormal = mu.abs() > 0.0 || *sigma > 0.0;
            match (is_lognormal, *rate > 0.0 && rate.is_finite()) {
                (true, _) => Delay::Lognormal(*mu, *sigma),
                (false, true) => Delay::Exponential(*rate),
                (false, false) => Delay::None,
            }
        }
        _ => bail!("{numbers:?} are not parameters of a delay"),
    };
    Ok((numbers.first().copied().unwrap_or_default(), (emitted, delay)))
}

/// Bytes that a circuit requests within a time slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The index of the slot, from the circuit's start.
    pub slot: u32,
    /// Bytes in both directions.
    pub bytes: u32,
}

/// Circuits sampled from the models.
#[derive(Clone, Debug)]
pub struct Library {
    /// The bursts of all circuits, each circuit's in order of slots.
    bursts: Vec<Burst>,
    /// The end of each circuit's bursts.
    ends: Vec<usize>,
    /// The length of a slot, in seconds.
    pub slot_secs: f64,
    /// The number of streams of all circuits.
    pub streams: u64,
    /// The number of packets up and down.
    pub packets: [u64; 2],
}

impl Library {
    /// The greatest number of bursts of a library: 800 MB.
    const MOST_BURSTS: usize = 100_000_000;

    /// Samples a number of circuits, with slots of 0.001 to 10 seconds; other lengths become 0.1
    /// seconds.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    pub fn sample(
        streams: &Model,
        packets: &Model,
        circuits: usize,
        slot_secs: f64,
        rng: &mut impl Rng,
    ) -> Self {
        let slot_secs = if slot_secs > 0.0 { slot_secs.clamp(0.001, 10.0) } else { 0.1 };
        let (bursts, ends) = (Vec::new(), Vec::new());
        let mut library = Self { bursts, ends, slot_secs, streams: 0, packets: [0; 2] };
        let mut slots: Vec<u32> = Vec::new();
        for _ in 0..circuits {
            slots.clear();
            streams.walk(rng, |mut rng, begin, _| {
                library.streams += 1;
                packets.walk(&mut rng, |_, at, emitted| {
                    library.packets[usize::from(emitted == Emitted::Down)] += 1;
                    slots.push(((begin + at) / slot_secs) as u32);
                });
            });
            slots.sort_unstable();
            let bursts = slots.chunk_by(|a, b| a == b).map(|same| Burst {
                slot: same[0],
                bytes: u32::try_from(same.len()).unwrap_or(u32::MAX).saturating_mul(PACKET_BYTES),
            });
            library.bursts.extend(bursts);
            library.ends.push(library.bursts.len());
            if library.bursts.len() > Self::MOST_BURSTS {
                break;
            }
        }
        library
    }

    /// The number of circuits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no circuits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bursts of a circuit; empty if there is no such circuit.
    #[must_use]
    pub fn circuit(&self, index: usize) -> &[Burst] {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).unwrap_or(&0);
        let range = self.ends.get(index).map(|end| *start..*end);
        range.and_then(|range| self.bursts.get(range)).unwrap_or_default()
    }

    /// The mean bytes of a circuit, in both directions.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub fn mean_bytes(&self) -> f64 {
        let bytes = self.packets.iter().sum::<u64>() as f64 * f64::from(PACKET_BYTES);
        bytes / self.ends.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    /// The stream model and the packet model.
    fn models() -> (Model, Model) {
        Model::built_in().expect("both can be read").into()
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn circuits_are_as_large_as_shadows() {
        let (streams, packets) = models();
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let library = Library::sample(&streams, &packets, 4_000, 0.1, &mut rng);
        let a_circuit = library.streams as f64 / 4_000.0;
        assert!((a_circuit - 11.3).abs() < 0.8, "seed 1: {a_circuit} streams");
        let [up, down] = library.packets.map(|count| count as f64 / library.streams as f64);
        assert!((up - 11.4).abs() < 1.0 && (down - 189.0).abs() < 8.0, "seed 1: {up} {down}");
        // Shadow's relays carried 19.95 Gbit/s in cells of 514 bytes with 498 bytes of a stream,
        // for 148,896 circuits of three relays in 600 s.
        let carried = library.mean_bytes() * 148_896.0 / 600.0 * 3.0 * 514.0 / 498.0 * 8.0 / 1e9;
        assert!((carried / 19.95 - 1.0).abs() < 0.07, "seed 1: {carried} Gbit/s");
        let first = library.circuit(0);
        assert!(first.is_sorted_by_key(|burst| burst.slot));
        assert!(library.circuit(4_000).is_empty());
    }

    #[test]
    fn the_same_seed_gives_the_same_circuits() {
        let (streams, packets) = models();
        let sample = |seed| {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            Library::sample(&streams, &packets, 50, 0.1, &mut rng).bursts
        };
        assert_eq!(sample(3), sample(3));
        assert_ne!(sample(3), sample(4));
    }

    #[test]
    fn odd_models_are_errors_or_end() {
        let model = |start: &str, emission: &str| {
            let text = format!(
                r#"{{"stream_model": {{"state_space": ["a"], "start_probability": {start},
                "transition_probability": {{"a": {{"a": 1.0}}}},
                "emission_probability": {{"a": {emission}}}}}}}"#
            );
            Model::read(text.as_bytes())
        };
        for (start, emission) in [
            (r#"{"b": 1.0}"#, r#"{"F": [1.0]}"#),
            (r#"{"a": -1.0}"#, r#"{"F": [1.0]}"#),
            (r#"{"a": 1.0}"#, r#"{"x": [1.0]}"#),
            (r#"{"a": 1.0}"#, r#"{"$": [1.0, 2.0]}"#),
            (r#"{"a": 1.0}"#, r#"{"$": []}"#),
            (r#"{"a": 1.0}"#, r#"{"$": [1.0, 1e999, 0.0, 0.0]}"#),
        ] {
            model(start, emission).expect_err(emission);
        }
        Model::read(b"{}").expect_err("nothing in it");
        let endless = model(r#"{"a": 1.0}"#, r#"{"$": [1.0, 0.0, 0.0, 0.0]}"#).expect("a model");
        let mut count = 0;
        endless.walk(&mut ChaCha12Rng::seed_from_u64(1), |_, _, _| count += 1);
        assert_eq!(count, MOST_STEPS);
        let nothing = model("{}", "{}").expect("a model");
        let library =
            Library::sample(&endless, &nothing, 1, 0.1, &mut ChaCha12Rng::seed_from_u64(1));
        assert_eq!((library.streams, library.circuit(0).len()), (u64::from(MOST_STEPS), 0));
    }
}
