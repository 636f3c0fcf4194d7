//! All that runs: a coordinator, its measurers, targets, and what lies between them.
//!
//! ```text
//!   coordinator ──▶ proxy ──▶ measurer ──▶ proxy ──▶ target
//!        └──────────────────────────────────▲
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ff_measurer::{key, measurer_id};
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use ff_store::Store;
use tempfile::TempDir;

use crate::disk::Disk;
use crate::documents::Documents;
use crate::process::Process;
use crate::program::{finish, program};
use crate::proxy::{Line, Proxy};
use crate::pulse::Pulse;
use crate::target::{self, Heard};

/// How long a coordinator may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many targets there are.
pub(crate) const TARGETS: usize = 6;
/// How many measurers the coordinator has.
pub(crate) const MEASURERS: usize = 3;
/// Each measurer's capacity: less than a target needs, so that two measure it together.
const CAPACITY: &str = "8Mbit";
/// The length of a period.
pub(crate) const PERIOD: Duration = Duration::from_secs(30);
/// The length of a slot.
pub(crate) const SLOT_SECS: u64 = 5;
/// How long a target is measured.
pub(crate) const MEASUREMENT: Duration = Duration::from_secs(3);
/// How often there is a bandwidth file.
const PUBLISH_SECS: u64 = 2;

/// The processes to run.
pub(crate) struct Shape {
    /// How many targets.
    pub(crate) targets: usize,
    /// How many of them, the first ones, share an address and a line.
    pub(crate) machine: usize,
    /// The capacity of that line each way.
    pub(crate) line: Option<BytesPerSec>,
    /// A measurer's configured capacity.
    pub(crate) capacity: &'static str,
    /// The length of a period.
    pub(crate) period: Duration,
    /// Whether the coordinator's files are on small disks of their own.
    pub(crate) has_disks: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            targets: TARGETS,
            machine: 0,
            line: None,
            capacity: CAPACITY,
            period: PERIOD,
            has_disks: false,
        }
    }
}

/// All that runs.
pub(crate) struct World {
    /// The coordinator.
    pub(crate) coordinator: Process,
    /// Its measurers.
    pub(crate) measurers: Vec<Process>,
    /// The targets.
    pub(crate) targets: Vec<Process>,
    /// The ways to the measurers.
    pub(crate) to_measurers: Vec<Proxy>,
    /// The ways to the targets.
    pub(crate) to_targets: Vec<Proxy>,
    /// The targets' messages.
    pub(crate) heard: Receiver<Heard>,
    /// Where they say it.
    telling: Sender<Heard>,
    /// The targets' fingerprints.
    pub(crate) fingerprints: Vec<[u8; 20]>,
    /// Where the coordinator's page is.
    pub(crate) page: SocketAddr,
    /// The disk with the store, and that with the bandwidth files, if they are disks of their own.
    pub(crate) disks: Option<[Disk; 2]>,
    /// Targets that are not in the consensus, by number.
    pub(crate) absent: Arc<Mutex<BTreeSet<usize>>>,
    /// Whether consensuses are still to be written.
    is_over: Arc<AtomicBool>,
    /// The thread that writes the documents.
    writer: Option<JoinHandle<()>>,
    /// The runtime of the proxies.
    runtime: tokio::runtime::Runtime,
    /// When that stood still.
    pub(crate) proxies: Pulse,
    /// Everything's files; the last, because it must be there as long as anything else.
    dir: TempDir,
}

/// A world's addresses: nobody else has these. On 127.0.0.1, from where connections come, a port
/// that was free when it was chosen may be a connection's when it is bound, for the first time or
/// after a restart.
#[derive(Clone, Copy, Debug)]
struct Net([u8; 2]);

impl Net {
    /// One of very many.
    fn draw() -> Self {
        Self([rand::random_range(16..=250), rand::random()])
    }

    /// The address with this number.
    fn ip(self, number: usize) -> Ipv4Addr {
        let last = u8::try_from(number).expect("a small number");
        Ipv4Addr::new(127, self.0[0], self.0[1], last)
    }

    /// A port of that address, which is free and stays so.
    fn listen(self, number: usize) -> SocketAddr {
        let listener = TcpListener::bind((self.ip(number), 0)).expect("a port");
        listener.local_addr().expect("its address")
    }

    /// That address, with whichever port there is.
    fn any(self, number: usize) -> SocketAddr {
        (self.ip(number), 0).into()
    }
}

/// The first target's number among addresses.
const TARGET: usize = 1;
/// That of the way to it.
const TO_TARGET: usize = 51;
/// The first measurer's.
const MEASURER: usize = 101;
/// That of the way to it.
const TO_MEASURER: usize = 151;
/// The page's.
const PAGE: usize = 201;

