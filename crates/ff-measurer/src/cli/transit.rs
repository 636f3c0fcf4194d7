//! The command `transit`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use ff_proto::ids::CryptoKind;
use ff_proto::units::{BytesPerSec, Cells};
use serde::Serialize;
use tor_llcrypto::pk::ed25519::Ed25519Identity;

use crate::console::{note, print};
use crate::key::parse_key;
use crate::link::TargetAddr;
use crate::measurer::START_LEAD;
use crate::transit::{DEFAULT_LINKS, Direction, Transit, TransitOrder, TransitSecond};

/// Options of `transit`.
#[derive(Args, Debug)]
pub struct TransitOptions {
    /// Address of the relay's ORPort.
    #[arg(long, value_name = "IP:PORT")]
    pub target: SocketAddr,
    /// The relay's Ed25519 identity, 43 base64 characters: `fingerprint-ed25519` in its data
    /// directory.
    #[arg(long, value_name = "BASE64", value_parser = parse_key)]
    pub ed_identity: [u8; 32],
    /// The relay's key for circuits, 43 base64 characters: `ntor-onion-key` in its descriptor.
    #[arg(long, value_name = "BASE64", value_parser = parse_key)]
    pub onion_key: [u8; 32],
    /// Number of links to the relay (1 to 512).
    #[arg(long, default_value_t = DEFAULT_LINKS, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub links: u16,
    /// Number of circuits over all links; default: two per link.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub circuits: Option<u32>,
    /// Number of these circuits that always carry cells; default: all.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub busy_circuits: Option<u32>,
    /// Send one cell in this many over the other circuits, in turn; default: these stay open and
    /// idle.
    #[arg(long, value_name = "NUMBER", requires = "busy_circuits",
          value_parser = clap::value_parser!(u32).range(2..))]
    pub quiet_one_in: Option<u32>,
    /// Open at most this many links and this many circuits per second; default: unlimited.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub circuits_per_second: Option<u32>,
    /// Addresses at which sinks listen: the relay must be able to reach them. Each has its own
    /// identity, and the relay opens a link to each.
    #[arg(long, value_name = "IP:PORT", value_delimiter = ',', default_value = "127.0.0.1:0")]
    pub sinks: Vec<SocketAddr>,
    /// Direction of the cells.
    #[arg(long, value_enum, default_value_t = Way::Both)]
    pub direction: Way,
    /// Limit of the rate in each direction, such as 50Mbit; default: unlimited.
    #[arg(long)]
    pub rate: Option<BytesPerSec>,
    /// How long to send, in seconds (1 to 120).
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=120))]
    pub seconds: u16,
    /// The crypto of the circuits.
    #[arg(long, value_enum, default_value_t = Crypto::CgoAes128)]
    pub crypto: Crypto,
    /// Confirm that the relay's operator has agreed; required unless its address is private.
    #[arg(long)]
    pub i_have_the_operators_consent: bool,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Which way cells go.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Way {
    /// From the measurer through the relay to the sink.
    Forward,
    /// From the sink through the relay to the measurer.
    Backward,
    /// Both at once.
    Both,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::Forward => Self::Forward,
            Way::Backward => Self::Backward,
            Way::Both => Self::Both,
        }
    }
}

/// The crypto of circuits.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Crypto {
    /// Counter Galois Onion, of today's clients.
    CgoAes128,
    /// AES in counter mode, of older ones.
    Aes128Ctr,
}

/// The result of `transit`.
#[derive(Debug, Serialize)]
struct Report {
    /// Links to the relay.
    links: u16,
    /// Circuits over them.
    circuits: u32,
    /// The crypto of the circuits.
    crypto: &'static str,
    /// Bytes of cells that arrived at the sink in each second.
    forward_bytes: Vec<u64>,
    /// Bytes of cells that arrived at the measurer in each second.
    backward_bytes: Vec<u64>,
    /// Median of the seconds' bytes in both directions together.
    median_bytes_per_sec: u64,
    /// Cells sent by both ends.
    sent_cells: u64,
    arrived_cells: u64,
    /// Of the cells that arrived, the checked ones.
    checked_cells: u64,
    /// CPU time of both ends in microseconds.
    cpu_micros: u64,
}

