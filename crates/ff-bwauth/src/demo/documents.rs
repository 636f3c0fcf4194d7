//! The demo network's consensus and descriptors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64ct::{Base64, Base64Unpadded, Encoding};
use ff_base::files::{Readers, write_atomically};
use ff_base::identity::Fingerprint;
use ff_base::utc::now_unix_secs as now;
use ff_dir::bandwidth::Reading;
use ff_dir::descriptors::Descriptors;
use time::OffsetDateTime;

use super::relays::Relay;

/// How often there is a new consensus, in seconds.
const CONSENSUS_SECS: u64 = 5;

/// A relay's entry in the documents.
struct Entry {
    /// Its nickname.
    nickname: String,
    /// Its address.
    address: std::net::SocketAddr,
    /// Its Ed25519 identity.
    ed_identity: [u8; 32],
    /// The digest of its descriptor.
    digest: [u8; 20],
}

/// The files of the documents.
pub(super) struct Documents {
    /// Their directory.
    dir: PathBuf,
    /// The relays, in the order of their fingerprints.
    relays: BTreeMap<Fingerprint, Entry>,
    /// The shared random value, as authorities would draw one.
    shared_random: [u8; 32],
}

impl Documents {
    /// The documents of these relays, in this directory.
    pub(super) fn new(dir: &Path, relays: &[Relay]) -> Result<Self> {
        let entry = |relay: &Relay| {
            let keys = relay.host.keys();
            let fingerprint = keys.rsa_identity().as_bytes().try_into();
            let entry = Entry {
                nickname: relay.nickname.clone(),
                address: relay.host.addr(),
                ed_identity: keys.ed_identity().into(),
                digest: [0; 20],
            };
            Ok((fingerprint.context("A fingerprint has 20 bytes")?, entry))
        };
        let relays = relays.iter().map(entry).collect::<Result<_>>()?;
        let documents = Self { dir: dir.to_owned(), relays, shared_random: rand::random() };
        documents.with_descriptors()
    }

    /// Writes the descriptors, whose digests the consensus names.
    fn with_descriptors(mut self) -> Result<Self> {
        let text = self.descriptors();
        let described = Descriptors::parse(&text).relays;
        for (fingerprint, entry) in &mut self.relays {
            entry.digest = described.get(fingerprint).map_or([0; 20], |one| one.digest);
        }
        write_atomically(&self.paths().1, text.as_bytes(), Readers::Everybody)?;
        Ok(self)
    }

    /// The paths of the consensus and the descriptors.
    pub(super) fn paths(&self) -> (PathBuf, PathBuf) {
        let dir = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        (dir.join("consensus"), dir.join("descriptors"))
    }

    /// Writes a consensus valid now, with the mean of these bandwidth files' numbers as weights.
    pub(super) fn write(&self, files: &[PathBuf]) -> Result<()> {
        let mut votes: BTreeMap<Fingerprint, Vec<u64>> = BTreeMap::new();
        for path in files {
            let Ok(bytes) = std::fs::read(path) else { continue };
            for (relay, line) in Reading::of(&bytes, now()).votes() {
                votes.entry(relay).or_default().push(line.bw);
            }
        }
        let text = self.consensus(&votes)?;
        write_atomically(&self.paths().0, text.as_bytes(), Readers::Everybody)?;
        Ok(())
    }

    /// The consensus.
    fn consensus(&self, votes: &BTreeMap<Fingerprint, Vec<u64>>) -> Result<String> {
        let now = now() / CONSENSUS_SECS * CONSENSUS_SECS;
        let mut text = format!(
            "network-status-version 3\nvote-status consensus\nvalid-after {}\nfresh-until {}\n\
             valid-until {}\nshared-rand-current-value 2 {}\n",
            stamp(now)?,
            stamp(now + CONSENSUS_SECS)?,
            stamp(now + 3 * CONSENSUS_SECS)?,
            Base64::encode_string(&self.shared_random),
        );
        for (fingerprint, Entry { nickname, address, digest, .. }) in &self.relays {
            let name = Base64Unpadded::encode_string(fingerprint);
            let digest = Base64Unpadded::encode_string(digest);
            let (ip, port) = (address.ip(), address.port());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "r {nickname} {name} {digest} {} {ip} {port} 0", stamp(now)?);
            let _ = writeln!(text, "s Fast Running Stable Valid");
            let _ = match votes.get(fingerprint).map(Vec::as_slice) {
                Some(votes @ [_, ..]) => {
                    let mean = votes.iter().sum::<u64>() / votes.len() as u64;
                    writeln!(text, "w Bandwidth={mean}")
                }
                _ => writeln!(text, "w Bandwidth=20 Unmeasured=1"),
            };
        }
        text.push_str("directory-footer\n");
        Ok(text)
    }

    /// The descriptors.
    fn descriptors(&self) -> String {
        let mut text = String::new();
        for (fingerprint, Entry { nickname, address, ed_identity, .. }) in &self.relays {
            let (ip, port) = (address.ip(), address.port());
            let identity = Base64Unpadded::encode_string(ed_identity);
            let name = hex::encode_upper(fingerprint);
            let _ = write!(
                text,
                "router {nickname} {ip} {port} 0 0\nmaster-key-ed25519 {identity}\n\
                 fingerprint {name}\nbandwidth 1073741824 1073741824 0\nrouter-signature\n\
                 -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n"
            );
        }
        text
    }
}

/// A time as documents have it.
fn stamp(unix_secs: u64) -> Result<String> {
    let secs = i64::try_from(unix_secs).context("The clock is far off")?;
    let time = OffsetDateTime::from_unix_timestamp(secs).context("The clock is far off")?;
    let (date, (hour, minute, second)) = (time.date(), time.to_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    Ok(format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"))
}

#[cfg(test)]
mod tests {
    use ff_dir::consensus::Consensus;

    use super::*;
    use crate::config::{Files, NetworkConfig};
    use crate::watch::documents::{Descriptions, publication_around};

    #[test]
    fn explain_finds_the_descriptors() {
        let dir = tempfile::tempdir().expect("a directory");
        let entry = Entry {
            nickname: "demo1".to_owned(),
            address: "127.0.1.1:5000".parse().expect("an address"),
            ed_identity: [3; 32],
            digest: [0; 20],
        };
        let relays = BTreeMap::from([([7; 20], entry)]);
        let documents = Documents { dir: dir.path().to_owned(), relays, shared_random: [1; 32] };
        let documents = documents.with_descriptors().expect("written");
        documents.write(&[]).expect("written");
        let (consensus, descriptors) = documents.paths();
        let text = std::fs::read_to_string(&consensus).expect("a consensus");
        let parsed = Consensus::parse(&text).expect("a consensus");
        assert_eq!(parsed.relays[0].descriptor, Some(documents.relays[&[7; 20]].digest));
        let files = Files { consensus, descriptors: vec![descriptors] };
        let described = Descriptions::read(&NetworkConfig::Files(files)).expect("descriptors");
        let around = publication_around(&parsed, Some(&described), &[], &[7; 20], now());
        let without = publication_around(&parsed, None, &[], &[7; 20], now());
        assert_ne!(around.directory, without.directory, "the descriptor is found");
    }
}
