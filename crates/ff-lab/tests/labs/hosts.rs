//! A network whose nodes are hosts on emulated links. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ff_lab::link::HostId;
use ff_lab::{CpuQuota, Delays, HostsPlan, Network, Result};
use procfs::process::{Process, all_processes};

const ONE_WAY: Duration = Duration::from_millis(15);

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Packets arrive no earlier than planned. `ff-lab link check` measures how much later.
#[test]
fn nodes_are_as_far_from_each_other_as_planned() -> Result<()> {
    let plan = HostsPlan {
        delays: Delays::Uniform(ONE_WAY),
        extra: vec!["probe".to_owned()],
        ..HostsPlan::default()
    };
    let network = Network::builder().middles(2).exits(1).clients(1).hosts(plan).start()?;
    let [client, guard, middle, exit] =
        ["client0", "middle0", "middle1", "exit0"].map(|name| network.node(name));

    // From one host to another a TCP connection takes a round trip; from here it would take no
    // time.
    let address = guard.or_addr();
    let connect = move || {
        let start = Instant::now();
        TcpStream::connect(address).map(|_| start.elapsed())
    };
    let probe = network.host("probe")?;
    let took = probe.namespace().run(connect)?.expect("it listens");
    assert!(took >= 2 * ONE_WAY, "{took:?}");
    assert_ne!(probe.address(), guard.host().expect("a host").address());

    // A circuit over open links: its hops take one, two and three round trips, and the stream
    // another three, and one to the source.
    let download = || network.download_through(client, &[guard, middle, exit], 1);
    drop(download()?);
    let start = Instant::now();
    let downloads = download()?;
    let took = start.elapsed();
    assert!(took >= 2 * ONE_WAY * (1 + 2 + 3 + 3 + 1), "{took:?}");
    let deadline = Instant::now() + PATIENCE;
    while downloads.bytes() <= 100_000 {
        assert!(Instant::now() < deadline, "{} bytes", downloads.bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(network.delays()?.get(HostId(0), HostId(1)), ONE_WAY);
    drop(downloads);

    let report = network.stop_links()?;
    assert!(report.is_real_time, "{report:?}");
    Ok(())
}

/// Variable that has [`a_lab_to_be_killed`] run, in order to be killed.
const TO_BE_KILLED: &str = "FF_LAB_TEST_TO_BE_KILLED";

/// Not a test by itself: a lab in a separate process, which prints its resources and waits.
#[test]
fn a_lab_to_be_killed() {
    if std::env::var_os(TO_BE_KILLED).is_none() {
        return;
    }
    let network = Network::builder().middles(2).exits(1).hosts(HostsPlan::default()).start();
    let network = network.expect("root");
    let pid = network.node("middle0").pid().expect("a relay");
    let _quota = CpuQuota::set(pid, 50.0, Duration::from_millis(100)).expect("a cgroup");
    let pids: Vec<_> = network.nodes().map(|node| node.pid().unwrap().to_string()).collect();
    println!("\nlab {} {}", network.dir().display(), pids.join(" "));
    std::thread::sleep(Duration::from_secs(600));
}

/// Network namespace of a process, if it runs.
fn namespace_of(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// Processes in these network namespaces: id, and start in clock ticks since boot.
fn processes_in(namespaces: &BTreeSet<PathBuf>) -> BTreeSet<(i32, u64)> {
    let inside = |process: &Process| {
        namespace_of(&process.pid().to_string()).is_some_and(|own| namespaces.contains(&own))
    };
    let processes = all_processes().expect("/proc").flatten().filter(inside);
    processes.filter_map(|process| Some((process.pid(), process.stat().ok()?.starttime))).collect()
}

/// Directory of the cgroup that limits the process's CPU time.
fn cgroup_of(pid: &str) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    let name = text.lines().filter_map(|line| line.rsplit('/').next());
    let name = name.into_iter().find(|name| name.starts_with("ff-lab-")).expect("a quota");
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let dirs = roots.map(|root| Path::new(root).join(name));
    dirs.into_iter().find(|dir| dir.exists()).expect("its directory")
}

#[test]
fn the_next_start_removes_what_a_killed_lab_has_left() {
    let temp = tempfile::tempdir().unwrap();
    let mut lab = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hosts::a_lab_to_be_killed", "--nocapture"])
        .env(TO_BE_KILLED, "1")
        .env("TMPDIR", temp.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(lab.stdout.take().unwrap()).lines().map(Result::unwrap);
    let found = lines.find_map(|line| line.strip_prefix("lab ").map(str::to_owned));
    let found = found.expect("a lab");
    let [dir, pids @ ..] = &found.split(' ').collect::<Vec<_>>()[..] else { panic!("{found}") };
    let inside: BTreeSet<_> = pids.iter().filter_map(|pid| namespace_of(pid)).collect();
    assert_eq!((pids.len(), inside.len()), (4, 4), "each node is in a namespace of its own");
    let middle = pids.iter().find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains("ff-lab-"))
    });
    let cgroup = cgroup_of(middle.expect("who has a quota"));
    let left = processes_in(&inside);
    assert!(left.len() >= pids.len(), "{left:?} of {pids:?}");
    lab.kill().unwrap();
    lab.wait().unwrap();
    // It leaves its cgroup too, but another lab may have removed that.
    assert!(Path::new(dir).exists(), "a killed process removes nothing");

    let next = Network::builder().middles(2).exits(1).hosts(HostsPlan::default());
    let next = next.temp_dir(temp.path()).start().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // A namespace with its TUN ends with its last process and its last file descriptor. Its number
    // is reused at once, so processes in a namespace of that number prove nothing.
    while !processes_in(&inside).is_disjoint(&left) {
        assert!(Instant::now() < deadline, "a process of {left:?} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The start has removed the cgroup, unless its processes took too long to end; then the next
    // quota removes it.
    while cgroup.exists() {
        assert!(Instant::now() < deadline, "{}", cgroup.display());
        let pid = next.node("middle0").pid().unwrap();
        drop(CpuQuota::set(pid, 50.0, Duration::from_millis(100)).unwrap());
    }
    assert!(!Path::new(dir).exists(), "{dir}");
    drop(next);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}
