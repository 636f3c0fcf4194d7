//! Measurements of one circuit, in order (NavigaTor, algorithm 1): build, round trips, first bytes,
//! repeated first bytes over its life, download.

use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ff_circuits::network::NetworkRelay;
use ff_circuits::record::{
    CircuitRecord, Download, Failure, Later, Probe, RoundTrip, Stage, Whose,
};
use tokio::time::{sleep, sleep_until, timeout};

use crate::client::{Client, Fault, OwnPath, Progress, us_since};
use crate::clocks;
use crate::series::{STREAMS, Series};
use crate::target::StreamTarget;

/// Bytes that a download reads at once.
const BUFFER: usize = 16_384;
/// Longest suspension of this host that a download survives; the two clocks are adjusted alike, but
/// read one after the other.
const LONGEST_SUSPENSION: Duration = Duration::from_secs(1);
/// Reserved address for RESOLVE (RFC 5737).
const LITERAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Measurements of each circuit.
#[derive(Clone, Debug)]
pub struct Program {
    /// Number of round trips by BEGIN.
    pub rtt: u32,
    /// Number of round trips by RESOLVE.
    pub resolve: u32,
    /// Longest random pause before each further round trip; 0 for none.
    pub rtt_pause: Duration,
    /// Number of times to first byte.
    pub ttfb: u32,
    /// Repeated first bytes, if any.
    pub latency: Option<Series>,
    /// Bytes to download; 0 for none.
    pub download_bytes: u64,
    /// Target of streams.
    pub target: Option<StreamTarget>,
    /// Time limit of building a circuit.
    pub build_time: Duration,
    /// Time limit of a round trip or a first byte.
    pub trip_time: Duration,
    /// Time limit of the download.
    pub download_time: Duration,
}

impl Program {
    /// The record of a circuit's download before its start, if it has one.
    fn asked(&self) -> Option<Download> {
        let target = self.target.as_ref().filter(|_| self.download_bytes > 0)?;
        Some(target.asked(self.download_bytes))
    }
}

/// A circuit to measure.
pub struct Measured<'a, C> {
    /// Client that builds it.
    pub client: &'a C,
    /// Measurements.
    pub program: &'a Program,
    /// Number of the circuit.
    pub number: u64,
    /// Relays, first hop first.
    pub path: Vec<Arc<NetworkRelay>>,
    /// Start of the run.
    pub run_began: Instant,
    /// Whether its relays may be in other measurements by single cells; then only the download
    /// waits for its turn.
    pub probes_share: bool,
}

