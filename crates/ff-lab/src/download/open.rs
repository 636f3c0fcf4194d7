//! Opens the streams of a download and attaches each to its circuit.

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::DownloadPlan;
use crate::control::{CircuitId, Control, Event};
use crate::error::{Error, Result};
use crate::hosts::inside;
use crate::node::Node;
use crate::socks::Pending;

/// A client's circuits; dropping them closes them.
#[derive(Debug)]
pub(super) struct Circuits {
    control: Control,
    ids: Vec<CircuitId>,
}

impl Drop for Circuits {
    fn drop(&mut self) {
        for id in &self.ids {
            // tor has already closed it if one of its relays or the client has ended.
            let _ = self.control.close_circuit(id);
        }
    }
}

/// Opens the streams of a plan to this server.
pub(super) fn open(
    client: &Node,
    plan: &DownloadPlan,
    server: SocketAddr,
) -> Result<(Vec<TcpStream>, Circuits)> {
    let mut control = client.control()?;
    let path: Vec<_> = plan.path.iter().map(String::as_str).collect();
    let count = plan.circuits.unwrap_or(plan.streams).clamp(1, plan.streams.max(1));
    let ids = control.build_circuits(&path, count)?;
    let mut circuits = Circuits { control, ids };
    // The option below applies to the client, not to the connection.
    let alone = client.alone_attaching();
    circuits.control.subscribe(&["STREAM"])?;
    circuits.control.setconf(LEAVE_UNATTACHED, "1")?;
    let streams = open_on(&mut circuits, client, plan, server);
    circuits.control.setconf(LEAVE_UNATTACHED, "0")?;
    circuits.control.subscribe(&[])?;
    drop(alone);
    Ok((streams?, circuits))
}

/// Option that leaves new streams to the controller.
const LEAVE_UNATTACHED: &str = "__LeaveStreamsUnattached";

/// Longest wait until all streams of a download are open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the streams on built circuits.
fn open_on(
    circuits: &mut Circuits,
    client: &Node,
    plan: &DownloadPlan,
    server: SocketAddr,
) -> Result<Vec<TcpStream>> {
    let failed = |stream, reason: String| Error::Stream { stream, reason };
    let mut pending = Vec::with_capacity(plan.streams);
    let mut attaching = Attaching::default();
    for stream in 0..plan.streams {
        let (socks, isolation) = (client.socks_addr(), format!("ff-lab{stream}"));
        let connect = || Pending::connect(socks, server, &isolation);
        let connection =
            inside(client.host(), connect)?.map_err(|error| failed(stream, error.to_string()))?;
        let from = connection.local_addr().map_err(Error::io("get a socket's address"))?;
        attaching.by_source.insert(from.to_string(), stream);
        pending.push(connection);
    }
    attaching.run(circuits)?;
    let request = plan.request();
    let start = |(stream, connection): (usize, Pending)| {
        let opened = connection.open().and_then(|mut socket| {
            socket.write_all(request.as_bytes())?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        opened.map_err(|error| failed(stream, error.to_string()))
    };
    pending.into_iter().enumerate().map(start).collect()
}

/// Streams that are being attached to circuits.
#[derive(Default)]
struct Attaching {
    /// Streams that tor has not reported yet, by their source address.
    by_source: HashMap<String, usize>,
    /// Streams attached but not open yet, by tor's stream id.
    by_id: HashMap<String, usize>,
}

impl Attaching {
    /// Attaches the streams to the circuits in turn and waits until all are open.
    fn run(&mut self, circuits: &mut Circuits) -> Result<()> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        while !(self.by_source.is_empty() && self.by_id.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(event) = circuits.control.next_event(left)? else {
                let what =
                    format!("{} streams did not open", self.by_source.len() + self.by_id.len());
                return Err(Error::Timeout { what, after: OPEN_TIMEOUT, detail: String::new() });
            };
            self.on_event(&event, circuits)?;
        }
        Ok(())
    }

    /// Handles a stream event, which may belong to another user's stream.
    fn on_event(&mut self, event: &Event, circuits: &mut Circuits) -> Result<()> {
        let mut words = event.words();
        let (Some(id), Some(state)) = (words.next(), words.next()) else { return Ok(()) };
        match state {
            "NEW" => {
                let source = event.get("SOURCE_ADDR").unwrap_or_default();
                if let Some(stream) = self.by_source.remove(source) {
                    let circuit = &circuits.ids[stream % circuits.ids.len()];
                    circuits.control.attach_stream(id, circuit)?;
                    self.by_id.insert(id.to_owned(), stream);
                }
            }
            "SUCCEEDED" => {
                self.by_id.remove(id);
            }
            "DETACHED" | "FAILED" | "CLOSED" => {
                if let Some(&stream) = self.by_id.get(id) {
                    return Err(Error::Stream { stream, reason: event.text.clone() });
                }
            }
            _ => {}
        }
        Ok(())
    }
}
