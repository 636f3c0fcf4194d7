//! The relays of a network, from the directory of a tor, or of a lab with several tors.
//!
//! A tor keeps the verified consensus of the microdesc flavour and the microdescriptors in the same
//! directory. Nothing is fetched here, and no signature is checked: a user who can write to a tor's
//! directory decides about its network.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ff_base::text::read_file;
use ff_dir::consensus::{Consensus, Flags};
use ff_dir::microdescriptors::Microdescriptors;
use ff_proto::addresses::is_private;

use crate::micros::{MICRODESCRIPTORS, MOST_BYTES, Unreadable, is_absent, microdescriptors};
use crate::paths::pool::{Pool, lines_of_relays};

/// The consensus in a tor's directory.
const CONSENSUS: &str = "cached-microdesc-consensus";
/// The time after its end for which tor still uses a consensus (dir-spec 5.1), in seconds: a day.
const USABLE_SECS: u64 = 24 * 3600;

/// A relay, with all data for a circuit through it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetworkRelay {
    /// The fingerprint of its RSA identity: 40 upper-case hexadecimal digits.
    pub id: String,
    /// Its nickname.
    pub nick: String,
    /// Its RSA identity.
    pub rsa: [u8; 20],
    /// Its Ed25519 identity.
    pub ed25519: [u8; 32],
    /// Its key for circuit handshakes.
    pub ntor: [u8; 32],
    /// Its listening addresses.
    pub addrs: Vec<SocketAddr>,
    /// Its protocol versions, as in the consensus.
    pub protocols: String,
    /// Its flags in the consensus.
    pub flags: Flags,
}

/// The relays of a network that circuits can be built through.
#[derive(Clone, Debug, Default)]
pub struct CircuitNetwork {
    /// The relays, in the order of their fingerprints.
    pub relays: Vec<NetworkRelay>,
    /// Their indices, by fingerprint.
    by_id: HashMap<String, usize>,
    /// The v3 identities of the authorities that made the consensus.
    pub authorities: Vec<[u8; 20]>,
    /// The consensus's parameters: `name=value`, separated by spaces.
    pub params: String,
    /// The same relays in the same order, for drawing paths.
    pub pool: Pool,
    /// The path of the consensus.
    pub consensus: PathBuf,
    /// The start of its validity, in seconds since 1970.
    pub valid_after_unix_secs: u64,
}

/// Why a network cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// There is no consensus.
    #[error(
        "neither {} nor a directory in it has {CONSENSUS}: give the data directory of a tor in the network, or a \
         directory with several of these",
        .0.display()
    )]
    Nothing(PathBuf),
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The consensus is not valid.
    #[error("{}: {reason}", .path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl CircuitNetwork {
    /// Reads the network from a tor's directory, from the tor with the newest consensus below a
    /// directory, or from a consensus of the microdesc flavour with the microdescriptors next to
    /// it.
    ///
    /// # Errors
    /// [`NetworkError`], which names the file.
    pub fn read(dir: &Path, now_unix_secs: u64) -> Result<Self, NetworkError> {
        let mut newest: Option<(u64, PathBuf, String, Consensus)> = None;
        let mut bad = None;
        for file in consensuses(dir) {
            let text = match read_file(&file, MOST_BYTES) {
                Ok(text) => text,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(Unreadable { path: file, error }.into()),
            };
            match Consensus::parse(&text) {
                Ok(consensus) => {
                    let until = consensus.valid_until_unix_secs().unwrap_or(0);
                    if newest.as_ref().is_none_or(|(best, ..)| until > *best) {
                        newest = Some((until, file, text, consensus));
                    }
                }
                Err(error) => {
                    bad = Some(NetworkError::Bad { path: file, reason: error.to_string() })
                }
            }
        }
        let nothing = || bad.unwrap_or_else(|| NetworkError::Nothing(dir.to_owned()));
        let (until, file, text, consensus) = newest.ok_or_else(nothing)?;
        let beside = file.parent().unwrap_or(Path::new("."));
        let failed = |reason| NetworkError::Bad { path: file.clone(), reason };
        if until + USABLE_SECS < now_unix_secs {
            let reason = format!(
                "this consensus is too old, it was valid until {}: is the network running?",
                consensus.valid_until
            );
            return Err(failed(reason));
        }
        let mut network = Self::of(&text, &consensus, &microdescriptors(beside)?);
        network.consensus.clone_from(&file);
        network.valid_after_unix_secs = consensus.valid_after_unix_secs().unwrap_or(0);
        if network.relays.is_empty() {
            let reason = format!(
                "none of its {} relays has keys in {} in the same directory",
                consensus.relays.len(),
                MICRODESCRIPTORS[0]
            );
            return Err(failed(reason));
        }
        Ok(network)
    }

    /// From the documents.
    fn of(text: &str, consensus: &Consensus, micros: &Microdescriptors) -> Self {
        // The protocol versions of each relay (dir-spec 3.4.1).
        let protocols = lines_of_relays(text, consensus, "pr");
        let (params, authorities) = (params(text), authorities(text));
        let mut network = Self { params, authorities, ..Self::default() };
        let mut left_out = 0;
        for entry in &consensus.relays {
            if !entry.flags.is_running {
                continue;
            }
            let micro = micros.of(entry);
            left_out += usize::from(micro.is_none());
            let keys = micro.and_then(|micro| Some((micro.ed25519?, micro.ntor?)));
            let Some((ed25519, ntor)) = keys else { continue };
            let id = hex::encode_upper(entry.fingerprint);
            network.by_id.insert(id.clone(), network.relays.len());
            network.relays.push(NetworkRelay {
                id,
                nick: entry.nickname.clone(),
                rsa: entry.fingerprint,
                ed25519,
                ntor,
                addrs: entry.or_ports.clone(),
                protocols: protocols
                    .get(&entry.fingerprint)
                    .copied()
                    .unwrap_or_default()
                    .to_owned(),
                flags: entry.flags,
            });
        }
        let mut drawn = ff_archives::network::Network::from(consensus);
        drawn
            .relays
            .retain(|relay| network.by_id.contains_key(&hex::encode_upper(relay.fingerprint)));
        network.pool = Pool::of_documents(text, consensus, drawn, micros);
        network.pool.left_out = left_out;
        network
    }

    /// The index of the relay with this fingerprint: 40 hexadecimal digits, with or without `$`.
    pub fn find(&self, id: &str) -> Option<usize> {
        let id = id.strip_prefix('$').unwrap_or(id).to_ascii_uppercase();
        self.by_id.get(&id).copied()
    }

    /// Whether any of its relays is on the Internet: then it is not a private network.
    pub fn is_public(&self) -> bool {
        self.relays.iter().flat_map(|relay| &relay.addrs).any(|addr| !is_private(addr.ip()))
    }
}

