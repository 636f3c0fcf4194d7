//! A tor that can be measured, at an address that links reach.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Where it listens: this end of the first link that `ff-lab link run` makes.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The port there. A connection cannot be made from it, as from those that the kernel chooses.
const PORT: u16 = 9001;
/// How long it may take to listen.
const START: Duration = Duration::from_secs(30);

/// The relay's address, which the loopback has as long as this lives.
pub(super) struct Address;

impl Address {
    /// Gives the loopback the address.
    ///
    /// # Errors
    /// When `ip` cannot do it.
    pub(super) fn new() -> Result<Self> {
        let status = change_address("replace").context("Failed to run ip, of Debian's iproute2")?;
        if !status.success() {
            bail!("ip cannot give the loopback {ADDRESS}; only root can");
        }
        Ok(Self)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        // One that stays does no harm: no real network has it (RFC 2544).
        let _ = change_address("delete");
    }
}

/// Changes whether the loopback has the address.
fn change_address(what: &str) -> std::io::Result<ExitStatus> {
    Command::new("ip").args(["address", what, &format!("{ADDRESS}/32"), "dev", "lo"]).status()
}

/// A running tor; it ends when this is dropped.
pub(super) struct Relay {
    /// The process.
    process: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// Its Ed25519 identity in base64.
    pub(super) ed_identity: String,
}

impl Relay {
    /// Starts a tor with so many bytes a second for this coordinator, in this directory.
    pub(super) fn start(tor: &Path, dir: &Path, rate: u64, coordinator: &str) -> Result<Self> {
        let data = dir.join("data");
        fs::create_dir_all(&data)?;
        let torrc = dir.join("torrc");
        let log = dir.join("log");
        fs::write(&torrc, config(&data, &log, rate, coordinator))?;
        let process = Command::new(tor)
            .arg("-f")
            .arg(&torrc)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("Failed to start {}", tor.display()))?;
        let address = SocketAddr::from((ADDRESS, PORT));
        let mut relay = Self { process, address, ed_identity: String::new() };
        relay.wait(&data, &log)?;
        Ok(relay)
    }

    /// Waits until it listens, and until it has an identity, which comes later.
    fn wait(&mut self, data: &Path, log: &Path) -> Result<()> {
        let late = Instant::now() + START;
        loop {
            if let (Some(identity), Ok(_)) = (identity(data), TcpStream::connect(self.address)) {
                self.ed_identity = identity;
                return Ok(());
            }
            if self.process.try_wait()?.is_some() || Instant::now() > late {
                let log = fs::read_to_string(log).unwrap_or_default();
                bail!("tor does not listen; the end of its log: {}", last_lines(&log));
            }
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It has nothing to say goodbye to, and may be gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Its torrc. It knows one authority, at a port where nobody listens.
fn config(data: &Path, log: &Path, rate: u64, coordinator: &str) -> String {
    let (data, log) = (data.display(), log.display());
    format!(
        "DataDirectory {data}\nLog notice file {log}\nAddress {ADDRESS}\nORPort {ADDRESS}:{PORT}\nSocksPort 0\n\
         Nickname distance\nContactInfo none\nExitRelay 0\nPublishServerDescriptor 0\nAssumeReachable 1\n\
         TestingTorNetwork 1\nDirAuthority nobody orport=1 no-v2 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 \
         127.0.0.1:1 0123456789ABCDEF0123456789ABCDEF01234567\n\
         BandwidthRate {rate}\nBandwidthBurst {rate}\nCountPrivateBandwidth 1\n\
         FFMeasurementsAllowed 1\nFFAllowedCoordinators {coordinator}\nFFMaxMeasurementDuration 120 seconds\n"
    )
}

/// Its Ed25519 identity, which stands in a file behind its nickname.
fn identity(data: &Path) -> Option<String> {
    let text = fs::read_to_string(data.join("fingerprint-ed25519")).ok()?;
    Some(text.strip_suffix('\n')?.split(' ').nth(1)?.to_owned())
}

/// The last lines of a log.
fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}
