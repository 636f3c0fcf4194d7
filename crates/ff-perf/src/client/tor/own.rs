//! A tor that chooses its own paths, with the options of its torrc: guards, bridges, conflux,
//! learned timeouts.
//!
//! ```text
//!  open ─▶ SocksPort, with a name of its own for each download (IsolateSOCKSAuth) ─▶ tor
//!    ▲                                                                               │
//!    └── Told: circuit, path, end ◀── Watcher: a thread ◀── control connection ◀─────┘
//! ```
//!
//! Its options stay as they are, except those of an arm, and others may use it meanwhile. The path
//! of a stream is looked up when tor reports its circuit: tor lists the circuits of a conflux set
//! only when asked, or at their end.

mod told;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ff_circuits::network::NetworkRelay;
use ff_circuits::record::{self, Probe, Whose};
use ff_lab::{Control, Reply, ReplyLine};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::options::Lent;
use super::stream::{TOLD, by_tor, false_address};
use super::{Ending, TorLock, find, socks, socks_port};
use crate::client::{Answer, Client, Fault, OwnPath, Progress, by_exit, refused};
use crate::target::is_onion;
use told::{End, Told, Watched, Watcher};

/// Longest wait, after the SocksPort's reply, for tor's reason why a stream was not opened.
const REASON: Duration = Duration::from_secs(1);

/// Failure of a stream if others changed the options of an arm while it was opened.
const CHANGED: &str = "tor's options changed while the stream was opened: was it sent SIGHUP, or given other options?";

/// Failure of a stream after tor has lost the options of an arm.
const LOST: &str = "tor may no longer have the arm's options: was it restarted, or does it refuse them since it was sent SIGHUP?";

/// A tor that chooses its own paths.
pub struct OwnTor {
    dir: PathBuf,
    reached: Mutex<Reached>,
    /// Number of the next download, part of its SOCKS name.
    next: AtomicU64,
    /// Options of an arm, set while this exists.
    lent: Option<Lent>,
}

/// Connections to a tor, until it ends.
#[derive(Clone, Debug)]
struct Reached {
    /// Address of the SocksPort.
    socks: SocketAddr,
    /// Events of streams.
    watcher: Arc<Watcher>,
}

impl Reached {
    /// Connects to the tor in a directory.
    fn open(dir: &Path) -> Result<Self, String> {
        let failed = |error: ff_lab::Error| format!("{}: {error}", dir.display());
        let mut control = Control::open(dir).map_err(failed)?;
        let socks = socks_port(&mut control, dir)?;
        check_isolation(&control.command("GETCONF SocksPort").map_err(failed)?, socks.port())
            .map_err(|reason| format!("{}: {reason}", dir.display()))?;
        control.subscribe(&["STREAM"]).map_err(failed)?;
        let watcher = Watcher::start(control).map_err(|error| error.to_string())?;
        Ok(Self { socks, watcher })
    }
}

/// Fails if this SocksPort lets downloads share circuits, by the reply to GETCONF.
fn check_isolation(reply: &Reply, port: u16) -> Result<(), String> {
    let port = port.to_string();
    let is_shared = |line: &ReplyLine| {
        let value = line.text.split_once('=').map_or("", |(_, value)| value).trim_matches('"');
        let mut words = value.split_whitespace();
        let place = words.next().unwrap_or_default();
        let number = place.rsplit(':').next().unwrap_or_default();
        (number == port || number.eq_ignore_ascii_case("auto"))
            && words.any(|word| word.eq_ignore_ascii_case("NoIsolateSOCKSAuth"))
    };
    if reply.lines.iter().any(is_shared) {
        return Err(
            "its SocksPort has NoIsolateSOCKSAuth, so downloads would share circuits: remove it, or give another tor's \
             directory"
                .to_owned(),
        );
    }
    Ok(())
}

/// Isolation of one download, whose circuits no other download gets.
pub struct OwnTorCircuit {
    /// Its SOCKS user name.
    name: String,
    /// Events of the stream, and whether it leads to an onion service.
    told: OnceLock<(Watched, bool)>,
}

/// A connected stream.
pub type Stream = TcpStream;

