//! Web and bulk users (the paper's §5), all in one thread. As in ff-sim, each downloads through a
//! SocksPort, waits for the last byte, thinks, and downloads again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ff_flow::tortoise::outcome::{Seen, TortoiseOutcome};
use ff_flow::tortoise::users::{Habit, UserKind};
use ff_flow::tortoise::world::TortoiseClient;
use ff_lab::Ending;
use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout, timeout_at};

/// Time limit of a download: a file of 5 MB at a quarter of the mean client's rate.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(480);
/// Pause of a user after a failure, so that a refused connection is not retried at once.
const AFTER_FAILURE_SECS: f64 = 1.0;
/// Time limit for a stream to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of checks for a request to end.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    /// The client, as drawn by ff-sim.
    pub(super) client: TortoiseClient,
    pub(super) socks: SocketAddr,
}

/// Settings of an experiment's downloads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Address of the download server.
    pub(super) source: SocketAddr,
    /// Random seed of the users' sizes and pauses.
    pub(super) seed: u64,
    /// Seconds before the measured ones.
    pub(super) warm_up_secs: u32,
    /// Measured seconds.
    pub(super) secs: u32,
}

/// Results of users.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Rates in the order of the users; `used` is not set.
    pub(super) outcome: TortoiseOutcome,
    /// Failed downloads by reason.
    pub(super) failures: BTreeMap<String, u64>,
    /// Bytes that `carried` counted in the measured time.
    pub(super) carried: u64,
    /// Mean lateness of timers in that time.
    pub(super) late: Duration,
}

/// Lets users download, and observes the measured time; `carried` reads a counter of bytes at its
/// start and end.
///
/// # Errors
/// Errors of `carried`, and if the end is asked for.
pub(super) fn watch(
    users: &[User],
    watch: &Watch,
    ending: &Ending,
    carried: impl Fn() -> Result<u64>,
) -> Result<Observed> {
    let log = Log::new(users, watch);
    let clock = async {
        wait(Duration::from_secs(watch.warm_up_secs.into()), ending).await?;
        let before = carried()?;
        let late = wait(Duration::from_secs(watch.secs.into()), ending).await?;
        anyhow::Ok((carried()?.saturating_sub(before), late))
    };
    let (carried, late) = runtime()?.block_on(async {
        let numbered = users.iter().enumerate();
        let all = join_all(numbered.map(|(number, user)| download(number, user, watch, &log)));
        tokio::select! {
            _ = all => bail!("there are no users"),
            counted = clock => counted,
        }
    })?;
    Ok(Observed { carried, late, ..log.observed.into_inner() })
}

/// A runtime in this thread, which may be inside a network namespace.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("Failed to start a runtime")
}

/// Waits, at most until the end is asked for, and returns the mean lateness of timers.
async fn wait(time: Duration, ending: &Ending) -> Result<Duration> {
    let until = Instant::now() + time;
    let (mut late, mut timers) = (Duration::ZERO, 0_u32);
    loop {
        ending.check()?;
        let began = Instant::now();
        let left = until.saturating_duration_since(began).min(LOOK);
        if left.is_zero() {
            return Ok(late / timers.max(1));
        }
        sleep(left).await;
        late += began.elapsed().saturating_sub(left);
        timers += 1;
    }
}

/// One user's downloads, without end.
async fn download(number: usize, user: &User, watch: &Watch, log: &Log) {
    let kind = user.client.kind;
    let mut rng = user.client.user_rng(watch.seed);
    let (mut habit, mut at) = Habit::start(kind, &mut rng);
    loop {
        sleep(Duration::from_secs_f64((at - log.secs()).max(0.0))).await;
        let (asked, size) = (log.secs(), kind.size(&mut rng));
        log.add_size(kind, size);
        let fetched = timeout(DOWNLOAD_TIMEOUT, fetch(user.socks, watch.source, size)).await;
        let ended = log.secs();
        let (pause, is_break) = habit.pause(ended, &mut rng);
        log.add_pause(kind, pause, is_break);
        at = ended + pause;
        match fetched {
            Ok(Ok(())) => log.add_download(number, size / (ended - asked), ended),
            Ok(Err(error)) => {
                log.add_failure(error.to_string());
                at += AFTER_FAILURE_SECS;
            }
            Err(_) => log.add_failure(format!("took longer than {DOWNLOAD_TIMEOUT:?}")),
        }
    }
}

/// Records of an experiment.
struct Log {
    began: Instant,
    /// Start and end of the measured time, in seconds since `began`.
    measured: (f64, f64),
    observed: RefCell<Observed>,
}

impl Log {
    /// Records of an experiment that begins now.
    fn new(users: &[User], watch: &Watch) -> Self {
        let clients = users.iter().map(|user| &user.client);
        let clients = clients.map(|client| Seen::new(client.kind, client.relay.is_some()));
        let outcome = TortoiseOutcome { clients: clients.collect(), ..TortoiseOutcome::default() };
        let warm_up = f64::from(watch.warm_up_secs);
        Self {
            began: Instant::now(),
            measured: (warm_up, warm_up + f64::from(watch.secs)),
            observed: RefCell::new(Observed { outcome, ..Observed::default() }),
        }
    }

