//! A tor that can be measured, on the relays' host.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use base64ct::{Base64Unpadded, Encoding};
use ff_lab::net::Namespace;
use ff_measurer::link::TargetAddr;

use super::hosts::Hosts;

/// The first relay's port.
const PORT: u16 = 9001;
/// How long it may take to listen.
const START: Duration = Duration::from_secs(30);

/// A running tor; it ends when this is dropped.
pub(super) struct Relay {
    process: Child,
    /// Where it listens, and who it is.
    pub(super) target: TargetAddr,
}

impl Relay {
    /// Starts the tor of this number with this number of bytes a second for this coordinator, in
    /// this directory.
    pub(super) fn start(
        tor: &Path,
        (hosts, number): (&Hosts, u16),
        dir: &Path,
        rate: u64,
        coordinator: &str,
    ) -> Result<Self> {
        let data = dir.join("data");
        fs::create_dir_all(&data)?;
        let (torrc, log) = (dir.join("torrc"), dir.join("log"));
        let addr = SocketAddr::from((Hosts::relays_address(), PORT + number));
        fs::write(&torrc, config(&data, &log, addr, rate, coordinator))?;
        let mut command = Command::new(tor);
        command.arg("-f").arg(&torrc).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = hosts.relays().spawn(&mut command)?;
        let mut relay = Self { process, target: TargetAddr { addr, ed_identity: [0; 32].into() } };
        relay.wait(hosts.relays(), &data, &log)?;
        Ok(relay)
    }

    /// Waits until it listens, and until it has an identity, which comes later.
    fn wait(&mut self, namespace: &Namespace, data: &Path, log: &Path) -> Result<()> {
        let late = Instant::now() + START;
        loop {
            let listens = namespace.run(|| TcpStream::connect(self.target.addr).is_ok())?;
            if let (Some(identity), true) = (identity(data), listens) {
                self.target.ed_identity = identity.into();
                return Ok(());
            }
            if self.process.try_wait()?.is_some() || Instant::now() > late {
                let log = fs::read_to_string(log).unwrap_or_default();
                bail!("tor does not accept connections; the end of its log: {}", last_lines(&log));
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
fn config(data: &Path, log: &Path, addr: SocketAddr, rate: u64, coordinator: &str) -> String {
    let (data, log, ip) = (data.display(), log.display(), addr.ip());
    format!(
        "DataDirectory {data}\nLog notice file {log}\nAddress {ip}\nORPort {addr}\nSocksPort 0\n\
         Nickname distance\nContactInfo none\nExitRelay 0\nPublishServerDescriptor 0\nAssumeReachable 1\n\
         TestingTorNetwork 1\nDirAuthority nobody orport=1 no-v2 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 \
         127.0.0.1:1 0123456789ABCDEF0123456789ABCDEF01234567\n\
         BandwidthRate {rate}\nBandwidthBurst {rate}\nCountPrivateBandwidth 1\n\
         FFMeasurementsAllowed 1\nFFAllowedCoordinators {coordinator}\nFFMaxMeasurementDuration 120 seconds\n"
    )
}

/// Its Ed25519 identity, which stands in a file after its nickname.
fn identity(data: &Path) -> Option<[u8; 32]> {
    let text = fs::read_to_string(data.join("fingerprint-ed25519")).ok()?;
    let identity = text.strip_suffix('\n')?.split(' ').nth(1)?;
    Base64Unpadded::decode_vec(identity).ok()?.try_into().ok()
}

fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}
