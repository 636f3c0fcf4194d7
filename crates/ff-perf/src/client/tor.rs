//! A tor process, used through its control socket and its SocksPort.
//!
//! ```text
//!  build, probe, open ─▶ Commands: a thread ─▶ control connection 1 ─▶ tor
//!          ▲                                                            │
//!          └── Table: waiters ◀───────────── Events: a thread ◀── control connection 2
//! ```
//!
//! Times are those at which events are read here. tor answers RESOLVE of a literal address itself,
//! so that probe is not available. Meanwhile tor leaves all new streams to this program, so nothing
//! else may use it. Its options are changed for that and restored after the last use.

mod commands;
mod events;
mod lock;
mod options;
pub mod own;
mod refusal;
mod stream;
mod table;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ff_circuits::network::{self, NetworkRelay};
use ff_circuits::record::{Probe, Whose};
use ff_lab::Control;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Answer, Client, Fault, PROBE_PORT, Progress, refused};
use commands::Commands;
pub use commands::{Ending, TorCircuit};
pub(crate) use lock::TorLock;
use options::Taken;
use refusal::RejectsInternal;
use stream::{News, Stream, astray, by_tor, ended};
use table::{CircuitState, StreamState, Table};

/// Interval of checks of a circuit's link while tor sends no events.
const LOOK: Duration = Duration::from_millis(200);

/// A tor process that builds circuits for this program.
pub struct Tor {
    commands: Commands,
    /// Waiters for events.
    table: Arc<Table>,
    /// Address of the SocksPort.
    socks: SocketAddr,
    /// Whether tor reports an exit's answer with an address in 127.0.0.0/8 as a protocol violation.
    rejects: RejectsInternal,
}

/// Result of taking over a tor.
pub struct Takeover {
    /// The tor.
    pub tor: Tor,
    /// Reports when tor has its options back.
    pub ending: Ending,
    /// A warning, if any.
    pub note: Option<String>,
}

impl Tor {
    /// Takes over the first tor in a directory that has a control socket and a SocksPort.
    ///
    /// # Errors
    /// If there is none, with the directory's name; errors of the control socket.
    pub fn take_over(dir: &Path) -> Result<Takeover, String> {
        Self::take_over_with(dir, &[])
    }

    /// As [`Self::take_over`], and sets these options, by name and value, until tor gets its own
    /// back.
    ///
    /// # Errors
    /// As [`Self::take_over`], and if tor refuses an option.
    pub fn take_over_with(dir: &Path, lines: &[(String, String)]) -> Result<Takeover, String> {
        let dir = find(dir)?;
        let lock = TorLock::take(&dir)?;
        let failed = |error: ff_lab::Error| format!("{}: {error}", dir.display());
        let mut control = Control::open(&dir).map_err(failed)?;
        let socks = socks_port(&mut control, &dir)?;
        let rejects = RejectsInternal::ask(&mut control).map_err(failed)?;
        let mut events = Control::open(&dir).map_err(failed)?;
        events.subscribe(&["CIRC", "STREAM", "ORCONN", "CONF_CHANGED"]).map_err(failed)?;
        let taken = Taken::new(control, lines).map_err(failed)?;
        let note = taken.is_left_over().then(|| left_over(&dir));
        let table = Arc::new(Table::default());
        let started = Commands::start(taken, lock, Arc::clone(&table), rejects.clone());
        let (commands, ending) = started.map_err(|error| error.to_string())?;
        if let Err(error) =
            events::start(events, Arc::clone(&table), commands.watch(), rejects.clone())
        {
            // Otherwise dropping the ending would wait for them.
            drop(commands);
            return Err(error.to_string());
        }
        Ok(Takeover { tor: Self { commands, table, socks, rejects }, ending, note })
    }

