//! One tor of a network: an authority, a relay or a client.

mod life;

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base64ct::{Base64Unpadded, Encoding};

use crate::control::Control;
use crate::ending::Ending;
use crate::error::{Error, Result};
use crate::hosts::Host;
use crate::keys::Identity;
use crate::ports::Port;

use life::Running;

/// The role of a node in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A directory authority, which is also a relay.
    Authority,
    /// A relay that is not an exit.
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
    role: Role,
    /// The program.
    tor: PathBuf,
    /// Its DataDirectory, in which its torrc, its log and its control socket are as well.
    dir: PathBuf,
    /// Its ORPort, or a client's SocksPort.
    port: Port,
    /// An authority's DirPort.
    dir_port: Option<Port>,
    /// The SocksPort of a relay that is a client as well.
    socks_port: Option<Port>,
    /// The core it may run on.
    core: Option<usize>,
    /// Its host, if it is not this machine.
    host: Option<Host>,
    /// The process, while there is one.
    running: Mutex<Option<Running>>,
    /// Its identity, known once it has run.
    identity: OnceLock<Identity>,
    /// Held while streams are attached.
    attaching: Mutex<()>,
    /// Requests for the network's end.
    ending: Ending,
}

/// What to make a [`Node`] of.
#[derive(Debug)]
pub(crate) struct NodeParts {
    /// Its nickname.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The program.
    pub(crate) tor: PathBuf,
    /// Its directory, which exists.
    pub(crate) dir: PathBuf,
    /// Its ORPort, or a client's SocksPort.
    pub(crate) port: Port,
    /// An authority's DirPort.
    pub(crate) dir_port: Option<Port>,
    /// The SocksPort of a relay that is a client as well.
    pub(crate) socks_port: Option<Port>,
    /// The core it may run on.
    pub(crate) core: Option<usize>,
    /// Its host, if it is not this machine.
    pub(crate) host: Option<Host>,
    /// Requests for the network's end.
    pub(crate) ending: Ending,
}

impl Node {
    /// A node that has not been started.
    pub(crate) fn new(parts: NodeParts) -> Self {
        let NodeParts { name, role, tor, dir, port, dir_port, socks_port, core, host, ending } =
            parts;
        let (running, identity, attaching) = Default::default();
        Self {
            name,
            role,
            tor,
            dir,
            port,
            dir_port,
            socks_port,
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

    /// Its role.
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
    /// If it has none: it is neither a client nor a relay with
    /// [`RelayConfig::socks_port`](crate::RelayConfig::socks_port).
    #[must_use]
    pub fn socks_addr(&self) -> SocketAddr {
        let own = (self.role == Role::Client).then_some(&self.port);
        let port = own.or(self.socks_port.as_ref());
        port.unwrap_or_else(|| panic!("{} has no SocksPort", self.name)).addr()
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
    /// [`Error::Io`] when it does not have the key yet.
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

    /// Its log so far: notices and worse, and all that `Log` lines in its torrc add to that file.
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

    /// Adds a line to its torrc, for the next [`Self::reload`] or [`Self::restart`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append_torrc(&self, line: &str) -> Result<()> {
        let file = File::options().append(true).open(self.torrc());
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.map_err(Error::io(format!("write {}", self.torrc().display())))
    }

    /// Keeps others from attaching streams of this client at the same time.
    pub(crate) fn alone_attaching(&self) -> MutexGuard<'_, ()> {
        self.attaching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn torrc(&self) -> PathBuf {
        self.dir.join("torrc")
    }

    fn identity(&self) -> &Identity {
        let has_none = || panic!("{} is a client or was never started: no identity", self.name);
        self.identity.get().unwrap_or_else(has_none)
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

/// Reads a file that tor may be writing; empty if it is not there.
fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
