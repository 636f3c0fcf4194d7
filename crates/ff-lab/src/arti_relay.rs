//! An arti-relay process, alone or in a network.
//!
//! Alone, it knows one authority at an address where nothing listens, so it never bootstraps, but
//! accepts links and forwards the cells on them at once. In a network it bootstraps from the
//! authorities. arti-relay and its directory client refuse loopback and private addresses, but
//! accept [`NETWORK`].

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::ending::Ending;
use crate::error::{Error, Result};
use crate::keys;
use crate::leftovers::mark;
use crate::net::Namespace;
use crate::node::Node;
use crate::own_dir::OwnDir;
use crate::process::{self, Process};

/// Address range for tests of network equipment (RFC 2544).
pub const NETWORK: &str = "198.18.0.0/15";
/// Longest wait until the relay accepts links.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between looks at the log.
const LOOK: Duration = Duration::from_millis(20);
/// Log message of a relay that has a consensus and enough microdescriptors.
const BOOTSTRAPPED: &str = "We have enough information to build circuits.";

/// A running relay; dropping it ends the process.
#[derive(Debug)]
pub struct ArtiRelay {
    name: String,
    /// Must end before its directory is removed.
    process: Mutex<Process>,
    /// Configuration, state and log.
    dir: PathBuf,
    addr: SocketAddrV4,
    /// Public keys, read from the log.
    keys: ArtiKeys,
    /// Interrupts waits.
    ending: Ending,
    /// The same directory, unless a network owns it.
    _own_dir: Option<OwnDir>,
}

/// The public keys of an arti-relay.
#[derive(Clone, Debug, Default)]
struct ArtiKeys {
    ed_identity: [u8; 32],
    /// RSA identity, upper-case hexadecimal.
    rsa_identity: String,
    ntor: [u8; 32],
}

impl ArtiKeys {
    /// Reads the keys from a log; `None` if one is missing so far.
    fn read(log: &str) -> Option<Self> {
        let word_after = |what: &str| {
            let (_, rest) = log.split_once(what)?;
            Some(rest.split_whitespace().next()?.trim_matches(['$', '"']))
        };
        Some(Self {
            ed_identity: keys::decode_key(word_after("Ed25519 identity: ")?)?,
            rsa_identity: word_after("RSA identity: ")?.to_ascii_uppercase(),
            ntor: keys::decode_key(word_after("Ntor public key: ")?)?,
        })
    }
}

/// Program, place and configuration of an [`ArtiRelay`].
#[derive(Clone, Copy, Debug)]
pub struct ArtiRelayPlan<'a> {
    /// The program's path.
    pub program: &'a Path,
    /// Its network namespace; addresses must be in [`NETWORK`] or public.
    pub namespace: &'a Namespace,
    /// ORPort.
    pub addr: SocketAddrV4,
    /// More sections of the configuration, in TOML.
    pub sections: &'a str,
    /// Threads of its runtime; 0 for one per core of the machine.
    pub threads: usize,
    /// The core it is pinned to; `None` for all cores.
    pub core: Option<usize>,
}

/// A relay's directory and network.
pub(crate) struct ArtiPlace {
    pub(crate) name: String,
    /// Must exist.
    pub(crate) dir: PathBuf,
    /// Authorities of the network.
    pub(crate) authorities: Vec<ArtiAuthority>,
    /// Interrupts waits.
    pub(crate) ending: Ending,
}

/// An authority, as in an arti-relay's configuration.
#[derive(Clone, Debug)]
pub(crate) struct ArtiAuthority {
    /// Fingerprint of the key that signs its votes.
    v3ident: String,
    /// RSA identity, hexadecimal.
    rsa_identity: String,
    /// Ed25519 identity, base64.
    ed_identity: String,
    or: SocketAddr,
    dir: SocketAddr,
}

impl ArtiAuthority {
    /// The authority that a started node is.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the node is not an authority.
    pub(crate) fn of(node: &Node) -> Result<Self> {
        let not_one = || Error::Misuse(format!("{} is not an authority", node.name()));
        Ok(Self {
            v3ident: keys::v3ident(node.data_dir())?,
            rsa_identity: node.rsa_fingerprint().to_owned(),
            ed_identity: node.ed_identity_base64(),
            or: node.or_addr(),
            dir: node.dir_addr().ok_or_else(not_one)?,
        })
    }

    /// An authority that does not exist, at an address where nothing listens.
    fn nobody() -> Self {
        const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 19, 255, 1), 1);
        let rsa_identity = "0123456789ABCDEF0123456789ABCDEF01234567".to_owned();
        Self {
            v3ident: rsa_identity.clone(),
            rsa_identity,
            ed_identity: "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc".to_owned(),
            or: NOWHERE.into(),
            dir: NOWHERE.into(),
        }
    }
}

