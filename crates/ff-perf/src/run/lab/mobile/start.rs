//! Starts of clients without documents, and of onion services, over the profiles' links.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ff_circuits::lab::mobile::StartResult;
use ff_circuits::network::CircuitNetwork;
use ff_lab::{Control, Ending, Host};
use serde_json::Value;

use super::lab::{LOOK, Lab, Running, WEB, host, this_program};
use crate::cli::measure::ClientKind;
use crate::client::arti::bootstrap;

/// Longest wait until a tor can build circuits.
const PATIENCE: Duration = Duration::from_secs(900);
/// Longest wait until another client, an Arti, reaches a service, and the wait of a short run. Over
/// EDGE none did, whether the service was Arti's or a tor's.
const SERVICE_PATIENCE: Duration = Duration::from_secs(300);
const SHORT_SERVICE_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between attempts to reach a service.
const PAUSE: Duration = Duration::from_secs(1);
/// Size of a service's download, in bytes.
const SIZE: &str = "1000";
/// Time limit of an attempt in seconds.
const TIMEOUT: &str = "120";

/// Starts the clients of all profiles at once, then each one's onion service.
pub(super) fn measure(lab: Lab<'_>) -> Result<Vec<StartResult>> {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let view = CircuitNetwork::read(lab.network.dir(), now)?;
    let view = &view;
    thread::scope(|scope| {
        let one = |(number, profile): (usize, &String)| {
            let profile = profile.clone();
            scope
                .spawn(move || Start { lab, view, name: host(lab.args.client, number) }.of(profile))
        };
        let all: Vec<_> = lab.args.profiles.iter().enumerate().map(one).collect();
        let ended = all.into_iter().map(|thread| {
            thread.join().map_err(|_| anyhow!("a thread that started a client has panicked"))?
        });
        ended.collect()
    })
}

/// A client's start.
struct Start<'a> {
    lab: Lab<'a>,
    view: &'a CircuitNetwork,
    /// Name of its host.
    name: String,
}

/// A time in seconds, and bytes.
type Spent = (f64, u64);

