//! A network whose nodes are hosts on emulated links. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ff_lab::link::HostId;
use ff_lab::{CpuQuota, Delays, HostsPlan, Network};

const ONE_WAY: Duration = Duration::from_millis(15);

#[test]
fn nodes_are_as_far_from_each_other_as_planned() {
    let plan = HostsPlan {
        delays: Delays::Uniform(ONE_WAY),
        extra: vec!["probe".to_owned()],
        ..HostsPlan::default()
    };
    let network = Network::builder().middles(2).exits(1).clients(1).hosts(plan).start().unwrap();
    let [client, guard, middle, exit] =
        ["client0", "middle0", "middle1", "exit0"].map(|name| network.node(name));

    // From one host to another TCP takes a round trip to connect, and from here nothing does.
    let address = guard.or_addr();
    let connect = move || {
        let start = Instant::now();
        TcpStream::connect(address).map(|_| start.elapsed())
    };
    let probe = network.host("probe").unwrap();
    let took = probe.namespace().run(connect).unwrap().unwrap();
    assert!(took >= 2 * ONE_WAY, "{took:?}");
    assert_ne!(probe.address(), guard.host().unwrap().address());

    // A circuit over links that are open: its hops take one, two and three round trips, and the stream another three and one
    // to the source.
    let download = || network.download_through(client, &[guard, middle, exit], 1).unwrap();
    drop(download());
    let start = Instant::now();
    let downloads = download();
    let took = start.elapsed();
    assert!(took >= 2 * ONE_WAY * (1 + 2 + 3 + 3 + 1), "{took:?}");
    std::thread::sleep(Duration::from_secs(2));
    assert!(downloads.bytes() > 100_000, "{}", downloads.bytes());
    assert_eq!(network.delays().unwrap().get(HostId(0), HostId(1)), ONE_WAY);
    drop(downloads);

    let report = network.stop_links().unwrap();
    assert!(report.is_real_time && !report.lateness.is_too_late, "{report:?}");
    assert_eq!(report.drops.device_overflowed, 0);
}

/// Says to [`a_lab_to_be_killed`] that it is run to be killed.
const TO_BE_KILLED: &str = "FF_LAB_TEST_TO_BE_KILLED";

/// No test by itself: a lab in a process of its own, which says what it has and waits.
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

/// The network namespace of a process, if that is there.
fn namespace_of(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// The network namespaces of all processes.
fn namespaces() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| namespace_of(entry.file_name().to_str()?)).collect()
}

/// The directory of the cgroup of a process that limits CPU time.
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
        .args(["--exact", "a_lab_to_be_killed", "--nocapture"])
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
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(cgroup.exists() && Path::new(dir).exists(), "a killed process removes nothing");

    let next = Network::builder().middles(2).exits(1).hosts(HostsPlan::default());
    let next = next.temp_dir(temp.path()).start().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    // A namespace, and the TUN in it, goes with its last process and its last file descriptor.
    while !namespaces().is_disjoint(&inside) {
        assert!(Instant::now() < deadline, "a process is still in one of {inside:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!cgroup.exists(), "{}", cgroup.display());
    assert!(!Path::new(dir).exists(), "{dir}");
    drop(next);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}
