//! Whether a consensus is one to go by: of this network, signed, whole, and of now.
//!
//! The signatures are checked by Arti's tor-netdoc: more than half of the configured authorities
//! must have signed, each with a key that its certificate vouches for.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_base::utc::Utc;
use tor_checkable::{ExternallySigned, Timebound as _};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::{AuthCert, AuthCertKeyIds, AuthCertUnverified};
use tor_netdoc::doc::netstatus::{MdConsensus, PlainConsensus};
use tor_netdoc::parse2::{ParseInput, parse_netdoc};

use super::head::{Flavor, Head, signing_keys};

/// How far ahead of our clock a consensus may be. Authorities' clocks agree within minutes, and so
/// should ours.
const MAX_AHEAD_SECS: u64 = 30 * 60;

/// Why a consensus is not one to go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The document is not a consensus of this flavour.
    #[error("this is not a consensus of the flavour {}", .0.name())]
    NotConsensus(Flavor),
    /// The document's end is missing.
    #[error("the consensus ends too early: it has no signatures")]
    Cut,
    /// The document cannot be read.
    #[error("the consensus cannot be read: {0}")]
    Unreadable(String),
    /// The document's time is in the future.
    #[error("the consensus is from the future, of {}: is this machine's clock right?", time(*.0))]
    FromTheFuture(u64),
    /// The document has expired.
    #[error("the consensus expired at {}", time(*.0))]
    Expired(u64),
    /// There is one as new already.
    #[error("its consensus of {} is not newer than the present one", time(*.0))]
    NotNewer(u64),
    /// The document is of another time than the one that it must match.
    #[error("the consensus is of {}, not of the same time as the other flavour's", time(*.0))]
    OtherTime(u64),
    /// Nobody whom we know has signed it.
    #[error("the consensus is another network's: no authority of ours has signed it")]
    OtherNetwork,
    /// Too few have signed it.
    #[error("only {0} of {1} authorities have signed the consensus")]
    TooFew(usize, usize),
    /// The certificates of those who have signed it are not there.
    #[error("certificates are missing of {} that signed the consensus", authorities(*.0))]
    NoCertificates(usize),
    /// A signature is wrong.
    #[error("a signature of the consensus is wrong")]
    BadSignature,
}

/// A time in messages.
fn time(secs: u64) -> String {
    Utc::from_unix_secs(secs).map_or_else(|error| error.to_string(), |time| time.to_string())
}

/// Authorities in messages.
fn authorities(count: usize) -> String {
    format!("{count} {}", if count == 1 { "authority" } else { "authorities" })
}

/// The certificates of authorities, which vouch for the keys that they sign with.
#[derive(Clone, Debug, Default)]
pub(super) struct Certificates {
    /// Each with its text.
    known: HashMap<AuthCertKeyIds, (AuthCert, String)>,
}

/// The first line of a certificate.
const CERTIFICATE_START: &str = "dir-key-certificate-version ";

impl Certificates {
    /// Takes those out of a text that are these authorities' and valid now; how many are new.
    pub(super) fn add(&mut self, text: &str, authorities: &[RsaIdentity], now_secs: u64) -> usize {
        let before = self.known.len();
        let now = UNIX_EPOCH + Duration::from_secs(now_secs);
        let starts = text.match_indices(CERTIFICATE_START).map(|(index, _)| index);
        let starts: Vec<_> =
            starts.filter(|&at| at == 0 || text.as_bytes()[at - 1] == b'\n').collect();
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(text.len());
            if let Some(certificate) = certificate(&text[start..end], authorities, now) {
                let known = (certificate, text[start..end].to_owned());
                self.known.insert(known.0.key_ids(), known);
            }
        }
        self.known.len() - before
    }

    /// Those among these keys, of these authorities, for which there is no certificate.
    pub(super) fn missing(
        &self,
        keys: &[AuthCertKeyIds],
        authorities: &[RsaIdentity],
    ) -> Vec<AuthCertKeyIds> {
        let is_missing = |key: &&AuthCertKeyIds| {
            authorities.contains(&key.id_fingerprint) && !self.known.contains_key(key)
        };
        keys.iter().filter(is_missing).copied().collect()
    }

    /// Their texts, in an order of their own.
    pub(super) fn text(&self) -> String {
        let mut texts: Vec<_> = self.known.iter().collect();
        texts.sort_by_key(|(ids, _)| **ids);
        texts.into_iter().map(|(_, (_, text))| text.as_str()).collect()
    }

    /// Forgets those that are not valid now.
    pub(super) fn forget_expired(&mut self, now_secs: u64) {
        let now = UNIX_EPOCH + Duration::from_secs(now_secs);
        self.known.retain(|_, (certificate, _)| certificate.expires() > now);
    }

    /// All of them.
    fn all(&self) -> Vec<AuthCert> {
        self.known.values().map(|(certificate, _)| certificate.clone()).collect()
    }
}

