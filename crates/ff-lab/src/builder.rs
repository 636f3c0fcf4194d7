//! Configuration of a network before its start.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use crate::ending::Ending;
use crate::error::{Error, Result};
use crate::hosts::HostsPlan;
use crate::keys;
use crate::torrc::is_valid_interval;

/// Configuration of one relay.
#[derive(Clone, Debug, Default)]
pub struct RelayConfig {
    /// Nickname, 1 to 19 letters and digits.
    pub nickname: String,
    /// Program; default: the network's.
    pub tor: Option<PathBuf>,
    /// `BandwidthRate` and `BandwidthBurst` in bytes per second; tor requires at least 75 kB/s.
    pub bandwidth_rate: Option<u64>,
    /// Whether it is an exit.
    pub exit: bool,
    /// Whether it has a SocksPort, so that it is also a client.
    pub has_socks_port: bool,
    /// Bandwidth in the authorities' bandwidth file, in kB/s. The file exists only if some relay
    /// has one.
    pub measured_kbytes_per_sec: Option<u64>,
    /// Address in 127.0.0.0/8; default: 127.0.0.1.
    pub address: Option<Ipv4Addr>,
    /// More lines for its torrc.
    pub torrc: Vec<String>,
}

impl RelayConfig {
    /// A relay that is not an exit.
    #[must_use]
    pub fn middle(nickname: impl Into<String>) -> Self {
        Self { nickname: nickname.into(), ..Self::default() }
    }

    /// An exit.
    #[must_use]
    pub fn exit(nickname: impl Into<String>) -> Self {
        Self { exit: true, ..Self::middle(nickname) }
    }

    /// Runs this program instead of the network's tor, such as a patched one.
    #[must_use]
    pub fn tor(mut self, program: impl Into<PathBuf>) -> Self {
        self.tor = Some(program.into());
        self
    }

    /// Limits it to this rate in each direction, in bytes per second.
    #[must_use]
    pub fn bandwidth_rate(mut self, bytes_per_sec: u64) -> Self {
        self.bandwidth_rate = Some(bytes_per_sec);
        self
    }

    /// Gives it a SocksPort.
    #[must_use]
    pub fn socks_port(mut self) -> Self {
        self.has_socks_port = true;
        self
    }

    /// Sets its bandwidth in the authorities' votes, in kB/s. The consensus uses it only with three
    /// authorities.
    #[must_use]
    pub fn measured(mut self, kbytes_per_sec: u64) -> Self {
        self.measured_kbytes_per_sec = Some(kbytes_per_sec);
        self
    }

    /// Gives it its own address in 127.0.0.0/8.
    #[must_use]
    pub fn address(mut self, address: Ipv4Addr) -> Self {
        self.address = Some(address);
        self
    }

    /// Adds a line to its torrc.
    #[must_use]
    pub fn torrc(mut self, line: impl Into<String>) -> Self {
        self.torrc.push(line.into());
        self
    }
}

/// Configuration of one arti-relay, in a network whose nodes have hosts.
#[derive(Clone, Debug)]
pub struct ArtiRelayConfig {
    /// Name of the node and its host, 1 to 19 letters and digits.
    pub nickname: String,
    /// Path of the program.
    pub program: PathBuf,
    /// More sections of its configuration, in TOML.
    pub sections: String,
    /// Threads of its runtime; 0 for one per core of the machine.
    pub threads: usize,
}

impl ArtiRelayConfig {
    /// An arti-relay that runs this program, without more sections.
    #[must_use]
    pub fn new(nickname: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        let (nickname, program) = (nickname.into(), program.into());
        Self { nickname, program, sections: String::new(), threads: 0 }
    }

    /// Adds sections to its configuration.
    #[must_use]
    pub fn sections(mut self, sections: &str) -> Self {
        self.sections.push_str(sections);
        self
    }
}

