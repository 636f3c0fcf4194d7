//! Starts a network, step by step.
//!
//! A consensus needs votes, and votes need the relays' descriptors, which arrive about 2 s after
//! the relays' start, or later on a busy machine. So the authorities wait for all descriptors; then
//! their schedule is changed so that they vote at once.
//!
//! A tor that finds no consensus tries again after a time that triples with each failure, up to
//! half a minute here. So when there is a consensus, relays get a SIGHUP, which makes them try at
//! once. Clients start only then, with copies of the authority's consensus and microdescriptors.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use super::Network;
use crate::arti_relay::{ArtiAuthority, ArtiPlace, ArtiRelay, ArtiRelayPlan};
use crate::builder::{ArtiRelayConfig, NetworkBuilder, RelayConfig};
use crate::directory::{RelayStatus, relay_statuses};
use crate::error::{Error, Result};
use crate::hosts::{Addresses, Host, Hosts, inside};
use crate::keys::{AuthorityKeys, private_dir};
use crate::leftovers::remove_leftovers;
use crate::node::{Node, NodeParts, Role};
use crate::own_dir::OwnDir;
use crate::ports::Port;
use crate::torrc::{self, Common};

impl NetworkBuilder {
    /// Starts the network and waits until clients can use it.
    ///
    /// Then every node has a consensus with every relay in it, and every client has built a
    /// circuit. With one authority this takes about 10 s.
    ///
    /// # Errors
    /// With the end of the log of the node that failed; everything has been removed.
    pub fn start(self) -> Result<Network> {
        self.check()?;
        let mut attempts_left = 2;
        loop {
            match Network::start(&self) {
                // Another process took a port before tor bound it.
                Err(Error::Exited { log, node, .. })
                    if attempts_left > 0 && log.contains("Address already in use") =>
                {
                    tracing::warn!("a port of {node} was taken; starting again");
                    attempts_left -= 1;
                }
                result => return result,
            }
        }
    }
}

impl Network {
    /// Starts a network and waits until it is usable.
    fn start(plan: &NetworkBuilder) -> Result<Self> {
        let begin = Instant::now();
        remove_leftovers();
        let mut dir = OwnDir::new_in(&plan.temp_dir)?;
        if plan.keeps_dir || std::env::var_os("FF_LAB_KEEP").is_some() {
            dir.keep();
            tracing::info!("the network's directory is {}", dir.path().display());
        }
        // From here on, dropping `network` on failure ends the processes.
        let mut network = Self {
            nodes: Vec::new(),
            arti_relays: Vec::new(),
            source: Default::default(),
            start_time: Duration::ZERO,
            hosts: start_hosts(plan)?,
            dir,
        };
        network.add_nodes(plan)?;
        network.start_relays()?;
        network.wait_for_descriptors()?;
        network.write_bandwidth_file(plan)?;
        network.have_authorities_vote(plan)?;
        network.wait_until_all_relays_are_listed()?;
        network.have_relays_fetch_it()?;
        network.start_clients()?;
        network.wait_until_all_nodes_know_all_relays()?;
        network.start_arti_relays(plan)?;
        network.start_time = begin.elapsed();
        let nodes = network.nodes.len() + network.arti_relays.len();
        tracing::info!("{nodes} nodes ready after {:?}", network.start_time);
        Ok(network)
    }

    /// Creates directories, keys and torrcs.
    fn add_nodes(&mut self, plan: &NetworkBuilder) -> Result<()> {
        let hosts = self.hosts.clone();
        let hosts = hosts.as_ref();
        let authorities = make_authorities(plan, self.dir.path(), hosts)?;
        let (mut lines, mut certificates) = (String::new(), String::new());
        for (node, keys) in &authorities {
            let AuthorityKeys { fingerprint, v3ident, certificate } = keys;
            certificates.push_str(certificate);
            let (name, or) = (node.name(), node.or_addr().port());
            let dir_addr = node.dir_addr().expect("an authority has a DirPort");
            let _ = writeln!(
                lines,
                "DirAuthority {name} orport={or} no-v2 v3ident={v3ident} {dir_addr} {fingerprint}"
            );
        }
        let common = Common { authorities: lines, certificates, extra: plan.torrc.clone() };
        for (node, _) in authorities {
            self.nodes.push(node);
            let mut lines = authority_lines(plan, &self.nodes);
            if plan.has_bandwidth_file() {
                let _ = writeln!(lines, "V3BandwidthsFile {}", self.bandwidth_file().display());
            }
            self.configure_last(lines, &common)?;
        }
        for relay in &plan.relays {
            self.add_relay(plan, relay, &common)?;
        }
        for number in 0..plan.clients {
            let name = format!("client{number}");
            let address = plan.address_of(self.nodes.len());
            let (dir, place) = (self.dir.path(), Place::find(hosts, &name, address)?);
            self.nodes.push(new_node(plan, dir, name, Role::Client, None, place)?);
            let lines = torrc::client(self.nodes[self.nodes.len() - 1].socks_addr());
            let its_own = plan.lines_of_client.iter().filter(|(of, _)| *of == number);
            let lines = lines + &joined(&plan.client_torrc) + &joined(its_own.map(|(_, l)| l));
            self.configure_last(lines, &common)?;
        }
        Ok(())
    }

