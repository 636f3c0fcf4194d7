//! The running lab: programs on its hosts, and their lines.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ff_circuits::record::CircuitRecord;
use ff_lab::{Ending, Network};

use crate::cli::lab::LabMobileArgs;
use crate::cli::measure::ClientKind;
use crate::store::LINES;

/// Host of the source.
pub(super) const WEB: &str = "web";
/// Interval of checks whether programs have ended.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The running lab.
#[derive(Clone, Copy)]
pub(super) struct Lab<'a> {
    pub(super) args: &'a LabMobileArgs,
    pub(super) network: &'a Network,
    pub(super) ending: &'a Ending,
    /// Folder of all lines.
    pub(super) out: &'a Path,
}

/// A program that is killed when this is dropped.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; its lines are in its file.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Its status, if it has ended.
    pub(super) fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("Failed to wait for a program")
    }
}

/// Name of the host of a client.
pub(super) fn host(client: ClientKind, number: usize) -> String {
    match client {
        // A tor of the network.
        ClientKind::Tor => format!("client{number}"),
        ClientKind::Arti => format!("mobile{number}"),
    }
}

impl Lab<'_> {
    /// Starts a program on a host.
    pub(super) fn spawn(&self, host: &str, command: &mut Command) -> Result<Running> {
        Ok(Running(self.network.host(host)?.namespace().spawn(command)?))
    }

    /// Starts `ff-perf source` with these further options on a host. Returns it with the line that
    /// it prints; `told` is a file for it.
    pub(super) fn source(
        &self,
        host: &str,
        options: &[&str],
        told: &Path,
    ) -> Result<(Running, String)> {
        let listen = format!("{}:0", self.network.host(host)?.address());
        let mut command = this_program(&["source", "--listen", &listen])?;
        let file = File::create(told).with_context(|| told.display().to_string())?;
        let mut running = self.spawn(host, command.args(options).stdout(file))?;
        loop {
            let text = fs::read_to_string(told).with_context(|| told.display().to_string())?;
            if let Some((line, _)) = text.split_once('\n') {
                return Ok((running, line.to_owned()));
            }
            if running.status()?.is_some() {
                bail!("the source on {host} did not start; see above");
            }
            self.ending.sleep(LOOK)?;
        }
    }

    /// `downloads run` over the paths of a host's client, with these further options and its lines
    /// in `out`.
    pub(super) fn downloads(&self, host: &str, options: &[&str], out: &Path) -> Result<Command> {
        let (documents, client) = match self.args.client {
            ClientKind::Tor => (self.network.node(host).data_dir(), "tor"),
            ClientKind::Arti => (self.network.dir(), "arti"),
        };
        let mut command = this_program(&["downloads", "run", "--client", client])?;
        command.args(options).arg("--network").arg(documents).arg("--out").arg(out);
        command.stdout(Stdio::null());
        Ok(command)
    }
}

/// This program with these arguments.
pub(super) fn this_program(words: &[&str]) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// File of a run's lines in its folder.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(LINES)
}

/// The lines in a folder.
pub(super) fn lines(folder: &Path) -> Result<Vec<CircuitRecord>> {
    let path = file(folder);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{}: nothing was measured; see above", path.display()))?;
    let line = |text: &str| serde_json::from_str(text).with_context(|| path.display().to_string());
    text.lines().map(line).collect()
}