    /// The first of these options, by name and value, that the tor in a directory refuses, with
    /// tor's message. tor keeps none of them.
    ///
    /// # Errors
    /// If the directory has no tor that can be taken over; errors of the control socket.
    pub fn refused(
        dir: &Path,
        lines: &[(String, String)],
    ) -> Result<Option<(usize, String)>, String> {
        let dir = find(dir)?;
        let _lock = TorLock::take(&dir)?;
        let refused = options::refused(|| Control::open(&dir), lines);
        refused.map_err(|error| format!("{}: {error}", dir.display()))
    }

    /// Names of these options that tor has set although its torrc does not: a killed run may have
    /// left them.
    ///
    /// # Errors
    /// If the directory has no tor that can be taken over; errors of the control socket.
    pub fn not_of_torrc(dir: &Path, lines: &[(String, String)]) -> Result<Vec<String>, String> {
        let dir = find(dir)?;
        let torrc = fs::read_to_string(dir.join("torrc")).unwrap_or_default();
        let found = Control::open(&dir)
            .and_then(|mut control| options::not_of_torrc(&mut control, &torrc, lines));
        found.map_err(|error| format!("{}: {error}", dir.display()))
    }

    /// Whether an arm must not set this option, because tor is reached by it or given paths need
    /// it.
    #[must_use]
    pub fn needs(option: &str, has_given_paths: bool) -> bool {
        options::is_needed(option, has_given_paths)
    }

    /// Requests a stream, attaches it to a circuit, and returns its events.
    async fn stream(
        &self,
        circuit: &TorCircuit,
        host: &str,
        port: u16,
    ) -> Result<(TcpStream, News), Fault> {
        let mut socket = TcpStream::connect(self.socks).await.map_err(socks)?;
        socket.set_nodelay(true).map_err(socks)?;
        let source = socket.local_addr().map_err(socks)?;
        let slot = self.table.expect_stream(source);
        let mut news = News::of(slot, &circuit.id);
        // RFC 1928 §3: version 5, one method: no authentication.
        socket.write_all(&[5, 1, 0]).await.map_err(socks)?;
        let mut method = [0; 2];
        socket.read_exact(&mut method).await.map_err(socks)?;
        socket.write_all(&connect_request(host, port)?).await.map_err(socks)?;
        let id = match news.next().await?.1 {
            StreamState::New(id) => id,
            StreamState::Ended { reason, .. } => return Err(Fault::client(reason)),
            // tor did not wait for us.
            StreamState::Sent(on)
            | StreamState::Connected(on)
            | StreamState::Renamed { circuit: on, .. } => return Err(astray(&on)),
        };
        let attach = format!("ATTACHSTREAM {id} {}", circuit.id);
        match self.commands.ask(attach).await {
            Ok(_) => Ok((socket, news)),
            Err(fault) => Err(not_attached(fault, circuit).await),
        }
    }
}

/// The fault of a stream that could not be attached. tor refuses because the circuit has ended or
/// is too short, or because the stream does not wait for us: then tor handles it itself.
async fn not_attached(fault: Fault, circuit: &TorCircuit) -> Fault {
    let says = |part| fault.reason.contains(part);
    if fault.whose == Whose::Client {
        return fault;
    }
    if says("one-hop circuit") {
        return Fault::client(
            "tor does not attach streams to circuits of one relay: give longer paths, or --client arti",
        );
    }
    if says("ircuit") {
        return circuit.destroyed_by_now().await;
    }
    Fault::client(format!(
        "{}: tor attached the stream itself: did it get SIGHUP or other options?",
        fault.reason
    ))
}

impl Client for Tor {
    type Circuit = TorCircuit;
    type Stream = Stream;

    const NAME: ff_circuits::record::Client = ff_circuits::record::Client::Tor;
    // A refusal with reason `misc` makes a circuit too old for new streams whatever
    // MaxCircuitDirtiness is, and tor closes such circuits without streams once more before it
    // applies the new NewCircuitPeriod.
    const KEEPS_UNUSED: bool = false;

