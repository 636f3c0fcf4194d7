//! Delay of packets after the queue.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt};

/// Upper bound of a packet's delay; it truncates heavy tails.
pub const MAX_DELAY: Duration = Duration::from_secs(60);

/// Delay of one direction of a link, after its queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delay {
    /// Delay of every packet.
    pub base: Duration,
    /// Random addition. The sum is limited to 0 and [`MAX_DELAY`].
    pub jitter: Jitter,
    /// Whether a packet may overtake earlier ones. If not, it arrives no earlier than they do, so
    /// jitter adds more delay with more packets in flight.
    pub overtaking: bool,
}

/// Distribution of the random part of a delay, drawn for each packet independently.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// Normal with mean 0: half of the packets are faster than the base.
    Normal {
        /// Standard deviation.
        sigma: Duration,
    },
    /// Pareto distribution of the second kind (Lomax): P(more than x) = (1 + x/scale)^-shape. The
    /// mean is scale/(shape-1); without overtaking this holds only for rare packets.
    Pareto {
        /// Scale.
        scale: Duration,
        /// Shape; above 1 the mean is finite, above 2 the variance too.
        shape: f64,
    },
    /// Measured values.
    Table(Arc<DelayTable>),
}

/// Packets held back so that later ones arrive before them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Probability, 0 to 1.
    pub share: f64,
    /// Time added to the delay.
    pub by: Duration,
}

/// Measured additions to a base delay.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayTable {
    /// In ms, sorted, finite, not empty.
    sorted_ms: Vec<f64>,
}

/// Error in a table of delays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelayTableError {
    /// A line is not a number, or exceeds [`MAX_DELAY`].
    #[error("line {line}: {text:?} is not a number of milliseconds from -60000 to 60000")]
    NotADelay {
        /// Number of the line, from 1.
        line: usize,
        /// Beginning of the line.
        text: String,
    },
    /// The table is empty.
    #[error("it has no numbers; each line is one measured addition to the delay, in ms")]
    Empty,
}

impl DelayTable {
    /// Parses a table. Each line is one measured addition to the base in ms, which may be negative.
    /// Empty lines and lines that begin with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self, DelayTableError> {
        let max_ms = MAX_DELAY.as_secs_f64() * 1e3;
        let mut sorted_ms = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let number = text.parse::<f64>().ok().filter(|ms| ms.abs() <= max_ms);
            let text = || text.chars().take(40).collect();
            let number = number
                .ok_or_else(|| DelayTableError::NotADelay { line: index + 1, text: text() })?;
            sorted_ms.push(number);
        }
        if sorted_ms.is_empty() {
            return Err(DelayTableError::Empty);
        }
        sorted_ms.sort_by(f64::total_cmp);
        Ok(Self { sorted_ms })
    }

    /// Quantile in ms of a share from 0 to 1, interpolated linearly.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index below the length"
    )]
    fn quantile_ms(&self, share: f64) -> f64 {
        let at = share * (self.sorted_ms.len() - 1) as f64;
        let low = self.sorted_ms[at as usize];
        let high = *self.sorted_ms.get(at as usize + 1).unwrap_or(&low);
        low + (high - low) * at.fract()
    }
}

impl Delay {
    /// A constant delay without jitter.
    pub fn constant(base: Duration) -> Self {
        Self { base, ..Self::default() }
    }

    /// Draws the delay of the next packet.
    pub(super) fn next(&self, rng: &mut impl Rng) -> Duration {
        let base = self.base.as_secs_f64();
        let secs = match &self.jitter {
            Jitter::None => return self.base.min(MAX_DELAY),
            Jitter::Normal { sigma } => base + sigma.as_secs_f64() * normal(rng),
            Jitter::Pareto { scale, shape } => {
                let above = (1.0 - rng.random::<f64>()).powf(-1.0 / shape) - 1.0;
                base + scale.as_secs_f64() * above
            }
            Jitter::Table(table) => base + table.quantile_ms(rng.random()) / 1e3,
        };
        // NaN has become a bound.
        Duration::from_secs_f64(secs.max(0.0).min(MAX_DELAY.as_secs_f64()))
    }
}

