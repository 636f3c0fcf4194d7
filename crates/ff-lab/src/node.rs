//! A tor of a network: an authority, a relay or a client.

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

/// Role of a node in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A directory authority, which is also a relay.
    Authority,
    /// A relay that is not an exit.
    Middle,
    /// An exit.
    Exit,
    /// A client.
    Client,
}

/// A tor of a network.
///
/// Starting and stopping need only `&self`, so that threads can do it.
#[derive(Debug)]
pub struct Node {
    name: String,
    role: Role,
    tor: PathBuf,
    /// DataDirectory, with torrc, log and control socket.
    dir: PathBuf,
    /// ORPort, or a client's SocksPort.
    port: Port,
    /// An authority's DirPort.
    dir_port: Option<Port>,
    /// SocksPort of a relay that is also a client.
    socks_port: Option<Port>,
    /// Core that it is pinned to.
    core: Option<usize>,
    /// `None` for loopback.
    host: Option<Host>,
    /// The process, if it runs.
    running: Mutex<Option<Running>>,
    /// Set at the first start.
    identity: OnceLock<Identity>,
    /// Held while streams are attached.
    attaching: Mutex<()>,
    /// Interrupts waits.
    ending: Ending,
}

/// Parts of a [`Node`].
#[derive(Debug)]
pub(crate) struct NodeParts {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) tor: PathBuf,
    /// Must exist.
    pub(crate) dir: PathBuf,
    /// ORPort, or a client's SocksPort.
    pub(crate) port: Port,
    /// An authority's DirPort.
    pub(crate) dir_port: Option<Port>,
    /// SocksPort of a relay that is also a client.
    pub(crate) socks_port: Option<Port>,
    /// Core to pin it to.
    pub(crate) core: Option<usize>,
    /// `None` for loopback.
    pub(crate) host: Option<Host>,
    /// Interrupts waits.
    pub(crate) ending: Ending,
}

impl Node {
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

    /// Nickname.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.tor
    }

    /// Directory of keys, torrc, log and all other files.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.dir
    }

    /// Its configuration file.
    #[must_use]
    pub fn torrc(&self) -> PathBuf {
        self.dir.join("torrc")
    }

    /// Address at which it listens and from which it connects.
    pub(crate) fn ip(&self) -> IpAddr {
        self.port.addr().ip()
    }

    /// Address of the ORPort.
    ///
    /// # Panics
    /// If the node is a client.
    #[must_use]
    pub fn or_addr(&self) -> SocketAddr {
        assert_ne!(self.role, Role::Client, "{} is a client and has no ORPort", self.name);
        self.port.addr()
    }

    /// Address of the SocksPort.
    ///
    /// # Panics
    /// If there is none: the node is neither a client nor a relay with
    /// [`RelayConfig::socks_port`](crate::RelayConfig::socks_port).
    #[must_use]
    pub fn socks_addr(&self) -> SocketAddr {
        let own = (self.role == Role::Client).then_some(&self.port);
        let port = own.or(self.socks_port.as_ref());
        port.unwrap_or_else(|| panic!("{} has no SocksPort", self.name)).addr()
    }

    /// Address of an authority's DirPort.
    #[must_use]
    pub fn dir_addr(&self) -> Option<SocketAddr> {
        self.dir_port.as_ref().map(Port::addr)
    }

    /// Host, if nodes have hosts.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Ed25519 identity.
    ///
    /// # Panics
    /// If the node is a client.
    #[must_use]
    pub fn ed_identity(&self) -> [u8; 32] {
        self.identity().ed25519
    }

    /// Ed25519 identity, 43 base64 characters.
    ///
    /// # Panics
    /// If the node is a client.
    #[must_use]
    pub fn ed_identity_base64(&self) -> String {
        Base64Unpadded::encode_string(&self.ed_identity())
    }

    /// RSA fingerprint, 40 upper-case hexadecimal digits.
    ///
    /// # Panics
    /// If the node is a client.
    #[must_use]
    pub fn rsa_fingerprint(&self) -> &str {
        &self.identity().rsa_fingerprint
    }

    /// X25519 onion key for circuit handshakes (ntor), as in the descriptor.
    ///
    /// # Errors
    /// [`Error::Io`] if the key does not exist yet.
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
    /// [`Error::NotRunning`], [`Error::Exited`], and errors of the connection.
    pub fn control(&self) -> Result<Control> {
        self.check_running()?;
        Control::open(&self.dir)
    }

    /// The log so far: notices and worse, and whatever `Log` lines in the torrc add to the file.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.dir.join("log"))
    }

    /// Waits for a log line that contains this text, and returns the line.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the end of the log, and [`Error::Exited`].
    pub fn wait_for_log(&self, text: &str, timeout: Duration) -> Result<String> {
        let what = format!("{} did not log {text:?}", self.name);
        self.wait_until(&what, timeout, || {
            Ok(self.log().lines().find(|line| line.contains(text)).map(str::to_owned))
        })
    }

    /// Adds a line to the torrc, for the next [`Self::reload`] or [`Self::restart`].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append_torrc(&self, line: &str) -> Result<()> {
        let file = File::options().append(true).open(self.torrc());
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.map_err(Error::io(format!("write {}", self.torrc().display())))
    }

    /// Lock against other attachments of this client's streams.
    pub(crate) fn alone_attaching(&self) -> MutexGuard<'_, ()> {
        self.attaching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity(&self) -> &Identity {
        let has_none = || panic!("{} is a client or was never started: no identity", self.name);
        self.identity.get().unwrap_or_else(has_none)
    }

    /// Last lines of the log and output.
    fn log_tail(&self) -> String {
        let text = read_lossy(&self.dir.join("out")) + &self.log();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// Number of log lines that an error quotes.
const TAIL_LINES: usize = 30;

/// Reads a file that tor may be writing; empty if it does not exist.
fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
