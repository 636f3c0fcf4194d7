//! Contents of the nodes' configuration files, with reasons.
//!
//! `TestingTorNetwork 1` changes about thirty defaults (tor's `testnet.inc`): private addresses may
//! be extended to, exited to and counted as bandwidth, and retries begin at once. Later lines
//! override earlier ones, so a test's own lines come last.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Parts that all nodes share.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// `DirAuthority` lines.
    pub(crate) authorities: String,
    /// Certificates of the authorities.
    pub(crate) certificates: String,
    /// Lines of the test.
    pub(crate) extra: Vec<String>,
}

/// Whether authorities can vote at this interval.
///
/// `options_validate_dirauth_testing` requires it to divide 30 minutes, and
/// `options_validate_dirauth_schedule` to be more than twice the two delays of 2 s.
pub(crate) fn is_valid_interval(secs: u64) -> bool {
    (10..=LONGEST_INTERVAL_SECS).contains(&secs) && LONGEST_INTERVAL_SECS.is_multiple_of(secs)
}

/// Lines that make an authority vote in 2 s and then at this interval.
///
/// Authorities vote 4 s before multiples of the interval plus an offset, counted from the epoch.
/// All authorities of a network get the same lines.
pub(crate) fn vote_soon(interval_secs: u64) -> [String; 2] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let offset_secs = (now.as_secs() + 6) % interval_secs;
    [
        format!("TestingV3AuthInitialVotingInterval {interval_secs}"),
        format!("TestingV3AuthVotingStartOffset {offset_secs}"),
    ]
}

/// Longest interval that tor accepts.
const LONGEST_INTERVAL_SECS: u64 = 1800;

/// Name of an empty file in a node's directory; tor refuses /dev/null as a torrc.
pub(crate) const EMPTY_FILE: &str = "empty";

/// Lines of every node.
pub(crate) fn common(name: &str, ip: IpAddr, dir: &Path, common: &Common) -> String {
    let (dir, pid) = (dir.display(), std::process::id());
    let authorities = &common.authorities;
    let (control, empty) = (crate::control::SOCKET, EMPTY_FILE);
    // OutboundBindAddress keeps everything on this machine: 127.0.0.0/8 has no route out. With old
    // documents exits do not learn from them that they are relays, hence RefuseUnknownExits.
    // DisableDebuggerAttachment would hide /proc from non-root tests. The GeoIP files, which cost a
    // second of CPU time at every start, are replaced by an empty one. TestingTorNetwork enables
    // the cell event; then, if nobody listens, every cell of a circuit leaves 40 bytes behind until
    // the circuit ends (relay.c, testing_cell_stats).
    format!(
        "TestingTorNetwork 1\n\
         {authorities}\
         Nickname {name}\n\
         Address {ip}\n\
         AddressDisableIPv6 1\n\
         OutboundBindAddress {ip}\n\
         DataDirectory {dir}\n\
         ControlSocket {dir}/{control}\n\
         Log notice file {dir}/log\n\
         LogTimeGranularity 1\n\
         SafeLogging 0\n\
         RunAsDaemon 0\n\
         __OwningControllerProcess {pid}\n\
         DisableDebuggerAttachment 0\n\
         TestingEnableCellStatsEvent 0\n\
         GeoIPFile {dir}/{empty}\n\
         GeoIPv6File {dir}/{empty}\n\
         AssumeReachable 1\n\
         RefuseUnknownExits 0\n\
         ServerDNSDetectHijacking 0\n\
         ServerDNSTestAddresses\n"
    )
}

/// More lines of an authority.
pub(crate) fn authority(
    or: SocketAddr,
    dirport: SocketAddr,
    interval: u64,
    params: &[(String, i64)],
) -> String {
    // Votes and signatures have 2 s each, tor's minimum. The first vote is delayed as long as
    // possible, until `vote_soon`. New relays have no history and no bandwidth, so flags that
    // depend on these are assigned.
    let initial = LONGEST_INTERVAL_SECS;
    let mut text = format!(
        "ORPort {or}\n\
         DirPort {dirport}\n\
         SocksPort 0\n\
         ExitRelay 0\n\
         AuthoritativeDirectory 1\n\
         V3AuthoritativeDirectory 1\n\
         V3AuthVotingInterval {interval}\n\
         V3AuthVoteDelay 2\n\
         V3AuthDistDelay 2\n\
         TestingV3AuthInitialVotingInterval {initial}\n\
         TestingV3AuthInitialVoteDelay 2\n\
         TestingV3AuthInitialDistDelay 2\n\
         AuthDirTestReachability 0\n\
         AuthDirFastGuarantee 1\n\
         TestingDirAuthVoteGuard *\n\
         TestingDirAuthVoteHSDir *\n"
    );
    for (name, value) in params {
        let _ = writeln!(text, "ConsensusParams {name}={value}");
    }
    text
}

/// More lines of a relay.
pub(crate) fn relay(
    or: SocketAddr,
    socks: Option<SocketAddr>,
    is_exit: bool,
    bandwidth_rate: Option<u64>,
) -> String {
    // A policy of 127.0.0.0/8 alone would be summarised as "rejects everything", because summaries
    // omit private addresses; clients would not choose such an exit.
    let exit = if is_exit { "ExitRelay 1\nExitPolicy accept *:*" } else { "ExitRelay 0" };
    let socks = socks.map_or_else(|| "SocksPort 0\n".to_owned(), client);
    let mut text = format!("ORPort {or}\n{socks}{exit}\n");
    if let Some(rate) = bandwidth_rate {
        let _ = write!(text, "BandwidthRate {rate} bytes\nBandwidthBurst {rate} bytes\n");
    }
    text
}

/// More lines of a client, or of a relay that is also a client.
pub(crate) fn client(socks: SocketAddr) -> String {
    // Without guards a circuit may begin at any relay. Build times on loopback would give the
    // client a timeout of some milliseconds. Every NewCircuitPeriod tor closes circuits that a
    // refused stream has marked as too old.
    format!(
        "SocksPort {socks}\n\
         UseEntryGuards 0\n\
         LearnCircuitBuildTimeout 0\n\
         CircuitBuildTimeout 60\n\
         MaxCircuitDirtiness 1 day\n\
         NewCircuitPeriod 1 day\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_vote_comes_soon_whatever_the_interval() {
        for interval in [10, 300] {
            let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let [_, line] = vote_soon(interval);
            let offset: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
            let consensus = (before + 1..).find(|secs| secs % interval == offset).unwrap();
            assert!((6..=7).contains(&(consensus - before)), "{line}");
        }
    }

    #[test]
    fn intervals_are_those_that_tor_accepts() {
        let valid: Vec<_> = (0..40).filter(|&secs| is_valid_interval(secs)).collect();
        assert_eq!(valid, [10, 12, 15, 18, 20, 24, 25, 30, 36]);
        assert!(is_valid_interval(1800) && !is_valid_interval(3600));
    }
}
