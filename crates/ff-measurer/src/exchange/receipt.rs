//! Proof of arrival: a receiver states which packets of a block have arrived, with the exclusive-or
//! of their nonces.
//!
//! A nonce is known only to the sender and to a host that has the packet. So a receiver cannot
//! claim lost packets, neither to look better nor to keep the sender sending; the tags' key, which
//! all measurers have, does not help it.

use std::collections::VecDeque;
use std::time::Duration;

use ff_proto::units::MonoTime;
use siphasher::sip::SipHasher24;

use super::statement::Statement;

/// Largest number of packets in a block.
const BLOCK_PACKETS: u16 = 256;
/// How long a sender remembers a block; later proof does not count.
pub(super) const PROOF_TIME: Duration = Duration::from_secs(1);
/// How often a receiver repeats a statement, because receipts are lost as well.
const REPEATS: u8 = 3;
/// Number of blocks that a receiver remembers: those of a second at 10 Gbit/s in packets of 1452
/// bytes.
const INBOX_BLOCKS: u64 = 4096;

/// A data packet's block, and its word and bit in the block.
fn place(number: u64) -> (u64, usize, u64) {
    let index = number % u64::from(BLOCK_PACKETS);
    let word = usize::try_from(index / 64).unwrap_or(0);
    (number / u64::from(BLOCK_PACKETS), word, 1 << (index % 64))
}

/// The packets that were sent to a peer, with their proof.
pub(super) struct Ledger {
    /// Makes the nonces, with a key that only this host has.
    nonces: SipHasher24,
    /// The number of the first block in [`Self::blocks`].
    first: u64,
    /// The blocks that are remembered.
    blocks: VecDeque<Block>,
}

/// A block of packets that were sent in one tick.
struct Block {
    tick: u32,
    /// When its first packet was sent.
    began_at: MonoTime,
    /// Packets that were sent.
    sent: u16,
    proven: [u64; 4],
}

/// The verdict about a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// `packets` more packets of this tick have arrived.
    Proven { tick: u32, packets: u16 },
    /// It has nothing new, or is too late.
    Old,
    /// It claims packets that have not arrived.
    False,
}

impl Ledger {
    /// Empty, with nonces from this secret.
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        let nonces = SipHasher24::new_with_key(secret);
        Self { nonces, first: 0, blocks: VecDeque::new() }
    }

    /// Notes a packet to be sent in this tick; returns its number and nonce.
    pub(super) fn send(&mut self, tick: u32, now: MonoTime) -> (u64, u64) {
        let is_open = |block: &Block| block.tick == tick && block.sent < BLOCK_PACKETS;
        if !self.blocks.back().is_some_and(is_open) {
            self.forget(now);
            self.blocks.push_back(Block { tick, began_at: now, sent: 0, proven: [0; 4] });
        }
        let last = self.first + self.blocks.len() as u64 - 1;
        let block = self.blocks.back_mut().expect("one was pushed if there was none");
        let number = last * u64::from(BLOCK_PACKETS) + u64::from(block.sent);
        block.sent += 1;
        (number, self.nonce(number))
    }

    /// Checks a peer's statement.
    pub(super) fn check(&mut self, said: &Statement, now: MonoTime) -> Verdict {
        self.forget(now);
        let place =
            said.block.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(block) = place.and_then(|place| self.blocks.get(place)) else {
            return Verdict::Old;
        };
        let new: [u64; 4] = std::array::from_fn(|i| said.bits[i] & !block.proven[i]);
        let packets: u32 = new.iter().map(|bits| bits.count_ones()).sum();
        if packets == 0 {
            return Verdict::Old;
        }
        let (sent, tick) = (block.sent, block.tick);
        if self.proof(said, sent) != Some(said.proof) {
            return Verdict::False;
        }
        if let Some(block) = place.and_then(|place| self.blocks.get_mut(place)) {
            block.proven = std::array::from_fn(|i| block.proven[i] | new[i]);
        }
        Verdict::Proven { tick, packets: u16::try_from(packets).unwrap_or(BLOCK_PACKETS) }
    }

    /// The exclusive-or of the nonces of the claimed packets; `None` if one of them was not sent.
    fn proof(&self, said: &Statement, sent: u16) -> Option<u64> {
        let first = said.block * u64::from(BLOCK_PACKETS);
        let mut proof = 0;
        for (word, mut bits) in (0..).zip(said.bits) {
            while bits != 0 {
                let index = word * 64 + u64::from(bits.trailing_zeros());
                if index >= u64::from(sent) {
                    return None;
                }
                proof ^= self.nonce(first + index);
                bits &= bits - 1;
            }
        }
        Some(proof)
    }

    /// A packet's nonce.
    fn nonce(&self, number: u64) -> u64 {
        self.nonces.hash(&number.to_be_bytes())
    }

    /// Forgets blocks for which proof would be too late.
    fn forget(&mut self, now: MonoTime) {
        while self.blocks.front().is_some_and(|block| now.since(block.began_at) > PROOF_TIME) {
            self.blocks.pop_front();
            self.first += 1;
        }
    }
}