/// The value of `--network` for the public Tor network.
pub const PUBLIC: &str = "public";

/// The directory for a value of `--network`: that of the system's or the user's tor for [`PUBLIC`].
#[must_use]
pub fn directory(named: &Path) -> PathBuf {
    if named != Path::new(PUBLIC) || named.is_dir() {
        return named.to_owned();
    }
    let own = std::env::home_dir().map(|home| home.join(".tor"));
    let all = [Some(PathBuf::from("/var/lib/tor")), own].into_iter().flatten();
    let has_one = |dir: &PathBuf| dir.join(CONSENSUS).is_file();
    all.into_iter().find(has_one).unwrap_or_else(|| PathBuf::from("/var/lib/tor"))
}

/// The files that may be a network's consensus: this one, or those in this directory and its
/// subdirectories.
fn consensuses(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    directories(path).into_iter().map(|dir| dir.join(CONSENSUS)).collect()
}

/// The documents with their times of modification and lengths: if this value changes,
/// [`CircuitNetwork::read`] may return another network.
#[must_use]
pub fn stamp(path: &Path) -> Vec<(PathBuf, SystemTime, u64)> {
    let consensuses = consensuses(path);
    let dirs = consensuses.iter().filter_map(|file| file.parent());
    let micros = dirs.flat_map(|dir| MICRODESCRIPTORS.map(|name| dir.join(name)));
    let written = |path: PathBuf| {
        let file = fs::metadata(&path).ok()?;
        Some((path, file.modified().ok()?, file.len()))
    };
    micros.chain(consensuses.iter().cloned()).filter_map(written).collect()
}

/// This directory, its subdirectories, and those of its `nodes`, the link in chutney's directory to
/// the newest network.
pub fn directories(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_owned()];
    for parent in [dir.to_owned(), dir.join("nodes")] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        all.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    all.sort();
    all
}

/// The v3 identities of a consensus's authorities, without their old ones (dir-spec 3.4.1).
fn authorities(text: &str) -> Vec<[u8; 20]> {
    let head = text.lines().take_while(|line| !line.starts_with("r "));
    let sources = head.filter_map(|line| line.strip_prefix("dir-source "));
    let identity = |source: &str| {
        let (name, rest) = source.split_once(' ')?;
        let id: [u8; 20] = hex::decode(rest.split(' ').next()?).ok()?.try_into().ok()?;
        (!name.ends_with("-legacy")).then_some(id)
    };
    sources.filter_map(identity).collect()
}

