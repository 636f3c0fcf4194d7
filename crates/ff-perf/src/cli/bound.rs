//! Options of `bound`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ff_flow::path::LONGEST;

/// Options of `bound`.
#[derive(Args, Clone, Debug)]
pub struct BoundArgs {
    /// A consensus of either flavour, compressed with xz or not: its weights are the capacities.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["capacities", "link"])]
    pub consensus: Option<PathBuf>,
    /// Descriptors of its relays: a file, an archive or a folder. They give families, by name and
    /// by key; capacities are still the weights.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["capacities", "link"])]
    pub descriptors: Option<PathBuf>,
    /// Capacities: results files of ff-bwauth (.jsonl), its export of results (CSV), a bandwidth
    /// file, relayinfo JSON, a table of an experiment's relays, or an hour of a store
    /// (DIR@2019-01-07T12:00).
    #[arg(long, value_name = "FILE", conflicts_with = "consensus")]
    pub capacities: Option<PathBuf>,
    /// Compute the most that TCP carries over a link (formula 1), from its round trip in ms, its
    /// share of lost packets, and optionally the payload of its packets (default: 1,460 bytes):
    /// 100,0.01 or 100,0.01,536. Several links form a path, which carries as much as its slowest
    /// link (formula 2).
    #[arg(long, value_name = "MS,LOSS[,BYTES]", conflicts_with_all = ["consensus", "capacities"], value_parser = link)]
    pub link: Vec<TcpLink>,
    /// Lengths of paths, from 1 to 10: 3, 1..6 or 1,2,3.
    #[arg(long, value_name = "LENGTHS", default_value = "1..8", value_parser = lengths)]
    pub lengths: Lengths,
    /// How relays are drawn.
    #[arg(long, value_enum, default_value_t = Select::Uniform)]
    pub select: Select,
    /// List the relays, families and classes that cost users most, for paths of this length.
    #[arg(long, value_name = "LENGTH", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub losses_at: u8,
    /// Number of relays, families and classes to list.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub worst: usize,
    /// Number of random paths for selections without a formula.
    #[arg(long, value_name = "PATHS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub samples: u64,
    /// Random seed.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Write figure 7 (the bound by length) into this file if its name ends in .svg; otherwise
    /// write figures 4 (capacities), 5 (shares of all capacity) and 7, and bound.csv into this
    /// folder.
    #[arg(long, value_name = "FILE|DIR")]
    pub figure: Option<PathBuf>,
    /// Print JSON; the bound is in kB/s.
    #[arg(long)]
    pub json: bool,
}

/// Rules for drawing relays.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Select {
    /// Each relay with equal probability, none twice (Lemma 1): exact.
    Uniform,
    /// By weight: exact if a relay may appear twice, otherwise estimated from drawn paths.
    Weighted,
    /// As Tor's clients do today: estimated from drawn paths.
    Tor,
}

/// Path lengths.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lengths(pub Vec<u8>);

/// A link that carries TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpLink {
    /// Round trip including queues, in ms.
    pub rtt_ms: f64,
    /// Share of lost packets.
    pub loss: f64,
    /// Payload of a packet, in bytes.
    pub packet_bytes: f64,
}

/// Payload of a packet of 1,500 bytes, without IP and TCP headers.
const PACKET_BYTES: f64 = 1460.0;

fn link(text: &str) -> Result<TcpLink, String> {
    let numbers = text.split(',').map(|one| one.trim().parse::<f64>().ok());
    let numbers = numbers.collect::<Option<Vec<_>>>().unwrap_or_default();
    let is_one = |rtt_ms: f64, loss: f64, bytes: f64| {
        (1e-3..=1e6).contains(&rtt_ms) && loss > 0.0 && loss <= 1.0 && (1.0..=1e6).contains(&bytes)
    };
    match numbers[..] {
        [rtt_ms, loss] if is_one(rtt_ms, loss, PACKET_BYTES) => {
            Ok(TcpLink { rtt_ms, loss, packet_bytes: PACKET_BYTES })
        }
        [rtt_ms, loss, packet_bytes] if is_one(rtt_ms, loss, packet_bytes) => {
            Ok(TcpLink { rtt_ms, loss, packet_bytes })
        }
        _ => Err("a link is a round trip in ms above 0, a share of packets lost above 0, and bytes a packet, as in \
                  100,0.01 or 100,0.01,536"
            .to_owned()),
    }
}

fn lengths(text: &str) -> Result<Lengths, String> {
    let number =
        |text: &str| text.trim().parse::<u8>().ok().filter(|one| (1..=LONGEST).contains(one));
    let all = match text.split_once("..") {
        Some((from, to)) => {
            let to = to.strip_prefix('=').unwrap_or(to);
            number(from).zip(number(to)).map(|(from, to)| (from..=to).collect::<Vec<_>>())
        }
        None => text.split(',').map(number).collect(),
    };
    match all {
        Some(all) if !all.is_empty() => Ok(Lengths(all)),
        _ => Err(format!("lengths are numbers from 1 to {LONGEST}, as in 3, 1..6 or 1,2,3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_understood() {
        for (text, all) in [("3", vec![3]), ("1..4", vec![1, 2, 3, 4]), ("2,10", vec![2, 10])] {
            assert_eq!(lengths(text), Ok(Lengths(all)), "{text}");
        }
        for odd in ["", "0", "11", "4..2", "1..11", "a", "1,,2"] {
            lengths(odd).expect_err(odd);
        }
    }
}
