//! Paths of a run: from a file, or drawn by rules.

use ff_circuits::network::CircuitNetwork;
use ff_circuits::paths::{Choice, Generator, NoPaths};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

use crate::schedule::Task;

/// Circuits of a run: given paths repeatedly, or paths drawn with a seed. Some numbers may be
/// skipped, which changes no other path.
pub struct PathPlan {
    source: Source,
    /// Number of circuits.
    count: u64,
    /// Number of the next circuit.
    next: u64,
    /// Whether a number is skipped.
    is_left_out: Box<dyn Fn(u64) -> bool>,
}

/// Source of paths.
enum Source {
    /// From a file.
    Given(Vec<Vec<usize>>),
    /// Drawn.
    Drawn(Box<Generator>, Box<ChaCha12Rng>),
}

impl PathPlan {
    /// Uses these paths in turn.
    pub fn given(
        paths: Vec<Vec<usize>>,
        count: u64,
        is_left_out: Box<dyn Fn(u64) -> bool>,
    ) -> Self {
        Self { source: Source::Given(paths), count, next: 0, is_left_out }
    }

    /// Draws paths by this choice, as `ff-perf paths` does with the same seed.
    ///
    /// # Errors
    /// If the network has no such paths.
    pub fn drawn(
        network: &CircuitNetwork,
        choice: &Choice,
        seed: u64,
        count: u64,
        is_left_out: Box<dyn Fn(u64) -> bool>,
    ) -> Result<Self, NoPaths> {
        let mut rng = Box::new(ChaCha12Rng::seed_from_u64(seed));
        let generator = Box::new(Generator::new(&network.pool, choice, &mut rng)?);
        Ok(Self { source: Source::Drawn(generator, rng), count, next: 0, is_left_out })
    }

    /// Starts at this number. The paths differ from those of a run that skips all numbers before.
    #[must_use]
    pub fn beginning_with(mut self, number: u64) -> Self {
        self.next = number;
        if let Source::Drawn(_, rng) = &mut self.source {
            rng.set_stream(number);
        }
        self
    }
}

/// Most failed draws in a row.
const MOST_FAILED: u32 = 100;

impl Iterator for PathPlan {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        // A draw may fail if few relays fit together; after many failures in a row, all will fail.
        let mut failed = 0;
        while self.next < self.count && failed < MOST_FAILED {
            let number = self.next;
            self.next += 1;
            let path = match &mut self.source {
                Source::Given(paths) => {
                    let at = number % paths.len() as u64;
                    usize::try_from(at).ok().and_then(|at| paths.get(at)).cloned()?
                }
                Source::Drawn(generator, rng) => {
                    let Some(path) = generator.draw(rng) else {
                        failed += 1;
                        continue;
                    };
                    failed = 0;
                    path.into_iter().map(|relay| relay as usize).collect()
                }
            };
            if !(self.is_left_out)(number) {
                return Some(Task { number, path, is_alone: true });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use ff_archives::network::{Flags, Relay};
    use ff_circuits::paths::pool::Pool;
    use ff_circuits::paths::{Lengths, Rules};

    use super::*;

    #[test]
    fn a_network_whose_only_guard_is_its_only_exit_has_no_paths() {
        let relay = |number: u8, guard, exit| Relay {
            fingerprint: [number; 20],
            flags: Flags { running: true, guard, exit, ..Flags::default() },
            ..Relay::default()
        };
        let mut relays: Vec<Relay> = (0..6).map(|one| relay(one, one == 0, one == 0)).collect();
        let lengths = Lengths::new(&[(3, 1.0)]).expect("lengths");
        let choice = Choice { rules: Rules::Tor, lengths, guards: 0, any_subnet: false, port: 443 };
        let of = |relays: &[Relay]| {
            let relays = relays.to_vec();
            let mut network = CircuitNetwork::default();
            network.pool =
                Pool::from(ff_archives::network::Network { relays, ..Default::default() });
            PathPlan::drawn(&network, &choice, 1, 10, Box::new(|number| number == 3))
        };
        assert_eq!(of(&relays).err(), Some(NoPaths::None(3)));
        relays.push(relay(6, false, true));
        let all: Vec<Task> = of(&relays).expect("paths").collect();
        assert!(all.len() == 9 && all.iter().all(|task| task.path[0] == 0 && task.path[2] == 6));
    }
}
