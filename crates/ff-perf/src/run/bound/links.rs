//! Formulas 1 and 2: throughput of TCP over links, and over a path of them.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use ff_circuits::bound::tcp_bytes_per_sec;
use serde::Serialize;

use crate::cli::bound::{BoundArgs, TcpLink};
use crate::run::output::print;

#[derive(Debug, Serialize)]
struct Found {
    /// Version of this document.
    schema: u32,
    links: Vec<Row>,
    /// Greatest throughput of a path of all links.
    path_kbytes_per_sec: f64,
}

/// A link.
#[derive(Debug, Serialize)]
struct Row {
    rtt_ms: f64,
    /// Share of lost packets.
    loss: f64,
    /// Payload of a packet.
    packet_bytes: f64,
    /// Greatest throughput.
    kbytes_per_sec: f64,
}

/// Computes and prints the throughput of links.
///
/// # Errors
/// If it cannot be printed.
pub(super) fn run(args: &BoundArgs) -> Result<ExitCode> {
    let row = |&TcpLink { rtt_ms, loss, packet_bytes }: &TcpLink| {
        let kbytes_per_sec = tcp_bytes_per_sec(packet_bytes, rtt_ms / 1e3, loss) / 1e3;
        Row { rtt_ms, loss, packet_bytes, kbytes_per_sec }
    };
    let links: Vec<Row> = args.link.iter().map(row).collect();
    let slowest = links.iter().map(|link| link.kbytes_per_sec).fold(f64::INFINITY, f64::min);
    let found = Found { schema: 1, links, path_kbytes_per_sec: slowest };
    print(args.json, &found, text)
}

fn text(found: &Found) -> String {
    let mut text = format!("{:>10} {:>8} {:>8} {:>12}\n", "RTT, ms", "loss", "bytes", "TCP, kB/s");
    for link in &found.links {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>10.2} {:>8} {:>8.0} {:>12.2}",
            link.rtt_ms, link.loss, link.packet_bytes, link.kbytes_per_sec
        );
    }
    if found.links.len() > 1 {
        let _ = writeln!(text, "a path of them: at most {:.2} kB/s", found.path_kbytes_per_sec);
    }
    text
}
