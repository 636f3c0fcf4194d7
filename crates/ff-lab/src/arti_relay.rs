//! An arti-relay: alone, or in a network.
//!
//! Alone it knows an authority at an address where nobody listens, so that it never bootstraps; it
//! accepts links and forwards what comes over them at once. In a network it bootstraps from the
//! authorities. arti-relay refuses to extend circuits to loopback and private addresses, and so
//! does its own directory client; [`NETWORK`] it takes.

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

/// The addresses of networks for tests of network equipment (RFC 2544).
pub const NETWORK: &str = "198.18.0.0/15";
/// How long it may take until it accepts links.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between looks at its log.
const LOOK: Duration = Duration::from_millis(20);
/// What it logs when it has a consensus and enough microdescriptors.
const BOOTSTRAPPED: &str = "We have enough information to build circuits.";

/// A running relay; dropping it ends the process.
#[derive(Debug)]
pub struct ArtiRelay {
    /// Its name in messages and in its network.
    name: String,
    /// The process, which ends before its directory goes.
    process: Mutex<Process>,
    /// The directory with its configuration, state and log.
    dir: PathBuf,
    /// Its ORPort.
    addr: SocketAddrV4,
    /// Its public keys, which it logs.
    keys: ArtiKeys,
    /// Ends waiting for it.
    ending: Ending,
    /// The directory, if the relay has no network that owns it.
    _own_dir: Option<OwnDir>,
}

/// The public keys of an arti-relay.
#[derive(Clone, Debug, Default)]
struct ArtiKeys {
    /// The Ed25519 identity.
    ed_identity: [u8; 32],
    /// The RSA identity in upper-case hexadecimal digits.
    rsa_identity: String,
    /// The key for circuits.
    ntor: [u8; 32],
}

impl ArtiKeys {
    /// Reads them from a log; `None` if it does not have all of them yet.
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

/// What a relay is started with.
#[derive(Clone, Copy, Debug)]
pub struct ArtiRelayPlan<'a> {
    /// The program.
    pub program: &'a Path,
    /// Where it runs; its addresses must be of [`NETWORK`] or public ones.
    pub namespace: &'a Namespace,
    /// Its ORPort.
    pub addr: SocketAddrV4,
    /// Further whole sections of its configuration, in TOML.
    pub sections: &'a str,
    /// Threads of its runtime; 0 for as many as the machine has cores.
    pub threads: usize,
    /// The core that it runs on; `None` for all.
    pub core: Option<usize>,
}

/// The place of a relay: its network, if it is in one, and its directory.
pub(crate) struct ArtiPlace {
    pub(crate) name: String,
    /// Its directory, which exists.
    pub(crate) dir: PathBuf,
    /// The authorities of its network.
    pub(crate) authorities: Vec<ArtiAuthority>,
    /// Ends waiting for it.
    pub(crate) ending: Ending,
}

/// An authority as an arti-relay's configuration names it.
#[derive(Clone, Debug)]
pub(crate) struct ArtiAuthority {
    /// The fingerprint of the key that signs its votes.
    v3ident: String,
    /// Its RSA identity as a relay, in hexadecimal digits.
    rsa_identity: String,
    /// Its Ed25519 identity in base64.
    ed_identity: String,
    /// Its ORPort.
    or: SocketAddr,
    /// Its DirPort.
    dir: SocketAddr,
}

impl ArtiAuthority {
    /// That of a node which has been started.
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

    /// One that does not exist, at an address where nobody listens.
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
    /// Starts a relay without a network and waits until it accepts links. All of [`NETWORK`] must
    /// be its namespace's own.
    ///
    /// # Errors
    /// [`Error::Exited`] with its log, or when it cannot be started.
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

    /// Ends it, if it has not ended, and starts it again with the configuration and state that it
    /// has, and an empty log.
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

    /// Waits for its keys, which it logs, and its port.
    fn wait_until_it_listens(&mut self, namespace: &Namespace) -> Result<()> {
        let addr = SocketAddr::from(self.addr);
        self.keys = self.wait_until("did not accept links", PATIENCE, || {
            let Some(keys) = ArtiKeys::read(&self.log()) else { return Ok(None) };
            let is_open = namespace.run(|| TcpStream::connect(addr).is_ok())?;
            Ok(is_open.then_some(keys))
        })?;
        Ok(())
    }

    /// Waits until it has its network's documents.
    ///
    /// # Errors
    /// [`Error::Timeout`] and [`Error::Exited`], with its log.
    pub(crate) fn wait_until_bootstrapped(&self, timeout: Duration) -> Result<()> {
        let is_done = || Ok(self.log().contains(BOOTSTRAPPED).then_some(()));
        self.wait_until("did not bootstrap", timeout, is_done)
    }

    /// Waits until a look at it has a result.
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

    /// Its name in its network.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its ORPort.
    #[must_use]
    pub fn addr(&self) -> SocketAddrV4 {
        self.addr
    }

    /// Its Ed25519 identity.
    #[must_use]
    pub fn ed_identity(&self) -> [u8; 32] {
        self.keys.ed_identity
    }

    /// Its RSA identity, 40 upper-case hexadecimal digits.
    #[must_use]
    pub fn rsa_identity(&self) -> &str {
        &self.keys.rsa_identity
    }

    /// Its X25519 key for circuits.
    #[must_use]
    pub fn ntor_onion_key(&self) -> [u8; 32] {
        self.keys.ntor
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Whether the process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.check_running().is_ok()
    }

    /// Its CPU time so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()).map_err(Error::io("read an arti-relay's CPU time"))
    }

    /// Its resident memory in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn rss_bytes(&self) -> Result<u64> {
        process::rss_bytes(self.pid()).map_err(Error::io("measure an arti-relay's memory"))
    }

    /// How many links it holds that it has accepted at its ORPort.
    ///
    /// # Errors
    /// When it has ended.
    pub fn accepted_links(&self) -> Result<usize> {
        let connections = process::connections(self.pid());
        let connections = connections.map_err(Error::io("list an arti-relay's connections"))?;
        let own = SocketAddr::from(self.addr);
        Ok(connections.iter().filter(|connection| connection.local == own).count())
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(log_of(&self.dir)).unwrap_or_default()
    }

    /// The directory with its configuration, state and log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of its state.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// When the system does not allow that.
    pub fn kill(&self) -> Result<()> {
        self.process().signal(Signal::KILL).map_err(Error::io("kill an arti-relay"))
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the process of a relay whose configuration lies in this directory.
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

/// Path of its output.
fn log_of(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// The configuration of a relay in this directory that listens at this address, without its
/// network.
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

/// The section of a network with these authorities, which are its only fallback directories as
/// well.
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
