//! Finds relays by a part of their names, for the page and for `explain`.

use ff_base::identity::Fingerprint;

/// A search for a part of a nickname or the beginning of a fingerprint. Case is ignored.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// The text in lower case, without blanks.
    text: String,
}

impl Search {
    /// A search for this text. tor writes fingerprints in groups of four digits, sometimes with a
    /// dollar sign.
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.replace(' ', "").to_lowercase() }
    }

    /// Whether the relay with this fingerprint and nickname matches; the nickname is in lower case,
    /// and empty if there is none. An empty text matches all relays.
    pub(crate) fn finds(&self, fingerprint: &Fingerprint, lowercase_nickname: &str) -> bool {
        let digits = self.text.strip_prefix('$').unwrap_or(&self.text);
        lowercase_nickname.contains(&self.text) || hex::encode(fingerprint).starts_with(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_found_by_a_part_of_its_nickname_or_the_beginning_of_its_fingerprint() {
        let finds = |text: &str| Search::new(text).finds(&[0xab; 20], "ärger1");
        for text in ["", "ÄRGER1", "ger", "r 1", "abab", "ABAB abab", "$ABAB", &"ab".repeat(20)] {
            assert!(finds(text), "{text:?}");
        }
        for text in ["ba", "$ger", "ger2", &"ab".repeat(21), "%"] {
            assert!(!finds(text), "{text:?}");
        }
        assert!(!Search::new("x").finds(&[0xab; 20], ""));
    }
}