    fn add_relay(
        &mut self,
        plan: &NetworkBuilder,
        relay: &RelayConfig,
        common: &Common,
    ) -> Result<()> {
        let role = if relay.exit { Role::Exit } else { Role::Middle };
        let name = relay.nickname.clone();
        let address = relay.address.or(plan.address_of(self.nodes.len()));
        let mut place = Place::find(self.hosts.as_ref(), &name, address)?;
        place.has_socks_port = relay.has_socks_port;
        let node = new_node(plan, self.dir.path(), name, role, relay.tor.as_deref(), place)?;
        let socks = relay.has_socks_port.then(|| node.socks_addr());
        let lines = torrc::relay(node.or_addr(), socks, relay.exit, relay.bandwidth_rate);
        self.nodes.push(node);
        self.configure_last(lines + &joined(&relay.torrc), common)
    }

    /// Writes the torrc of the node added last.
    fn configure_last(&self, lines: String, common: &Common) -> Result<()> {
        let Some(node) = self.nodes.last() else { return Ok(()) };
        let text = torrc::common(node.name(), node.ip(), node.data_dir(), common) + &lines;
        let written = fs::write(node.torrc(), text + &joined(&common.extra))
            // A node that has to ask for certificates may do so 10 s after it got the consensus.
            .and_then(|()| fs::write(node.data_dir().join("cached-certs"), &common.certificates));
        written.map_err(Error::io(format!("configure {}", node.name())))
    }

    fn start_relays(&self) -> Result<()> {
        let nodes = || self.nodes.iter().filter(|node| node.role() != Role::Client);
        nodes().try_for_each(Node::spawn)?;
        nodes().try_for_each(Node::wait_until_controllable)
    }

