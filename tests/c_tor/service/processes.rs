//! Coordinators and measurers as processes of their own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ff_lab::Network;
use ff_measurer::{key, measurer_id};
use ff_store::{Attempt, Planned, Seconds, Store, StoreError};

use crate::program::{finish, program};

/// The length of a period in seconds.
pub(super) const PERIOD_SECS: u64 = 60;
/// The part of a slot without measurement: links open in it, and end.
const SLOT_REST_SECS: u64 = 3;

/// A process that ends with this.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program and waits until it prints this on standard error; returns the rest of the line.
fn start(command: &mut Command, says: &str) -> (Running, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program runs");
    let stderr = BufReader::new(child.stderr.take().expect("its standard error"));
    let running = Running(child);
    let mut lines = stderr.lines().map_while(Result::ok);
    let mut said = String::new();
    let found = lines.by_ref().find_map(|line| {
        said.push_str(&line);
        line.split_once(says).map(|(_, rest)| rest.trim().to_owned())
    });
    let found = found.unwrap_or_else(|| panic!("it never said {says:?}: {said}"));
    // Somebody must go on reading, or it would wait for ever.
    std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
    (running, found)
}

/// A coordinator's folder.
pub(super) struct Coordinator {
    /// Where its config is.
    pub(super) dir: PathBuf,
    /// Its identity in base64.
    pub(super) identity: String,
}

impl Coordinator {
    /// One with a key and a secret.
    pub(super) fn new(dir: PathBuf, secret: Option<&Path>) -> Self {
        let init = finish(
            Command::new(program("ff-bwauth"))
                .arg("init")
                .arg("--dir")
                .arg(&dir)
                .arg("--state-dir")
                .arg(&dir),
        );
        assert!(init.contains("FFAllowedCoordinators"), "{init}");
        if let Some(secret) = secret {
            fs::copy(secret, dir.join("schedule.secret")).expect("the common secret");
        }
        let key = key::load(&dir.join("coordinator.key")).expect("its key");
        Self { dir, identity: key::identity_text(&measurer_id(&key)) }
    }

    /// Starts its measurers; the lines that its config needs.
    pub(super) fn start_measurers(&self, team: &[&str]) -> (Vec<Running>, String) {
        let mut all = (Vec::new(), String::new());
        for (number, capacity) in team.iter().enumerate() {
            let dir = self.dir.join(format!("m{number}"));
            let lines = finish(
                Command::new(program("ff-measurer"))
                    .args(["init", "--listen", "127.0.0.1:0", "--dir"])
                    .arg(&dir),
            );
            let path = dir.join("measurer.toml");
            let text = fs::read_to_string(&path).expect("its config");
            let text = text.replace("private_targets = false", "private_targets = true");
            let identity = &self.identity;
            let text =
                format!("{text}\n[[coordinator]]\nname = \"test\"\nidentity = \"{identity}\"\n");
            fs::write(&path, text).expect("written");
            let mut run = Command::new(program("ff-measurer"));
            let (running, addr) = start(run.arg("run").arg("--config").arg(&path), "listening at ");
            all.0.push(running);
            let lines = lines.replace("NAME", &format!("m{number}")).replace("127.0.0.1:0", &addr);
            all.1.push_str(&lines.replace("1Gbit", capacity));
        }
        all
    }

    /// Writes its config: a measurement takes so many seconds.
    pub(super) fn configure(
        &self,
        network: &Network,
        measurers: &str,
        other: &Self,
        team: &[&str],
        measure_secs: u64,
    ) {
        let slot_secs = measure_secs + SLOT_REST_SECS;
        let text = format!(
            "key = \"coordinator.key\"\nstate_dir = \"state\"\npublish_dir = \"v3bw\"\n\
             [watch]\nlisten = \"127.0.0.1:0\"\n\
             [network]\ncache_dir = \"cache\"\nprivate_network = {:?}\n\
             [period]\nsecret = \"schedule.secret\"\nlength_secs = {PERIOD_SECS}\nmeasure_secs = {measure_secs}\n\
             slot_secs = {slot_secs}\nconsensus_lead_secs = 15\nrefresh_secs = 3\n\
             [publish]\nevery_secs = 5\nmax_total_factor = 1000.0\nmax_relay_factor = 1000.0\n\
             {measurers}\n[[coordinator]]\nname = \"other\"\nidentity = \"{}\"\nteam = {team:?}\n",
            network.dir(),
            other.identity,
        );
        fs::write(self.dir.join("bwauth.toml"), text).expect("written");
    }

    /// Starts it; the address of its page.
    pub(super) fn run(&self) -> (Running, String) {
        let mut run = Command::new(program("ff-bwauth"));
        start(run.arg("run").arg("--config").arg(self.dir.join("bwauth.toml")), "page is ")
    }

    /// The coordinator's ended attempts.
    pub(super) fn attempts(&self, seconds: Seconds) -> Vec<Attempt> {
        let store = Store::open_read_only(&self.dir.join("state/store.sqlite")).expect("its store");
        let mut attempts = Vec::new();
        let all = store.attempts::<StoreError>(0..u64::MAX, seconds, |attempt| {
            attempts.push(attempt);
            Ok(())
        });
        all.expect("it can be read");
        attempts
    }

    /// The coordinator's plan of a period.
    pub(super) fn planned(&self, period: u64) -> Vec<Planned> {
        let store = Store::open_read_only(&self.dir.join("state/store.sqlite")).expect("its store");
        store.planned(period).expect("it can be read")
    }
}
