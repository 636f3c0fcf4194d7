//! Seeds of tests that draw: what is by chance within its bounds today is so tomorrow, and
//! `FF_TEST_SEED` asks for another.

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

/// A generator whose seed is printed.
pub(crate) fn generator() -> ChaCha12Rng {
    let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15);
    eprintln!("FF_TEST_SEED={seed}");
    ChaCha12Rng::seed_from_u64(seed)
}