impl<C: Client> Measured<'_, C> {
    /// Measures the circuit. Waits for its turn once it is built, or, if it has a download and
    /// `probes_share`, before the download.
    pub async fn measure<T: Future<Output = ()>>(self, turn: impl FnOnce() -> T) -> CircuitRecord {
        let suspended = clocks::suspended();
        let mut progress = Progress::new();
        let mut line = self.line(progress.began);
        let built = self.client.build(&self.path, &mut progress);
        let built = within(self.program.build_time, built).await;
        let has_link = progress.has_link;
        (line.link_us, line.hops_us) = (progress.link_us, std::mem::take(&mut progress.hops_us));
        match built {
            Ok(circuit) => {
                let used = self.use_circuit(&circuit, progress.began, &mut line, turn).await;
                match C::own_path(&circuit) {
                    Some(OwnPath::Known(relays)) => line.path = relays,
                    Some(OwnPath::Unknown(why)) => line.path_unknown = Some(why),
                    None => {}
                }
                if let Err((stage, fault)) = used {
                    line.failure = Some(Failure {
                        stage,
                        hop: u8::try_from(line.path.len())
                            .ok()
                            .filter(|hop| fault.is_of_last && *hop > 0),
                        reason: fault.reason,
                        whose: fault.whose,
                    });
                }
            }
            Err(fault) => {
                line.failure = Some(Failure {
                    stage: if has_link { Stage::Build } else { Stage::Link },
                    hop: u8::try_from(line.hops_us.len() + 1)
                        .ok()
                        .filter(|_| fault.whose != Whose::Client),
                    reason: fault.reason,
                    whose: fault.whose,
                });
                // The budget counts it as begun.
                line.path_unknown =
                    C::CHOOSES_PATHS.then(|| "the client was not asked for a stream".to_owned());
                // It failed too; the line records that.
                line.download = self.program.asked();
            }
        }
        line.congestion_us = congestion_us(&line.rtt);
        line.ended_us = progress.us();
        note_suspension(&mut line, clocks::suspended().saturating_sub(suspended));
        line
    }

    /// Measurements after the build.
    async fn use_circuit<T: Future<Output = ()>>(
        &self,
        circuit: &C::Circuit,
        began: Instant,
        line: &mut CircuitRecord,
        turn: impl FnOnce() -> T,
    ) -> Result<(), (Stage, Fault)> {
        let program = self.program;
        let mut turn = Some(turn);
        if let Some(turn) = turn.take_if(|_| !self.probes_share || program.download_bytes == 0) {
            turn().await;
        }
        let probes = (0..program.rtt).map(|_| Probe::Refused);
        for probe in probes.chain((0..program.resolve).map(|_| Probe::Resolve)) {
            let next = tokio::time::Instant::now() + STREAMS;
            let address =
                if probe == Probe::Refused { self.address(line.rtt.len()) } else { LITERAL };
            let at_us = Some(us_since(began));
            let answer =
                within(program.trip_time, self.client.probe(circuit, probe, address)).await;
            let answer = answer.map_err(|fault| (Stage::Rtt, fault))?;
            line.rtt.push(RoundTrip { us: answer.us, at_us, probe, reason: answer.reason });
            match self.pause() {
                Some(pause) => sleep(pause).await,
                None => sleep_until(next).await,
            }
        }
        let Some(target) = &program.target else { return Ok(()) };
        for _ in 0..program.ttfb {
            let next = tokio::time::Instant::now() + STREAMS;
            let first = within(program.trip_time, target.first_byte(self.client, circuit)).await;
            line.first_bytes.push(first.map_err(|fault| (Stage::FirstByte, fault))?);
            sleep_until(next).await;
        }
        if let Some(series) = program.latency {
            self.over_time(circuit, began, target, series, line).await?;
        }
        if program.download_bytes > 0 {
            if let Some(turn) = turn {
                turn().await;
            }
            self.download(circuit, began, target, line).await?;
        }
        Ok(())
    }

    /// Runs the download; results before a failure are kept.
    async fn download(
        &self,
        circuit: &C::Circuit,
        began: Instant,
        target: &StreamTarget,
        line: &mut CircuitRecord,
    ) -> Result<(), (Stage, Fault)> {
        let bytes = self.program.download_bytes;
        let at_us = Some(us_since(began));
        let mut download = Download { at_us, ..target.asked(bytes) };
        let mut buffer = vec![0; BUFFER];
        let came = target.download(self.client, circuit, bytes, &mut buffer, &mut download);
        let came = within(self.program.download_time, came).await;
        line.download = Some(download);
        came.map_err(|fault| (Stage::Download, fault))
    }

    /// Runs repeated first bytes; results before a failure are kept.
    async fn over_time(
        &self,
        circuit: &C::Circuit,
        began: Instant,
        target: &StreamTarget,
        series: Series,
        line: &mut CircuitRecord,
    ) -> Result<(), (Stage, Fault)> {
        let one = || async {
            let at_us = us_since(began);
            let first = target.first_byte(self.client, circuit);
            let first = within(self.program.trip_time, first).await?;
            Ok(Later { at_us, open_us: first.open_us, us: first.us })
        };
        let held = if C::KEEPS_UNUSED { None } else { Some(self.held(circuit, target).await?) };
        let (mut all, failed) = series.run(one).await;
        drop(held);
        all.sort_by_key(|later| later.at_us);
        line.latency = all;
        failed.map_or(Ok(()), |fault| Err((Stage::FirstByte, fault)))
    }

    /// An idle stream.
    async fn held(
        &self,
        circuit: &C::Circuit,
        target: &StreamTarget,
    ) -> Result<C::Stream, (Stage, Fault)> {
        let stream = self.client.open(circuit, &target.host, target.port);
        within(self.program.trip_time, stream).await.map_err(|fault| (Stage::FirstByte, fault))
    }

    /// A random pause after a round trip, if pauses are enabled.
    ///
    /// It must not depend on measured values, not even through the gap between streams, which is
    /// added: the analysis of replies by the pauses before them requires that
    /// ([`ff_circuits::buckets`]).
    fn pause(&self) -> Option<Duration> {
        let most = self.program.rtt_pause;
        (!most.is_zero()).then(|| STREAMS + most.mul_f64(rand::random()))
    }

    /// A line without results.
    fn line(&self, began: Instant) -> CircuitRecord {
        let relay = |relay: &Arc<NetworkRelay>| ff_circuits::record::PathRelay {
            id: relay.id.clone(),
            nick: relay.nick.clone(),
        };
        let path = self.path.iter().map(relay).collect();
        let as_client = C::CHOOSES_PATHS;
        CircuitRecord { path, as_client, ..blank(C::NAME, self.number, began, self.run_began) }
    }

    /// Address of a probe, different each time, because exits and clients remember refused ones.
    fn address(&self, nth: usize) -> Ipv4Addr {
        let at = self.number.wrapping_mul(37).wrapping_add(nth as u64);
        // Not 127.0.0.1, where services listen; a last octet of 0 would be a network's own address.
        let [a, b, c] = [at % 254 + 1, at / 254 % 254 + 1, at / 64_516 % 254 + 1]
            .map(|octet| u8::try_from(octet).unwrap_or(1));
        Ipv4Addr::new(127, c, b, a)
    }
}