    /// Seconds since the start.
    fn secs(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Records a requested size, in bytes.
    fn add_size(&self, kind: UserKind, size: f64) {
        self.observed.borrow_mut().outcome.asked.sizes[usize::from(kind == UserKind::Bulk)]
            .add(size);
    }

    /// Records a pause of a web user, in seconds.
    fn add_pause(&self, kind: UserKind, pause: f64, is_break: bool) {
        if kind == UserKind::Web {
            let asked = &mut self.observed.borrow_mut().outcome.asked;
            if is_break { asked.breaks.add(pause) } else { asked.thinks.add(pause) }
        }
    }

    /// Records a download that ended at this second, by its rate in bytes per second.
    fn add_download(&self, number: usize, rate: f64, ended: f64) {
        if (self.measured.0..=self.measured.1).contains(&ended)
            && let Some(seen) = self.observed.borrow_mut().outcome.clients.get_mut(number)
        {
            seen.add(rate);
        }
    }

    fn add_failure(&self, reason: String) {
        *self.observed.borrow_mut().failures.entry(reason).or_default() += 1;
    }
}

/// Destination of a stream.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Address(SocketAddr),
    /// An onion service and its port.
    Onion(String, u16),
}

/// Downloads this number of bytes from a source.
async fn fetch(socks: SocketAddr, source: SocketAddr, size: f64) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "5 MB at most")]
    let bytes = size.round() as u64;
    let mut stream = open(socks, &Target::Address(source)).await?;
    stream.write_all(format!("GET {bytes}\n").as_bytes()).await?;
    let mut rest = (&mut stream).take(bytes);
    let came = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    if came == bytes {
        return Ok(());
    }
    // Without the number of missing bytes, which would make each failure a different reason.
    Err(io::Error::new(ErrorKind::UnexpectedEof, "the stream ended early"))
}

/// Opens a stream by SOCKS 5 (RFC 1928) without authentication.
async fn open(socks: SocketAddr, target: &Target) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(socks).await?;
    stream.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    stream.read_exact(&mut method).await?;
    if method != [5, 0] {
        return Err(io::Error::other("the SocksPort asks for a password"));
    }
    stream.write_all(&request(target)?).await?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await?;
    match reply {
        [5, 0, ..] => Ok(stream),
        [_, code, ..] => Err(io::Error::other(format!("SOCKS reply {code}"))),
    }
}

fn request(target: &Target) -> io::Result<Vec<u8>> {
    let mut bytes = vec![5, 1, 0];
    let port = match target {
        Target::Address(SocketAddr::V4(address)) => {
            bytes.push(1);
            bytes.extend(address.ip().octets());
            address.port()
        }
        Target::Address(_) => return Err(io::Error::other("not an IPv4 address")),
        Target::Onion(name, port) => {
            bytes.extend([3, u8::try_from(name.len()).map_err(io::Error::other)?]);
            bytes.extend(name.bytes());
            *port
        }
    };
    bytes.extend(port.to_be_bytes());
    Ok(bytes)
}

/// Downloads without end through a SocksPort; returns the bytes of `time` after `settle`.
///
/// # Errors
/// If the stream does not open within half a minute, or ends.
pub(super) fn bytes_of_stream(
    socks: SocketAddr,
    target: &Target,
    settle: Duration,
    time: Duration,
) -> Result<u64> {
    let bytes = runtime()?.block_on(async {
        let opened = timeout(OPEN_TIMEOUT, open(socks, target)).await;
        let mut stream = opened.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
        stream.write_all(b"GET\n").await?;
        read_for(&mut stream, settle).await?;
        read_for(&mut stream, time).await
    });
    bytes.context("Failed to download through a SocksPort")
}

/// Reads for `time` and returns the bytes received.
async fn read_for(stream: &mut TcpStream, time: Duration) -> io::Result<u64> {
    let until = tokio::time::Instant::now() + time;
    let (mut buffer, mut bytes) = (vec![0; 65_536], 0);
    loop {
        match timeout_at(until, stream.read(&mut buffer)).await {
            Err(_) => return Ok(bytes),
            Ok(Ok(0)) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => bytes += length? as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn requests_have_addresses_and_names() {
        let address = SocketAddr::from((Ipv4Addr::new(10, 9, 0, 1), 258));
        let bytes = request(&Target::Address(address)).expect("a request");
        assert_eq!(bytes, [5, 1, 0, 1, 10, 9, 0, 1, 1, 2]);
        let bytes = request(&Target::Onion("a.onion".to_owned(), 80)).expect("a request");
        assert_eq!(bytes, [&[5, 1, 0, 3, 7][..], b"a.onion", &[0, 80]].concat());
        let six = SocketAddr::from(([0_u16; 8], 1));
        assert!(request(&Target::Address(six)).is_err());
    }

    #[test]
    fn downloads_count_if_they_end_in_the_measured_time() {
        let client = TortoiseClient {
            kind: UserKind::Web,
            down: 1e6,
            line: 0,
            relay: None,
            links: 1,
            stream: 0,
        };
        let socks = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let watch = Watch { source: socks, seed: 1, warm_up_secs: 10, secs: 20 };
        let log = Log::new(&[User { client, socks }], &watch);
        for ended in [9.9, 10.0, 30.0, 30.1] {
            log.add_download(0, 100.0 * ended, ended);
        }
        log.add_failure("a".to_owned());
        log.add_failure("a".to_owned());
        let observed = log.observed.into_inner();
        assert_eq!(observed.outcome.clients[0].transfers, 2);
        assert_eq!(observed.outcome.clients[0].rate(), Some(2000.0));
        assert_eq!(observed.failures["a"], 2);
    }
}