impl OwnTor {
    /// Uses the first tor in a directory that has a control socket and a SocksPort. `lines` are
    /// options, by name and value, that it has until this is dropped; if there are any, the ending
    /// reports whether they were restored.
    ///
    /// # Errors
    /// If there is none, with the directory's name; errors of the control socket.
    pub fn connect(
        dir: &Path,
        lines: &[(String, String)],
    ) -> Result<(Self, Option<Ending>), String> {
        let dir = find(dir)?;
        let lock = if lines.is_empty() {
            TorLock::check(&dir)?;
            None
        } else {
            Some(TorLock::take(&dir)?)
        };
        let reached = Mutex::new(Reached::open(&dir)?);
        let failed = |error: ff_lab::Error| format!("{}: {error}", dir.display());
        let lend = || Lent::new(|| Control::open(&dir), lines);
        let lent = (!lines.is_empty()).then(lend).transpose().map_err(failed)?;
        let (lent, ending) = lent.unzip();
        let tor = Self { dir, reached, next: AtomicU64::new(0), lent };
        let ending = ending.zip(lock).map(|(end, lock)| Ending::new(end, lock));
        Ok((tor, ending))
    }

    /// Number of times that others changed the options of an arm, 0 if none are set; `None` once
    /// tor may no longer have them.
    fn changes(&self) -> Option<u64> {
        self.lent.as_ref().map_or(Some(0), Lent::changes)
    }

    /// The connections; connects again to a tor that was restarted, so that paths of its streams
    /// stay known.
    fn reached(&self) -> Result<Reached, Fault> {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if reached.watcher.is_lost() {
            *reached = Reached::open(&self.dir).map_err(Fault::client)?;
        }
        Ok(reached.clone())
    }

    /// Requests a stream from the SocksPort and waits for the reply.
    async fn ask(&self, name: &str, host: &str, port: u16) -> Result<Asked, Fault> {
        let reached = self.reached()?;
        let mut socket = TcpStream::connect(reached.socks).await.map_err(socks)?;
        socket.set_nodelay(true).map_err(socks)?;
        let watched = reached.watcher.watch(socket.local_addr().map_err(socks)?);
        // RFC 1928 §3: version 5, one method: username and password (RFC 1929).
        socket.write_all(&[5, 1, 2]).await.map_err(socks)?;
        let mut reply = [0; 2];
        socket.read_exact(&mut reply).await.map_err(socks)?;
        if reply != [5, 2] {
            return Err(Fault::client(
                "the SocksPort does not accept a user and password, which --as-client needs",
            ));
        }
        let length = u8::try_from(name.len()).unwrap_or(0);
        let mut user = vec![1, length];
        user.extend(name.bytes());
        user.extend([1, b'x']);
        socket.write_all(&user).await.map_err(socks)?;
        socket.read_exact(&mut reply).await.map_err(socks)?;
        socket.write_all(&super::connect_request(host, port)?).await.map_err(socks)?;
        // The reply has an IPv4 address, as always from tor (socks-extensions).
        let mut reply = [0; 10];
        socket.read_exact(&mut reply).await.map_err(socks)?;
        let [_, code, ..] = reply;
        Ok(Asked { socket, watched, code })
    }
}

/// A request to the SocksPort that was answered.
struct Asked {
    socket: TcpStream,
    /// Events of the stream.
    watched: Watched,
    /// Code of the reply; 0 if the stream is connected.
    code: u8,
}

impl Client for OwnTor {
    type Circuit = OwnTorCircuit;
    type Stream = Stream;

    const NAME: record::Client = record::Client::Tor;
    const CHOOSES_PATHS: bool = true;

    async fn build(
        &self,
        _: &[Arc<NetworkRelay>],
        _: &mut Progress,
    ) -> Result<OwnTorCircuit, Fault> {
        // Connect before the download's time begins.
        let _ = self.reached()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // With a random part: tor remembers names of earlier runs.
        let name = format!("ff-perf-{:016x}-{number}", rand::random::<u64>());
        Ok(OwnTorCircuit { name, told: OnceLock::new() })
    }

    async fn probe(&self, _: &OwnTorCircuit, _: Probe, _: Ipv4Addr) -> Result<Answer, Fault> {
        Err(Fault::client("a client that chooses its paths has no circuit to probe"))
    }

