//! A network made up for tests: authorities that sign, and servers that do what they are told.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64ct::{Base64, Base64Unpadded, Encoding, LineEnding};
use ff_base::identity::Fingerprint;
use ff_base::utc::Utc;
use sha2::{Digest as _, Sha256};
use tor_llcrypto::d::Sha1;
use tor_llcrypto::pk::rsa::{KeyPair, RsaIdentity};

use super::ask::{Ask, AskError, Request, Servers};
use super::head::Flavor;
use super::parts::tests::descriptor;
use super::parts::{Microdescriptor, Part as _, ServerDescriptor};

/// A time in the tests: 2026-11-22 18:00:00.
pub(super) const HOUR: u64 = 1_795_370_400;

/// An authority.
pub(super) struct Authority {
    /// The key that it is known by.
    identity: KeyPair,
    /// The key that it signs with.
    signing: KeyPair,
}

impl Authority {
    /// One with keys by chance.
    pub(super) fn new() -> Self {
        let key = || KeyPair::generate(&mut rand::rng()).expect("a key");
        Self { identity: key(), signing: key() }
    }

    /// Its identity.
    pub(super) fn id(&self) -> RsaIdentity {
        self.identity.to_public_key().to_rsa_identity()
    }

    /// Its certificate, valid throughout 2026 and 2027.
    pub(super) fn certificate(&self) -> String {
        let key = |key: &KeyPair| object("RSA PUBLIC KEY", &key.to_public_key().to_der());
        let cross = self.signing.sign(self.id().as_bytes()).expect("a signature");
        let text = format!(
            "dir-key-certificate-version 3\nfingerprint {}\ndir-key-published 2026-01-01 00:00:00\n\
             dir-key-expires 2028-01-01 00:00:00\ndir-identity-key\n{}dir-signing-key\n{}\
             dir-key-crosscert\n{}dir-key-certification\n",
            hex::encode_upper(self.id().as_bytes()),
            key(&self.identity),
            key(&self.signing),
            object("ID SIGNATURE", &cross),
        );
        let signature = self.identity.sign(&Sha1::digest(text.as_bytes())).expect("a signature");
        text + &object("SIGNATURE", &signature)
    }

    /// Signs a consensus, whose last word so far is `directory-signature `.
    fn sign(&self, text: &str, flavor: Flavor) -> String {
        let (algorithm, digest) = match flavor {
            Flavor::Ns => ("", Sha1::digest(text.as_bytes()).to_vec()),
            Flavor::Microdesc => ("sha256 ", Sha256::digest(text.as_bytes()).to_vec()),
        };
        format!(
            "directory-signature {algorithm}{} {}\n{}",
            hex::encode_upper(self.id().as_bytes()),
            hex::encode_upper(self.signing.to_public_key().to_rsa_identity().as_bytes()),
            object("SIGNATURE", &self.signing.sign(&digest).expect("a signature")),
        )
    }
}

/// Bytes between lines that say what they are.
fn object(label: &str, bytes: &[u8]) -> String {
    let mut buffer = vec![0; bytes.len() * 2 + 64];
    let mut encoder = base64ct::Encoder::<Base64>::new_wrapped(&mut buffer, 64, LineEnding::LF)
        .expect("an encoder");
    encoder.encode(bytes).expect("encoded");
    let text = encoder.finish().expect("finished");
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// A time as documents have it.
fn time(secs: u64) -> String {
    Utc::from_unix_secs(secs).expect("a time").to_string().replace('T', " ")
}

/// A network of one moment.
pub(super) struct Network {
    /// Its authorities.
    pub(super) authorities: Vec<Authority>,
    /// Its relays' descriptors and microdescriptors, in the order of their fingerprints.
    pub(super) relays: Vec<(Fingerprint, String, String)>,
}

impl Network {
    /// One with so many authorities and relays; each relay's documents have so many bytes more.
    pub(super) fn new(authorities: usize, relays: u32, padding: usize) -> Self {
        let relay = |number: u32| {
            let mut fingerprint = [0; 20];
            fingerprint[..4].copy_from_slice(&number.to_be_bytes());
            let family = format!("family {}\n", "x".repeat(padding));
            let key = Base64Unpadded::encode_string(&fingerprint);
            let micro = format!("onion-key\nntor-onion-key {key}\n");
            (fingerprint, descriptor(fingerprint, &family), micro)
        };
        Self {
            authorities: (0..authorities).map(|_| Authority::new()).collect(),
            relays: (0..relays).map(relay).collect(),
        }
    }

    /// Its authorities' identities.
    pub(super) fn ids(&self) -> Vec<RsaIdentity> {
        self.authorities.iter().map(Authority::id).collect()
    }

    /// All certificates.
    pub(super) fn certificates(&self) -> String {
        self.authorities.iter().map(Authority::certificate).collect()
    }

    /// Its consensus of this time, signed by the first so many authorities.
    pub(super) fn consensus(
        &self,
        flavor: Flavor,
        valid_after_secs: u64,
        signers: usize,
    ) -> String {
        let name = if flavor == Flavor::Ns { "" } else { " microdesc" };
        let mut text = format!(
            "network-status-version 3{name}\nvote-status consensus\nconsensus-method 33\nvalid-after {}\n\
             fresh-until {}\nvalid-until {}\nvoting-delay 300 300\nclient-versions \nserver-versions \n\
             known-flags Fast Running Valid\nrecommended-client-protocols Link=5\n\
             recommended-relay-protocols Link=5\nrequired-client-protocols Link=5\n\
             required-relay-protocols Link=5\nparams x=1\n",
            time(valid_after_secs),
            time(valid_after_secs + 3600),
            time(valid_after_secs + 3 * 3600),
        );
        for authority in &self.authorities {
            let id = hex::encode_upper(authority.id().as_bytes());
            text += &format!(
                "dir-source auth {id} 192.0.2.1 192.0.2.1 80 443\ncontact x\nvote-digest {id}\n"
            );
        }
        for (fingerprint, descriptor, micro) in &self.relays {
            let id = Base64Unpadded::encode_string(fingerprint);
            let digest = Base64Unpadded::encode_string(&ServerDescriptor::digest(descriptor));
            let digest = if flavor == Flavor::Ns { format!(" {digest}") } else { String::new() };
            text += &format!("r x {id}{digest} 2026-11-22 17:00:00 192.0.2.1 443 0\n");
            if flavor == Flavor::Microdesc {
                let digest = Base64Unpadded::encode_string(&Microdescriptor::digest(micro));
                text += &format!("m {digest}\n");
            }
            text += "s Fast Running Valid\nv Tor 0.4.9.6\npr Link=5\nw Bandwidth=20\n";
            if flavor == Flavor::Ns {
                text += "p reject 1-65535\n";
            }
        }
        text += "directory-footer\nbandwidth-weights Wbd=0\ndirectory-signature ";
        let signatures = self.authorities.iter().take(signers);
        let signatures: String =
            signatures.map(|authority| authority.sign(&text, flavor)).collect();
        text.strip_suffix("directory-signature ").expect("its end").to_owned() + &signatures
    }
}

/// The behaviour of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Does {
    /// Gives the documents that it has.
    Right,
    /// Cannot be reached.
    Fail,
    /// Never answers.
    Hang,
    /// Gives descriptors with a byte changed.
    Damage,
    /// Gives all that it has, regardless of the request.
    GiveAll,
    /// Gives only the first half of the requested documents.
    GiveHalf,
    /// Has only consensuses.
    HaveNothing,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FakeServer(pub(super) u8, pub(super) Does);

impl fmt::Display for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.0)
    }
}

