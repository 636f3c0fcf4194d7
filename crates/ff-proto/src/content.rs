//! The content of cells, and how a returned one is checked without storing it.
//!
//! A link's content is the keystream of a secret key that never leaves the measurer: cell i has the
//! bytes from 509·i on. With AES-128-CTR the target adds the forward keystream at the same offset;
//! with CGO its result also depends on the tag of the cell that it returned before. So the measurer
//! can compute what must come back for any i (PROTOCOL.md §6). Another secret keystream draws the
//! cells to check, so the target does not know them.
//!
//! Decisions: doc/decisions.md, "Checks are drawn when cells return".

use core::mem;

use crate::cell::{BODY_LEN, Body};
use crate::cgo::{Cgo, TAG_LEN, Tag};
use crate::circuit::{ForwardKey, Passage};
use crate::keystream::Keystream;

/// Makes the content of one link's cells, in order.
#[derive(Debug)]
pub struct Content {
    /// The content keystream at the next cell.
    keystream: Keystream,
}

impl Content {
    /// The content of a link with this secret.
    #[must_use]
    pub fn new(secret: &[u8; 16]) -> Self {
        Self { keystream: Keystream::new(secret) }
    }

    /// Writes the next cell's body.
    #[inline]
    pub fn fill(&mut self, body: &mut Body) {
        self.keystream.fill(body);
    }
}

/// Computes what must come back.
#[derive(Debug)]
pub struct Checker {
    /// The link's content.
    content: Keystream,
    /// The target's encryption of it.
    forward: Forward,
    /// The cells' command.
    command: u8,
    /// The number of cells that have passed with the target's key before.
    first_cell: u64,
}

/// The target's encryption of a cell.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a checker is boxed as a whole, once a link")]
enum Forward {
    /// Adds the keystream at the same offset.
    Aes128Ctr(Keystream),
    /// Encrypts it together with the previous cell's tag.
    CgoAes128(Cgo),
}

impl Checker {
    /// A checker for the circuit with this content secret and this encryption by the target.
    #[must_use]
    pub fn new(secret: &[u8; 16], passage: &Passage) -> Self {
        let forward = match &passage.key {
            ForwardKey::Aes128Ctr(key) => Forward::Aes128Ctr(Keystream::new(key)),
            ForwardKey::CgoAes128(key) => Forward::CgoAes128(Cgo::new(key)),
        };
        let &Passage { command, first_cell, .. } = passage;
        Self { content: Keystream::new(secret), forward, command, first_cell }
    }

    /// The body that the echo of cell `index` must have.
    ///
    /// `before` are the first bytes of the body that was returned before it, right or wrong; for
    /// cell 0 the passage's tag. With AES-128-CTR they are not used.
    #[must_use]
    pub fn expected(&mut self, index: u64, before: &Tag) -> Body {
        let mut body = self.content(index);
        match &mut self.forward {
            Forward::Aes128Ctr(keystream) => {
                keystream.seek(offset(index.wrapping_add(self.first_cell)));
                keystream.apply(&mut body);
            }
            Forward::CgoAes128(cgo) => {
                cgo.set_tag(*before);
                cgo.forward(self.command, &mut body);
            }
        }
        body
    }

    /// Whether `body` is the echo of cell `index`, whatever was returned before it.
    #[must_use]
    pub fn is_echo_of(&mut self, index: u64, body: &Body) -> bool {
        match &mut self.forward {
            Forward::Aes128Ctr(_) => self.expected(index, &[0; TAG_LEN]) == *body,
            Forward::CgoAes128(cgo) => {
                let mut body = *body;
                cgo.reveal(&mut body);
                self.content(index)[TAG_LEN..] == body[TAG_LEN..]
            }
        }
    }

    /// The body of cell `index` as it was sent.
    fn content(&mut self, index: u64) -> Body {
        let mut body = [0; BODY_LEN];
        self.content.seek(offset(index));
        self.content.fill(&mut body);
        body
    }
}

/// The offset of a cell's content.
fn offset(index: u64) -> u64 {
    index.wrapping_mul(BODY_LEN as u64)
}

/// The expected number of checks even with few cells: forging a hundredth of any number of cells
/// then remains undetected with a probability below 0.99^300 = 5 %.
const CHECKS_AT_LEAST: f64 = 300.0;

/// Draws the cells to check, independently of each other.
///
/// The probability of a cell is at least the requested one, and 300 / n for the n-th that comes
/// back on all links that are counted together (PROTOCOL.md §6).
#[derive(Debug)]
pub struct Sampler {
    /// Source of the draws.
    keystream: Keystream,
    /// The least probability.
    probability: f64,
    /// The next cell to check.
    next: u64,
}