/// A file that what a process says is added to.
fn log(path: &Path) -> File {
    File::options().create(true).append(true).open(path).expect("a log")
}

/// A process whose standard error goes into a file, and whose clock can be set by another one.
fn logged(name: &str, args: &[&str], config: &Path, dir: &Path, who: &str) -> Command {
    let mut command = Command::new(program(name));
    let log = log(&dir.join(format!("{who}.log")));
    command.args(args).arg("--config").arg(config).stderr(log);
    if has_clocks() {
        command.env("LD_PRELOAD", faketime()).env("FAKETIME_NO_CACHE", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        command.env("FAKETIME_TIMESTAMP_FILE", dir.join(format!("{who}.clock")));
    }
    command
}

/// The library that gives a process a clock of its own.
fn faketime() -> PathBuf {
    let arch = std::env::consts::ARCH;
    format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketime.so.1").into()
}

/// Whether the clocks of processes can be set.
pub(crate) fn has_clocks() -> bool {
    faketime().exists()
}

impl World {
    /// Starts everything. With `has_disks`, the coordinator's files are on small disks of their
    /// own.
    pub(crate) fn start(has_disks: bool) -> Self {
        Self::of(&Shape { has_disks, ..Shape::default() })
    }

    /// Starts one like this.
    pub(crate) fn of(shape: &Shape) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path();
        let disks =
            shape.has_disks.then(|| ["state", "v3bw"].map(|name| Disk::mount(&path.join(name))));
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        let (net, proxies) = (Net::draw(), Pulse::default());
        runtime.spawn(proxies.clone().beat());
        finish(
            Command::new(program("ff-bwauth"))
                .arg("init")
                .arg("--dir")
                .arg(path)
                .arg("--state-dir")
                .arg(path),
        );
        let own = key::load(&path.join("coordinator.key")).expect("its key");
        let coordinator = measurer_id(&own);
        let (telling, heard) = mpsc::channel();
        let mut world = Self {
            coordinator: Process::new(coordinator_command(path)),
            measurers: Vec::new(),
            targets: Vec::new(),
            to_measurers: Vec::new(),
            to_targets: Vec::new(),
            heard,
            telling,
            fingerprints: Vec::new(),
            page: net.listen(PAGE),
            disks,
            absent: Arc::default(),
            is_over: Arc::default(),
            writer: None,
            runtime,
            proxies,
            dir,
        };
        world.set_clock("coordinator", 0);
        world.start_targets(net, &coordinator, shape);
        let lines = world.start_measurers(net, &coordinator, shape.capacity);
        world.configure(&lines, shape.period);
        world.start_coordinator();
        world.wait_for_store();
        world
    }

    /// Waits until the coordinator has its store: who is killed before that has nothing to lose.
    fn wait_for_store(&self) {
        let (path, until) = (self.path("state/store.sqlite"), Instant::now() + PATIENCE);
        while let Err(error) = Store::open_read_only(&path) {
            assert!(Instant::now() < until, "the coordinator has no store: {error}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts targets, and what writes their documents.
    fn start_targets(&mut self, net: Net, coordinator: &Ed25519Id, shape: &Shape) {
        let mut described = Vec::new();
        let line = shape.line.map(|rate| Arc::new(Line::new(rate)));
        for number in 0..shape.targets {
            let listen = net.listen(TARGET + number);
            let is_one = number < shape.machine;
            let seen = net.any(if is_one { TO_TARGET } else { TO_TARGET + number });
            let line = line.clone().filter(|_| is_one);
            let proxy = self.runtime.block_on(Proxy::over(line, seen, listen));
            let identity = target::identity(number);
            self.fingerprints.push(identity.fingerprint);
            described.push((identity, proxy.addr));
            self.to_targets.push(proxy);
            let (memory, coordinator) = (self.path(&format!("t{number}.grants")), *coordinator);
            let period = shape.period;
            self.targets.push(Process::new(move || {
                let mut command = target::command(number, listen, &memory, &coordinator, period);
                command.stdout(Stdio::piped()).stderr(log(&memory.with_extension("log")));
                command
            }));
            self.start_target(number);
        }
        let documents = Documents::new(self.dir.path(), &described);
        let (is_over, absent) = (self.is_over.clone(), self.absent.clone());
        let write = move || documents.write(&absent.lock().expect("nobody panicked with it"));
        write();
        self.writer = Some(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                write();
                std::thread::park_timeout(Duration::from_secs(1));
            }
        }));
    }

    /// Starts a target.
    pub(crate) fn start_target(&mut self, number: usize) {
        let stdout = self.targets[number].start().stdout.take().expect("its standard output");
        target::listen(number, stdout, self.telling.clone());
    }

    /// Starts measurers; returns the lines that the coordinator's config needs.
    fn start_measurers(&mut self, net: Net, coordinator: &Ed25519Id, capacity: &str) -> String {
        let mut all = String::new();
        let identity = key::identity_text(coordinator);
        for number in 0..MEASURERS {
            let (who, listen) = (format!("m{number}"), net.listen(MEASURER + number));
            let dir = self.path(&who);
            let mut init = Command::new(program("ff-measurer"));
            init.args(["init", "--listen", &listen.to_string(), "--dir"]).arg(&dir);
            let lines = finish(&mut init);
            let config = dir.join("measurer.toml");
            let text = fs::read_to_string(&config).expect("its config");
            let text = text.replace("private_targets = false", "private_targets = true");
            let text =
                format!("{text}\n[[coordinator]]\nname = \"c\"\nidentity = \"{identity}\"\n");
            fs::write(&config, text).expect("written");
            let seen = net.any(TO_MEASURER + number);
            let proxy = self.runtime.block_on(Proxy::start(seen, listen));
            let lines = lines.replace("NAME", &who).replace("1Gbit", capacity);
            all.push_str(&lines.replace(&listen.to_string(), &proxy.addr.to_string()));
            self.to_measurers.push(proxy);
            self.set_clock(&who, 0);
            let files = self.dir.path().to_owned();
            let make = move || logged("ff-measurer", &["run"], &config, &files, &who);
            let mut process = Process::new(make);
            process.start();
            self.measurers.push(process);
        }
        all
    }

    /// Writes the coordinator's config.
    fn configure(&self, measurers: &str, period: Duration) {
        let (length, measurement) = (period.as_secs(), MEASUREMENT.as_secs());
        let text = format!(
            "key = \"coordinator.key\"\nstate_dir = \"state\"\npublish_dir = \"v3bw\"\n\
             [watch]\nlisten = \"{}\"\n\
             [network]\nconsensus = \"consensus\"\ndescriptors = [\"descriptors\"]\n\
             [period]\nsecret = \"schedule.secret\"\nlength_secs = {length}\n\
             measure_secs = {measurement}\nslot_secs = {SLOT_SECS}\nconsensus_lead_secs = 5\n\
             refresh_secs = 2\n\
             [publish]\nevery_secs = {PUBLISH_SECS}\nmax_total_factor = 1000.0\n\
             max_relay_factor = 1000.0\n{measurers}",
            self.page
        );
        fs::write(self.path("bwauth.toml"), text).expect("written");
    }

    /// Starts the coordinator.
    pub(crate) fn start_coordinator(&mut self) {
        self.coordinator.start();
    }

    /// A file of this world.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sets the offset of a process's clock, in seconds.
    pub(crate) fn set_clock(&self, who: &str, secs: i64) {
        let (path, new) = (self.path(&format!("{who}.clock")), self.path("clock.new"));
        fs::write(&new, format!("{secs:+}\n")).expect("a clock");
        fs::rename(new, path).expect("a clock");
    }

    /// Fails if anything has ended that nobody killed.
    pub(crate) fn assert_running(&mut self) {
        let dir = self.dir.path().to_owned();
        let tail = |who: &str| tail(&dir.join(format!("{who}.log")));
        self.coordinator.assert_running("the coordinator", || tail("coordinator"));
        for (number, measurer) in self.measurers.iter_mut().enumerate() {
            let who = format!("m{number}");
            measurer.assert_running(&who, || tail(&who));
        }
        for (number, target) in self.targets.iter_mut().enumerate() {
            let who = format!("t{number}");
            target.assert_running(&who, || tail(&who));
        }
    }
}

/// The end of a log.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Makes the command that starts the coordinator.
fn coordinator_command(dir: &Path) -> impl Fn() -> Command + 'static {
    let dir = dir.to_owned();
    move || logged("ff-bwauth", &["run"], &dir.join("bwauth.toml"), &dir, "coordinator")
}

impl Drop for World {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            for who in ["coordinator", "m0", "m1", "m2"] {
                let log = self.path(&format!("{who}.log"));
                eprintln!("---- the end of {who}'s log\n{}", tail(&log));
            }
        }
        self.coordinator.kill();
        // What it writes while the folder is being removed would be left behind.
        if let Some(writer) = self.writer.take() {
            writer.thread().unpark();
            let _ = writer.join();
        }
    }
}
