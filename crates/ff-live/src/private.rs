//! The authorities of a private network, from its nodes' directories.
//!
//! chutney's and ff-lab's networks have a directory for each node, with tor's own files in it. A
//! node with an authority's certificate is an authority.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use ff_base::files::FileError;

use super::error::DirectoryError;
use super::relay::Authority;

/// Bytes of a node's file that are read at most.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The network's authorities, by the names of their directories.
pub(super) fn authorities(network: &Path) -> Result<Vec<Authority>, DirectoryError> {
    let failed = || FileError::new("read the directory", network);
    let mut nodes = Vec::new();
    for entry in fs::read_dir(network).map_err(failed())? {
        nodes.push(entry.map_err(failed())?.path());
    }
    nodes.sort();
    nodes.retain(|node| node.join(CERTIFICATE).is_file());
    if nodes.is_empty() {
        let reason = format!("no node in {} has a {CERTIFICATE}", network.display());
        return Err(DirectoryError::config("private_network", reason));
    }
    nodes.iter().map(|node| authority(node)).collect()
}

/// An authority's certificate, in its directory.
const CERTIFICATE: &str = "keys/authority_certificate";

/// Reads one node's.
fn authority(node: &Path) -> Result<Authority, DirectoryError> {
    let certificate = text(&node.join(CERTIFICATE))?;
    let v3ident = certificate.lines().find_map(|line| line.strip_prefix("fingerprint "));
    let name = node.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Authority {
        name: name.unwrap_or_default(),
        v3ident: v3ident.ok_or_else(|| strange(&node.join(CERTIFICATE)))?.to_owned(),
        fingerprint: second_word(&node.join("fingerprint"))?,
        ed25519: second_word(&node.join("fingerprint-ed25519"))?,
        orports: vec![orport(&node.join("torrc"))?],
    })
}

/// The ORPort that a torrc says, at the address that it says.
fn orport(torrc: &Path) -> Result<SocketAddr, DirectoryError> {
    let lines = text(torrc)?;
    let value = |wanted: &str| {
        let mut lines =
            lines.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(wanted));
        found.and_then(|(_, rest)| rest.split_whitespace().next())
    };
    let address = value("Address").and_then(|address| address.parse().ok());
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = value("ORPort").ok_or_else(|| strange(torrc))?;
    let whole = port.parse().ok();
    whole
        .or_else(|| Some(SocketAddr::new(address, port.parse().ok()?)))
        .ok_or_else(|| strange(torrc))
}

/// The second word of `nickname identity`.
fn second_word(path: &Path) -> Result<String, DirectoryError> {
    let text = text(path)?;
    text.split_whitespace().nth(1).map(str::to_owned).ok_or_else(|| strange(path))
}

/// A node's file.
fn text(path: &Path) -> Result<String, DirectoryError> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(FileError::new("read", path))?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(FileError::new("read", path))?;
    Ok(text)
}

/// A file that says something else than it should.
fn strange(path: &Path) -> DirectoryError {
    DirectoryError::config("private_network", format!("{} cannot be understood", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a node's files.
    fn node(network: &Path, name: &str, torrc: &str) {
        let dir = network.join(name);
        fs::create_dir_all(dir.join("keys")).expect("a directory");
        for (file, text) in [
            (CERTIFICATE, "dir-key-certificate-version 3\nfingerprint 12\n"),
            ("fingerprint", "auth0 AB\n"),
            ("fingerprint-ed25519", "auth0 CD\n"),
            ("torrc", torrc),
        ] {
            fs::write(dir.join(file), text).expect("a file");
        }
    }

    #[test]
    fn labs_and_chutneys_nodes_are_read_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        node(dir.path(), "b", "Address 192.0.2.7\nOrPort 5001\n");
        node(dir.path(), "a", "ORPort 127.0.0.1:5000 IPv4Only\n");
        fs::create_dir(dir.path().join("client")).expect("a directory");
        let found = authorities(dir.path()).expect("authorities");
        let ports: Vec<_> = found.iter().map(|node| node.orports[0].to_string()).collect();
        assert_eq!(ports, ["127.0.0.1:5000", "192.0.2.7:5001"]);
        assert_eq!((found[0].name.as_str(), found[0].v3ident.as_str()), ("a", "12"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = |path: &Path| authorities(path).expect_err("an error").to_string();
        assert!(error(&dir.path().join("none")).contains("none"));
        assert!(error(dir.path()).contains("no node in"));
        node(dir.path(), "a", "Nickname x\n");
        assert!(error(dir.path()).contains("a/torrc cannot be understood"));
    }
}