impl ArtiRelay {
    /// Starts a relay without a network and waits until it accepts links. The namespace must own
    /// all addresses of [`NETWORK`].
    ///
    /// # Errors
    /// [`Error::Exited`] with the log if the relay ends; others if it cannot be started.
    pub fn start(plan: &ArtiRelayPlan<'_>) -> Result<Self> {
        let own_dir = OwnDir::new_in(&std::env::temp_dir())?;
        let place = ArtiPlace {
            name: "arti-relay".to_owned(),
            dir: own_dir.path().to_owned(),
            authorities: vec![ArtiAuthority::nobody()],
            ending: Ending::default(),
        };
        let mut relay = Self::start_in(plan, place)?;
        relay._own_dir = Some(own_dir);
        Ok(relay)
    }

    /// Starts a relay in a directory and waits until it accepts links.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_in(plan: &ArtiRelayPlan<'_>, place: ArtiPlace) -> Result<Self> {
        let ArtiPlace { name, dir, authorities, ending } = place;
        let path = config_of(&dir);
        let text = config(&dir, plan.addr) + &tor_network(&authorities) + plan.sections;
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
        let process = Mutex::new(spawn(plan, &dir)?);
        let (addr, keys) = (plan.addr, ArtiKeys::default());
        let mut relay = Self { name, process, dir, addr, keys, ending, _own_dir: None };
        relay.wait_until_it_listens(plan.namespace)?;
        Ok(relay)
    }

    /// Stops the relay if it runs, and starts it again with the same configuration and state and an
    /// empty log.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self, plan: &ArtiRelayPlan<'_>) -> Result<()> {
        self.process().end();
        fs::write(log_of(&self.dir), "").map_err(Error::io("empty a log"))?;
        let process = spawn(plan, &self.dir)?;
        *self.process() = process;
        self.wait_until_it_listens(plan.namespace)
    }

    /// Waits until the keys are in the log and the port is open.
    fn wait_until_it_listens(&mut self, namespace: &Namespace) -> Result<()> {
        let addr = SocketAddr::from(self.addr);
        self.keys = self.wait_until("did not accept links", PATIENCE, || {
            let Some(keys) = ArtiKeys::read(&self.log()) else { return Ok(None) };
            let is_open = namespace.run(|| TcpStream::connect(addr).is_ok())?;
            Ok(is_open.then_some(keys))
        })?;
        Ok(())
    }

    /// Waits until the relay has the network's documents.
    ///
    /// # Errors
    /// [`Error::Timeout`] and [`Error::Exited`], with the log.
    pub(crate) fn wait_until_bootstrapped(&self, timeout: Duration) -> Result<()> {
        let is_done = || Ok(self.log().contains(BOOTSTRAPPED).then_some(()));
        self.wait_until("did not bootstrap", timeout, is_done)
    }

    /// Polls until `look` returns a value.
    fn wait_until<T>(
        &self,
        what: &str,
        after: Duration,
        look: impl Fn() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + after;
        loop {
            let found = look()?;
            self.ending.check()?;
            self.check_running()?;
            if let Some(found) = found {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let what = format!("{} {what}", self.name);
                return Err(Error::Timeout { what, after, detail: format!(":\n{}", self.log()) });
            }
            thread::sleep(LOOK);
        }
    }

    /// Fails if the process has ended.
    fn check_running(&self) -> Result<()> {
        match self.process().exit_status() {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                node: self.name.clone(),
                status: status.to_string(),
                log: self.log(),
            }),
        }
    }

    /// Name in the network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// ORPort.
    #[must_use]
    pub fn addr(&self) -> SocketAddrV4 {
        self.addr
    }

    /// Ed25519 identity.
    #[must_use]
    pub fn ed_identity(&self) -> [u8; 32] {
        self.keys.ed_identity
    }

    /// RSA identity, 40 upper-case hexadecimal digits.
    #[must_use]
    pub fn rsa_identity(&self) -> &str {
        &self.keys.rsa_identity
    }

    /// X25519 onion key (ntor).
    #[must_use]
    pub fn ntor_onion_key(&self) -> [u8; 32] {
        self.keys.ntor
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.check_running().is_ok()
    }

    /// CPU time so far.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()).map_err(Error::io("read an arti-relay's CPU time"))
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn rss_bytes(&self) -> Result<u64> {
        process::rss_bytes(self.pid()).map_err(Error::io("measure an arti-relay's memory"))
    }

    /// Number of open links accepted at the ORPort.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn accepted_links(&self) -> Result<usize> {
        let connections = process::connections(self.pid());
        let connections = connections.map_err(Error::io("list an arti-relay's connections"))?;
        let own = SocketAddr::from(self.addr);
        Ok(connections.iter().filter(|connection| connection.local == own).count())
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(log_of(&self.dir)).unwrap_or_default()
    }

    /// Directory of configuration, state and log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// State directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Kills the process, as a crash would.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill(&self) -> Result<()> {
        self.process().signal(Signal::KILL).map_err(Error::io("kill an arti-relay"))
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the process of a relay with the configuration in `dir`.
fn spawn(plan: &ArtiRelayPlan<'_>, dir: &Path) -> Result<Process> {
    let mut command = Command::new(plan.program);
    command.arg("--disable-fs-permission-checks").arg("-c").arg(config_of(dir)).arg("run");
    if plan.threads > 0 {
        command.env("TOKIO_WORKER_THREADS", plan.threads.to_string());
    }
    mark(&mut command)?;
    let log = log_of(dir);
    let started = plan.namespace.run(|| Process::spawn(&mut command, &log, plan.core))?;
    started.map_err(Error::io(format!("start {}", plan.program.display())))
}

