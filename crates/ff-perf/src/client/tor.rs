//! A tor process, by its control socket and its SocksPort.
//!
//! ```text
//!  build, probe, open ─▶ Commands: a thread ─▶ control connection 1 ─▶ tor
//!          ▲                                                            │
//!          └── Table: who waits for what ◀── Events: a thread ◀── control connection 2
//! ```
//!
//! Times are those at which events are read here. tor answers RESOLVE of a literal address itself, so that probe is not
//! to be had. While it is used, tor leaves all new streams to us: it has to be a tor that nobody else uses.

mod commands;
mod events;
mod table;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ff_lab::Control;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Answer, Client, Fault, PROBE_PORT, Progress};
use crate::network::Relay;
use crate::record::{Probe, Whose};
use commands::Commands;
use table::{CircuitState, Slot, StreamState, Table};

/// Options that leave circuits and streams to us, and take away what would disturb: circuits of tor's own, a timeout
/// that it learns, the refusal of the addresses that probes ask for, the end of circuits that were used for
/// ten minutes, and the round in which tor, every half minute, closes circuits that a refusal has made too old.
const OPTIONS: [(&str, &str); 7] = [
    ("__LeaveStreamsUnattached", "1"),
    ("__DisablePredictedCircuits", "1"),
    ("LearnCircuitBuildTimeout", "0"),
    ("CircuitBuildTimeout", "600"),
    ("ClientRejectInternalAddresses", "0"),
    ("MaxCircuitDirtiness", "2 days"),
    ("NewCircuitPeriod", "2 days"),
];

/// A tor process.
pub struct Tor {
    /// Where commands go.
    commands: Commands,
    /// Who waits for what.
    table: Arc<Table>,
    /// Where streams begin.
    socks: SocketAddr,
}

/// A circuit of tor's.
pub struct Circuit {
    /// Its number.
    id: String,
    /// Where it is closed.
    commands: Commands,
    /// Where it is known.
    table: Arc<Table>,
}

impl Drop for Circuit {
    fn drop(&mut self) {
        self.table.forget_circuit(&self.id);
        self.commands.tell(format!("CLOSECIRCUIT {}", self.id));
    }
}

impl Tor {
    /// Takes over the first tor in a directory that has a control socket and a SocksPort.
    ///
    /// # Errors
    /// When there is none, with the directory's name, and what the control socket says.
    pub fn new(dir: &Path) -> Result<Self, String> {
        let dir = find(dir)?;
        let failed = |error: ff_lab::Error| format!("{}: {error}", dir.display());
        let mut control = Control::open(&dir).map_err(failed)?;
        let listeners = control.getinfo("net/listeners/socks").map_err(failed)?;
        let socks =
            listeners.split_whitespace().find_map(|word| word.trim_matches('"').parse().ok());
        let socks = socks.ok_or_else(|| {
            format!("{}: its tor has no SocksPort with an address", dir.display())
        })?;
        for (option, value) in OPTIONS {
            control.setconf(option, value).map_err(failed)?;
        }
        let mut events = Control::open(&dir).map_err(failed)?;
        events.subscribe(&["CIRC", "STREAM", "ORCONN"]).map_err(failed)?;
        let table = Arc::new(Table::default());
        events::start(events, Arc::clone(&table)).map_err(|error| error.to_string())?;
        let reset = format!("RESETCONF {}", OPTIONS.map(|(option, _)| option).join(" "));
        let commands = Commands::start(control, Arc::clone(&table), reset);
        Ok(Self { commands: commands.map_err(|error| error.to_string())?, table, socks })
    }

    /// Asks for a stream and puts it on a circuit; says where its news come.
    async fn stream(
        &self,
        circuit: &Circuit,
        host: &str,
        port: u16,
    ) -> Result<(TcpStream, Slot<StreamState>), Fault> {
        let mut socket = TcpStream::connect(self.socks).await.map_err(socks)?;
        socket.set_nodelay(true).map_err(socks)?;
        let source = socket.local_addr().map_err(socks)?;
        let mut slot = self.table.expect_stream(source);
        // RFC 1928 §3: version 5, one method, and that is none.
        socket.write_all(&[5, 1, 0]).await.map_err(socks)?;
        let mut method = [0; 2];
        socket.read_exact(&mut method).await.map_err(socks)?;
        socket.write_all(&connect_request(host, port)?).await.map_err(socks)?;
        let id = loop {
            match slot.next().await?.1 {
                StreamState::New(id) => break id,
                StreamState::Ended(reason) => return Err(Fault::client(reason)),
                StreamState::Sent | StreamState::Connected => {}
            }
        };
        let attach = format!("ATTACHSTREAM {id} {}", circuit.id);
        self.commands.ask(attach).await?;
        Ok((socket, slot))
    }
}

impl Client for Tor {
    type Circuit = Circuit;
    type Stream = TcpStream;