/// The parameters of a consensus, without invalid words.
fn params(text: &str) -> String {
    let head = text.lines().take_while(|line| !line.starts_with("r "));
    let line = head.filter_map(|line| line.strip_prefix("params ")).next().unwrap_or_default();
    let is_one = |word: &&str| {
        let pair = word.split_once('=');
        pair.is_some_and(|(name, value)| !name.is_empty() && value.parse::<i32>().is_ok())
    };
    line.split_whitespace().filter(is_one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        assert_eq!(params("params a=1 b=x c=-2\nr one\n"), "a=1 c=-2");
    }

    #[test]
    fn authorities_are_known_by_their_v3_identities() {
        let (id, old) = ("07".repeat(20), "08".repeat(20));
        let text = format!(
            "dir-source a {id} 127.0.0.1 127.0.0.1 7000 5000\ndir-source a-legacy {old} x\n\
             dir-source b 12 x\nr one\ndir-source c {old} x\n"
        );
        assert_eq!(authorities(&text), [[7; 20]]);
    }

    #[test]
    fn a_network_with_one_address_that_is_not_private_is_public() {
        let is_public = |addresses: &[&str]| {
            let relay = NetworkRelay {
                id: String::new(),
                nick: String::new(),
                rsa: [1; 20],
                ed25519: [2; 32],
                ntor: [3; 32],
                addrs: addresses.iter().map(|text| text.parse().expect("an address")).collect(),
                protocols: String::new(),
                flags: Flags::default(),
            };
            CircuitNetwork { relays: vec![relay], ..CircuitNetwork::default() }.is_public()
        };
        assert!(!is_public(&["127.3.2.1:1", "10.0.0.1:1", "[::1]:1"]));
        // Addresses of `ff-lab link run` and of Arti relays in a lab.
        assert!(!is_public(&["198.18.7.2:1", "198.19.255.255:1"]));
        assert!(is_public(&["198.18.7.2:1", "192.0.2.1:1"]));
        assert!(is_public(&["198.20.0.1:1"]));
    }

    #[test]
    fn a_file_is_taken_for_itself_and_public_for_the_systems_tor() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("old");
        fs::write(&file, "not one").expect("a file");
        assert_eq!(consensuses(&file), std::slice::from_ref(&file));
        let error = CircuitNetwork::read(&file, 0).expect_err("no consensus").to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
        assert_eq!(directory(&file), file);
        let system = directory(Path::new(PUBLIC));
        assert!(system.ends_with("tor") || system.ends_with(".tor"), "{}", system.display());
    }

    #[test]
    fn relays_without_microdescriptors_are_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let write =
            |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("a file");
        let text = include_str!("../../ff-dir/tests/data/microdesc-consensus");
        write(CONSENSUS, text);
        let all = include_str!("../../ff-dir/tests/data/microdescriptors");
        let consensus = Consensus::parse(text).expect("a consensus");
        let now = consensus.valid_after_unix_secs().expect("a time");
        let left_out = || CircuitNetwork::read(dir.path(), now).expect("a network").pool.left_out;
        write(MICRODESCRIPTORS[0], all);
        assert_eq!(left_out(), 0);
        let some: Vec<_> = all.split("@last-listed").collect();
        write(MICRODESCRIPTORS[0], &some[..some.len() - 1].join("@last-listed"));
        assert_eq!(left_out(), 1);
    }

    #[test]
    fn documents_without_a_bound_are_named() {
        for name in [CONSENSUS, MICRODESCRIPTORS[1]] {
            let dir = tempfile::tempdir().expect("a directory");
            let text = include_str!("../../ff-dir/tests/data/microdesc-consensus");
            fs::write(dir.path().join(CONSENSUS), text).expect("a file");
            // A sparse file uses no disk space.
            let long = fs::File::create(dir.path().join(name)).expect("a file");
            long.set_len(MOST_BYTES + 1).expect("longer");
            let error = CircuitNetwork::read(dir.path(), 0).expect_err("too long").to_string();
            assert!(error.contains(name) && error.contains("longer than"), "{error}");
        }
    }

    #[test]
    fn a_directory_without_a_consensus_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = CircuitNetwork::read(dir.path(), 0).expect_err("nothing there").to_string();
        assert!(error.contains(&dir.path().display().to_string()), "{error}");
        fs::write(dir.path().join(CONSENSUS), "not one").expect("a file");
        let error = CircuitNetwork::read(dir.path(), 0).expect_err("no consensus").to_string();
        assert!(error.contains(CONSENSUS), "{error}");
    }
}