impl Start<'_> {
    /// Starts the client and its service.
    fn of(&self, profile: String) -> Result<StartResult> {
        let host = self.lab.network.host(&self.name)?;
        // tor refuses a control socket in a folder that others can enter.
        let own = Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().permissions(own).tempdir();
        let dir = dir.context("Failed to create a folder for a client")?;
        let mut row = StartResult { profile, ..StartResult::default() };
        let client = spent(&host, || self.client(&host, dir.path()));
        let client = client.context("its client");
        let service = client.and_then(|(running, (secs, bytes))| {
            (row.client_secs, row.client_bytes) = (Some(secs), bytes);
            let reached = spent(&host, || self.service(dir.path())).context("its onion service");
            drop(running);
            Ok(reached?.1)
        });
        // A signal has interrupted the client, which has not failed.
        self.lab.ending.check()?;
        match service {
            Ok((secs, bytes)) => (row.service_secs, row.service_bytes) = (Some(secs), bytes),
            Err(error) => row.failure = Some(format!("{error:#}")),
        }
        Ok(row)
    }

    /// Starts a client in a folder and waits until it can build circuits. A tor goes on running.
    fn client(&self, host: &Host, dir: &Path) -> Result<Option<Running>> {
        match self.lab.args.client {
            ClientKind::Tor => self.tor(dir).map(Some),
            ClientKind::Arti => {
                let started = || arti(self.view, dir, self.lab.ending);
                host.namespace().run(started)??;
                Ok(None)
            }
        }
    }

    /// Starts another tor with the configuration of the host's tor, in its place.
    fn tor(&self, dir: &Path) -> Result<Running> {
        let node = self.lab.network.node(&self.name);
        // It has its own traffic on the link.
        node.stop();
        let mut command = Command::new(node.program());
        // The machine's defaults must not apply.
        command.arg("--defaults-torrc").arg(node.data_dir().join("empty"));
        command.arg("-f").arg(node.torrc()).arg("--DataDirectory").arg(dir);
        command.arg("--ControlSocket").arg(dir.join("control")).args(["--SocksPort", "auto"]);
        let log = dir.join("log");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        command.args(["--Log", "notice stdout"]).stdout(file);
        let mut running = self.lab.spawn(&self.name, &mut command)?;
        let (until, mut control) = (Instant::now() + PATIENCE, None);
        loop {
            if control.is_none() {
                control = Control::open(dir).ok();
            }
            if let Some(control) = &mut control
                && control.getinfo("status/bootstrap-phase")?.contains("PROGRESS=100")
            {
                return Ok(running);
            }
            if running.status()?.is_some() || Instant::now() > until {
                let text = fs::read_to_string(&log).unwrap_or_default();
                bail!("it did not start: {}", text.lines().last().unwrap_or_default());
            }
            self.lab.ending.sleep(LOOK)?;
        }
    }

    /// Starts an onion service and waits until another client had a download from it.
    fn service(&self, dir: &Path) -> Result<()> {
        let [network, own] = [self.lab.network.dir(), dir].map(|path| path.display().to_string());
        let by = format!("tor:{own}");
        let options = match self.lab.args.client {
            ClientKind::Tor => ["--by", &by].to_vec(),
            ClientKind::Arti => ["--network", &network, "--keys", &own].to_vec(),
        };
        let options = [["--onion", "--json"].as_slice(), &options].concat();
        let (_source, told) = self.lab.source(&self.name, &options, &dir.join("told"))?;
        let told: Value = serde_json::from_str(&told).context("what the source prints")?;
        let url = told["onion"].as_str().context("the source printed no onion address")?;
        let others = tempfile::tempdir().context("Failed to create a folder for a client")?;
        let patience = if self.lab.args.short { SHORT_SERVICE_PATIENCE } else { SERVICE_PATIENCE };
        let until = Instant::now() + patience;
        for attempt in 0.. {
            let mut command = this_program(&["downloads", "run", "--as-client", "--to", url])?;
            command.args(["--size", SIZE, "--count", "1", "--timeout", TIMEOUT]);
            command.args(["--network", &network]).arg("--state").arg(others.path().join("state"));
            command.arg("--out").arg(others.path().join(attempt.to_string()));
            // Attempts fail until the service is there.
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            if self.ends(&mut self.lab.spawn(WEB, quiet)?)? {
                return Ok(());
            }
            let waited = patience.as_secs();
            ensure!(Instant::now() < until, "no other client reached it in {waited} s");
            self.lab.ending.sleep(PAUSE)?;
        }
        Ok(())
    }

    /// Waits for a program; returns whether it succeeded.
    fn ends(&self, running: &mut Running) -> Result<bool> {
        loop {
            if let Some(status) = running.status()? {
                return Ok(status.success());
            }
            self.lab.ending.sleep(LOOK)?;
        }
    }
}

/// The time that some work takes, and the bytes on the host's link meanwhile.
fn spent<T>(host: &Host, work: impl FnOnce() -> Result<T>) -> Result<(T, Spent)> {
    let (before, began) = (host.namespace().carried_bytes()?, Instant::now());
    let done = work()?;
    let secs = began.elapsed().as_secs_f64();
    Ok((done, (secs, host.namespace().carried_bytes()?.saturating_sub(before))))
}

/// Starts Arti in a folder and ends it when it has the network's documents.
fn arti(network: &CircuitNetwork, dir: &Path, ending: &Ending) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("Failed to start the runtime")?;
    let started = runtime.block_on(async {
        let asked = async {
            while !ending.is_asked() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            started = bootstrap::start(network, dir) => started.map(drop).map_err(anyhow::Error::msg),
            () = asked => Err(anyhow!("stopped by a signal")),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    started
}
