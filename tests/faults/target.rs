//! A target: a relay of Arti's crates in a process of its own, which says on standard output what
//! its extension tells its operator. That is the test's witness, and the coordinator has no part in
//! it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use ff_proto::ids::Ed25519Id;
use ff_proto::session::target::Policy;
use ff_proto::units::{BytesPerSec, Ratio};
use ff_relay_ext::arti::extension::Extension;
use ff_relay_ext::arti::keys::RelayKeys;
use ff_relay_ext::arti::relay::{Relay, RelayConfig};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::pulse::BEAT;

/// The variable that makes this test's executable a target: its number, where it listens, its
/// memory's file and the coordinator that it allows.
const ROLE: &str = "FF_FAULTS_TARGET";
/// A target's limit: 4 Mbit/s.
pub(crate) const LIMIT: BytesPerSec = BytesPerSec::new(500_000);
/// The longest measurement that a target grants, in seconds.
const MAX_SECS: NonZero<u16> = NonZero::new(30).expect("not 0");

/// A message of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The target serves.
    Up,
    /// The target's process has ended.
    Down,
    /// The target has granted the measurement with this name.
    Granted(String),
    /// The first cell of this measurement has come: clients are limited from now on.
    Started(String),
    /// This measurement is over, and so is what limits clients; why, if that was too early.
    Ended(String, Option<String>),
    /// The target has refused a request, with this code.
    Refused(String),
    /// The target is running.
    Pulse,
}

/// A message of a target, and its time.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// Its number.
    pub(crate) target: usize,
    /// When it said so, by its own clock; for its end, when that was noticed.
    pub(crate) at: Instant,
    /// The message.
    pub(crate) said: Said,
}

/// The identity of a target.
pub(crate) struct Identity {
    /// Its fingerprint.
    pub(crate) fingerprint: [u8; 20],
    /// Its Ed25519 identity.
    pub(crate) ed_identity: [u8; 32],
}

/// The keys of a target: the same at each start.
fn keys(number: usize) -> RelayKeys {
    let number = u8::try_from(number).expect("a small number");
    RelayKeys::from_seed([number + 1; 32]).expect("its keys")
}

/// The identity of the target with this number.
pub(crate) fn identity(number: usize) -> Identity {
    let keys = keys(number);
    let fingerprint = keys.rsa_identity().as_bytes().try_into().expect("20 bytes");
    Identity { fingerprint, ed_identity: keys.ed_identity().into() }
}

/// The command that starts a target: this test's own executable.
pub(crate) fn command(
    number: usize,
    listen: SocketAddr,
    memory: &Path,
    coordinator: &Ed25519Id,
    period: Duration,
) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test's own path"));
    let (memory, coordinator) = (memory.display(), hex::encode(coordinator.0));
    let role = format!("{number} {listen} {memory} {coordinator} {}", period.as_secs());
    command.args(["--exact", "target_process", "--nocapture"]).env(ROLE, role);
    command
}

/// Is a target, if this process was started as one; then it never returns.
pub(crate) fn serve() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<_> = role.split(' ').collect();
    let [number, listen, memory, coordinator, period] = words[..] else { panic!("{role:?}") };
    let coordinator = hex::decode(coordinator).ok().and_then(|bytes| bytes.try_into().ok());
    let policy = Policy {
        enabled: true,
        coordinators: vec![Ed25519Id(coordinator.expect("a coordinator's identity"))],
        period: Duration::from_secs(period.parse().expect("seconds")),
        ratio: Ratio::from_percent(25).expect("a ratio"),
        max_duration_secs: MAX_SECS,
        max_sockets: 512,
    };
    let memory = Some(PathBuf::from(memory));
    let log = tracing_subscriber::fmt().with_ansi(false).with_timer(Boot).with_target(false);
    log.with_writer(std::io::stdout).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let extension = Extension::new(policy, memory, Some(LIMIT)).expect("its memory");
        let keys = keys(number.parse().expect("a number"));
        let listen = listen.parse().expect("an address");
        let _relay = Relay::launch(RelayConfig { listen, keys, extension }).expect("a relay");
        // Not println: a closed pipe is not a reason to panic.
        let say = |what| drop(writeln!(std::io::stdout(), "{} {what}", Boot::micros()));
        say(SERVING);
        loop {
            say(PULSE);
            tokio::time::sleep(BEAT).await;
        }
    });
}