    async fn open(&self, circuit: &OwnTorCircuit, host: &str, port: u16) -> Result<Stream, Fault> {
        let (to_onion, changes) = (is_onion(host), self.changes());
        let Asked { socket, watched, code } = self.ask(&circuit.name, host, port).await?;
        let mut told = watched.told();
        // Kept as long as the circuit: the reply may arrive before the first event is read.
        let _ = circuit.told.set((watched, to_onion));
        // The circuit may have been built with the torrc's options.
        match self.changes() {
            None => return Err(Fault::client(LOST)),
            now if now != changes => return Err(Fault::client(CHANGED)),
            Some(_) => {}
        }
        if code == 0 {
            return Ok(socket);
        }
        let end = end(&mut told, REASON).await;
        Err(not_open(code, end, host))
    }

    fn own_path(circuit: &OwnTorCircuit) -> Option<OwnPath> {
        let path = circuit.told.get().and_then(|(watched, _)| watched.told().borrow().path.clone());
        Some(path.unwrap_or_else(|| {
            OwnPath::Unknown("tor did not report the stream's circuit".to_owned())
        }))
    }

    /// A SocksPort closes a stream in one way, whatever ended it; tor's events tell the cause.
    async fn lost(circuit: &OwnTorCircuit, _: &mut Stream, _: Option<&io::Error>) -> Option<Fault> {
        let (watched, to_onion) = circuit.told.get()?;
        match end(&mut watched.told(), TOLD).await {
            // The END of a stream to an onion service is the service's.
            Some(End { by_exit: true, .. }) if *to_onion => None,
            Some(End { reason, by_exit: true }) => by_exit(reason),
            Some(End { reason, .. }) => {
                let breach = || "the exit broke Tor's protocol".to_owned();
                Some(by_tor(reason, || Fault::circuit("destroyed"), breach))
            }
            None => Some(Fault::timeout("tor did not report why the stream ended")),
        }
    }
}

/// Why a stream ended, if tor reports it within `time`.
async fn end(told: &mut watch::Receiver<Told>, time: Duration) -> Option<End> {
    let ended = timeout(time, told.wait_for(|told| told.end.is_some())).await;
    ended.ok()?.ok()?.end.clone()
}

/// The fault of a stream that could not be opened, by the SocksPort's reply and tor's events.
fn not_open(code: u8, end: Option<End>, host: &str) -> Fault {
    if let Some((says, whose)) = extended(code) {
        return Fault::of(whose, format!("{says} (SOCKS reply {code:02X})"));
    }
    match end {
        Some(End { reason, by_exit: true }) if is_onion(host) => Fault::target(reason),
        Some(End { reason, by_exit: true }) => refused(reason),
        Some(End { reason, .. }) if !is_onion(host) => {
            by_tor(reason, || Fault::circuit("destroyed"), || false_address(host))
        }
        end => {
            let reason = end.map_or_else(String::new, |end| format!(", {}", end.reason));
            let hint = if is_onion(host) {
                ": add ExtendedErrors to its SocksPort to learn why"
            } else {
                ""
            };
            Fault::unknown(format!(
                "tor did not open the stream (SOCKS reply {code:02X}{reason}){hint}"
            ))
        }
    }
}