/// Marks a download during which this host was suspended for this time as failed, for whatever
/// reason: its times lack that time, and others may have given up meanwhile.
fn note_suspension(line: &mut CircuitRecord, time: Duration) {
    let Some(download) = line.download.as_mut().filter(|_| time > LONGEST_SUSPENSION) else {
        return;
    };
    download.us = None;
    let stage = line.failure.as_ref().map_or(Stage::Download, |failure| failure.stage);
    let reason = "this host was asleep meanwhile".to_owned();
    line.failure = Some(Failure { stage, hop: None, reason, whose: Whose::Client });
}

/// Line of a circuit that did not begin, in a run that began at `run_began`.
pub(crate) fn not_begun(
    client: ff_circuits::record::Client,
    number: u64,
    run_began: Instant,
    stage: Stage,
    reason: String,
) -> CircuitRecord {
    let failure = Failure { stage, hop: None, reason, whose: Whose::Client };
    CircuitRecord { failure: Some(failure), ..blank(client, number, Instant::now(), run_began) }
}

/// A line with only its start.
fn blank(
    client: ff_circuits::record::Client,
    number: u64,
    began: Instant,
    run_began: Instant,
) -> CircuitRecord {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = began.saturating_duration_since(run_began).as_micros();
    let began_us = u64::try_from(since).unwrap_or(u64::MAX);
    CircuitRecord::begun(client, number, unix.as_secs_f64(), began_us)
}

/// Waits at most `time`; then the fault is `timeout`.
async fn within<T>(
    time: Duration,
    what: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    timeout(time, what).await.unwrap_or_else(|_| Err(Fault::timeout("timeout")))
}

/// Mean minus minimum of the refused probes' times; `None` for fewer than two.
fn congestion_us(trips: &[RoundTrip]) -> Option<u64> {
    let of = trips.iter().filter(|trip| trip.probe == Probe::Refused).map(|trip| trip.us);
    let (least, count) = (of.clone().min()?, of.clone().count() as u64);
    (count > 1).then(|| of.sum::<u64>() / count - least)
}

