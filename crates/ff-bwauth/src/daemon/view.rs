//! The daemon's view of its network: the relays of one consensus, with their descriptors.

use std::collections::HashMap;
use std::net::SocketAddr;

use ff_base::identity::Fingerprint;
use ff_dir::consensus::Consensus;
use ff_dir::descriptors::{Descriptor, Descriptors};
use ff_plan::period::ScheduledRelay;
use ff_plan::publish::view::relays;
use ff_store::GONE;

/// The network in one consensus.
#[derive(Clone, Debug)]
pub struct View {
    /// When the consensus became valid, in seconds since 1970.
    pub valid_after: u64,
    /// The authorities' shared random value.
    pub shared_random: Option<[u8; 32]>,
    /// The consensus, for the bandwidth file.
    pub consensus: Consensus,
    /// The relays' descriptors.
    pub described: HashMap<Fingerprint, Descriptor>,
    /// Each relay's position in the consensus.
    numbers: HashMap<Fingerprint, usize>,
}

/// A relay's address and identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Its nickname.
    pub nickname: String,
    /// Its ORPort.
    pub addr: SocketAddr,
    /// Its Ed25519 identity.
    pub ed_identity: [u8; 32],
}

impl View {
    /// The network in these documents.
    ///
    /// # Errors
    /// A sentence that says why the documents are not valid.
    pub fn parse(consensus: &str, descriptors: &[impl AsRef<[u8]>]) -> Result<Self, String> {
        let consensus =
            Consensus::parse(consensus).map_err(|error| format!("the consensus: {error}"))?;
        let valid_after = consensus.valid_after_unix_secs();
        let valid_after = valid_after.ok_or("the consensus' valid-after is not a time")?;
        let mut all = Descriptors::default();
        for file in descriptors {
            all.extend(Descriptors::parse(file));
        }
        // One line for all: each relay writes its own descriptor.
        if let Some(error) = all.skipped.first() {
            let count = all.skipped.len();
            tracing::warn!(count, "descriptors are skipped, the first: {error}");
        }
        let mut described = all.named_by(&consensus);
        let numbers = consensus.relays.iter().map(|relay| relay.fingerprint);
        let numbers: HashMap<_, _> = numbers.zip(0..).collect();
        // Descriptors of other relays are not needed, and there may be many.
        described.retain(|fingerprint, _| numbers.contains_key(fingerprint));
        let shared_random = consensus.shared_random;
        Ok(Self { valid_after, shared_random, consensus, described, numbers })
    }

    /// The relays in the form of the schedule.
    #[must_use]
    pub fn relays(&self) -> Vec<ScheduledRelay> {
        relays(&self.consensus, &self.described)
    }

    /// A relay's address and identity.
    ///
    /// # Errors
    /// A sentence that says why the relay cannot be reached.
    pub fn contact(&self, fingerprint: &Fingerprint) -> Result<Contact, &'static str> {
        let number = self.numbers.get(fingerprint).ok_or(GONE)?;
        let entry = &self.consensus.relays[*number];
        let descriptor = self.described.get(fingerprint);
        let ed_identity = entry.ed25519.or(descriptor.and_then(|one| one.ed25519));
        let addr = entry.or_ports.first().copied();
        Ok(Contact {
            nickname: entry.nickname.clone(),
            addr: addr.ok_or("it has no ORPort")?,
            ed_identity: ed_identity.ok_or("its Ed25519 identity is not known: no descriptor")?,
        })
    }

    /// The number of relays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.consensus.relays.len()
    }

    /// Whether the network has no relays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.consensus.relays.is_empty()
    }
}
