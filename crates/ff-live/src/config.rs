//! Which network to look at, and where its documents are kept.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ff_base::identity::key_base64;
use serde::{Deserialize, Serialize};
use tor_dircommon::authority::AuthorityContacts;
use tor_dircommon::config::NetworkConfig;
use tor_dircommon::fallback::{FallbackDir, FallbackDirBuilder};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

use super::check_dir;
use super::error::DirectoryError;
use super::private;
use super::relay::{Authority, Fallback};

/// Which network to look at, and where its documents are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveConfig {
    /// Where documents are kept. They can all be fetched again.
    pub cache_dir: PathBuf,
    /// Where Arti keeps what it has learned of its directory guards; in `cache_dir` if not said.
    #[serde(default)]
    pub state_dir: Option<PathBuf>,
    /// The network's directory authorities; Tor's if there are none here.
    #[serde(default, rename = "authority")]
    pub authorities: Vec<Authority>,
    /// The servers to ask without a directory; if empty, the authorities, or for Tor's network
    /// Arti's own list.
    #[serde(default, rename = "fallback")]
    pub fallbacks: Vec<Fallback>,
    /// A private network's directory, of chutney's or ff-lab's kind: its authorities are used.
    #[serde(default)]
    pub private_network: Option<PathBuf>,
    /// Whether to ask servers at addresses that are nobody's on the Internet, 127.0.0.1 for
    /// instance. A `private_network` has no others.
    #[serde(default)]
    pub allow_private_addresses: bool,
    /// The limits of the cache and of requests.
    #[serde(default)]
    pub limits: DocumentLimits,
}

/// The limits of the cache and of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentLimits {
    /// How many consensuses are kept, the current one included.
    pub consensuses: usize,
    /// Bytes of documents, on disk and in one view, in addition to Arti's own cache.
    pub cache_bytes: u64,
    /// Requests at the same time.
    pub parallel: usize,
    /// How long a server has for an answer.
    pub answer_secs: u64,
}

impl Default for DocumentLimits {
    fn default() -> Self {
        // The network of 2024 with 7,000 relays has 35 MB of documents.
        Self { consensuses: 3, cache_bytes: 256 << 20, parallel: 4, answer_secs: 60 }
    }
}

impl DocumentLimits {
    /// How long a server has for an answer.
    pub(super) fn answer_time(&self) -> Duration {
        Duration::from_secs(self.answer_secs)
    }
}

impl LiveConfig {
    /// Tor's network, with its documents in this directory.
    #[must_use]
    pub fn tor(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            state_dir: None,
            authorities: Vec::new(),
            fallbacks: Vec::new(),
            private_network: None,
            allow_private_addresses: false,
            limits: DocumentLimits::default(),
        }
    }

    /// A private network's, whose nodes' directories are in `network`.
    #[must_use]
    pub fn private_network(network: impl Into<PathBuf>, cache_dir: impl Into<PathBuf>) -> Self {
        Self { private_network: Some(network.into()), ..Self::tor(cache_dir) }
    }

    /// Makes relative paths start in this directory, that of the config.
    pub fn make_absolute(&mut self, dir: &Path) {
        let paths = [&mut self.cache_dir].into_iter();
        let paths = paths.chain(&mut self.state_dir).chain(&mut self.private_network);
        for path in paths.filter(|path| path.is_relative()) {
            *path = dir.join(&path);
        }
    }

    /// Finds invalid values.
    ///
    /// # Errors
    /// [`DirectoryError`], also when the private network's directory cannot be read, or other users
    /// could change kept files.
    pub fn check(&self) -> Result<(), DirectoryError> {
        self.resolve()?;
        [Some(&self.cache_dir), self.state_dir.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|dir| check_dir(dir))
    }

    /// Finds what cannot be meant, and reads the private network's directory.
    pub(super) fn resolve(&self) -> Result<Resolved, DirectoryError> {
        let DocumentLimits { consensuses, cache_bytes, parallel, answer_secs } = self.limits;
        for (field, is_good, range) in [
            ("limits.consensuses", (1..=100).contains(&consensuses), "1 to 100"),
            ("limits.cache_bytes", cache_bytes >= 1 << 20, "1048576 or more"),
            ("limits.parallel", (1..=16).contains(&parallel), "1 to 16"),
            ("limits.answer_secs", (1..=600).contains(&answer_secs), "1 to 600"),
        ] {
            if !is_good {
                return Err(DirectoryError::config(field, format!("must be {range}")));
            }
        }
        let authorities = match &self.private_network {
            Some(_) if !self.authorities.is_empty() => {
                let reason = "goes without authorities of its own: its directory says them";
                return Err(DirectoryError::config("private_network", reason));
            }
            Some(dir) => private::authorities(dir)?,
            None => self.authorities.clone(),
        };
        Ok(Resolved {
            network: self.arti(&authorities)?,
            allow_private_addresses: self.allow_private_addresses || self.private_network.is_some(),
        })
    }

    /// The network's config in Arti's form.
    fn arti(&self, authorities: &[Authority]) -> Result<NetworkConfig, DirectoryError> {
        let mut builder = NetworkConfig::builder();
        let mut fallbacks = Vec::new();
        if !authorities.is_empty() {
            let idents: Result<Vec<_>, _> = authorities
                .iter()
                .map(|authority| rsa(&authority.v3ident, &format!("v3ident of {}", authority.name)))
                .collect();
            let idents = idents?;
            if idents.iter().enumerate().any(|(index, ident)| idents[..index].contains(ident)) {
                return Err(DirectoryError::config("authority", "two have the same v3ident"));
            }
            builder.authorities().set_v3idents(idents);
            for Authority { fingerprint, ed25519, orports, .. } in authorities {
                fallbacks.push(relay(fingerprint, ed25519, orports)?);
            }
        }
        for Fallback { fingerprint, ed25519, orports } in &self.fallbacks {
            fallbacks.push(relay(fingerprint, ed25519, orports)?);
        }
        if !fallbacks.is_empty() {
            builder.set_fallback_caches(fallbacks);
        }
        builder.build().map_err(|error| DirectoryError::config("authority", error.to_string()))
    }
}

