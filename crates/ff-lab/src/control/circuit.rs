//! Circuits through given relays, and streams attached to given circuits.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use super::Control;
use crate::error::{Error, Result};

/// tor's identifier of a client's circuit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CircuitId(String);

impl fmt::Display for CircuitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Control {
    /// Builds a circuit through relays of these RSA fingerprints and waits until it is built.
    ///
    /// # Errors
    /// [`Error::Circuit`] with tor's reason.
    pub fn build_circuit(&mut self, path: &[&str]) -> Result<CircuitId> {
        let mut built = self.build_circuits(path, 1)?;
        built.pop().ok_or_else(|| failed(path, "none was built"))
    }

    /// Builds `count` circuits through the same relays at once.
    ///
    /// # Errors
    /// [`Error::Circuit`] with tor's reason; circuits already built are closed.
    pub fn build_circuits(&mut self, path: &[&str], count: usize) -> Result<Vec<CircuitId>> {
        self.subscribe_also(&["CIRC"])?;
        let mut circuits = Vec::with_capacity(count);
        let built = (0..count)
            .try_for_each(|_| {
                circuits.push(self.begin_circuit(path)?);
                Ok(())
            })
            .and_then(|()| self.wait_until_built(path, &circuits));
        if built.is_err() {
            for circuit in &circuits {
                let _ = self.close_circuit(circuit);
            }
        }
        self.subscribe_as_before()?;
        built.map(|()| circuits)
    }

    /// Closes a circuit and its streams.
    ///
    /// # Errors
    /// As [`Self::command`], for example if tor has already closed it.
    pub fn close_circuit(&mut self, circuit: &CircuitId) -> Result<()> {
        self.command(&format!("CLOSECIRCUIT {circuit}")).map(drop)
    }

    /// Attaches a waiting stream to a circuit; needs `__LeaveStreamsUnattached`.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn attach_stream(&mut self, stream: &str, circuit: &CircuitId) -> Result<()> {
        self.command(&format!("ATTACHSTREAM {stream} {circuit}")).map(drop)
    }

    /// Has tor start a circuit.
    fn begin_circuit(&mut self, path: &[&str]) -> Result<CircuitId> {
        let hops: Vec<_> = path.iter().map(|fingerprint| format!("${fingerprint}")).collect();
        let reply = self
            .command(&format!("EXTENDCIRCUIT 0 {}", hops.join(",")))
            .map_err(|error| failed(path, &error.to_string()))?;
        let id = reply.text().strip_prefix("EXTENDED ");
        let id = id.ok_or_else(|| failed(path, reply.text()))?;
        Ok(CircuitId(id.to_owned()))
    }

    /// Waits for the events that report the circuits as built.
    fn wait_until_built(&mut self, path: &[&str], circuits: &[CircuitId]) -> Result<()> {
        let mut missing: HashSet<_> = circuits.iter().map(|id| id.0.clone()).collect();
        let deadline = Instant::now() + BUILD_TIMEOUT;
        let mut other_events = Vec::new();
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(event) = self.next_event(left)? else {
                let what = format!("{} circuits were not built", missing.len());
                return Err(Error::Timeout { what, after: BUILD_TIMEOUT, detail: String::new() });
            };
            let words: Vec<_> = event.words().take(2).collect();
            match (event.kind.as_str(), &words[..]) {
                ("CIRC", [id, "BUILT"]) => {
                    missing.remove(*id);
                }
                ("CIRC", [id, "FAILED" | "CLOSED"]) if missing.contains(*id) => {
                    return Err(failed(path, &event.text));
                }
                _ => other_events.push(event),
            }
        }
        self.events.extend(other_events);
        Ok(())
    }
}

/// Longest build time of a circuit; the first to a relay includes a TLS handshake at each hop.
const BUILD_TIMEOUT: Duration = Duration::from_secs(60);

fn failed(path: &[&str], reason: &str) -> Error {
    Error::Circuit { path: path.join(", "), reason: reason.to_owned() }
}