#[cfg(test)]
mod tests {
    use ff_circuits::record;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::client::Answer;

    /// A client with its own paths that has ended.
    struct Gone;

    impl Client for Gone {
        type Circuit = ();
        type Stream = DuplexStream;

        const NAME: record::Client = record::Client::Tor;
        const CHOOSES_PATHS: bool = true;

        async fn build(&self, _: &[Arc<NetworkRelay>], _: &mut Progress) -> Result<(), Fault> {
            Err(Fault::client("no tor"))
        }

        async fn probe(&self, (): &(), _: Probe, _: Ipv4Addr) -> Result<Answer, Fault> {
            Err(Fault::client("no tor"))
        }

        async fn open(&self, (): &(), _: &str, _: u16) -> Result<DuplexStream, Fault> {
            Err(Fault::client("no tor"))
        }

        async fn lost((): &(), _: &mut DuplexStream, _: Option<&std::io::Error>) -> Option<Fault> {
            None
        }
    }

    #[tokio::test]
    async fn a_download_of_a_client_that_has_ended_has_begun_without_a_path() {
        let time = Duration::from_secs(300);
        let program = Program {
            rtt: 0,
            resolve: 0,
            rtt_pause: Duration::ZERO,
            ttfb: 0,
            latency: None,
            download_bytes: 9,
            target: None,
            build_time: time,
            trip_time: time,
            download_time: time,
        };
        let (client, program, run_began) = (&Gone, &program, Instant::now());
        let (path, probes_share) = (Vec::new(), false);
        let one = Measured { client, program, number: 7, path, run_began, probes_share };
        let line = one.measure(|| std::future::ready(())).await;
        assert_eq!(line.failure.as_ref().map(|failure| failure.whose), Some(Whose::Client));
        assert!(line.as_client && line.path.is_empty() && line.has_begun(), "{line:?}");
    }

    #[test]
    fn a_download_during_which_the_host_was_suspended_is_not_whole() {
        let whole = || CircuitRecord {
            download: Some(Download { bytes: 9, us: Some(7), ..Download::default() }),
            ..blank(record::Client::Arti, 0, Instant::now(), Instant::now())
        };
        let noted = |mut line: CircuitRecord, ms: u64| {
            note_suspension(&mut line, Duration::from_millis(ms));
            line
        };
        for ms in [0, 1000] {
            let line = noted(whole(), ms);
            let us = line.download.and_then(|download| download.us);
            assert!(line.failure.is_none() && us == Some(7), "{ms} ms");
        }
        let line = noted(whole(), 1001);
        let download = line.download.expect("a download");
        assert_eq!((download.us, download.bytes), (None, 9));
        let of = |line: &CircuitRecord| {
            line.failure.as_ref().map(|failure| (failure.stage, failure.whose))
        };
        let line = noted(whole(), 1001);
        assert_eq!(of(&line), Some((Stage::Download, Whose::Client)));
        let (stage, whose) = (Stage::Build, Whose::Relay);
        let failure = Some(Failure { stage, hop: Some(2), reason: "timeout".to_owned(), whose });
        let line = noted(CircuitRecord { failure, ..whole() }, 60_000);
        assert_eq!(of(&line), Some((Stage::Build, Whose::Client)));
        let circuit = CircuitRecord { download: None, ..whole() };
        assert_eq!(noted(circuit.clone(), 60_000).failure, None, "it has no download");
    }

    #[test]
    fn congestion_is_what_exceeds_the_fastest_probe() {
        let trip = |us, probe| RoundTrip { us, at_us: None, probe, reason: String::new() };
        let trips = [
            trip(100, Probe::Refused),
            trip(130, Probe::Refused),
            trip(160, Probe::Refused),
            trip(1, Probe::Resolve),
        ];
        assert_eq!(congestion_us(&trips), Some(30));
        assert_eq!(congestion_us(&trips[..1]), None);
    }
}