    /// Waits until every authority has every relay's descriptor.
    fn wait_for_descriptors(&self) -> Result<()> {
        for authority in self.authorities() {
            let mut control = authority.control()?;
            let what = format!("{} did not get all descriptors", authority.name());
            let keys: Vec<_> =
                self.wanted().map(|node| format!("desc/id/{}", node.rsa_fingerprint())).collect();
            authority.wait_until(&what, CONSENSUS_TIMEOUT, || {
                self.check_processes()?;
                Ok(keys.iter().all(|key| control.getinfo(key).is_ok()).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Path of the authorities' bandwidth file.
    fn bandwidth_file(&self) -> PathBuf {
        self.dir.path().join("bandwidths")
    }

    /// Writes the authorities' bandwidth file if relays have bandwidths for it.
    fn write_bandwidth_file(&self, plan: &NetworkBuilder) -> Result<()> {
        if !plan.has_bandwidth_file() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut text = format!("{now}\nversion=1.4.0\nsoftware=ff-lab\n=====\n");
        for relay in &plan.relays {
            let Some(bandwidth) = relay.measured_kbytes_per_sec else { continue };
            let fingerprint = self.node(&relay.nickname).rsa_fingerprint();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "node_id=${fingerprint} bw={bandwidth}");
        }
        let path = self.bandwidth_file();
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
    }

    /// Makes authorities vote in a few seconds instead of half an hour.
    fn have_authorities_vote(&self, plan: &NetworkBuilder) -> Result<()> {
        let lines = torrc::vote_soon(plan.interval_secs());
        for authority in self.authorities() {
            lines.iter().try_for_each(|line| authority.append_torrc(line))?;
            authority.signal(Signal::HUP)?;
        }
        Ok(())
    }

    /// Waits until every authority has a consensus with all relays.
    fn wait_until_all_relays_are_listed(&self) -> Result<()> {
        for authority in self.authorities() {
            let what = format!("{} had no consensus with all relays", authority.name());
            authority.wait_until(&what, CONSENSUS_TIMEOUT, || {
                self.check_processes()?;
                let text = self.document(authority, "consensus").unwrap_or_default();
                let relays = relay_statuses(&text);
                let are_all_listed = self.wanted().all(|node| is_listed(node, &relays));
                Ok(are_all_listed.then_some(()).or_else(super::nap))
            })?;
        }
        Ok(())
    }

    /// Makes relays fetch the consensus at once: a SIGHUP resets tor's failures.
    fn have_relays_fetch_it(&self) -> Result<()> {
        self.relays().try_for_each(|relay| relay.signal(Signal::HUP))
    }

    fn start_clients(&self) -> Result<()> {
        let source = &self.nodes[0];
        let clients: Vec<&Node> = self.clients().collect();
        for some in clients.chunks(CLIENTS_AT_ONCE) {
            for client in some {
                wait_for_documents(source)?;
                copy_documents(source.data_dir(), client.data_dir())?;
                client.spawn()?;
            }
            some.iter().try_for_each(|client| client.wait_until_controllable())?;
            some.iter().try_for_each(|client| client.wait_until_bootstrapped())?;
        }
        Ok(())
    }

    /// Waits until every node has a consensus with all relays, whose parameters relays follow.
    fn wait_until_all_nodes_know_all_relays(&self) -> Result<()> {
        for node in &self.nodes {
            let mut control = node.control()?;
            let what = format!("{} had no consensus with all relays", node.name());
            node.wait_until(&what, CONSENSUS_TIMEOUT, || {
                // A relay without a consensus refuses to answer.
                let relays = relay_statuses(&control.getinfo("ns/all").unwrap_or_default());
                Ok(self.wanted().all(|wanted| is_listed(wanted, &relays)).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Starts the arti-relays and waits until they have bootstrapped.
    fn start_arti_relays(&mut self, plan: &NetworkBuilder) -> Result<()> {
        if plan.arti_relays.is_empty() {
            return Ok(());
        }
        let authorities = self.authorities().map(ArtiAuthority::of).collect::<Result<Vec<_>>>()?;
        for relay in &plan.arti_relays {
            let relay = self.start_arti_relay(plan, relay, &authorities)?;
            self.arti_relays.push(relay);
        }
        self.arti_relays.iter().try_for_each(|one| one.wait_until_bootstrapped(CONSENSUS_TIMEOUT))
    }

    /// Starts one arti-relay on its host and waits until it accepts links.
    fn start_arti_relay(
        &self,
        plan: &NetworkBuilder,
        relay: &ArtiRelayConfig,
        authorities: &[ArtiAuthority],
    ) -> Result<ArtiRelay> {
        let ArtiRelayConfig { nickname: name, program, sections, threads } = relay;
        let (host, dir) = (self.host(name)?, self.dir.path().join(name));
        private_dir(&dir)?;
        let plan_of_it = ArtiRelayPlan {
            program,
            namespace: host.namespace(),
            addr: SocketAddrV4::new(host.address(), ARTI_OR_PORT),
            sections,
            threads: *threads,
            core: plan.core_for(name),
        };
        let (authorities, ending) = (authorities.to_vec(), plan.ending.clone());
        ArtiRelay::start_in(&plan_of_it, ArtiPlace { name: name.clone(), dir, authorities, ending })
    }

    /// Nodes that must be in the consensus.
    fn wanted(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.role() != Role::Client)
    }

    /// Fails if an authority or a relay has ended.
    fn check_processes(&self) -> Result<()> {
        self.wanted().try_for_each(Node::check_running)
    }
}

/// ORPort of arti-relays, each of which is alone on its host.
const ARTI_OR_PORT: u16 = 9001;
/// Clients that start at the same time: each needs 0.07 s of CPU time, and all must be ready within
/// a minute.
const CLIENTS_AT_ONCE: usize = 300;
/// Longest wait until all relays are in a consensus that every node has.
const CONSENSUS_TIMEOUT: Duration = Duration::from_secs(120);

/// Creates the authorities and their keys in parallel: an RSA key of 3072 bits takes about half a
/// second.
fn make_authorities(
    plan: &NetworkBuilder,
    dir: &Path,
    hosts: Option<&Hosts>,
) -> Result<Vec<(Node, AuthorityKeys)>> {
    let make = |number: usize| {
        let name = format!("auth{number}");
        let place = Place::find(hosts, &name, plan.address_of(number))?;
        let node = new_node(plan, dir, name, Role::Authority, None, place)?;
        let dir_addr = node.dir_addr().expect("an authority has a DirPort");
        let keys = AuthorityKeys::make(&plan.tor, node.data_dir(), node.or_addr(), dir_addr)?;
        Ok((node, keys))
    };
    thread::scope(|scope| {
        let made: Vec<_> =
            (0..plan.authorities).map(|number| scope.spawn(move || make(number))).collect();
        made.into_iter().map(|thread| thread.join().expect("making keys does not panic")).collect()
    })
}

/// Location and ports of a node.
struct Place {
    address: Ipv4Addr,
    /// `None` for loopback.
    host: Option<Host>,
    /// Whether a relay also has a SocksPort.
    has_socks_port: bool,
}

impl Place {
    /// The location of the node of this name, at `address` if given.
    fn find(hosts: Option<&Hosts>, name: &str, address: Option<Ipv4Addr>) -> Result<Self> {
        let host = hosts.map(|hosts| hosts.host(name)).transpose()?;
        let own = host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address);
        Ok(Self { address: address.unwrap_or(own), host, has_socks_port: false })
    }
}

/// Starts the hosts if nodes are to have any.
fn start_hosts(plan: &NetworkBuilder) -> Result<Option<Hosts>> {
    let Some(hosts) = &plan.hosts else { return Ok(None) };
    let authorities = (0..plan.authorities).map(|number| format!("auth{number}"));
    let relays = plan.relays.iter().map(|relay| relay.nickname.clone());
    let clients = (0..plan.clients).map(|number| format!("client{number}"));
    let arti_relays = plan.arti_relays.iter().map(|relay| relay.nickname.clone());
    let has_some = !plan.arti_relays.is_empty();
    let addresses = if has_some { Addresses::ForTests } else { Addresses::Private };
    let nodes = authorities.chain(relays).chain(clients).chain(arti_relays);
    Hosts::start(hosts, addresses, nodes).map(Some)
}

/// Creates a node and its directory.
fn new_node(
    plan: &NetworkBuilder,
    network: &Path,
    name: String,
    role: Role,
    tor: Option<&Path>,
    place: Place,
) -> Result<Node> {
    let dir = network.join(&name);
    private_dir(&dir)?;
    let Place { address, host, has_socks_port } = place;
    let reserve = || inside(host.as_ref(), || Port::reserve_at(address))?;
    let dir_port = if role == Role::Authority { Some(reserve()?) } else { None };
    let socks_port = has_socks_port.then(reserve).transpose()?;
    let core = plan.core_for(&name);
    let tor = tor.unwrap_or(&plan.tor).to_owned();
    let port = reserve()?;
    let ending = plan.ending.clone();
    let parts = NodeParts { name, role, tor, dir, port, dir_port, socks_port, core, host, ending };
    Ok(Node::new(parts))
}

/// Torrc lines of the authority added last.
fn authority_lines(plan: &NetworkBuilder, nodes: &[Node]) -> String {
    let number = nodes.len() - 1;
    let node = &nodes[number];
    let its_own = plan.lines_of_authority.iter().filter(|(of, _)| *of == number);
    let dir_addr = node.dir_addr().expect("an authority has a DirPort");
    torrc::authority(node.or_addr(), dir_addr, plan.interval_secs(), &plan.params)
        + &joined(&plan.authority_torrc)
        + &joined(its_own.map(|(_, line)| line))
}

/// Joins lines.
fn joined<'a>(lines: impl IntoIterator<Item = &'a String>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Whether a consensus lists this node as clients need it.
fn is_listed(node: &Node, relays: &[RelayStatus]) -> bool {
    let fingerprint = node.rsa_fingerprint();
    relays.iter().any(|relay| {
        relay.fingerprint == fingerprint
            && relay.has_flag("Running")
            && relay.has_flag("Valid")
            && (node.role() != Role::Exit || relay.has_flag("Exit"))
    })
}

/// Files of an authority that its clients need at the start.
const CLIENT_DOCUMENTS: [&str; 2] = ["cached-microdesc-consensus", "cached-microdescs.new"];

/// Waits until an authority has written the files that clients need.
///
/// An authority can have the full consensus before the one of microdescriptors: each has its own
/// signatures, and an authority that missed some fetches that consensus from another.
fn wait_for_documents(authority: &Node) -> Result<()> {
    let what = format!("{} did not write {}", authority.name(), CLIENT_DOCUMENTS.join(" and "));
    let is_written = |name: &&str| authority.data_dir().join(name).exists();
    authority.wait_until(&what, CONSENSUS_TIMEOUT, || {
        Ok(CLIENT_DOCUMENTS.iter().all(is_written).then_some(()))
    })
}

/// Copies an authority's consensus and microdescriptors to a client.
fn copy_documents(authority: &Path, client: &Path) -> Result<()> {
    for name in CLIENT_DOCUMENTS {
        let copied = fs::copy(authority.join(name), client.join(name));
        copied.map_err(Error::io(format!("copy {name} of {}", authority.display())))?;
    }
    Ok(())
}