/// Reads a certificate; `None` unless it is good.
fn certificate(text: &str, authorities: &[RsaIdentity], now: SystemTime) -> Option<AuthCert> {
    let unverified: AuthCertUnverified =
        parse_netdoc(&ParseInput::new(text, "certificate")).ok()?;
    let certificate = unverified.verify_selfcert(now).ok()?;
    authorities.contains(certificate.id_fingerprint()).then_some(certificate)
}

/// Whether a text is a consensus of this flavour, and of a time to go by at `now_secs`.
pub(super) fn head(text: &str, flavor: Flavor, now_secs: u64) -> Result<Head, Refusal> {
    let head = Head::read(text).filter(|head| head.flavor == flavor);
    let head = head.ok_or(Refusal::NotConsensus(flavor))?;
    if head.valid_after_secs > now_secs.saturating_add(MAX_AHEAD_SECS) {
        return Err(Refusal::FromTheFuture(head.valid_after_secs));
    }
    Ok(head)
}

/// How many of these authorities a consensus says it is signed by, if they are enough.
pub(super) fn signers(
    text: &str,
    authorities: &[RsaIdentity],
) -> Result<Vec<AuthCertKeyIds>, Refusal> {
    let mut keys = signing_keys(text);
    if keys.is_empty() {
        return Err(Refusal::Cut);
    }
    keys.retain(|key| authorities.contains(&key.id_fingerprint));
    let is_signer = |id: &&RsaIdentity| keys.iter().any(|key| key.id_fingerprint == **id);
    match authorities.iter().filter(is_signer).count() {
        0 => Err(Refusal::OtherNetwork),
        signed if signed <= authorities.len() / 2 => {
            Err(Refusal::TooFew(signed, authorities.len()))
        }
        _ => Ok(keys),
    }
}

/// Checks the signatures of a consensus.
pub(super) fn verify(
    text: &str,
    flavor: Flavor,
    authorities: &[RsaIdentity],
    certificates: &Certificates,
) -> Result<(), Refusal> {
    let unreadable = |error: tor_netdoc::Error| Refusal::Unreadable(error.to_string());
    // Its times are looked at by [`head`] and by whoever wants it.
    match flavor {
        Flavor::Ns => {
            let (_, _, parsed) = PlainConsensus::parse(text).map_err(unreadable)?;
            let parsed = parsed.dangerously_assume_timely().set_n_authorities(authorities.len());
            check_signatures(&parsed, &certificates.all())
        }
        Flavor::Microdesc => {
            let (_, _, parsed) = MdConsensus::parse(text).map_err(unreadable)?;
            let parsed = parsed.dangerously_assume_timely().set_n_authorities(authorities.len());
            check_signatures(&parsed, &certificates.all())
        }
    }
}

/// Checks the signatures of one that has been parsed. All certificates are authorities' of ours, so
/// that who else has signed does not count.
fn check_signatures<T>(
    parsed: &impl ExternallySigned<T, Key = [AuthCert], KeyHint = Vec<AuthCertKeyIds>>,
    certificates: &[AuthCert],
) -> Result<(), Refusal> {
    let missing = parsed.key_is_correct(certificates).err();
    if let Some(missing) = missing {
        return Err(Refusal::NoCertificates(missing.len()));
    }
    parsed.is_well_signed(certificates).map_err(|_| Refusal::BadSignature)
}
