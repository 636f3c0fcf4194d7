//! A running network.

mod start;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::arti_relay::ArtiRelay;
use crate::builder::NetworkBuilder;
use crate::directory;
use crate::download::{DownloadPlan, EchoStream, RunningDownloads};
use crate::error::{Error, Result};
use crate::hosts::{Host, Hosts, SOURCE, inside};
use crate::link::PairDelays;
use crate::net::Report;
use crate::node::{Node, Role};
use crate::own_dir::OwnDir;
use crate::source::SourceServer;

/// A running private network; dropping it ends all processes and removes the directory.
#[derive(Debug)]
pub struct Network {
    /// Authorities, relays and clients, each in the order of their configuration.
    nodes: Vec<Node>,
    /// In the order of their configuration.
    arti_relays: Vec<ArtiRelay>,
    /// Server of downloads; started at the first download.
    source: OnceLock<SourceServer>,
    /// Duration of the start.
    start_time: Duration,
    /// Emulated hosts; `None` for loopback.
    hosts: Option<Hosts>,
    /// Contains the nodes' directories; removed last.
    dir: OwnDir,
}

impl Network {
    /// Starts the configuration of a network.
    pub fn builder() -> NetworkBuilder {
        NetworkBuilder::default()
    }

    /// The node of this name.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    pub fn node(&self, name: &str) -> &Node {
        let found = self.nodes.iter().find(|node| node.name() == name);
        found.unwrap_or_else(|| panic!("no node {name} in this network"))
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// The authorities.
    pub fn authorities(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.role() == Role::Authority)
    }

    /// The relays, including exits, without the authorities.
    pub fn relays(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| matches!(node.role(), Role::Middle | Role::Exit))
    }

    /// The clients.
    pub fn clients(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.role() == Role::Client)
    }

    /// The arti-relays.
    pub fn arti_relays(&self) -> impl Iterator<Item = &ArtiRelay> {
        self.arti_relays.iter()
    }

    /// The directory that contains the nodes' directories.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The host of this name, if nodes have hosts: a node's host, `source`, or an extra one of the
    /// plan.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it does not exist.
    pub fn host(&self, name: &str) -> Result<Host> {
        self.hosts()?.host(name)
    }

    /// One-way delays between hosts' access links, by [`Host::id`].
    ///
    /// # Errors
    /// [`Error::Misuse`] if nodes have no hosts.
    pub fn delays(&self) -> Result<&PairDelays> {
        Ok(self.hosts()?.pairs())
    }

    /// Ends the emulator, which disconnects all nodes, and returns its report.
    ///
    /// # Errors
    /// [`Error::Misuse`] if nodes have no hosts, or it has already ended.
    pub fn stop_links(&self) -> Result<Report> {
        self.hosts()?.emulation().stop()
    }

    fn hosts(&self) -> Result<&Hosts> {
        let none = || Error::Misuse("the nodes of this network have no hosts".to_owned());
        self.hosts.as_ref().ok_or_else(none)
    }

    /// Duration of the start.
    #[must_use]
    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// Starts endless downloads through a client, each stream on its own circuit through these
    /// relays, first hop first. The last must be an exit.
    ///
    /// # Errors
    /// If a circuit or stream cannot be opened; then none is left open.
    pub fn download_through(
        &self,
        client: &Node,
        path: &[&Node],
        streams: usize,
    ) -> Result<RunningDownloads> {
        self.download(client, &DownloadPlan::through(path).streams(streams))
    }

    /// Starts the downloads of a plan through a client.
    ///
    /// # Errors
    /// As [`Self::download_through`].
    pub fn download(&self, client: &Node, plan: &DownloadPlan) -> Result<RunningDownloads> {
        RunningDownloads::start(client, plan, self.source()?)
    }

    /// Opens a stream through a client and these relays, first hop first, whose server returns each
    /// byte. The last relay must be an exit.
    ///
    /// # Errors
    /// As [`Self::download_through`].
    pub fn echo_through(&self, client: &Node, path: &[&Node]) -> Result<EchoStream> {
        EchoStream::open(client, path, self.source()?)
    }

    /// The server of all downloads, for example to pause them.
    ///
    /// # Errors
    /// If it cannot be started at the first use.
    pub fn source(&self) -> Result<&SourceServer> {
        if let Some(source) = self.source.get() {
            return Ok(source);
        }
        let host = self.hosts.as_ref().map(|hosts| hosts.host(SOURCE)).transpose()?;
        let source = SourceServer::start_at(host)?;
        Ok(self.source.get_or_init(|| source))
    }

    /// Number of a node's TCP connections to peers outside the network: those that a test opened to
    /// it, and an exit's to the server of downloads.
    ///
    /// # Errors
    /// If the node is not running.
    pub fn outside_connections(&self, node: &Node) -> Result<usize> {
        let connections = node.connections()?;
        let running = self.nodes().filter(|node| node.is_running());
        let mut inside = HashSet::new();
        for other in running {
            inside.extend(other.connections()?.into_iter().map(|connection| connection.local));
        }
        Ok(connections.iter().filter(|connection| !inside.contains(&connection.remote)).count())
    }

    /// The first authority's current consensus.
    ///
    /// # Errors
    /// [`Error::Directory`].
    pub fn consensus(&self) -> Result<String> {
        self.document(&self.nodes[0], "consensus")
    }

    /// The authorities' current votes, by authority name.
    ///
    /// # Errors
    /// [`Error::Directory`].
    pub fn votes(&self) -> Result<Vec<(String, String)>> {
        let vote = |node: &Node| Ok((node.name().to_owned(), self.document(node, "authority")?));
        self.authorities().map(vote).collect()
    }

    /// Uploads the server descriptor of a relay that is not a node of this network to all
    /// authorities.
    ///
    /// # Errors
    /// [`Error::Directory`] with the authority's answer.
    pub fn upload(&self, descriptor: &str) -> Result<()> {
        for authority in self.authorities() {
            let address = dir_addr(authority)?;
            let taken = inside(authority.host(), || directory::upload(address, descriptor))?;
            let (node, path) = (authority.name().to_owned(), "/tor/".to_owned());
            taken.map_err(|reason| Error::Directory { node, path, reason })?;
        }
        Ok(())
    }

    /// Waits until the first authority's consensus satisfies `is_it`, and returns it.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub fn wait_for_consensus(
        &self,
        mut is_it: impl FnMut(&str) -> bool,
        timeout: Duration,
    ) -> Result<String> {
        let authority = &self.nodes[0];
        let what = format!("{} had no such consensus", authority.name());
        authority.wait_until(&what, timeout, || {
            Ok(self.consensus().ok().filter(|text| is_it(text)).or_else(nap))
        })
    }

    /// Waits until every authority's vote satisfies `are_they`, and returns the votes.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub fn wait_for_votes(
        &self,
        mut are_they: impl FnMut(&str) -> bool,
        timeout: Duration,
    ) -> Result<Vec<(String, String)>> {
        let what = "the authorities did not vote as expected";
        self.nodes[0].wait_until(what, timeout, || {
            let votes = self.votes().ok();
            let fitting = votes.filter(|votes| votes.iter().all(|(_, vote)| are_they(vote)));
            Ok(fitting.or_else(nap))
        })
    }

    /// Fetches a current document from an authority.
    fn document(&self, authority: &Node, name: &str) -> Result<String> {
        let path = format!("/tor/status-vote/current/{name}");
        let address = dir_addr(authority)?;
        inside(authority.host(), || directory::get(address, &path))?.map_err(|reason| {
            let node = authority.name().to_owned();
            Error::Directory { node, path, reason }
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let begin = Instant::now();
        // Signals all nodes at once; each is waited for when dropped.
        for node in &self.nodes {
            let _ = node.signal(Signal::TERM);
        }
        for node in &self.nodes {
            node.stop();
        }
        tracing::debug!("network ended within {:?}", begin.elapsed());
    }
}

/// An authority's DirPort.
fn dir_addr(authority: &Node) -> Result<SocketAddr> {
    let no_authority = || Error::Misuse(format!("{} is not an authority", authority.name()));
    authority.dir_addr().ok_or_else(no_authority)
}

/// Pause between requests to an authority, which serves others too.
fn nap<T>() -> Option<T> {
    thread::sleep(Duration::from_millis(100));
    None
}