impl Sampler {
    /// A sampler that checks a cell with at least `probability`, which is clamped to [1e-9, 1].
    #[must_use]
    pub fn new(secret: &[u8; 16], probability: f64) -> Self {
        let probability = probability.clamp(1e-9, 1.0);
        Self { keystream: Keystream::new(secret), probability, next: 0 }
    }

    /// The next cell to check.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Draws the next sample when `echoed_in_all` cells have come back in total; if that is fewer
    /// than on this link, the link's own count is used.
    pub fn advance(&mut self, echoed_in_all: u64) {
        let behind = self.next.saturating_add(1);
        let number = behind.saturating_add(1).max(echoed_in_all);
        self.next = behind.saturating_add(self.gap(number));
    }

    /// The number of cells to skip: geometrically distributed, by inversion, with the probability
    /// of the `number`-th cell in total. Later cells need a lower probability, so theirs is higher
    /// than needed.
    fn gap(&mut self, number: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "cells of one measurement are below 2^53")]
        let probability = self.probability.max(CHECKS_AT_LEAST / number as f64);
        if probability >= 1.0 {
            return 0;
        }
        let mut bytes = [0; mem::size_of::<u64>()];
        self.keystream.fill(&mut bytes);
        #[expect(clippy::cast_precision_loss, reason = "53 random bits are what a float holds")]
        let uniform = ((u64::from_be_bytes(bytes) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the quotient of two negative numbers; the cast saturates"
        )]
        let gap = (uniform.ln() / (-probability).ln_1p()) as u64;
        gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{CircuitKeys, EchoCircuit};

    /// Keys of each cipher.
    fn all_keys() -> [CircuitKeys; 2] {
        [ForwardKey::Aes128Ctr([9; 16]), ForwardKey::CgoAes128([9; 80])]
            .map(|forward| CircuitKeys { forward, confirmation: [0; 32] })
    }

    #[test]
    fn the_checker_knows_what_an_honest_target_returns() {
        for keys in all_keys() {
            let (mut content, mut target) = (Content::new(&[4; 16]), EchoCircuit::new(1, &keys));
            let mut checker = Checker::new(&[4; 16], &keys.passage());
            let mut before = [0; TAG_LEN];
            for index in 0..300 {
                let mut body = [0; BODY_LEN];
                content.fill(&mut body);
                target.echo(&mut body);
                if index % 7 == 0 {
                    assert_eq!(checker.expected(index, &before), body);
                    assert!(checker.is_echo_of(index, &body));
                    assert!(!checker.is_echo_of(index + 1, &body));
                }
                before.copy_from_slice(&body[..TAG_LEN]);
            }
        }
    }

    #[test]
    fn with_cgo_a_cell_is_right_only_behind_the_one_it_was_made_behind() {
        let [_, keys] = all_keys();
        let mut checker = Checker::new(&[4; 16], &keys.passage());
        assert_ne!(checker.expected(5, &[1; TAG_LEN]), checker.expected(5, &[2; TAG_LEN]));
    }

    #[test]
    fn cells_are_sampled_with_the_probability_asked_for() {
        for probability in [1.0, 0.5, 0.01] {
            let mut sampler = Sampler::new(&[1; 16], probability);
            let draws = 20_000_u32;
            for _ in 0..draws {
                sampler.advance(u64::MAX);
            }
            // The mean gap's relative standard error is below 1/sqrt(20000) = 0.7 %; the bound is 4
            // of them.
            let mean = sampler.next() as f64 / f64::from(draws);
            assert!((mean * probability - 1.0).abs() < 0.03, "p {probability}: mean gap {mean}");
        }
    }

    #[test]
    fn the_first_300_cells_are_all_checked_and_then_fewer() {
        let checks = |until, links| {
            let mut sampler = Sampler::new(&[1; 16], 1e-9);
            let mut checks = 0_u32;
            while sampler.next() < until {
                checks += 1;
                sampler.advance((sampler.next() + 1) * links);
            }
            checks
        };
        assert_eq!((checks(300, 1), checks(15, 20)), (300, 15));
        // 300 * (1 + ln(n / 300)), with a standard deviation below its square root.
        let expected = 300.0 * (1.0 + (1e6 / 300.0_f64).ln());
        assert!((f64::from(checks(1_000_000, 1)) - expected).abs() < 4.0 * expected.sqrt());
        let of_20 = f64::from(checks(50_000, 20));
        assert!((of_20 - expected / 20.0).abs() < 4.0 * (expected / 20.0).sqrt(), "{of_20}");
    }
}
