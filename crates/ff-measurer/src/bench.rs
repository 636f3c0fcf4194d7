//! Measures the throughput of one core of this host, in three ways, in one run because hosts differ
//! and change: an echo over plain TCP, over TLS by rustls alone, and by the real measurer.
//!
//! ```text
//!   client thread, last core  ◀── loopback ──▶  server thread, first core
//!     plain: read, write                          the same
//!     TLS:   rustls::ClientConnection             rustls::ServerConnection
//!     Worker, as in a measurement                 target.rs: record layer, AES-CTR, in place
//! ```
//!
//! Only the client's CPU time counts. All three use the same batches: they read 128 KB per call,
//! write up to 44 KB per call, and sleep shortly when nothing is left to do. The links of the third
//! have TLS but no Tor handshake, which would happen before the measurement.

mod echo;
mod target;
mod tls;

use std::time::Duration;

use ff_proto::cell::CELL_LEN;
use serde::Serialize;

use crate::order::MeasurerError;

/// Options of the bench.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Sockets of the measured core.
    pub sockets: u16,
    /// How long each of the three ways runs in a round.
    pub run: Duration,
    /// The number of rounds; the median is used.
    pub rounds: u8,
    /// The numbers of cells per record to compare.
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
    /// From the bytes echoed and the CPU time.
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
    /// The measurer's CPU time per byte divided by that of TLS alone: the median of the rounds'
    /// ratios.
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
    /// No bytes came back.
    #[error("nothing was echoed")]
    NoTraffic,
}

/// Turns a system's error into the bench's.
fn io(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |source| BenchError::Io { what, source }
}

/// The cores of the threads.
#[derive(Clone, Copy, Debug)]
struct Cores {
    /// The core that is measured.
    client: Option<usize>,
    /// The core of the server, if there is a second one.
    server: Option<usize>,
}

/// Bytes echoed and CPU time of the client.
type Run = (u64, Duration);

/// Runs the bench; calls `step` with the name of each next step.
///
/// # Errors
/// [`BenchError`].
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

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    options: &'a BenchOptions,
    cores: Cores,
    /// Plaintext bytes of a record.
    record_len: usize,
}

fn throughput((bytes, cpu): Run) -> Result<Throughput, BenchError> {
    if bytes == 0 { Err(BenchError::NoTraffic) } else { Ok(Throughput::new(bytes, cpu)) }
}

/// The round with the median cost per byte.
fn middle(rounds: &[Throughput]) -> Throughput {
    let cpu_s_per_gb = median(rounds.iter().map(|round| round.cpu_s_per_gb).collect());
    Throughput { gbit_per_core: 8.0 / cpu_s_per_gb, cpu_s_per_gb }
}

/// The median; the upper one of an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Pins the calling thread to a core; if that fails, it stays unpinned.
fn pin(core: Option<usize>) {
    if let Some(id) = core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
}