/// A relay as Arti wants it.
fn relay(
    fingerprint: &str,
    ed25519: &str,
    orports: &[SocketAddr],
) -> Result<FallbackDirBuilder, DirectoryError> {
    let field = format!("relay {fingerprint}");
    let ed25519 = key_base64(ed25519)
        .map(Ed25519Identity::from)
        .ok_or_else(|| DirectoryError::config(&field, "ed25519 must be 43 characters of base64"))?;
    if orports.is_empty() {
        return Err(DirectoryError::config(&field, "orports must name one at least"));
    }
    let mut builder = FallbackDir::builder();
    builder.rsa_identity(rsa(fingerprint, &field)?).ed_identity(ed25519);
    builder.set_orports(orports.to_vec());
    Ok(builder)
}

/// Reads an RSA fingerprint, with or without the blanks that tor writes.
fn rsa(text: &str, field: &str) -> Result<RsaIdentity, DirectoryError> {
    let digits: String = text.chars().filter(|&c| c != ' ').collect();
    RsaIdentity::from_hex(digits.trim_start_matches('$'))
        .ok_or_else(|| DirectoryError::config(field, "must be 40 hexadecimal digits"))
}

/// A configuration that can be meant.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    /// The network.
    pub(super) network: NetworkConfig,
    /// Whether to ask servers at private addresses.
    pub(super) allow_private_addresses: bool,
}

impl Resolved {
    /// The authorities whose signatures count.
    pub(super) fn authorities(&self) -> &[RsaIdentity] {
        let contacts: &AuthorityContacts = self.network.authorities();
        contacts.v3idents()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An authority of these.
    fn authority(v3ident: &str, port: u16) -> Authority {
        Authority {
            name: "auth".to_owned(),
            v3ident: v3ident.to_owned(),
            fingerprint: "AB".repeat(20),
            ed25519: "A".repeat(43),
            orports: vec![SocketAddr::from(([192, 0, 2, 1], port))],
        }
    }

    #[test]
    fn without_authorities_it_is_tors_network() {
        let resolved = LiveConfig::tor("cache").resolve().expect("good");
        assert_eq!(resolved.authorities().len(), 9);
        assert!(resolved.network.fallback_caches().len() > 100);
        assert!(!resolved.allow_private_addresses);
    }

    #[test]
    fn other_authorities_replace_tors_and_are_asked_first() {
        let config = LiveConfig {
            authorities: vec![authority(&"12".repeat(20), 1), authority(&"34".repeat(20), 2)],
            ..LiveConfig::tor("cache")
        };
        let resolved = config.resolve().expect("good");
        assert_eq!(hex::encode(resolved.authorities()[1].as_bytes()), "34".repeat(20));
        assert_eq!(resolved.network.fallback_caches().len(), 2);
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        let good = || LiveConfig {
            authorities: vec![authority(&"12".repeat(20), 1)],
            ..LiveConfig::tor("cache")
        };
        type Change = fn(&mut LiveConfig);
        let cases: [(Change, &str); 9] = [
            (|c| c.authorities[0].v3ident = "12".to_owned(), "v3ident of auth: must be 40"),
            (|c| c.authorities.push(c.authorities[0].clone()), "two have the same v3ident"),
            (|c| c.authorities[0].fingerprint = "AB".to_owned(), "relay AB: must be 40"),
            (|c| c.authorities[0].ed25519 = "AB".to_owned(), "43 characters"),
            (|c| c.limits.parallel = 0, "limits.parallel: must be 1 to 16"),
            (|c| c.limits.consensuses = 0, "limits.consensuses"),
            (|c| c.limits.cache_bytes = 0, "limits.cache_bytes"),
            (|c| c.private_network = Some("net".into()), "goes without authorities"),
            (|c| c.authorities[0].orports.clear(), "orports must name"),
        ];
        for (change, part) in cases {
            let mut config = good();
            change(&mut config);
            let error = config.resolve().expect_err(part).to_string();
            assert!(error.contains(part), "{error}, not {part}");
        }
    }

    #[test]
    fn it_is_read_from_a_file_and_unknown_keys_are_refused() {
        let text = r#"{"cache_dir": "c", "authority": [{"name": "a", "v3ident": "x",
            "fingerprint": "y", "ed25519": "z", "orports": ["127.0.0.1:5000"]}],
            "limits": {"parallel": 2}}"#;
        let config: LiveConfig = serde_json::from_str(text).expect("good");
        assert_eq!(config.authorities[0].orports.len(), 1);
        assert_eq!(config.limits, DocumentLimits { parallel: 2, ..DocumentLimits::default() });
        for bad in [r#"{"cache_dir": "c", "cache": 1}"#, r#"{"limits": {}}"#] {
            serde_json::from_str::<LiveConfig>(bad).expect_err(bad);
        }
    }
}
