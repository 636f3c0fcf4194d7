//! Runs Debian's `tor` as a relay on loopback, for tests; include it with `#[path]`.
//!
//! The relay listens on a port of its own choosing on 127.0.0.1 and knows one directory
//! authority, at 127.0.0.1:1, where nobody listens. So it never bootstraps and sends nothing to
//! the outside, yet it accepts links and answers CREATE_FAST.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tor_llcrypto::pk::ed25519::Ed25519Identity;

/// A running relay; dropping it ends the process.
pub(crate) struct Tor {
    /// Address of its ORPort.
    pub(crate) addr: SocketAddr,
    /// Its Ed25519 identity.
    pub(crate) ed_identity: Ed25519Identity,
    /// Its RSA identity, 40 hex digits.
    pub(crate) rsa_fingerprint: String,
    /// The process.
    child: Child,
    /// Its DataDirectory, which also holds the torrc and the log.
    dir: TempDir,
}

impl Tor {
    /// Starts a relay and waits until it accepts links.
    ///
    /// # Panics
    /// With a message to the developer, when there is no tor or it does not start.
    pub(crate) fn launch() -> Self {
        Self::launch_with("")
    }

    /// Starts a relay with more torrc lines.
    pub(crate) fn launch_with(extra_torrc: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let torrc = dir.path().join("torrc");
        fs::write(&torrc, torrc_text(dir.path(), extra_torrc)).expect("torrc");
        let mut child = spawn(&torrc);
        match wait_until_ready(dir.path(), &mut child) {
            Ok((addr, ed_identity, rsa_fingerprint)) => {
                Self { addr, ed_identity, rsa_fingerprint, child, dir }
            }
            Err(why) => {
                end(&mut child);
                panic!("tor did not start: {why}\n{}", log(dir.path()));
            }
        }
    }

    /// Process id, for looking at its memory and CPU time.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        log(self.dir.path())
    }
}

impl Drop for Tor {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A configuration that keeps the relay to itself.
fn torrc_text(dir: &Path, extra: &str) -> String {
    format!(
        "DataDirectory {dir}\n\
         Log notice file {dir}/log\n\
         Nickname fftest\n\
         Address 127.0.0.1\n\
         ORPort 127.0.0.1:auto\n\
         SocksPort 0\n\
         ExitPolicy reject *:*\n\
         AssumeReachable 1\n\
         PublishServerDescriptor 0\n\
         DirAuthority nobody orport=1 no-v2 v3ident={fake} 127.0.0.1:1 {fake}\n\
         __OwningControllerProcess {pid}\n\
         {extra}\n",
        dir = dir.display(),
        fake = "0123456789ABCDEF0123456789ABCDEF01234567",
        // Should the test process be killed, tor notices and ends as well.
        pid = std::process::id(),
    )
}

/// Starts the process.
fn spawn(torrc: &Path) -> Child {
    // Debian has it in /usr/sbin, which is not on every user's PATH.
    for program in ["tor", "/usr/sbin/tor"] {
        let started = Command::new(program)
            .arg("--quiet")
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(torrc)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(child) => return child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => panic!("cannot run {program}: {e}"),
        }
    }
    panic!("this test needs tor: install the Debian package `tor` (apt install tor)");
}

/// Waits for the listener and the identity files.
fn wait_until_ready(
    dir: &Path,
    child: &mut Child,
) -> Result<(SocketAddr, Ed25519Identity, String), String> {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("it ended with {status}"));
        }
        // The last line of start-up: the keys exist and the main loop runs.
        if log(dir).contains("Bootstrapped 0%") {
            let addr = listener(&log(dir)).ok_or("no OR listener in its log")?;
            let ed = fingerprint(&dir.join("fingerprint-ed25519"))?;
            let ed = Ed25519Identity::from_base64(&ed).ok_or("unreadable Ed25519 identity")?;
            return Ok((addr, ed, fingerprint(&dir.join("fingerprint"))?));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("not ready after {START_TIMEOUT:?}"))
}

/// The address in "Opened OR listener connection (ready) on 127.0.0.1:1234".
fn listener(log: &str) -> Option<SocketAddr> {
    let line =
        log.lines().find(|line| line.contains("Opened OR listener connection (ready) on"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The second word of a fingerprint file; the first is the nickname.
fn fingerprint(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    text.split_whitespace().nth(1).map(str::to_owned).ok_or(format!("{text:?} has no identity"))
}

/// The log file's content.
fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Ends the process, by its id, and waits for it.
fn end(child: &mut Child) {
    // An error means that it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// How long tor may take to start; it takes about a second on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