    const NAME: crate::record::Client = crate::record::Client::Tor;
    // A refusal by the reason `misc` makes a circuit too old for new streams, whatever MaxCircuitDirtiness is, and tor
    // closes those that are and have none once more before it heeds the NewCircuitPeriod that it is given.
    const KEEPS_UNUSED: bool = false;

    async fn build(
        &self,
        path: &[Arc<Relay>],
        progress: &mut Progress,
    ) -> Result<Self::Circuit, Fault> {
        let guard = path.first().ok_or_else(|| Fault::client("a path of 0 relays"))?;
        let ids: Vec<_> = path.iter().map(|relay| format!("${}", relay.id)).collect();
        let (id, mut slot) =
            self.commands.extend(format!("EXTENDCIRCUIT 0 {}", ids.join(","))).await?;
        let circuit =
            Circuit { id, commands: self.commands.clone(), table: Arc::clone(&self.table) };
        let us = |progress: &Progress, at: std::time::Instant| {
            u64::try_from(at.saturating_duration_since(progress.began).as_micros())
                .unwrap_or(u64::MAX)
        };
        loop {
            let (at, state) = slot.next().await?;
            let link = self.table.link(&guard.id, progress.began);
            progress.has_link = link.is_open || !progress.hops_us.is_empty();
            progress.link_us = link.opened.map(|opened| us(progress, opened));
            match state {
                CircuitState::Hops(hops) => {
                    progress.has_link = true;
                    while progress.hops_us.len() < hops.min(path.len()) {
                        progress.hops_us.push(us(progress, at));
                    }
                }
                CircuitState::Built => return Ok(circuit),
                CircuitState::Ended(reason) => {
                    let whose = if reason == "requested" { Whose::Client } else { Whose::Relay };
                    return Err(Fault { reason, whose });
                }
            }
        }
    }

    async fn probe(
        &self,
        circuit: &Self::Circuit,
        probe: Probe,
        address: Ipv4Addr,
    ) -> Result<Answer, Fault> {
        if probe == Probe::Resolve {
            return Err(Fault::client("tor resolves a literal address itself"));
        }
        let (_socket, mut slot) = self.stream(circuit, &address.to_string(), PROBE_PORT).await?;
        let mut sent = None;
        loop {
            match slot.next().await? {
                (at, StreamState::Sent) => sent = Some(at),
                (_, StreamState::Connected) => {
                    return Err(Fault::relay(format!("the exit accepted {address}")));
                }
                (at, StreamState::Ended(reason)) => {
                    let sent =
                        sent.ok_or_else(|| Fault::client(format!("never sent: {reason}")))?;
                    if matches!(reason.as_str(), "destroy" | "timeout" | "internal") {
                        return Err(Fault::relay(reason));
                    }
                    let us = at.saturating_duration_since(sent).as_micros();
                    return Ok(Answer { us: u64::try_from(us).unwrap_or(u64::MAX), reason });
                }
                (_, StreamState::New(_)) => {}
            }
        }
    }

    async fn open(
        &self,
        circuit: &Self::Circuit,
        host: &str,
        port: u16,
    ) -> Result<Self::Stream, Fault> {
        let (mut socket, mut slot) = self.stream(circuit, host, port).await?;
        loop {
            match slot.next().await?.1 {
                StreamState::Connected => break,
                StreamState::Ended(reason) => return Err(Fault::target(reason)),
                StreamState::New(_) | StreamState::Sent => {}
            }
        }
        // The answer of the SocksPort, with an IPv4 address as tor has it always (socks-extensions).
        let mut reply = [0; 10];
        socket.read_exact(&mut reply).await.map_err(socks)?;
        Ok(socket)
    }
}

/// The directory of a tor with a control socket and a SocksPort: this one, or one in it.
fn find(dir: &Path) -> Result<PathBuf, String> {
    // A consensus' file stands in the directory of the tor that has it.
    let dir = if dir.is_file() { dir.parent().unwrap_or(dir) } else { dir };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    all.sort();
    all.insert(0, dir.to_owned());
    let is_client = |dir: &PathBuf| {
        let torrc = fs::read_to_string(dir.join("torrc")).unwrap_or_default();
        let mut socks = torrc.lines().filter_map(|line| line.strip_prefix("SocksPort "));
        dir.join("control").exists() && socks.next_back().is_some_and(|port| port.trim() != "0")
    };
    all.into_iter().find(is_client).ok_or_else(|| {
        format!(
            "{}: no tor there has a control socket named `control` and a torrc with a SocksPort: start the network with a client",
            dir.display()
        )
    })
}

/// Asks a SocksPort to connect to a host (RFC 1928 §4).
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

/// A SocksPort that does not do what it should.
fn socks(error: std::io::Error) -> Fault {
    Fault::client(format!("SocksPort: {error}"))
}
