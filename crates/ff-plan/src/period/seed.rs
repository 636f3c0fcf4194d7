//! Random numbers for schedules (FlashFlow, §4.3).
//!
//! Decisions: doc/decisions.md, "Coordinators agree on the schedule without talking".

use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The purpose of the seed, an input of its derivation.
const INFO: &[u8] = b"flashflow-schedule-1";

/// The seed of a period: HKDF-SHA256 of the network's shared random value (srv-spec) as salt and
/// the coordinators' common secret. From the value alone anyone could compute when a relay is
/// measured; with the secret alone the coordinator that chooses it could choose the schedule.
#[must_use]
pub fn of_period(shared_random: &[u8; 32], secret: &[u8], period: u64) -> Zeroizing<[u8; 32]> {
    let mut seed = Zeroizing::new([0; 32]);
    let info = [INFO, &period.to_be_bytes()].concat();
    // It only fails for more than 255 blocks.
    let _ = Hkdf::<Sha256>::new(Some(shared_random), secret).expand(&info, seed.as_mut());
    seed
}

/// A relay's position in an order that no party can choose: SHA-256(seed | fingerprint).
#[must_use]
pub fn mixed(seed: &[u8; 32], relay: &[u8; 20]) -> [u8; 32] {
    Sha256::new().chain_update(seed).chain_update(relay).finalize().into()
}

/// Random numbers for one group of relays and one coordinator. They depend on nothing else, so one
/// additional relay in a coordinator's list changes little in the others'.
#[derive(Debug)]
pub(super) struct Draws {
    /// The hash of all inputs except the counter.
    hash: Sha256,
    /// The number of numbers drawn.
    count: u32,
}

impl Draws {
    /// The numbers for this group, named by its least fingerprint, and this coordinator.
    pub(super) fn new(seed: &[u8; 32], group: &[u8; 20], coordinator: &[u8; 32]) -> Self {
        let hash = Sha256::new().chain_update(seed).chain_update(group).chain_update(coordinator);
        Self { hash, count: 0 }
    }

    /// The same, from the counter `count` on.
    pub(super) fn from(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// A random number below `count`, which must not be 0: the first 64 bits of SHA-256(seed |
    /// group | coordinator | counter), scaled. Its bias is below `count` / 2^64.
    pub(super) fn below(&mut self, count: usize) -> usize {
        let digest = self.hash.clone().chain_update(self.count.to_be_bytes()).finalize();
        self.count = self.count.wrapping_add(1);
        let bits = digest.iter().take(8).fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        usize::try_from((u128::from(bits) * count as u128) >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_depend_on_all_three() {
        let seed = of_period(&[1; 32], b"secret", 7);
        assert_ne!(seed, of_period(&[2; 32], b"secret", 7));
        assert_ne!(seed, of_period(&[1; 32], b"Secret", 7));
        assert_ne!(seed, of_period(&[1; 32], b"secret", 8));
        assert_eq!(seed, of_period(&[1; 32], b"secret", 7));
    }

    #[test]
    fn draws_are_even_and_in_range() {
        let mut draws = Draws::new(&[3; 32], &[4; 20], &[5; 32]);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[draws.below(7)] += 1;
        }
        // Chi-square with 6 degrees of freedom: above 22.5 once in 1,000 random samples.
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 22.5, "{counts:?}: {chi}");
        assert_eq!(draws.below(1), 0);
    }
}