/// Configuration of a network; [`NetworkBuilder::start`] starts it.
///
/// Nodes are named `auth0`, `middle0`, `exit0`, `client0` and so on, or as [`RelayConfig`] says.
#[derive(Clone, Debug)]
#[must_use]
pub struct NetworkBuilder {
    /// Program of nodes without their own.
    pub(crate) tor: PathBuf,
    /// Number of authorities.
    pub(crate) authorities: usize,
    pub(crate) relays: Vec<RelayConfig>,
    pub(crate) arti_relays: Vec<ArtiRelayConfig>,
    /// Number of clients.
    pub(crate) clients: usize,
    /// Torrc lines of all nodes.
    pub(crate) torrc: Vec<String>,
    /// Torrc lines of authorities.
    pub(crate) authority_torrc: Vec<String>,
    /// Torrc lines by number of the authority.
    pub(crate) lines_of_authority: Vec<(usize, String)>,
    /// Torrc lines of clients.
    pub(crate) client_torrc: Vec<String>,
    /// Torrc lines by number of the client.
    pub(crate) lines_of_client: Vec<(usize, String)>,
    /// Address of the first node, if each node has its own.
    first_address: Option<Ipv4Addr>,
    /// Consensus parameters.
    pub(crate) params: Vec<(String, i64)>,
    /// Time between consensuses.
    pub(crate) voting_interval: Duration,
    /// Core of nodes that are not in `cores`.
    core: Option<usize>,
    /// Cores by node name.
    cores: BTreeMap<String, usize>,
    /// Whether the directory is kept at the end.
    pub(crate) keeps_dir: bool,
    /// Parent of the network's directory.
    pub(crate) temp_dir: PathBuf,
    /// Emulated hosts; `None` for loopback.
    pub(crate) hosts: Option<HostsPlan>,
    /// Interrupts the start.
    pub(crate) ending: Ending,
}

impl Default for NetworkBuilder {
    fn default() -> Self {
        Self {
            tor: keys::find_tor(),
            authorities: 1,
            relays: Vec::new(),
            arti_relays: Vec::new(),
            clients: 0,
            torrc: Vec::new(),
            authority_torrc: Vec::new(),
            lines_of_authority: Vec::new(),
            client_torrc: Vec::new(),
            lines_of_client: Vec::new(),
            first_address: None,
            params: Vec::new(),
            voting_interval: Duration::from_secs(10),
            core: None,
            cores: BTreeMap::new(),
            keeps_dir: false,
            temp_dir: std::env::temp_dir(),
            hosts: None,
            ending: Ending::default(),
        }
    }
}

impl NetworkBuilder {
    /// Sets the number of authorities, 1 to 3; default: 1.
    pub fn authorities(self, authorities: usize) -> Self {
        Self { authorities, ..self }
    }

    /// Adds a relay.
    pub fn relay(mut self, relay: RelayConfig) -> Self {
        self.relays.push(relay);
        self
    }

    /// Adds relays `middle0`, `middle1` and so on, which are not exits.
    pub fn middles(mut self, count: usize) -> Self {
        self.relays.extend((0..count).map(|n| RelayConfig::middle(format!("middle{n}"))));
        self
    }

    /// Adds exits `exit0`, `exit1` and so on.
    pub fn exits(mut self, count: usize) -> Self {
        self.relays.extend((0..count).map(|n| RelayConfig::exit(format!("exit{n}"))));
        self
    }

    /// Adds an arti-relay, which bootstraps from the authorities. Nodes must have
    /// [hosts](Self::hosts), as arti-relay refuses loopback and private addresses. arti-relay 0.47
    /// uploads no descriptor, so the consensus does not list it.
    pub fn arti_relay(mut self, relay: ArtiRelayConfig) -> Self {
        self.arti_relays.push(relay);
        self
    }

    /// Sets the number of clients `client0` and so on; default: 0.
    pub fn clients(self, clients: usize) -> Self {
        Self { clients, ..self }
    }

    /// Runs this tor in all nodes without their own program.
    pub fn tor(mut self, program: impl Into<PathBuf>) -> Self {
        self.tor = program.into();
        self
    }

    /// Adds a line to the torrc of all nodes. It overrides the network's own lines.
    pub fn torrc(mut self, line: impl Into<String>) -> Self {
        self.torrc.push(line.into());
        self
    }

