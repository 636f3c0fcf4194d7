//! What can one core of this host measure? Compared in one run, because machines differ and
//! drift: the same echo over plain TCP, over TLS by rustls alone, and by the real measurer.
//!
//! ```text
//!   client thread, last core  ◀── loopback ──▶  server thread, first core
//!     plain: read, write                          the same
//!     TLS:   rustls::ClientConnection             rustls::ServerConnection
//!     Worker, as in a measurement                 target.rs: record layer, AES-CTR, in place
//! ```
//!
//! Only the client's CPU time counts. All three batch alike: they read 128 KB a call, write up to
//! 44 KB a call, and nap when nothing is left to do. The links of the third have TLS but no Tor
//! handshake, which happens before the clock starts.

mod echo;
mod target;
mod tls;

use std::time::Duration;

use ff_proto::cell::CELL_LEN;
use serde::Serialize;

use crate::order::MeasurerError;

/// How the bench runs.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Sockets of the one core.
    pub sockets: u16,
    /// How long each of the three runs in a round.
    pub run: Duration,
    /// Rounds; the median counts.
    pub rounds: u8,
    /// Cells per record to compare at.
    pub cells_per_record: Vec<usize>,
}

/// The throughput of one core.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Gbit of cells echoed per second of CPU time.
    pub gbit_per_core: f64,
    /// CPU seconds per 1e9 bytes of cells echoed.
    pub cpu_s_per_gb: f64,
}

impl Throughput {
    /// From what was counted.
    #[expect(clippy::cast_precision_loss, reason = "bytes of some seconds are below 2^53")]
    fn new(bytes: u64, cpu: Duration) -> Self {
        let gigabytes = bytes as f64 / 1e9;
        Self {
            gbit_per_core: gigabytes * 8.0 / cpu.as_secs_f64(),
            cpu_s_per_gb: cpu.as_secs_f64() / gigabytes,
        }
    }
}

/// The comparison at one record size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Record {
    /// Cells in a TLS record.
    pub cells_per_record: usize,
    /// Echo over plain TCP.
    pub plain_tcp: Throughput,
    /// Echo over TLS, by rustls alone.
    pub raw_tls: Throughput,
    /// The measurer.
    pub measurer: Throughput,
    /// CPU time per byte of the measurer over that of TLS: the median of the rounds' ratios.
    pub measurer_vs_raw_tls: f64,
}

/// Why the bench cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A socket or thread failed.
    #[error("{what} failed")]
    Io {
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// TLS failed.
    #[error("TLS between the bench's own threads failed")]
    Tls(#[from] rustls::Error),
    /// The certificate cannot be made.
    #[error("the server's certificate cannot be made")]
    Certificate(#[from] tor_cert::x509::X509CertError),
    /// The record layer failed.
    #[error("the record layer failed")]
    Record(#[from] crate::link::record::RecordError),
    /// The measurer failed.
    #[error("the measurer failed")]
    Measurer(#[from] MeasurerError),
    /// Nothing came back.
    #[error("nothing was echoed")]
    NoTraffic,
}

/// Turns a system's error into the bench's.
fn io(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |source| BenchError::Io { what, source }
}

/// Where the threads run: client, then server.
#[derive(Clone, Copy, Debug)]
struct Cores {
    /// The core that is measured.
    client: Option<usize>,
    /// Another one, if there is one.
    server: Option<usize>,
}

/// Bytes echoed and CPU time of the client.
type Run = (u64, Duration);

/// Runs everything; `step` is told what comes next.
///
/// # Errors
/// [`BenchError`] when anything in it fails.
pub fn run(options: &BenchOptions, mut step: impl FnMut(&str)) -> Result<Vec<Record>, BenchError> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let core = |core: Option<&core_affinity::CoreId>| core.map(|core| core.id);
    let cores = Cores { client: core(cores.last()), server: core(cores.first()) };
    options
        .cells_per_record
        .iter()
        .map(|&cells| compare(options, cores, cells, &mut step))
        .collect()
}

/// Compares at one record size.
fn compare(
    options: &BenchOptions,
    cores: Cores,
    cells: usize,
    step: &mut impl FnMut(&str),
) -> Result<Record, BenchError> {
    let (mut plain, mut raw, mut measurer) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        step(&format!("{cells} cells a record, round {round} of {}", options.rounds));
        let case = Case { options, cores, record_len: cells * CELL_LEN };
        plain.push(throughput(echo::plain(&case)?)?);
        raw.push(throughput(echo::tls(&case)?)?);
        measurer.push(throughput(target::measurer(&case)?)?);
    }
    let ratios = measurer.iter().zip(&raw).map(|(m, r)| m.cpu_s_per_gb / r.cpu_s_per_gb);
    Ok(Record {
        cells_per_record: cells,
        plain_tcp: middle(&plain),
        raw_tls: middle(&raw),
        measurer: middle(&measurer),
        measurer_vs_raw_tls: median(ratios.collect()),
    })
}

/// The parts of one run.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    options: &'a BenchOptions,
    /// Where the threads run.
    cores: Cores,
    /// Plaintext bytes of a record.
    record_len: usize,
}

fn throughput((bytes, cpu): Run) -> Result<Throughput, BenchError> {
    if bytes == 0 { Err(BenchError::NoTraffic) } else { Ok(Throughput::new(bytes, cpu)) }
}

/// The round with the median cost.
fn middle(rounds: &[Throughput]) -> Throughput {
    let cpu_s_per_gb = median(rounds.iter().map(|round| round.cpu_s_per_gb).collect());
    Throughput { gbit_per_core: 8.0 / cpu_s_per_gb, cpu_s_per_gb }
}

/// The median; the upper one of an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Puts the calling thread on a core; where that fails it runs wherever the system likes.
fn pin(core: Option<usize>) {
    if let Some(id) = core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
}
