//! An arti-relay without a network: it accepts links, and forwards what comes over them, at once.
//!
//! The only authority and the only fallback that it knows are at an address where nobody listens, so that it never
//! bootstraps. It refuses to extend circuits to loopback and private addresses; 198.18.0.0/15, which is for tests like this
//! ([`NETWORK`]), it takes.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::net::{Namespace, mark};
use crate::own_dir::OwnDir;
use crate::process::{self, Process};

/// The addresses of networks for tests of network equipment (RFC 2544).
pub const NETWORK: &str = "198.18.0.0/15";
/// How long it may take until it accepts links.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between looks at its log.
const LOOK: Duration = Duration::from_millis(20);

/// A running relay; dropping it ends the process.
#[derive(Debug)]
pub struct LoneArtiRelay {
    /// Its process, which ends before its directory goes.
    process: Process,
    /// Its directory.
    dir: OwnDir,
    /// Its ORPort.
    addr: SocketAddrV4,
    /// What it says of itself: Ed25519 identity, RSA identity, ntor key.
    keys: [String; 3],
}

/// What a relay is started with.
#[derive(Clone, Copy, Debug)]
pub struct LoneArtiPlan<'a> {
    /// The program.
    pub program: &'a Path,
    /// Where it runs; all of [`NETWORK`] must be its own.
    pub namespace: &'a Namespace,
    /// Its ORPort.
    pub addr: SocketAddrV4,
    /// What else its configuration has: whole sections of TOML.
    pub sections: &'a str,
    /// Threads of its runtime; 0 for as many as the machine has.
    pub threads: usize,
    /// The core that it runs on; `None` for all.
    pub core: Option<usize>,
}

impl LoneArtiRelay {
    /// Starts a relay and waits until it accepts links.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log, or when it cannot be started.
    pub fn start(plan: &LoneArtiPlan<'_>) -> Result<Self> {
        let dir = OwnDir::new_in(&std::env::temp_dir())?;
        let text = config(dir.path(), plan.addr) + plan.sections;
        fs::write(config_of(dir.path()), text)
            .map_err(Error::io("write an Arti relay's configuration"))?;
        let process = spawn(plan, dir.path())?;
        let mut relay = Self { process, dir, addr: plan.addr, keys: Default::default() };
        relay.wait_until_it_listens(plan.namespace)?;
        Ok(relay)
    }

    /// Ends it, if it has not ended, and starts it again with the configuration and state that it has, and an empty log.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self, plan: &LoneArtiPlan<'_>) -> Result<()> {
        self.process.end();
        fs::write(log_of(self.dir.path()), "").map_err(Error::io("empty a log"))?;
        self.process = spawn(plan, self.dir.path())?;
        self.wait_until_it_listens(plan.namespace)
    }

    /// Waits for its keys, which it says in its log, and its port.
    fn wait_until_it_listens(&mut self, namespace: &Namespace) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let addr = SocketAddr::from(self.addr);
        loop {
            let log = self.log();
            if let Some(status) = self.process.exit_status() {
                let (node, status) = ("arti-relay".to_owned(), status.to_string());
                return Err(Error::Exited { node, status, log });
            }
            let said = |what: &str| {
                let (_, behind) = log.split_once(what)?;
                behind.split_whitespace().next().map(str::to_owned)
            };
            let keys = ["Ed25519 identity: ", "RSA identity: ", "Ntor public key: "].map(said);
            if let [Some(ed), Some(rsa), Some(ntor)] = keys
                && namespace.run(|| std::net::TcpStream::connect(addr).is_ok())?
            {
                self.keys = [ed, rsa, ntor].map(|key| key.trim_matches(['$', '"']).to_owned());
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = "arti-relay did not accept links".to_owned();
                return Err(Error::Timeout { what, after: PATIENCE, detail: format!(":\n{log}") });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Its ORPort.
    #[must_use]
    pub fn addr(&self) -> SocketAddrV4 {
        self.addr
    }

    /// Its Ed25519 identity in base64.
    #[must_use]
    pub fn ed_identity(&self) -> &str {
        &self.keys[0]
    }

    /// Its RSA identity in hexadecimal.
    #[must_use]
    pub fn rsa_identity(&self) -> &str {
        &self.keys[1]
    }

    /// Its key for circuits in base64.
    #[must_use]
    pub fn ntor_onion_key(&self) -> &str {
        &self.keys[2]
    }

    /// Its process' number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its CPU time so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.pid()).map_err(Error::io("read an Arti relay's CPU time"))
    }

    /// All that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(log_of(self.dir.path())).unwrap_or_default()
    }

    /// The folder that it keeps its state in.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// When the system does not allow that.
    pub fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL).map_err(Error::io("kill an Arti relay"))
    }
}

/// Starts the process of a relay whose configuration lies in this directory.
fn spawn(plan: &LoneArtiPlan<'_>, dir: &Path) -> Result<Process> {
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

/// Where its configuration is.
fn config_of(dir: &Path) -> PathBuf {
    dir.join("arti-relay.toml")
}

/// Where its output goes.
fn log_of(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// The configuration of a relay in this directory that listens here.
fn config(dir: &Path, addr: SocketAddrV4) -> String {
    const NOBODY: &str = "0123456789ABCDEF0123456789ABCDEF01234567";
    const NOBODYS_ED: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
    let dir = dir.display();
    format!(
        r#"[relay]
listen = ["{addr}"]
[relay.advertise]
ipv4 = ["{addr}"]
ipv6 = []
[tor_network]
fallback_caches = [{{ rsa_identity = "{NOBODY}", ed_identity = "{NOBODYS_ED}", orports = ["198.19.255.1:1"] }}]
[tor_network.authorities]
v3idents = ["{NOBODY}"]
uploads = [["198.19.255.1:1"]]
downloads = [["198.19.255.1:1"]]
votes = [["198.19.255.1:1"]]
[storage]
cache_dir = "{dir}/cache"
state_dir = "{dir}/state"
[logging]
log_sensitive_information = true
"#
    )
}