    /// Adds a line to the torrc of all authorities.
    pub fn authority_torrc(mut self, line: impl Into<String>) -> Self {
        self.authority_torrc.push(line.into());
        self
    }

    /// Adds a line to the torrc of the authority of this number, counted from 0.
    pub fn torrc_of_authority(mut self, number: usize, line: impl Into<String>) -> Self {
        self.lines_of_authority.push((number, line.into()));
        self
    }

    /// Adds a line to the torrc of all clients.
    pub fn client_torrc(mut self, line: impl Into<String>) -> Self {
        self.client_torrc.push(line.into());
        self
    }

    /// Adds a line to the torrc of the client of this number, counted from 0.
    pub fn torrc_of_client(mut self, number: usize, line: impl Into<String>) -> Self {
        self.lines_of_client.push((number, line.into()));
        self
    }

    /// Gives each authority, relay and client its own address, counted up from `first`. The
    /// namespace of this process must have them ([`crate::net::Namespace::own_network`]).
    pub fn addresses_from(self, first: Ipv4Addr) -> Self {
        Self { first_address: Some(first), ..self }
    }

    /// Sets a consensus parameter.
    pub fn consensus_param(mut self, name: impl Into<String>, value: i64) -> Self {
        self.params.push((name.into(), value));
        self
    }

    /// Time between consensuses; default: 10 s.
    ///
    /// Whole seconds from 10 to 1800 that divide 1800. The first consensus does not wait for it.
    pub fn voting_interval(self, voting_interval: Duration) -> Self {
        Self { voting_interval, ..self }
    }

    /// Pins all nodes to this core.
    pub fn core(self, core: usize) -> Self {
        Self { core: Some(core), ..self }
    }

    /// Pins the node of this name to this core.
    pub fn core_of(mut self, name: impl Into<String>, core: usize) -> Self {
        self.cores.insert(name.into(), core);
        self
    }

    /// Keeps the network's directory, with the logs.
    ///
    /// The environment variable `FF_LAB_KEEP` does the same.
    pub fn keep_dir(self, keeps_dir: bool) -> Self {
        Self { keeps_dir, ..self }
    }

    /// Creates the network's directory in this one instead of `TMPDIR`.
    pub fn temp_dir(self, temp_dir: impl Into<PathBuf>) -> Self {
        Self { temp_dir: temp_dir.into(), ..self }
    }

    /// Puts each node in a network namespace with its own address, joined by emulated links. Needs
    /// root.
    pub fn hosts(self, plan: HostsPlan) -> Self {
        Self { hosts: Some(plan), ..self }
    }

    /// Interrupts the start, and other waits for nodes, when `ending` is asked for.
    pub fn ending(self, ending: &Ending) -> Self {
        Self { ending: ending.clone(), ..self }
    }

    pub(crate) fn core_for(&self, name: &str) -> Option<usize> {
        self.cores.get(name).copied().or(self.core)
    }

    /// The address of the node of this number, if each node has its own.
    pub(crate) fn address_of(&self, number: usize) -> Option<Ipv4Addr> {
        let number = u32::try_from(number).ok()?;
        Some(Ipv4Addr::from_bits(self.first_address?.to_bits().saturating_add(number)))
    }

    pub(crate) fn has_bandwidth_file(&self) -> bool {
        self.relays.iter().any(|relay| relay.measured_kbytes_per_sec.is_some())
    }

    pub(crate) fn interval_secs(&self) -> u64 {
        self.voting_interval.as_secs()
    }

