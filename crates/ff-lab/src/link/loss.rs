//! Random loss of packets.

use rand::{Rng, RngExt};

/// Loss model. All numbers are probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent loss with this probability.
    Independent(f64),
    /// Bursts: a good and a bad state (Gilbert 1960, Elliott 1963). The link starts in the good
    /// state and may change after each packet.
    GilbertElliott {
        /// Probability of a change from good to bad.
        to_bad: f64,
        /// Probability of a change from bad to good.
        to_good: f64,
        /// Loss in the bad state.
        lost_in_bad: f64,
        /// Loss in the good state.
        lost_in_good: f64,
    },
}

impl Loss {
    /// Long-run share of lost packets.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Independent(chance) => chance,
            Self::GilbertElliott { to_bad, to_good, lost_in_bad, lost_in_good } => {
                // A chain that never leaves a state stays in the first one.
                let bad = if to_bad == 0.0 { 0.0 } else { to_bad / (to_bad + to_good) };
                bad * lost_in_bad + (1.0 - bad) * lost_in_good
            }
        }
    }
}

/// A loss model with its state.
#[derive(Debug, Default)]
pub(super) struct Losses {
    model: Loss,
    is_bad: bool,
}

impl Losses {
    /// Starts in the good state.
    pub(super) fn new(model: Loss) -> Self {
        Self { model, is_bad: false }
    }

    /// Whether the next packet is lost.
    pub(super) fn next(&mut self, rng: &mut impl Rng) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Independent(chance) => rng.random::<f64>() < chance,
            Loss::GilbertElliott { to_bad, to_good, lost_in_bad, lost_in_good } => {
                let (loss, leave) =
                    if self.is_bad { (lost_in_bad, to_good) } else { (lost_in_good, to_bad) };
                let is_lost = rng.random::<f64>() < loss;
                self.is_bad ^= rng.random::<f64>() < leave;
                is_lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    const PACKETS: u32 = 1_000_000;

    fn lost(model: Loss, seed: u64) -> Vec<bool> {
        println!("seed {seed}");
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut losses = Losses::new(model);
        (0..PACKETS).map(|_| losses.next(&mut rng)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        f64::from(u32::try_from(lost.iter().filter(|lost| **lost).count()).unwrap())
            / f64::from(PACKETS)
    }

    #[test]
    fn independent_losses_come_to_their_chance() {
        for (chance, seed) in [(0.001, 1), (0.02, 2), (0.5, 3)] {
            let found = share(&lost(Loss::Independent(chance), seed));
            let deviation = (chance * (1.0 - chance) / f64::from(PACKETS)).sqrt();
            assert!((found - chance).abs() < 3.3 * deviation, "{found} for {chance}");
        }
        assert_eq!(share(&lost(Loss::None, 4)), 0.0);
        assert_eq!(share(&lost(Loss::Independent(1.0), 5)), 1.0);
    }

    #[test]
    fn bursts_come_to_their_mean_and_length() {
        let (to_bad, to_good) = (0.01, 0.2);
        let model = Loss::GilbertElliott { to_bad, to_good, lost_in_bad: 1.0, lost_in_good: 0.0 };
        let lost = lost(model, 6);
        // Successive packets are dependent: the variance is that of the two-state chain,
        // p(1-p)(2-a-b)/(a+b) divided by n.
        let (mean, sum) = (model.mean(), to_bad + to_good);
        let deviation = (mean * (1.0 - mean) * (2.0 - sum) / sum / f64::from(PACKETS)).sqrt();
        assert!((share(&lost) - mean).abs() < 3.3 * deviation, "{} for {mean}", share(&lost));
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let length = lost.iter().filter(|lost| **lost).count() as f64 / bursts as f64;
        assert!((length - 1.0 / to_good).abs() < 0.2, "bursts of {length} packets");
    }

    #[test]
    fn a_state_that_is_never_left_is_the_first() {
        let model = |to_bad, to_good| Loss::GilbertElliott {
            to_bad,
            to_good,
            lost_in_bad: 0.5,
            lost_in_good: 0.1,
        };
        assert_eq!(model(0.0, 0.0).mean(), 0.1);
        assert_eq!(model(0.1, 0.0).mean(), 0.5);
        assert!((model(0.1, 0.3).mean() - 0.2).abs() < 1e-12);
    }
}