/// Caches that do this, and an authority that does that.
pub(super) fn servers(caches: &[Does], authority: Does) -> Servers<FakeServer> {
    let numbered = (1..).zip(caches).map(|(number, does)| FakeServer(number, *does));
    Servers { caches: numbered.collect(), authorities: vec![FakeServer(0, authority)] }
}

/// Servers that all have these documents.
#[derive(Default)]
pub(super) struct Fake {
    /// Consensuses by flavour.
    pub(super) consensuses: HashMap<&'static str, String>,
    /// Certificates.
    pub(super) certificates: String,
    /// Descriptors by digest.
    pub(super) descriptors: HashMap<[u8; 20], String>,
    /// Microdescriptors by digest.
    pub(super) microdescriptors: HashMap<[u8; 32], String>,
    /// Who was asked for how many pieces, or 0 for what has no digests.
    pub(super) asked: Mutex<Vec<(FakeServer, usize)>>,
}

impl Fake {
    /// With a network's documents of this time.
    pub(super) fn new(network: &Network, valid_after_secs: u64) -> Self {
        let signers = network.authorities.len();
        let consensus =
            |flavor: Flavor| (flavor.name(), network.consensus(flavor, valid_after_secs, signers));
        let relays = &network.relays;
        Self {
            consensuses: [consensus(Flavor::Ns), consensus(Flavor::Microdesc)].into(),
            certificates: network.certificates(),
            descriptors: relays
                .iter()
                .map(|r| (ServerDescriptor::digest(&r.1), r.1.clone()))
                .collect(),
            microdescriptors: relays
                .iter()
                .map(|r| (Microdescriptor::digest(&r.2), r.2.clone()))
                .collect(),
            asked: Mutex::default(),
        }
    }

    /// How many pieces were asked of whom since the last look.
    pub(super) fn take_asked(&self) -> Vec<(FakeServer, usize)> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The answer of an honest server.
    fn right(&self, request: &Request) -> String {
        match request {
            Request::Consensus(flavor, _) => {
                self.consensuses.get(flavor.name()).cloned().unwrap_or_default()
            }
            Request::Certificates(_) => self.certificates.clone(),
            Request::Descriptors(digests) => {
                digests.iter().filter_map(|digest| self.descriptors.get(digest).cloned()).collect()
            }
            Request::Microdescriptors(digests) => {
                digests.iter().filter_map(|d| self.microdescriptors.get(d).cloned()).collect()
            }
        }
    }
}

impl Ask for Fake {
    type Server = FakeServer;

    async fn ask(&self, server: &FakeServer, request: &Request) -> Result<String, AskError> {
        let count = match request {
            Request::Descriptors(digests) => digests.len(),
            Request::Microdescriptors(digests) => digests.len(),
            _ => 0,
        };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((*server, count));
        let right = self.right(request);
        match server.1 {
            Does::Right => Ok(right),
            Does::Fail => Err(AskError::Unreachable("no route".to_owned())),
            Does::Hang => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok(right)
            }
            Does::Damage => Ok(right.replace("192.0.2.1", "192.0.2.9")),
            Does::GiveAll if count > 0 => Ok(self.descriptors.values().cloned().collect()),
            Does::GiveHalf if count > 0 => {
                let half = match request {
                    Request::Descriptors(d) => Request::Descriptors(d[..d.len() / 2].to_vec()),
                    Request::Microdescriptors(d) => {
                        Request::Microdescriptors(d[..d.len() / 2].to_vec())
                    }
                    other => other.clone(),
                };
                Ok(self.right(&half))
            }
            Does::HaveNothing if count > 0 => {
                Err(AskError::BadAnswer("HTTP status 404".to_owned()))
            }
            Does::GiveAll | Does::GiveHalf | Does::HaveNothing => Ok(right),
        }
    }

    fn at_hand(&self, _request: &Request) -> String {
        String::new()
    }
}