    async fn build(
        &self,
        path: &[Arc<NetworkRelay>],
        progress: &mut Progress,
    ) -> Result<Self::Circuit, Fault> {
        let guard = path.first().ok_or_else(|| Fault::client("a path of 0 relays"))?;
        let ids: Vec<_> = path.iter().map(|relay| format!("${}", relay.id)).collect();
        let mut circuit =
            self.commands.extend(format!("EXTENDCIRCUIT 0 {}", ids.join(","))).await?;
        let us = |progress: &Progress, at: Instant| {
            u64::try_from(at.saturating_duration_since(progress.began).as_micros())
                .unwrap_or(u64::MAX)
        };
        loop {
            // No event links an opening link to the circuit, which may be cancelled before its
            // first event.
            let slot = circuit.news.get_mut().unwrap_or_else(PoisonError::into_inner);
            let news = timeout(LOOK, slot.next()).await;
            let link = self.table.link(&guard.id, progress.began);
            progress.has_link = link.is_open || !progress.hops_us.is_empty();
            progress.link_us = link.opened.map(|opened| us(progress, opened));
            let Ok(news) = news else { continue };
            let (at, state) = news?;
            match state {
                CircuitState::Hops(hops) => {
                    progress.has_link = true;
                    while progress.hops_us.len() < hops.min(path.len()) {
                        progress.hops_us.push(us(progress, at));
                    }
                }
                CircuitState::Built => return Ok(circuit),
                CircuitState::Ended { reason, by_relay } => return Err(ended(reason, by_relay)),
            }
        }
    }

    async fn probe(
        &self,
        circuit: &TorCircuit,
        probe: Probe,
        address: Ipv4Addr,
    ) -> Result<Answer, Fault> {
        if probe == Probe::Resolve {
            return Err(Fault::client("tor resolves a literal address itself"));
        }
        let (_socket, mut news) = self.stream(circuit, &address.to_string(), PROBE_PORT).await?;
        refusal::wait(&mut news, address, &self.rejects, || circuit.destroyed()).await
    }

    async fn open(&self, circuit: &TorCircuit, host: &str, port: u16) -> Result<Stream, Fault> {
        let (mut socket, mut news) = self.stream(circuit, host, port).await?;
        loop {
            match news.next().await?.1 {
                StreamState::Connected(_) => break,
                StreamState::Ended { reason, by_exit: true, .. } => {
                    return Err(refused(reason));
                }
                StreamState::Ended { reason, .. } => {
                    let breach = || stream::false_address(host);
                    return Err(by_tor(reason, || circuit.destroyed(), breach));
                }
                StreamState::New(_) | StreamState::Sent(_) | StreamState::Renamed { .. } => {}
            }
        }
        // The reply has an IPv4 address, as always from tor (socks-extensions).
        let mut reply = [0; 10];
        socket.read_exact(&mut reply).await.map_err(socks)?;
        Ok(Stream::new(socket, news))
    }

    /// A SocksPort closes a stream in the same way for either end; tor's events tell which end it
    /// was.
    async fn lost(
        circuit: &Self::Circuit,
        stream: &mut Self::Stream,
        _error: Option<&io::Error>,
    ) -> Option<Fault> {
        stream.lost(|| circuit.destroyed()).await
    }
}

/// Warning about a tor that still has the options of an earlier run.
fn left_over(dir: &Path) -> String {
    format!(
        "{}: its tor still has the options of a killed run; send it SIGHUP to restore those of its torrc",
        dir.display()
    )
}

/// Finds a tor with a control socket and a SocksPort: in this directory or one below it, as a lab
/// or chutney has them.
pub(crate) fn find(dir: &Path) -> Result<PathBuf, String> {
    // The file of a consensus is in the directory of its tor.
    let dir = if dir.is_file() { dir.parent().unwrap_or(dir) } else { dir };
    let is_client = |dir: &PathBuf| {
        let torrc = fs::read_to_string(dir.join("torrc")).unwrap_or_default();
        dir.join("control").exists() && has_socks(&torrc)
    };
    network::directories(dir).into_iter().find(is_client).ok_or_else(|| {
        format!(
            "{}: no tor there has a control socket named `control` and a torrc with a SocksPort: start the network with a client",
            dir.display()
        )
    })
}

