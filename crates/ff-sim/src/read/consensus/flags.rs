//! A relay's flags as bits.

use crate::network::Flags;

/// A relay's flags, a bit each; flags that are not known here are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlagBits(u32);

impl FlagBits {
    /// It is a directory authority.
    pub const AUTHORITY: Self = Self(1);
    /// It must not be a circuit's last relay.
    pub const BAD_EXIT: Self = Self(1 << 1);
    /// It may be a circuit's last relay.
    pub const EXIT: Self = Self(1 << 2);
    /// It is fast enough for common circuits.
    pub const FAST: Self = Self(1 << 3);
    /// It may be a client's first relay.
    pub const GUARD: Self = Self(1 << 4);
    /// It keeps descriptors of onion services.
    pub const HS_DIR: Self = Self(1 << 5);
    /// It must be in a circuit's middle only.
    pub const MIDDLE_ONLY: Self = Self(1 << 6);
    /// Its nickname is registered as its own (until 2017).
    pub const NAMED: Self = Self(1 << 7);
    /// Authorities do not agree on its Ed25519 identity.
    pub const NO_ED_CONSENSUS: Self = Self(1 << 8);
    /// It runs.
    pub const RUNNING: Self = Self(1 << 9);
    /// It is there for long enough for circuits that last.
    pub const STABLE: Self = Self(1 << 10);
    /// Its descriptor is old.
    pub const STALE_DESC: Self = Self(1 << 11);
    /// It is one of many relays that somebody has started at once.
    pub const SYBIL: Self = Self(1 << 12);
    /// Its nickname is registered as another's (until 2017).
    pub const UNNAMED: Self = Self(1 << 13);
    /// It answers to what directory clients ask.
    pub const V2_DIR: Self = Self(1 << 14);
    /// It should be used.
    pub const VALID: Self = Self(1 << 15);

    /// All of them, with the word for each.
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

    /// Those of a line's words.
    pub(super) fn of<'a>(words: impl Iterator<Item = &'a [u8]>) -> Self {
        words.map(Self::of_word).fold(Self::default(), |all, one| Self(all.0 | one.0))
    }

    /// That of a word; none if it is not known.
    fn of_word(word: &[u8]) -> Self {
        // Written out, because this is looked up fifty thousand times a consensus.
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

    /// Whether all of these are among them.
    #[must_use]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Those of a table's bits; bits that mean nothing are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, for tables.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl From<FlagBits> for Flags {
    /// `v2dir` stays open, as it does in networks from `ff_dir`'s reader.
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
