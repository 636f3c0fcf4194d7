//! Programs of the tor package, authorities' keys, and relays' identities.

use std::env;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64ct::{Base64Unpadded, Encoding};

use crate::error::{Error, Result};
use crate::torrc::EMPTY_FILE;

/// Keys of an authority that other nodes need.
#[derive(Clone, Debug)]
pub(crate) struct AuthorityKeys {
    /// RSA fingerprint of its relay identity.
    pub(crate) fingerprint: String,
    /// Fingerprint of its v3 identity key.
    pub(crate) v3ident: String,
    /// Its certificate, in which that key signs the signing key.
    pub(crate) certificate: String,
}

impl AuthorityKeys {
    /// Generates an authority's keys in its directory, before its first start.
    pub(crate) fn make(
        tor: &Path,
        dir: &Path,
        or: SocketAddr,
        dirport: SocketAddr,
    ) -> Result<Self> {
        let keys = dir.join("keys");
        private_dir(&keys)?;
        make_certificate(&keys, dirport)?;
        let certificate = certificate(dir)?;
        let v3ident = v3ident_of(&certificate)?;
        let empty = dir.join(EMPTY_FILE);
        File::create(&empty).map_err(Error::io("create an empty torrc"))?;
        let mut command = Command::new(tor);
        command.arg("--quiet").arg("-f").arg(&empty).arg("--defaults-torrc").arg(&empty);
        command.arg("--DataDirectory").arg(dir).args(["--Address", "127.0.0.1"]);
        command.args(["--ORPort", &or.to_string(), "--list-fingerprint"]);
        run(tor, command.stdin(Stdio::null()))?;
        let fingerprint = Identity::read(dir)?.rsa_fingerprint;
        Ok(Self { fingerprint, v3ident, certificate })
    }
}

/// Fingerprint of an authority's v3 identity key, from its directory.
pub(crate) fn v3ident(dir: &Path) -> Result<String> {
    v3ident_of(&certificate(dir)?)
}

/// Fingerprint of the v3 identity key in a certificate.
fn v3ident_of(certificate: &str) -> Result<String> {
    let found = certificate.lines().find_map(|line| line.strip_prefix("fingerprint "));
    let none = || Error::Misuse("no fingerprint line".to_owned());
    found.map(str::to_owned).ok_or_else(none)
}

/// An authority's certificate, from its directory.
fn certificate(dir: &Path) -> Result<String> {
    read(&dir.join("keys/authority_certificate"))
}

/// A relay's identity keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// SHA-1 of the RSA identity key, 40 upper-case hexadecimal digits.
    pub(crate) rsa_fingerprint: String,
    pub(crate) ed25519: [u8; 32],
}

impl Identity {
    /// Reads a relay's fingerprint files.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let (rsa, ed25519) = (dir.join("fingerprint"), dir.join("fingerprint-ed25519"));
        let strange = |path: &Path| {
            Error::Misuse(format!("{} is not a fingerprint file of tor", path.display()))
        };
        let rsa_fingerprint = second_word(&read(&rsa)?).ok_or_else(|| strange(&rsa))?;
        let key = second_word(&read(&ed25519)?).and_then(|text| decode_key(&text));
        Ok(Self { rsa_fingerprint, ed25519: key.ok_or_else(|| strange(&ed25519))? })
    }
}

/// Path of tor: on PATH, or Debian's directory, which PATH often lacks.
pub(crate) fn find_tor() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    let mut candidates = dirs.map(|dir| dir.join("tor")).filter(|path| path.is_file());
    candidates.next().unwrap_or_else(|| "/usr/sbin/tor".into())
}

/// Creates a directory with access for its owner only, as tor requires.
pub(crate) fn private_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;

    let made = fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(Error::io(format!("create {}", path.display())))
}

/// Generates an authority's identity key (3072 bits), signing key and certificate.
fn make_certificate(keys: &Path, dirport: SocketAddr) -> Result<()> {
    let program = Path::new("tor-gencert");
    let passphrase = keys.join("passphrase");
    fs::write(&passphrase, "ff-lab\n").map_err(Error::io("write a passphrase"))?;
    let input = File::open(&passphrase).map_err(Error::io("open a passphrase"))?;
    let mut command = Command::new(program);
    command.args(["--create-identity-key", "--passphrase-fd", "0", "-m", "12"]);
    command.arg("-a").arg(dirport.to_string());
    command.arg("-i").arg(keys.join("authority_identity_key"));
    command.arg("-s").arg(keys.join("authority_signing_key"));
    command.arg("-c").arg(keys.join("authority_certificate"));
    run(program, command.stdin(input))
}

fn run(program: &Path, command: &mut Command) -> Result<()> {
    let named = |source| Error::Program { program: program.to_owned(), source };
    let output = command.output().map_err(named)?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let output = String::from_utf8_lossy(&text).into_owned();
    Err(Error::Keys { program: program.to_owned(), output })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))
}

/// The identity in a line `nickname identity`.
fn second_word(text: &str) -> Option<String> {
    text.split_whitespace().nth(1).map(str::to_owned)
}

/// Decodes a key of 32 bytes from base64, with or without padding.
pub(crate) fn decode_key(text: &str) -> Option<[u8; 32]> {
    Base64Unpadded::decode_vec(text.trim_end_matches('=')).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_from_both_files() {
        let dir = tempfile::tempdir().unwrap();
        let rsa = "1FF7605A6EF06E44AF9D924DDAFC6D3B8F1845F3";
        fs::write(dir.path().join("fingerprint"), format!("exit0 {rsa}\n")).unwrap();
        let ed25519 = dir.path().join("fingerprint-ed25519");
        fs::write(&ed25519, format!("exit0 {}\n", "A".repeat(43))).unwrap();
        let identity = Identity::read(dir.path()).unwrap();
        assert_eq!(identity, Identity { rsa_fingerprint: rsa.to_owned(), ed25519: [0; 32] });
        fs::write(&ed25519, "exit0 AAAA\n").unwrap();
        assert!(Identity::read(dir.path()).unwrap_err().to_string().contains("ed25519"));
    }
}