/// SocksPort of the tor in a directory.
fn socks_port(control: &mut Control, dir: &Path) -> Result<SocketAddr, String> {
    let failed = |error: ff_lab::Error| format!("{}: {error}", dir.display());
    let listeners = control.getinfo("net/listeners/socks").map_err(failed)?;
    let socks = listeners.split_whitespace().find_map(|word| word.trim_matches('"').parse().ok());
    socks.ok_or_else(|| format!("{}: its tor has no SocksPort with an address", dir.display()))
}

/// Whether a torrc has a SocksPort. The last line counts; 0 means none.
fn has_socks(torrc: &str) -> bool {
    let value = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| name.eq_ignore_ascii_case("SocksPort"));
        name.and_then(|_| words.next()).map(|port| port != "0")
    };
    torrc.lines().filter_map(value).next_back().unwrap_or(false)
}

/// A SOCKS request to connect to a host (RFC 1928 §4).
fn connect_request(host: &str, port: u16) -> Result<Vec<u8>, Fault> {
    let mut request = vec![5, 1, 0];
    match host.parse::<Ipv4Addr>() {
        Ok(address) => {
            request.push(1);
            request.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len())
                .map_err(|_| Fault::client(format!("{host} is too long")))?;
            request.extend([3, length]);
            request.extend(host.bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

/// The fault of a SocksPort that misbehaves.
fn socks(error: io::Error) -> Fault {
    Fault::client(format!("SocksPort: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of chutney's torrcs that matter here.
    const COMMON: &str = "TestingTorNetwork 1\nDataDirectory /x/net/nodes/000a\nRunAsDaemon 1\nControlPort 8000\n\
        ControlSocket /x/net/nodes/000a/control\nCookieAuthentication 1\nSandbox 1\n\
        DirAuthority test000a orport=5000 no-v2 v3ident=76DBE7 127.0.0.1:7000 1C9B7A\n";

    #[test]
    fn the_client_of_a_network_of_chutneys_is_found() {
        let net = tempfile::tempdir().expect("a directory");
        let nodes = net.path().join("nodes.1637264049");
        for (name, own) in [
            ("000a", "SocksPort 0\nOrPort 5000\nDirPort 7000\nAuthoritativeDirectory 1\n"),
            ("001r", "SocksPort 0\nOrPort 5001\nExitRelay 1\n"),
            ("002c", "SocksPort 9002\n"),
            ("003c", "SocksPort 9003\n"),
        ] {
            let dir = nodes.join(name);
            fs::create_dir_all(dir.join("keys")).expect("a directory");
            fs::write(dir.join("torrc"), format!("{COMMON}{own}")).expect("a torrc");
            fs::write(dir.join("control"), "").expect("in the place of a socket");
        }
        std::os::unix::fs::symlink(&nodes, net.path().join("nodes")).expect("a link");
        let client = net.path().join("nodes/002c");
        assert_eq!(find(net.path()), Ok(client.clone()));
        assert_eq!(find(&net.path().join("nodes")), Ok(client));
        assert_eq!(find(&nodes.join("003c")), Ok(nodes.join("003c")));
        // A tor that does not run has no socket.
        for name in ["002c", "003c"] {
            fs::remove_file(nodes.join(name).join("control")).expect("it was there");
        }
        let error = find(net.path()).expect_err("no client");
        assert!(error.contains("start the network with a client"), "{error}");
    }

    #[test]
    fn a_socks_port_is_read_as_tor_reads_it() {
        for (torrc, is_one) in [
            ("SocksPort 9050", true),
            ("socksport\t127.0.0.1:9050 IsolateDestAddr", true),
            ("  SocksPort auto\n", true),
            ("SocksPort 0", false),
            ("SocksPort 9050\nSocksPort 0", false),
            ("# SocksPort 9050\nSocksPolicy accept *", false),
        ] {
            assert_eq!(has_socks(torrc), is_one, "{torrc}");
        }
    }
}