/// The packets that have arrived from a peer.
pub(super) struct Inbox {
    /// Blocks, each at its number modulo the length.
    blocks: Vec<Got>,
    /// The highest number that has arrived.
    newest: Option<u64>,
    /// Blocks with statements to send.
    owed: VecDeque<u64>,
    /// How many of them are due now.
    due: usize,
}

/// The packets of a block that have arrived.
#[derive(Clone, Copy, Default)]
struct Got {
    block: u64,
    /// A bit for each packet that has arrived.
    bits: [u64; 4],
    /// The exclusive-or of their nonces.
    proof: u64,
    /// How often its statement has still to be sent.
    to_say: u8,
    /// Whether it is among the owed ones.
    is_owed: bool,
}

/// The kind of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Newer than all others.
    InOrder,
    /// New, but packets sent later have arrived before it.
    Reordered,
    /// It had arrived already.
    Duplicate,
    /// Too old to tell.
    TooOld,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let blocks = vec![Got::default(); usize::try_from(INBOX_BLOCKS).unwrap_or(0)];
        Self { blocks, newest: None, owed: VecDeque::new(), due: 0 }
    }

    /// Notes a packet that has arrived.
    pub(super) fn receive(&mut self, number: u64, nonce: u64) -> Arrival {
        let (block, word, bit) = place(number);
        let newest = self.newest.map_or(0, |newest| place(newest).0);
        if block.saturating_add(INBOX_BLOCKS) <= newest {
            return Arrival::TooOld;
        }
        let got = &mut self.blocks[usize::try_from(block % INBOX_BLOCKS).unwrap_or(0)];
        if got.block != block {
            *got = Got { block, is_owed: false, ..Got::default() };
        }
        if got.bits[word] & bit != 0 {
            return Arrival::Duplicate;
        }
        got.bits[word] |= bit;
        got.proof ^= nonce;
        got.to_say = REPEATS;
        if !std::mem::replace(&mut got.is_owed, true) {
            self.owed.push_back(block);
        }
        // A peer to which no receipt can be sent yet may continue without end.
        if self.owed.len() > self.blocks.len() {
            self.owed.pop_front();
        }
        let is_newest = self.newest.is_none_or(|newest| number > newest);
        self.newest = self.newest.max(Some(number));
        if is_newest { Arrival::InOrder } else { Arrival::Reordered }
    }

    /// Makes all owed statements due.
    pub(super) fn tick(&mut self) {
        self.due = self.owed.len();
    }

    /// The next statement that is due.
    pub(super) fn say(&mut self) -> Option<Statement> {
        while self.due > 0 {
            self.due -= 1;
            let block = self.owed.pop_front()?;
            let got = &mut self.blocks[usize::try_from(block % INBOX_BLOCKS).unwrap_or(0)];
            if got.block != block || !got.is_owed {
                continue;
            }
            got.to_say = got.to_say.saturating_sub(1);
            got.is_owed = got.to_say > 0;
            if got.is_owed {
                self.owed.push_back(block);
            }
            return Some(Statement { block, bits: got.bits, proof: got.proof });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from(Duration::from_millis(millis))
    }

    #[test]
    fn every_packet_that_comes_is_proven_once_in_its_tick() {
        let (mut ledger, mut inbox) = (Ledger::new(&[1; 16]), Inbox::new());
        for packet in 0..1000 {
            let (number, nonce) = ledger.send(packet / 500, at(0));
            if packet % 10 != 3 {
                assert_eq!(inbox.receive(number, nonce), Arrival::InOrder);
                assert_eq!(inbox.receive(number, nonce), Arrival::Duplicate);
            }
        }
        let mut proven = [0, 0];
        for _ in 0..4 {
            inbox.tick();
            while let Some(said) = inbox.say() {
                match ledger.check(&said, at(100)) {
                    Verdict::Proven { tick, packets } => proven[tick as usize] += packets,
                    verdict => assert_eq!(verdict, Verdict::Old),
                }
            }
        }
        assert_eq!(proven, [450, 450]);
        inbox.tick();
        assert_eq!(inbox.say(), None, "all has been said often enough");
    }

    #[test]
    fn proof_that_comes_too_late_is_worth_nothing() {
        let (mut ledger, mut inbox) = (Ledger::new(&[1; 16]), Inbox::new());
        let (number, nonce) = ledger.send(0, at(0));
        inbox.receive(number, nonce);
        inbox.tick();
        let said = inbox.say().unwrap();
        assert_eq!(ledger.check(&said, at(1001)), Verdict::Old);
    }

    #[test]
    fn who_is_told_nothing_takes_no_more_memory_for_it() {
        let mut inbox = Inbox::new();
        for block in 0..100_000 {
            inbox.receive(block * u64::from(BLOCK_PACKETS), 1);
        }
        assert!(inbox.owed.len() <= 4096);
        inbox.tick();
        assert_eq!(inbox.say().map(|said| said.block), Some(100_000 - 4096));
    }

    #[test]
    fn far_jumps_of_the_numbers_do_no_harm() {
        let mut inbox = Inbox::new();
        assert_eq!(inbox.receive(u64::MAX, 1), Arrival::InOrder);
        assert_eq!(inbox.receive(0, 1), Arrival::TooOld);
        assert_eq!(inbox.receive(u64::MAX - 1, 1), Arrival::Reordered);
        let ledger = &mut Ledger::new(&[1; 16]);
        ledger.send(0, at(0));
        for block in [0, 1, u64::MAX] {
            let said = Statement { block, bits: [u64::MAX; 4], proof: 0 };
            assert_ne!(ledger.check(&said, at(0)), Verdict::Proven { tick: 0, packets: 1 });
        }
    }

    proptest! {
        #[test]
        fn nobody_proves_a_packet_that_has_not_come(
            lost in 0_u64..300, count in 1_u64..300, guess: u64, bits: [u64; 4],
        ) {
            let (mut ledger, mut inbox) = (Ledger::new(&[1; 16]), Inbox::new());
            for index in 0..count.max(lost + 1) {
                let (number, nonce) = ledger.send(0, at(0));
                if index != lost { inbox.receive(number, nonce); }
            }
            inbox.tick();
            let (block, word, bit) = place(lost);
            while let Some(mut said) = inbox.say() {
                if said.block == block {
                    said.bits[word] |= bit;
                    for proof in [said.proof, guess, 0] {
                        prop_assert_eq!(
                            ledger.check(&Statement { proof, ..said }, at(1)), Verdict::False);
                    }
                }
            }
            let verdict = ledger.check(&Statement { block, bits, proof: guess }, at(1));
            let is_proven = matches!(verdict, Verdict::Proven { .. });
            prop_assert!(!is_proven);
        }
    }
}
