//! The network's consensus and descriptors, as files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use ff_base::utc::Utc;

use crate::target::{Identity, LIMIT};

/// How often there is a new consensus, in seconds.
const CONSENSUS_SECS: u64 = 5;

/// The documents' directory.
pub(crate) struct Documents {
    /// It.
    dir: PathBuf,
    /// Lines of the consensus for each relay, without the time, in the order of their fingerprints,
    /// with their numbers.
    relays: Vec<([u8; 20], SocketAddr, usize)>,
}

/// The time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Documents {
    /// Those of these relays; writes the descriptors.
    pub(crate) fn new(dir: &Path, relays: &[(Identity, SocketAddr)]) -> Self {
        let mut text = String::new();
        let mut lines = Vec::new();
        for (number, (Identity { fingerprint, ed_identity }, addr)) in relays.iter().enumerate() {
            let (ip, port) = (addr.ip(), addr.port());
            let identity = Base64Unpadded::encode_string(ed_identity);
            let name = hex::encode_upper(fingerprint);
            let _ = write!(
                text,
                "router t{number} {ip} {port} 0 0\nmaster-key-ed25519 {identity}\n\
                 fingerprint {name}\nbandwidth 1073741824 1073741824 0\nrouter-signature\n"
            );
            lines.push((*fingerprint, *addr, number));
        }
        lines.sort_unstable();
        std::fs::write(dir.join("descriptors"), text).expect("descriptors");
        Self { dir: dir.to_owned(), relays: lines }
    }

    /// Writes the consensus of now, without these targets.
    pub(crate) fn write(&self, absent: &BTreeSet<usize>) {
        let now = now() / CONSENSUS_SECS * CONSENSUS_SECS;
        let stamp = |secs| {
            let text = Utc::from_unix_secs(secs).expect("a time of this age").to_string();
            text.trim_end_matches('Z').replace('T', " ")
        };
        let mut text = format!(
            "network-status-version 3\nvote-status consensus\nvalid-after {}\nfresh-until {}\n\
             valid-until {}\nshared-rand-current-value 2 {}\n",
            stamp(now),
            stamp(now + CONSENSUS_SECS),
            stamp(now + 3 * CONSENSUS_SECS),
            Base64::encode_string(&[7; 32]),
        );
        for (fingerprint, addr, number) in &self.relays {
            if absent.contains(number) {
                continue;
            }
            let name = Base64Unpadded::encode_string(fingerprint);
            let (ip, port, weight) = (addr.ip(), addr.port(), LIMIT.get() / 1000);
            let _ = write!(
                text,
                "r t{number} {name} {name} {} {ip} {port} 0\ns Fast Running Stable Valid\n\
                 w Bandwidth={weight}\n",
                stamp(now)
            );
        }
        text.push_str("directory-footer\n");
        let (new, path) = (self.dir.join("consensus.new"), self.dir.join("consensus"));
        std::fs::write(&new, text).expect("a consensus");
        std::fs::rename(new, path).expect("a consensus");
    }
}