/// Meaning of tor's SOCKS replies for onion services (socks-extensions, ExtendedErrors).
fn extended(code: u8) -> Option<(&'static str, Whose)> {
    Some(match code {
        0xF0 => ("onion service descriptor not found", Whose::Target),
        0xF1 => ("onion service descriptor invalid", Whose::Target),
        0xF2 => ("onion service introduction failed", Whose::Target),
        0xF3 => ("onion service rendezvous failed", Whose::Unknown),
        0xF4 => ("onion service requires client authorization", Whose::Target),
        0xF5 => ("onion service refused the client's authorization", Whose::Target),
        0xF6 => ("onion service address invalid", Whose::Client),
        0xF7 => ("onion service introduction timed out", Whose::Unknown),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    /// A control socket of a tor: each connection reports another SocksPort, and is closed after
    /// SETEVENTS or at RESETCONF.
    fn restarting_tor<const N: usize>(dir: &Path, ports: [u16; N]) -> JoinHandle<()> {
        fs::write(dir.join("torrc"), "SocksPort 1\n").expect("a torrc");
        let listener = UnixListener::bind(dir.join("control")).expect("a socket");
        thread::spawn(move || {
            for port in ports {
                let (mut socket, _) = listener.accept().expect("a client");
                let reader = BufReader::new(socket.try_clone().expect("a handle"));
                for line in reader.lines() {
                    let line = line.expect("a command");
                    let listeners = format!("250-net/listeners/socks=\"127.0.0.1:{port}\"\r\n");
                    let before = match line.as_str() {
                        "GETINFO net/listeners/socks" => listeners.as_str(),
                        "GETINFO circuit-status" => "250-circuit-status=\r\n",
                        "GETCONF NumEntryGuards" => "250-NumEntryGuards=0\r\n",
                        line if line.starts_with("RESETCONF") => break,
                        _ => "",
                    };
                    socket.write_all(format!("{before}250 OK\r\n").as_bytes()).expect("an answer");
                    if line.starts_with("SETEVENTS") {
                        break;
                    }
                }
            }
        })
    }

    /// Waits until tor's control connection is closed.
    fn await_loss(tor: &OwnTor) {
        while !tor.reached.lock().expect("a tor").watcher.is_lost() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_tor_that_was_restarted_is_reached_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let running = restarting_tor(dir.path(), [5001, 5002]);
        let (tor, ending) = OwnTor::connect(dir.path(), &[]).expect("a tor");
        assert!(ending.is_none(), "it keeps its options");
        await_loss(&tor);
        assert_eq!(tor.reached().expect("it again").socks.port(), 5002);
        running.join().expect("its end");
        await_loss(&tor);
        let fault = tor.reached().expect_err("it has ended");
        assert_eq!(fault.whose, Whose::Client, "{fault:?}");
    }

    #[test]
    fn a_tor_that_ends_with_options_of_an_arm_is_told_of() {
        let dir = tempfile::tempdir().expect("a directory");
        // Three connections: events of streams, changed options, commands.
        let running = restarting_tor(dir.path(), [5001, 5002, 5003]);
        let lines = [("NumEntryGuards".to_owned(), "1".to_owned())];
        let (tor, ending) = OwnTor::connect(dir.path(), &lines).expect("a tor");
        drop(tor);
        let error = ending.expect("options are lent").wait().expect_err("no answer");
        assert!(error.contains("SIGHUP"), "{error}");
        running.join().expect("its end");
    }

    #[test]
    fn a_port_on_which_downloads_share_circuits_is_refused() {
        let reply = |texts: &[&str]| {
            let line = |text: &&str| ReplyLine { text: (*text).to_owned(), data: None };
            Reply { code: 250, lines: texts.iter().map(line).collect() }
        };
        check_isolation(&reply(&["SocksPort"]), 9050).expect("the default");
        check_isolation(&reply(&["SocksPort=9050 IsolateDestAddr"]), 9050).expect("it isolates");
        let shared = reply(&["SocksPort=9050", "SocksPort=\"[::1]:9051 NoIsolateSOCKSAuth\""]);
        check_isolation(&shared, 9050).expect("that of others");
        let error = check_isolation(&shared, 9051).expect_err("it is shared");
        assert!(error.contains("remove it"), "{error}");
        let auto = reply(&["SocksPort=auto NoIsolateSOCKSAuth"]);
        check_isolation(&auto, 40_000).expect_err("it is shared");
    }

    #[test]
    fn replies_about_onion_services_say_whose_they_are() {
        for (code, says, whose) in [
            (0xF0, "descriptor not found (SOCKS reply F0)", Whose::Target),
            (0xF2, "introduction failed", Whose::Target),
            (0xF3, "rendezvous failed", Whose::Unknown),
            (0xF6, "address invalid", Whose::Client),
            (0xF7, "timed out (SOCKS reply F7)", Whose::Unknown),
        ] {
            let fault = not_open(code, None, "x.onion");
            assert!(fault.reason.contains(says) && fault.whose == whose, "{fault:?}");
        }
        let fault = not_open(4, None, "x.onion");
        assert!(fault.reason.contains("SOCKS reply 04") && fault.reason.contains("ExtendedErrors"));
    }

    #[test]
    fn without_a_reply_of_its_own_the_streams_end_says_why() {
        let end = |reason: &str, by_exit| Some(End { reason: reason.to_owned(), by_exit });
        for (end, host, whose) in [
            (end("connectrefused", true), "a", Whose::Target),
            (end("exitpolicy", true), "a", Whose::Relay),
            (end("timeout", false), "a", Whose::Unknown),
            (end("destroy", false), "a", Whose::Relay),
            (end("misc", true), "x.onion", Whose::Target),
            (end("resolvefailed", false), "x.onion", Whose::Unknown),
        ] {
            let fault = not_open(5, end.clone(), host);
            assert_eq!(fault.whose, whose, "{end:?} of {host}: {fault:?}");
        }
    }
}