/// Carries out the command.
///
/// # Errors
/// When cells cannot be sent through the relay, or when they are not as they must be.
pub(super) fn run(options: &TransitOptions) -> Result<ExitCode> {
    let order = order(options);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("Failed to start a runtime")?;
    let report = runtime
        .block_on(carry_out(&order))
        .with_context(|| format!("Failed to send cells through {}", options.target))?;
    let text = if options.json {
        format!("{}\n", serde_json::to_string(&report).context("Failed to make the JSON")?)
    } else {
        summary(&report)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The order of these options.
fn order(options: &TransitOptions) -> TransitOrder {
    let ed_identity = Ed25519Identity::new(options.ed_identity);
    let target = TargetAddr { addr: options.target, ed_identity };
    TransitOrder {
        crypto: match options.crypto {
            Crypto::CgoAes128 => CryptoKind::CGO_AES128,
            Crypto::Aes128Ctr => CryptoKind::AES128_CTR,
        },
        links: options.links,
        circuits: options.circuits.unwrap_or(TransitOrder::circuits_for(options.links)),
        busy_circuits: options.busy_circuits.unwrap_or(u32::MAX),
        quiet_one_in: options.quiet_one_in,
        circuits_per_sec: options.circuits_per_second,
        has_consent: options.i_have_the_operators_consent,
        direction: options.direction.into(),
        rate: options.rate,
        duration: Duration::from_secs(options.seconds.into()),
        ..TransitOrder::new(target, options.onion_key, options.sinks.clone())
    }
}

/// Sends cells, and shows each second.
async fn carry_out(order: &TransitOrder) -> Result<Report> {
    note(&format!("opening {} links and {} circuits", order.links, order.circuits));
    let mut transit = Transit::prepare(order).await?;
    transit.start(Instant::now() + START_LEAD);
    let mut seconds = Vec::new();
    let show = |second: TransitSecond| {
        note(&line(&second, order.duration));
        seconds.push(second);
    };
    let totals = transit.finish(show).await?;
    let sum = |what: fn(&crate::WorkerTotals) -> u64| totals.iter().map(what).sum();
    Ok(Report {
        links: order.links,
        circuits: order.circuits,
        crypto: order.crypto.name(),
        forward_bytes: seconds.iter().map(|s| Cells(s.forward_cells).bytes()).collect(),
        backward_bytes: seconds.iter().map(|s| Cells(s.backward_cells).bytes()).collect(),
        median_bytes_per_sec: median(&seconds),
        sent_cells: sum(|end| end.sent_cells),
        arrived_cells: sum(|end| end.echoed_cells),
        checked_cells: sum(|end| end.checked_cells),
        cpu_micros: seconds.iter().map(|second| second.cpu_micros).sum(),
    })
}

/// The median of the seconds' bytes in both directions together; of an even number, the lower
/// middle one.
fn median(seconds: &[TransitSecond]) -> u64 {
    let mut bytes: Vec<_> =
        seconds.iter().map(|s| Cells(s.forward_cells + s.backward_cells).bytes()).collect();
    bytes.sort_unstable();
    bytes.get(bytes.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// A second as text.
fn line(second: &TransitSecond, duration: Duration) -> String {
    let rate = |cells| BytesPerSec::new(Cells(cells).bytes()).mbit();
    format!(
        "second {:>3}/{}  forward {:>9.2}  backward {:>9.2} Mbit/s",
        second.second + 1,
        duration.as_secs(),
        rate(second.forward_cells),
        rate(second.backward_cells)
    )
}

/// The result as text.
fn summary(report: &Report) -> String {
    let mut text = String::new();
    let bytes: u64 = report.forward_bytes.iter().chain(&report.backward_bytes).sum();
    let per_gb = report.cpu_micros as f64 / 1e6 / (bytes.max(1) as f64 / 1e9);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "  transit  {} (median second, both ways)\n    cells  {} sent, {} arrived, {} checked, 0 bad\n\
         \x20     CPU  {:.2} s of both ends, {per_gb:.2} s/GB\n  circuits  {} over {} links, {}\n",
        BytesPerSec::new(report.median_bytes_per_sec),
        report.sent_cells,
        report.arrived_cells,
        report.checked_cells,
        report.cpu_micros as f64 / 1e6,
        report.circuits,
        report.links,
        report.crypto,
    );
    text
}
