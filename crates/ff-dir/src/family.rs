//! Families by key (proposal 321): a family's key signs the identities of its relays, and the key
//! is the family's name.

use base64ct::{Base64, Base64Unpadded, Encoding};

/// A certificate of `family-cert`: a family's key has signed a relay's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyCert {
    /// The family's Ed25519 key.
    pub family: [u8; 32],
    /// The relay's Ed25519 identity.
    pub relay: [u8; 32],
}

impl FamilyCert {
    /// Reads the base64 between the first and the last line of the object (Tor's cert-spec;
    /// proposal 321: type 12, with the key that signed it in an extension); `None` if it is not
    /// such a certificate. Does not check its signature or the descriptor's: every tor that reads a
    /// descriptor, an authority too, checks them and rejects descriptors with a wrong certificate.
    #[must_use]
    pub fn parse(object: &str) -> Option<Self> {
        const FAMILY_V_IDENTITY: u8 = 12;
        const SIGNATURE_LEN: usize = 64;
        let text: String = object.split_ascii_whitespace().collect();
        let bytes = Base64::decode_vec(&text).ok()?;
        let (signed, _) = bytes.split_last_chunk::<SIGNATURE_LEN>()?;
        let ([1, FAMILY_V_IDENTITY, _, _, _, _, 1], rest) = signed.split_first_chunk()? else {
            return None;
        };
        let (&relay, rest) = rest.split_first_chunk::<32>()?;
        let (&count, mut rest) = rest.split_first()?;
        let mut family = None;
        for _ in 0..count {
            let ([high, low, kind, _flags], after) = rest.split_first_chunk()?;
            let len = u16::from_be_bytes([*high, *low]);
            let (data, after) = after.split_at_checked(len.into())?;
            if *kind == 4 {
                family = Some(data.try_into().ok()?);
            }
            rest = after;
        }
        Some(Self { family: family.filter(|_| rest.is_empty())?, relay })
    }
}

/// How a family's key is named in `family-ids`, and so here.
#[must_use]
pub fn family_id(key: &[u8; 32]) -> String {
    format!("ed25519:{}", Base64Unpadded::encode_string(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_named_by_its_key() {
        assert_eq!(family_id(&[0; 32]), format!("ed25519:{}", "A".repeat(43)));
    }
}
