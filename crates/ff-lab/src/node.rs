//! One tor of a network: an authority, a relay or a client.

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64Unpadded, Encoding};
use rustix::process::Signal;

use crate::control::{Control, SOCKET};
use crate::ending::Ending;
use crate::error::{Error, Result};
use crate::hosts::{Host, inside};
use crate::keys::Identity;
use crate::net;
use crate::ports::Port;
use crate::process::{self, Connection, Process};
use crate::torrc::EMPTY_FILE;

/// What a node is in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A directory authority, which is also a relay.
    Authority,
    /// A relay that is no exit.
    Middle,
    /// A relay that is an exit.
    Exit,
    /// A client.
    Client,
}

/// One tor of a network.
///
/// It is stopped and started without being borrowed mutably, so that threads can do it.
#[derive(Debug)]
pub struct Node {
    /// Its nickname.
    name: String,
    /// What it is.
    role: Role,
    /// The program.
    tor: PathBuf,
    /// Its DataDirectory, in which its torrc, its log and its control socket are as well.
    dir: PathBuf,
    /// Its ORPort, or a client's SocksPort.
    port: Port,
    /// An authority's DirPort.
    dir_port: Option<Port>,
    /// The core it may run on.
    core: Option<usize>,
    /// Its host, if it is not this machine.
    host: Option<Host>,
    /// The process, while there is one.
    running: Mutex<Option<Running>>,
    /// Who it is, known once it has run.
    identity: OnceLock<Identity>,
    /// Held while streams are attached.
    attaching: Mutex<()>,
    /// Who may ask for the network's end.
    ending: Ending,
}

/// A running tor.
#[derive(Debug)]
struct Running {
    /// The process.
    process: Process,
    /// Tor ends when this connection closes, as it does when the test is killed.
    owner: Option<Control>,
}

/// What to make a [`Node`] of.
#[derive(Debug)]
pub(crate) struct NodeParts {
    /// Its nickname.
    pub(crate) name: String,
    /// What it is.
    pub(crate) role: Role,
    /// The program.
    pub(crate) tor: PathBuf,
    /// Its directory, which exists.
    pub(crate) dir: PathBuf,
    /// Its ORPort, or a client's SocksPort.
    pub(crate) port: Port,
    /// An authority's DirPort.
    pub(crate) dir_port: Option<Port>,
    /// The core it may run on.
    pub(crate) core: Option<usize>,
    /// Its host, if it is not this machine.
    pub(crate) host: Option<Host>,
    /// Who may ask for the network's end.
    pub(crate) ending: Ending,
}

impl Node {
    /// A node that has not been started.
    pub(crate) fn new(parts: NodeParts) -> Self {
        let NodeParts { name, role, tor, dir, port, dir_port, core, host, ending } = parts;
        let (running, identity, attaching) = Default::default();
        Self {
            name,
            role,
            tor,
            dir,
            port,
            dir_port,
            core,
            host,
            running,
            identity,
            attaching,
            ending,
        }
    }

