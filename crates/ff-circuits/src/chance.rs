//! Seeds for tests with random numbers: fixed, so that results stay within their bounds, unless
//! `FF_TEST_SEED` sets another.

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

/// A generator whose seed is printed.
pub(crate) fn generator() -> ChaCha12Rng {
    let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15);
    eprintln!("FF_TEST_SEED={seed}");
    ChaCha12Rng::seed_from_u64(seed)
}