    /// Rejects configurations that cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        let arti_relays = self.arti_relays.iter().map(|relay| relay.nickname.as_str());
        let relays = self.relays.iter().map(|relay| relay.nickname.as_str());
        for name in relays.chain(arti_relays) {
            let is_valid =
                (1..=19).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric());
            if !is_valid {
                return misuse(format!("{name:?} is not a nickname: 1 to 19 letters and digits"));
            }
            let is_ours = ["auth", "client"].iter().any(|prefix| name.starts_with(prefix));
            if is_ours || !names.insert(name) {
                return misuse(format!("the nickname {name} is taken"));
            }
        }
        if !(1..=3).contains(&self.authorities) {
            return misuse(format!("{} authorities: use 1 to 3", self.authorities));
        }
        if let Some((number, _)) =
            self.lines_of_authority.iter().find(|(number, _)| *number >= self.authorities)
        {
            return misuse(format!(
                "there is no authority {number}: the network has {}, counted from 0",
                self.authorities
            ));
        }
        if !self.arti_relays.is_empty() && self.hosts.is_none() {
            return misuse(
                "arti-relays refuse loopback addresses: give each node a host of its own"
                    .to_owned(),
            );
        }
        if let Some((number, _)) =
            self.lines_of_client.iter().find(|(number, _)| *number >= self.clients)
        {
            return misuse(format!(
                "there is no client {number}: the network has {}, counted from 0",
                self.clients
            ));
        }
        if self.hosts.is_some() && self.first_address.is_some() {
            return misuse(
                "hosts have addresses of their own: leave addresses_from out".to_owned(),
            );
        }
        let mut addresses = self.relays.iter().filter_map(|relay| relay.address);
        if let Some(address) = addresses.clone().next().filter(|_| self.hosts.is_some()) {
            return misuse(format!("{address}: hosts have addresses of their own"));
        }
        if let Some(address) = addresses.find(|address| !address.is_loopback()) {
            return misuse(format!("{address} is not in 127.0.0.0/8"));
        }
        // Authorities are relays too, so 2 more are enough for a path of 3.
        if self.clients > 0
            && (self.authorities + self.relays.len() < 3 || !self.relays.iter().any(|r| r.exit))
        {
            return misuse("clients need 3 relays, authorities included, and an exit".to_owned());
        }
        let is_whole = self.voting_interval.subsec_nanos() == 0;
        if !is_whole || !is_valid_interval(self.interval_secs()) {
            return misuse(format!("tor does not support votes every {:?}", self.voting_interval));
        }
        Ok(())
    }
}

fn misuse(why: String) -> Result<()> {
    Err(Error::Misuse(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(builder: NetworkBuilder) -> String {
        builder.check().unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_work_is_refused_at_once() {
        let network = || NetworkBuilder::default().exits(2).middles(2).clients(1);
        assert!(error(network().authorities(4)).contains("4 authorities"));
        assert!(error(network().exits(1)).contains("exit0 is taken"));
        assert!(error(network().relay(RelayConfig::middle("auth0"))).contains("auth0"));
        assert!(error(network().relay(RelayConfig::middle("no_good"))).contains("no_good"));
        let abroad = RelayConfig::middle("far").address(Ipv4Addr::new(192, 0, 2, 1));
        assert!(error(network().relay(abroad)).contains("192.0.2.1"));
        assert!(error(network().torrc_of_authority(1, "")).contains("no authority 1"));
        assert!(error(network().torrc_of_client(1, "")).contains("no client 1"));
        let twice = network().addresses_from(Ipv4Addr::LOCALHOST).hosts(HostsPlan::default());
        assert!(error(twice).contains("addresses_from"));
        assert!(error(network().voting_interval(Duration::from_secs(7))).contains("7s"));
        assert!(error(NetworkBuilder::default().middles(3).clients(1)).contains("exit"));
        let arti_relay = |name| ArtiRelayConfig::new(name, "/nothing");
        assert!(error(network().arti_relay(arti_relay("arti0"))).contains("a host of its own"));
        let hosts = || network().hosts(HostsPlan::default());
        assert!(error(hosts().arti_relay(arti_relay("exit0"))).contains("exit0 is taken"));
    }

    #[test]
    fn nodes_have_addresses_in_a_row() {
        let network = NetworkBuilder::default();
        assert_eq!(network.address_of(3), None);
        let network = network.addresses_from(Ipv4Addr::new(10, 9, 0, 250));
        assert_eq!(network.address_of(6), Some(Ipv4Addr::new(10, 9, 1, 0)));
    }
}