    /// Its nickname.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The directory with its keys, torrc, log and all else.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.dir
    }

    /// The address that it listens at and connects from.
    pub(crate) fn ip(&self) -> IpAddr {
        self.port.addr().ip()
    }

    /// Address of its ORPort.
    ///
    /// # Panics
    /// If it is a client.
    #[must_use]
    pub fn or_addr(&self) -> SocketAddr {
        assert_ne!(self.role, Role::Client, "{} is a client and has no ORPort", self.name);
        self.port.addr()
    }

    /// Address of its SocksPort.
    ///
    /// # Panics
    /// If it is not a client.
    #[must_use]
    pub fn socks_addr(&self) -> SocketAddr {
        assert_eq!(self.role, Role::Client, "{} is no client and has no SocksPort", self.name);
        self.port.addr()
    }

    /// Address of its DirPort, if it is an authority.
    #[must_use]
    pub fn dir_addr(&self) -> Option<SocketAddr> {
        self.dir_port.as_ref().map(Port::addr)
    }

    /// Its host, if the network has any.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Its Ed25519 identity.
    ///
    /// # Panics
    /// If it is a client.
    #[must_use]
    pub fn ed_identity(&self) -> [u8; 32] {
        self.identity().ed25519
    }

    /// Its Ed25519 identity as 43 base64 characters.
    ///
    /// # Panics
    /// If it is a client.
    #[must_use]
    pub fn ed_identity_base64(&self) -> String {
        Base64Unpadded::encode_string(&self.ed_identity())
    }

    /// Its RSA fingerprint, 40 upper-case hex digits.
    ///
    /// # Panics
    /// If it is a client.
    #[must_use]
    pub fn rsa_fingerprint(&self) -> &str {
        &self.identity().rsa_fingerprint
    }

    /// The X25519 key that clients' circuit handshakes are made with, as its descriptor has it.
    ///
    /// # Errors
    /// [`Error::Io`] when it has no such key yet.
    pub fn ntor_onion_key(&self) -> Result<[u8; 32]> {
        let path = self.dir.join("keys/secret_onion_key_ntor");
        let failed = || Error::io(format!("read {}", path.display()));
        let file = fs::read(&path).map_err(failed())?;
        // A header of 32 bytes, the secret key, the public key.
        let key = file.get(64..).and_then(|key| key.try_into().ok());
        key.ok_or_else(|| failed()(std::io::ErrorKind::UnexpectedEof.into()))
    }

    /// Opens a control connection.
    ///
    /// # Errors
    /// [`Error::NotRunning`], [`Error::Exited`], and those of the connection.
    pub fn control(&self) -> Result<Control> {
        self.check_running()?;
        Control::open(&self.dir)
    }

    /// Its log so far: notices and worse, and whatever `Log` lines in its torrc add to that file.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.dir.join("log"))
    }

    /// Waits until its log has a line with this text in it; that line.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the end of the log, and [`Error::Exited`].
    pub fn wait_for_log(&self, text: &str, timeout: Duration) -> Result<String> {
        let what = format!("{} did not log {text:?}", self.name);
        self.wait_until(&what, timeout, || {
            Ok(self.log().lines().find(|line| line.contains(text)).map(str::to_owned))
        })
    }

    /// Ends the process; does nothing if it is not running.
    pub fn stop(&self) {
        *self.running() = None;
    }

    /// Ends the process if it is running, and starts it with the same keys and ports.
    ///
    /// Returns when its control port answers, and for a client when it has bootstrapped. Other
    /// nodes lose their connections to it.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log, if it does not like its torrc for instance.
    pub fn restart(&self) -> Result<()> {
        self.stop();
        self.spawn()?;
        self.wait_until_controllable()?;
        if self.role == Role::Client { self.wait_until_bootstrapped() } else { Ok(()) }
    }

    /// Asks it to read its torrc again (SIGHUP), and does not wait until it has.
    ///
    /// For a relay at its `BandwidthRate`: with `CountPrivateBandwidth`, its control connections
    /// wait for their share of that, too, and may do so for longer than [`Self::reload`] waits.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn ask_to_reload(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Has it read its torrc again (SIGHUP), and waits until it has.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log: a tor that cannot read its torrc then ends.
    pub fn reload(&self) -> Result<()> {
        let mut control = self.control()?;
        control.subscribe(&["SIGNAL"])?;
        self.ask_to_reload()?;
        let what = format!("{} did not reload", self.name);
        self.wait_until(&what, PATIENCE, || match control.next_event(Duration::from_millis(100)) {
            Ok(event) => Ok(event.filter(|event| event.text == "RELOAD").map(drop)),
            // The connection closes a moment before the process has ended.
            Err(_) => Ok(None),
        })
    }

    /// Adds a line to its torrc, for the next [`Self::reload`] or [`Self::restart`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append_torrc(&self, line: &str) -> Result<()> {
        let file = File::options().append(true).open(self.torrc());
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.map_err(Error::io(format!("write {}", self.torrc().display())))
    }

    /// The process id.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub fn pid(&self) -> Result<u32> {
        let not_running = || Error::NotRunning { node: self.name.clone() };
        self.running().as_ref().map(|running| running.process.pid()).ok_or_else(not_running)
    }

    /// Whether the process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.check_running().is_ok()
    }

    /// Its resident memory.
    ///
    /// # Errors
    /// When it is not running.
    pub fn rss_bytes(&self) -> Result<u64> {
        process::rss_bytes(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// The CPU time it has used since its start, to the nanosecond.
    ///
    /// # Errors
    /// When it is not running.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// How many sockets it has open, those it listens on included.
    ///
    /// # Errors
    /// When it is not running.
    pub fn open_connections(&self) -> Result<usize> {
        process::open_sockets(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// The TCP connections that it holds.
    pub(crate) fn connections(&self) -> Result<Vec<Connection>> {
        process::connections(self.pid()?).map_err(Error::io(format!("measure {}", self.name)))
    }

    /// Starts the process and does not wait for it.
    pub(crate) fn spawn(&self) -> Result<()> {
        let path = self.dir.join(SOCKET);
        if path.as_os_str().len() > 107 {
            return Err(Error::PathTooLong { path });
        }
        let mut command = Command::new(&self.tor);
        command.arg("-f").arg(self.torrc());
        // The machine's own defaults are none of this network's business.
        command.arg("--defaults-torrc").arg(self.dir.join(EMPTY_FILE));
        File::create(self.dir.join(EMPTY_FILE)).map_err(Error::io("create an empty file"))?;
        if self.host.is_some() {
            net::mark(&mut command)?;
        }
        let spawn = || Process::spawn(&mut command, &self.dir.join("out"), self.core);
        let process = inside(self.host(), spawn)?
            .map_err(|source| Error::Program { program: self.tor.clone(), source })?;
        *self.running() = Some(Running { process, owner: None });
        Ok(())
    }

    /// Waits until its control port answers, makes tor ours, and notes its identity.
    pub(crate) fn wait_until_controllable(&self) -> Result<()> {
        let what = format!("{} did not open its control port", self.name);
        let mut owner = self.wait_until(&what, PATIENCE, || Ok(Control::open(&self.dir).ok()))?;
        owner.command("TAKEOWNERSHIP")?;
        if let Some(running) = &mut *self.running() {
            running.owner = Some(owner);
        }
        if self.role != Role::Client && self.identity.get().is_none() {
            let _ = self.identity.set(Identity::read(&self.dir)?);
        }
        Ok(())
    }

    /// Waits until it can build circuits.
    pub(crate) fn wait_until_bootstrapped(&self) -> Result<()> {
        let mut control = self.control()?;
        let what = format!("{} did not bootstrap", self.name);
        self.wait_until(&what, PATIENCE, || {
            let phase = control.getinfo("status/bootstrap-phase")?;
            Ok(phase.contains("PROGRESS=100 ").then_some(()))
        })
    }

    /// Waits until a look at something has a result; fails early if the process ends, or is to.
    pub(crate) fn wait_until<T>(
        &self,
        what: &str,
        after: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + after;
        loop {
            let found = look();
            self.ending.check()?;
            // A tor that has ended is the reason of whatever else failed.
            self.check_running()?;
            if let Some(found) = found? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let detail = format!("; the end of its log:\n{}", self.log_tail());
                return Err(Error::Timeout { what: what.to_owned(), after, detail });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the process, if there is one.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let mut running = self.running();
        let sent = running.as_mut().map_or(Ok(()), |running| running.process.signal(signal));
        sent.map_err(Error::io(format!("signal {}", self.name)))
    }

    /// Keeps others from attaching streams of this client at the same time.
    pub(crate) fn alone_attaching(&self) -> MutexGuard<'_, ()> {
        self.attaching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of its torrc.
    pub(crate) fn torrc(&self) -> PathBuf {
        self.dir.join("torrc")
    }

    /// The process, while there is one.
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who it is.
    fn identity(&self) -> &Identity {
        let has_none = || panic!("{} is a client or was never started: no identity", self.name);
        self.identity.get().unwrap_or_else(has_none)
    }

    /// Fails if the process is not there or has ended by itself.
    pub(crate) fn check_running(&self) -> Result<()> {
        let mut running = self.running();
        let Some(Running { process, .. }) = &mut *running else {
            return Err(Error::NotRunning { node: self.name.clone() });
        };
        match process.exit_status() {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                node: self.name.clone(),
                status: status.to_string(),
                log: self.log_tail(),
            }),
        }
    }

    /// The last lines of what it wrote.
    fn log_tail(&self) -> String {
        let text = read_lossy(&self.dir.join("out")) + &self.log();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// How many lines of a log an error quotes.
const TAIL_LINES: usize = 30;

/// How long a tor may take for things that take it a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads a file that tor may be writing; empty if it is not there.
fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
