//! A relay's flags as bits.

use crate::network::Flags;

/// A relay's flags, one bit each; unknown flags are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlagBits(u32);

impl FlagBits {
    /// A directory authority.
    pub const AUTHORITY: Self = Self(1);
    /// Must not be a circuit's last relay.
    pub const BAD_EXIT: Self = Self(1 << 1);
    /// Suitable as a circuit's last relay.
    pub const EXIT: Self = Self(1 << 2);
    /// Suitable for high-bandwidth circuits.
    pub const FAST: Self = Self(1 << 3);
    /// Suitable as a client's first relay.
    pub const GUARD: Self = Self(1 << 4);
    /// Stores descriptors of onion services.
    pub const HS_DIR: Self = Self(1 << 5);
    /// May only be in the middle of circuits.
    pub const MIDDLE_ONLY: Self = Self(1 << 6);
    /// Its nickname is registered for it (until 2017).
    pub const NAMED: Self = Self(1 << 7);
    /// Authorities disagree on its Ed25519 identity.
    pub const NO_ED_CONSENSUS: Self = Self(1 << 8);
    /// The relay is running.
    pub const RUNNING: Self = Self(1 << 9);
    /// Suitable for long-lived circuits.
    pub const STABLE: Self = Self(1 << 10);
    /// Its descriptor is outdated.
    pub const STALE_DESC: Self = Self(1 << 11);
    /// One of many relays that were started at once.
    pub const SYBIL: Self = Self(1 << 12);
    /// Its nickname is registered for another relay (until 2017).
    pub const UNNAMED: Self = Self(1 << 13);
    /// Serves directory requests.
    pub const V2_DIR: Self = Self(1 << 14);
    /// The relay is valid and should be used.
    pub const VALID: Self = Self(1 << 15);

    /// All flags with their names.
    pub const ALL: [(&'static str, Self); 16] = [
        ("Authority", Self::AUTHORITY),
        ("BadExit", Self::BAD_EXIT),
        ("Exit", Self::EXIT),
        ("Fast", Self::FAST),
        ("Guard", Self::GUARD),
        ("HSDir", Self::HS_DIR),
        ("MiddleOnly", Self::MIDDLE_ONLY),
        ("Named", Self::NAMED),
        ("NoEdConsensus", Self::NO_ED_CONSENSUS),
        ("Running", Self::RUNNING),
        ("Stable", Self::STABLE),
        ("StaleDesc", Self::STALE_DESC),
        ("Sybil", Self::SYBIL),
        ("Unnamed", Self::UNNAMED),
        ("V2Dir", Self::V2_DIR),
        ("Valid", Self::VALID),
    ];

    /// The flags named by the words of a line.
    pub(super) fn of<'a>(words: impl Iterator<Item = &'a [u8]>) -> Self {
        words.map(Self::of_word).fold(Self::default(), |all, one| Self(all.0 | one.0))
    }

    /// The flag with this name; no flag if it is unknown.
    fn of_word(word: &[u8]) -> Self {
        // Written out, because it runs fifty thousand times per consensus.
        match word {
            b"Authority" => Self::AUTHORITY,
            b"BadExit" => Self::BAD_EXIT,
            b"Exit" => Self::EXIT,
            b"Fast" => Self::FAST,
            b"Guard" => Self::GUARD,
            b"HSDir" => Self::HS_DIR,
            b"MiddleOnly" => Self::MIDDLE_ONLY,
            b"Named" => Self::NAMED,
            b"NoEdConsensus" => Self::NO_ED_CONSENSUS,
            b"Running" => Self::RUNNING,
            b"Stable" => Self::STABLE,
            b"StaleDesc" => Self::STALE_DESC,
            b"Sybil" => Self::SYBIL,
            b"Unnamed" => Self::UNNAMED,
            b"V2Dir" => Self::V2_DIR,
            b"Valid" => Self::VALID,
            _ => Self::default(),
        }
    }

    /// Whether all of these flags are set.
    #[must_use]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Flags from stored bits; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, for storage.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl From<FlagBits> for Flags {
    /// `v2dir` stays `false`, as in networks from `ff_dir`'s reader.
    fn from(bits: FlagBits) -> Self {
        Self {
            running: bits.has(FlagBits::RUNNING),
            guard: bits.has(FlagBits::GUARD),
            exit: bits.has(FlagBits::EXIT),
            bad_exit: bits.has(FlagBits::BAD_EXIT),
            fast: bits.has(FlagBits::FAST),
            stable: bits.has(FlagBits::STABLE),
            authority: bits.has(FlagBits::AUTHORITY),
            v2dir: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_its_own_bit() {
        let mut all = 0;
        for (word, flag) in FlagBits::ALL {
            assert_eq!(FlagBits::of([word.as_bytes()].into_iter()), flag, "{word}");
            assert_eq!((flag.bits().count_ones(), all & flag.bits()), (1, 0), "{word}");
            all |= flag.bits();
        }
        let some = FlagBits::of([&b"Exit"[..], b"Odd", b"\xff", b"Running"].into_iter());
        assert!(some.has(FlagBits::EXIT) && some.has(FlagBits::RUNNING));
        assert!(!some.has(FlagBits::GUARD) && some.bits().count_ones() == 2);
    }
}