fn config_of(dir: &Path) -> PathBuf {
    dir.join("arti-relay.toml")
}

/// Path of the process's output.
fn log_of(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Configuration of a relay, without its network.
fn config(dir: &Path, addr: SocketAddrV4) -> String {
    let dir = dir.display();
    format!(
        r#"[relay]
listen = ["{addr}"]
[relay.advertise]
ipv4 = ["{addr}"]
ipv6 = []
[storage]
cache_dir = "{dir}/cache"
state_dir = "{dir}/state"
[logging]
log_sensitive_information = true
"#
    )
}

/// Configuration section of a network whose only fallback directories are its authorities.
fn tor_network(authorities: &[ArtiAuthority]) -> String {
    let list = |item: &dyn Fn(&ArtiAuthority) -> String| {
        authorities.iter().map(item).collect::<Vec<_>>().join(", ")
    };
    let fallback = |one: &ArtiAuthority| {
        let ArtiAuthority { rsa_identity, ed_identity, or, .. } = one;
        format!(
            r#"{{ rsa_identity = "{rsa_identity}", ed_identity = "{ed_identity}", orports = ["{or}"] }}"#
        )
    };
    let addresses = list(&|one| format!(r#"["{}"]"#, one.dir));
    let mut text = format!("[tor_network]\nfallback_caches = [{}]\n", list(&fallback));
    let v3idents = list(&|one| format!(r#""{}""#, one.v3ident));
    let _ = writeln!(text, "[tor_network.authorities]\nv3idents = [{v3idents}]");
    for key in ["uploads", "downloads", "votes"] {
        let _ = writeln!(text, "{key} = [{addresses}]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_a_log() {
        let seven = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
        let log = format!(
            "INFO a: Ed25519 identity: {seven}\nINFO a: RSA identity: $0123456789abcdef\nINFO a: \
             Ntor public key: {seven}="
        );
        let keys = ArtiKeys::read(&log).unwrap();
        assert_eq!((keys.ed_identity, keys.ntor), ([7; 32], [7; 32]));
        assert_eq!(keys.rsa_identity, "0123456789ABCDEF");
        assert!(ArtiKeys::read(&log.replace("Ntor", "ntor")).is_none());
    }

    #[test]
    fn a_configuration_names_every_authority() {
        let authorities = [ArtiAuthority::nobody(), ArtiAuthority::nobody()];
        let addr = SocketAddrV4::new(Ipv4Addr::new(198, 18, 4, 1), 9001);
        let text = config(Path::new("/a b"), addr) + &tor_network(&authorities);
        let table: toml::Table = toml::from_str(&text).unwrap();
        let network = &table["tor_network"];
        assert_eq!(network["fallback_caches"].as_array().unwrap().len(), 2);
        assert_eq!(network["fallback_caches"][1]["orports"][0].as_str(), Some("198.19.255.1:1"));
        for key in ["v3idents", "uploads", "downloads", "votes"] {
            assert_eq!(network["authorities"][key].as_array().unwrap().len(), 2, "{key}");
        }
        assert_eq!(network["authorities"]["uploads"][1][0].as_str(), Some("198.19.255.1:1"));
        assert_eq!(table["relay"]["listen"][0].as_str(), Some("198.18.4.1:9001"));
    }
}
