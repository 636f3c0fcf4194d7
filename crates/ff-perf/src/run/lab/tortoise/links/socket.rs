//! Bytes of TCP connections as the kernel counts them, from `ss` (iproute2).

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Way;

/// Bytes of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkBytes {
    /// Acknowledged by the peers.
    sent: u64,
    received: u64,
    /// Number of connections.
    pub(super) connections: usize,
}

impl LinkBytes {
    /// In both directions.
    pub(super) const fn all(&self) -> u64 {
        self.sent + self.received
    }

    /// In the direction of bulk.
    pub(super) const fn of(&self, way: Way) -> u64 {
        match way {
            Way::Down => self.sent,
            Way::Up => self.received,
        }
    }
}

/// The bytes of all connections of a listening address with these peers, in the network namespace
/// of the calling thread.
///
/// # Errors
/// If `ss` is missing, or there is no such connection.
pub(super) fn link_bytes(local: SocketAddr, peers: &[IpAddr]) -> Result<LinkBytes> {
    let mut command = Command::new("ss");
    command.args(["-tinHO", "state", "established", "src", &local.to_string()]);
    let output = command.output().context("Failed to run `ss` (Debian's package iproute2)")?;
    if !output.status.success() {
        bail!("`ss` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let found = parse(&String::from_utf8_lossy(&output.stdout), peers);
    if found.connections == 0 {
        bail!("{local} has no connection with these clients");
    }
    Ok(found)
}

/// Adds up the lines with these peers.
fn parse(text: &str, peers: &[IpAddr]) -> LinkBytes {
    let mut all = LinkBytes::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        // Queues, local address, peer.
        let peer = words.nth(3).and_then(|word| word.parse::<SocketAddr>().ok());
        if !peer.is_some_and(|peer| peers.contains(&peer.ip())) {
            continue;
        }
        all.connections += 1;
        for word in words {
            if let Some(bytes) = word.strip_prefix("bytes_acked:") {
                all.sent += bytes.parse().unwrap_or(0);
            } else if let Some(bytes) = word.strip_prefix("bytes_received:") {
                all.received += bytes.parse().unwrap_or(0);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn bytes_of_the_peers_are_added() {
        // From `ss -tinHO state established` of iproute2 6.1.0, with fewer words.
        let text = "\
0      0      10.9.0.4:9001 10.9.0.20:41000 cubic rto:204 bytes_sent:900 bytes_acked:850 bytes_received:70 mss:1448
0      0      10.9.0.4:9001 10.9.0.20:41002 cubic bytes_received:5
0      36     10.9.0.4:9001 10.9.0.21:41000 cubic bytes_acked:1000 bytes_received:2000
";
        let peer = |last| IpAddr::from(Ipv4Addr::new(10, 9, 0, last));
        let one = LinkBytes { sent: 850, received: 75, connections: 2 };
        assert_eq!(parse(text, &[peer(20)]), one);
        assert_eq!(parse(text, &[peer(20), peer(21)]).all(), 3925);
        assert_eq!(parse(text, &[peer(22)]), LinkBytes::default());
    }
}