/// A target prints this when it serves.
const SERVING: &str = "FlashFlow: serving";
/// A target prints this regularly while it runs.
const PULSE: &str = "FlashFlow: pulse";

/// The time since the system started, which is the same for all processes.
struct Boot;

impl Boot {
    /// In microseconds.
    fn micros() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        u64::try_from(micros).expect("not before the start")
    }

    /// What an instant is of that time.
    fn instant(micros: u64) -> Instant {
        let ago = Duration::from_micros(Self::micros().saturating_sub(micros));
        Instant::now().checked_sub(ago).expect("not before the start")
    }
}

impl FormatTime for Boot {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{}", Self::micros())
    }
}

/// Reads what a target says until its end.
pub(crate) fn listen(target: usize, stdout: ChildStdout, heard: Sender<Heard>) {
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let all = lines.filter_map(|line| parse(&line));
        let all = all.map(|(micros, said)| (Boot::instant(micros), said));
        for (at, said) in all.chain(std::iter::once_with(|| (Instant::now(), Said::Down))) {
            // The test may be over.
            let _ = heard.send(Heard { target, at, said });
        }
    });
}

/// When a line was said, in microseconds since the system started, and what.
fn parse(line: &str) -> Option<(u64, Said)> {
    let (front, text) = line.split_once("FlashFlow: ")?;
    // The first line may stand behind the test's name.
    let micros = front.split_whitespace().rev().find_map(|word| word.parse().ok());
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!(" {name}="))?;
        Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let measurement = || field("measurement").expect("a measurement has a name");
    let ended = |rest: &str| {
        let early = rest.strip_prefix(" early: ");
        early.map(|rest| rest.split(" measurement=").next().unwrap_or_default().to_owned())
    };
    let said = match text {
        _ if line.ends_with(SERVING) => Said::Up,
        _ if line.ends_with(PULSE) => Said::Pulse,
        _ if text.starts_with("granted") => Said::Granted(measurement()),
        _ if text.starts_with("being measured") => Said::Started(measurement()),
        _ if text.starts_with("refused") => Said::Refused(field("code").expect("a code")),
        _ => {
            let rest = text.strip_prefix("measurement ended")?;
            Said::Ended(measurement(), ended(rest))
        }
    };
    Some((micros.expect("a line has its time"), said))
}

#[test]
fn what_a_target_says_is_understood() {
    let (m, line) = ("ab12".to_owned(), "test it ... 1234  INFO FlashFlow: ");
    let parse = |text: &str| {
        let (micros, said) = parse(&format!("{line}{text}"))?;
        assert_eq!(micros, 1234);
        Some(said)
    };
    let granted = parse("granted a measurement coordinator=x measurement=ab12 duration_secs=3");
    assert_eq!(granted, Some(Said::Granted(m.clone())));
    assert_eq!(parse("being measured measurement=ab12"), Some(Said::Started(m.clone())));
    let ended = parse("measurement ended measurement=ab12 coordinator=x echoed_bytes=1");
    assert_eq!(ended, Some(Said::Ended(m.clone(), None)));
    let early =
        parse("measurement ended early: 20 (coordinator_lost) measurement=ab12 coordinator=x");
    assert_eq!(early, Some(Said::Ended(m, Some("20 (coordinator_lost)".to_owned()))));
    let refused = parse("refused a request: too soon code=too_soon untold=0");
    assert_eq!(refused, Some(Said::Refused("too_soon".to_owned())));
    assert_eq!(parse("pulse"), Some(Said::Pulse));
    assert_eq!(parse("something else"), None);
}