/// Standard normal number (Box-Muller).
fn normal(rng: &mut impl Rng) -> f64 {
    let (radius, angle) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    const PACKETS: usize = 200_000;

    /// Sorted delays in ms, drawn with a base of 100 ms.
    fn delays(jitter: Jitter, seed: u64) -> Vec<f64> {
        println!("seed {seed}");
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let delay = Delay { base: Duration::from_millis(100), jitter, overtaking: true };
        let next = |_| delay.next(&mut rng).as_secs_f64() * 1e3;
        let mut found = (0..PACKETS).map(next).collect::<Vec<_>>();
        found.sort_by(f64::total_cmp);
        found
    }

    /// Kolmogorov-Smirnov distance to a distribution function.
    fn distance(sorted: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
        let count = sorted.len() as f64;
        let gap = |(index, &value): (usize, &f64)| {
            let (low, high) = (index as f64 / count, (index + 1) as f64 / count);
            (cdf(value) - low).abs().max((cdf(value) - high).abs())
        };
        sorted.iter().enumerate().map(gap).fold(0.0, f64::max)
    }

    /// Critical distance for a significance of 0.001.
    fn critical() -> f64 {
        1.95 / (PACKETS as f64).sqrt()
    }

    #[test]
    fn pareto_is_pareto() {
        let scale = Duration::from_millis(4);
        let found = delays(Jitter::Pareto { scale, shape: 2.5 }, 1);
        let cdf = |ms: f64| 1.0 - (1.0 + (ms - 100.0) / 4.0).powf(-2.5);
        let distance = distance(&found, cdf);
        assert!(distance < critical(), "{distance}");
    }

    #[test]
    fn normal_is_normal() {
        let found = delays(Jitter::Normal { sigma: Duration::from_millis(10) }, 2);
        // Quantiles of the normal distribution: 0.1587 is at -1, 0.5 at 0, 0.97725 at 2 standard
        // deviations.
        for (share, at) in [(0.158_655, 90.0), (0.5, 100.0), (0.841_345, 110.0), (0.977_25, 120.0)]
        {
            let below = found.partition_point(|ms| *ms < at) as f64 / PACKETS as f64;
            let deviation = (share * (1.0 - share) / PACKETS as f64).sqrt();
            assert!((below - share).abs() < 3.3 * deviation, "{below} below {at}, not {share}");
        }
    }

    #[test]
    fn a_table_has_its_quantiles() {
        let table = DelayTable::parse("# ms\n10\n0\n-5\n\n20\n").unwrap();
        assert_eq!([0.0, 0.5, 1.0].map(|share| table.quantile_ms(share)), [-5.0, 5.0, 20.0]);
        let found = delays(Jitter::Table(Arc::new(table)), 3);
        let cdf = |ms: f64| match ms - 100.0 {
            x if x < 0.0 => (x + 5.0) / 15.0,
            x if x < 10.0 => 1.0 / 3.0 + x / 30.0,
            x => 2.0 / 3.0 + (x - 10.0) / 30.0,
        };
        assert!(distance(&found, cdf) < critical());
    }

    #[test]
    fn delays_have_bounds() {
        let jitter = Jitter::Pareto { scale: Duration::from_secs(50), shape: 0.1 };
        let found = delays(jitter, 4);
        assert!(found[0] >= 100.0 && found[PACKETS - 1] <= 60_000.0);
        let found = delays(Jitter::Normal { sigma: Duration::from_secs(1) }, 5);
        assert_eq!(found[0], 0.0);
    }

    #[test]
    fn bad_tables_are_named_by_line() {
        let error = |text| DelayTable::parse(text).unwrap_err().to_string();
        assert!(error("1\nNaN\n").contains("line 2: \"NaN\""));
        assert!(error("1e9\n").contains("line 1"));
        assert_eq!(DelayTable::parse("# nothing\n"), Err(DelayTableError::Empty));
    }
}
