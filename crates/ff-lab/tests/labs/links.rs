//! The command, and emulated links with real packets. Needs root.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ff_lab::Error;
use ff_lab::link::{Delay, Direction, Jitter, Loss, PairDelays, Reorder};
use ff_lab::net::{Emulation, EmulationPlan, HostPlace, HostPlan};
use rustix::net::sockopt::tcp_congestion;
use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Two hosts; `link` leads from the left one to the right one.
fn two_hosts(link: Direction, pair_ms: u64) -> Emulation {
    let host = |name: &str, address, up| HostPlan {
        name: name.to_owned(),
        place: HostPlace::Namespace,
        address,
        up,
        down: Direction::default(),
    };
    let plan = EmulationPlan {
        hosts: vec![host("left", LEFT, link), host("right", RIGHT, Direction::default())],
        pairs: PairDelays::uniform(2, Duration::from_millis(pair_ms)),
        prefix_bits: 24,
        congestion_control: "cubic".to_owned(),
        seed: 1,
    };
    Emulation::start(&plan).expect("network namespaces and TUN devices, which need root")
}

fn ff_lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ff-lab")).args(arguments).output().expect("ff-lab starts")
}

/// The one-line error for invalid arguments.
fn refused(arguments: &[&str]) -> String {
    let output = ff_lab(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    error
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    for arguments in [&["link", "profiles"][..], &["link", "profiles", "--json"]] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-lab"));
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).spawn();
        let output = output.and_then(Child::wait_with_output).expect("ff-lab runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn a_round_trip_takes_both_delays() {
    let emulation = two_hosts(Direction::default(), 20);
    let bind = |address| move || UdpSocket::bind((address, 0)).unwrap();
    let left = emulation.namespace(0).run(bind(LEFT)).unwrap();
    let right = emulation.namespace(1).run(bind(RIGHT)).unwrap();
    let start = Instant::now();
    left.send_to(b"there", right.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 8];
    let (_, from) = right.recv_from(&mut buffer).unwrap();
    right.send_to(b"back", from).unwrap();
    left.recv(&mut buffer).unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(40), "{took:?}");
    let report = emulation.stop().unwrap();
    assert_eq!(report.delivered_packets, 2);
    assert_eq!(report.hosts[0].up.packets, 1);
}

/// TCP delivers data intact over a link with loss, jitter, duplicates and reordering.
#[test]
fn a_stream_survives_a_bad_link() {
    let link = Direction {
        loss: Loss::GilbertElliott {
            to_bad: 0.01,
            to_good: 0.3,
            lost_in_bad: 0.5,
            lost_in_good: 0.0,
        },
        delay: Delay {
            base: Duration::from_millis(2),
            jitter: Jitter::Normal { sigma: Duration::from_millis(1) },
            overtaking: true,
        },
        duplicate: 0.05,
        reorder: Reorder { share: 0.05, by: Duration::from_millis(3) },
        ..Direction::default()
    };
    let emulation = two_hosts(link, 1);
    let data = (0..300_000u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>();
    let listener = emulation.namespace(1).run(|| TcpListener::bind((RIGHT, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect(address).unwrap();
    let mut sender = emulation.namespace(0).run(connect).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let mut found = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&data).unwrap();
            drop(sender);
        });
        receiver.read_to_end(&mut found).unwrap();
    });
    assert!(found == data, "{} of {} bytes", found.len(), data.len());
    let report = emulation.stop().unwrap();
    let up = report.hosts[0].up;
    assert!(up.duplicated > 0 && up.held_back > 0 && report.drops.lost > 0, "{report:?}");
}

#[test]
fn hosts_reach_nothing_else() {
    let emulation = two_hosts(Direction::default(), 0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let outside = move || {
        let ours = TcpStream::connect(address);
        let internet = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.send_to(b"x", (Ipv4Addr::new(192, 0, 2, 1), 9)));
        (ours.is_err(), internet.is_err())
    };
    assert_eq!(emulation.namespace(0).run(outside).unwrap(), (true, true));
}

#[test]
fn a_command_runs_behind_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let script = "test \"$FF_LAB_ADDRESS\" && test \"$FF_LAB_PEER\" && \
                  grep -q cubic /proc/sys/net/ipv4/tcp_congestion_control && exit 7";
    let json_argument = json.to_str().unwrap();
    let arguments = ["link", "run", "--profile", "lte", "--up", "1Mbit", "--json", json_argument];
    let output = ff_lab(&[&arguments[..], &["--", "sh", "-c", script]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(report["is_real_time"], true, "{error}");
    assert_eq!(report["lateness"]["is_too_late"], false, "{error}");
}

/// The kernel's list of allowed congestion controls, locked.
fn allowed() -> (File, String) {
    let path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let file = File::options().read(true).write(true).open(path).expect("root");
    file.lock().expect("a lock");
    let list = io::read_to_string(&file).expect("a list");
    (file, list)
}

/// A lab uses CUBIC although the kernel's list does not allow it.
#[test]
fn what_the_kernel_allows_is_afterwards_what_it_was() {
    // A machine has one list, so other runs of this test wait.
    let others = File::open("/proc/sys/net/ipv4/tcp_available_congestion_control").expect("a list");
    others.lock().expect("a lock");
    let (file, before) = allowed();
    let others: Vec<_> = before.split_whitespace().filter(|one| *one != "cubic").collect();
    let less = others.join(" ");
    file.write_at(less.as_bytes(), 0).unwrap();
    drop(file);
    let emulation = two_hosts(Direction::default(), 0);
    let control = || fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let inside = emulation.namespace(0).run(control).unwrap();
    let (file, found) = allowed();
    file.write_at(before.as_bytes(), 0).unwrap();
    assert_eq!((inside.trim(), found.trim()), ("cubic", less.as_str()));
}

/// TCP from this machine over a link uses the plan's congestion control, on either side of a
/// connection; its other connections do not.
#[test]
fn this_machine_has_the_congestion_control_of_the_plan_on_the_link_alone() {
    let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let asked = if default.trim() == "cubic" { "reno" } else { "cubic" };
    let host = |name: &str, place, address| HostPlan {
        name: name.to_owned(),
        place,
        address,
        up: Direction::default(),
        down: Direction::default(),
    };
    // The first free network; `link run` starts at the other end.
    let start = |number| {
        let [there, here] = [2, 1].map(|last| Ipv4Addr::new(198, 18, number, last));
        let plan = EmulationPlan {
            hosts: vec![
                host("there", HostPlace::Namespace, there),
                host("here", HostPlace::Here, here),
            ],
            pairs: PairDelays::uniform(2, Duration::ZERO),
            prefix_bits: 30,
            congestion_control: asked.to_owned(),
            seed: 1,
        };
        match Emulation::start(&plan) {
            Err(Error::DeviceInUse { .. }) => None,
            started => Some((started.expect("root"), there, here)),
        }
    };
    let (emulation, there, here) = (0..=254).rev().find_map(start).expect("a free network");
    let listen = |address| move || TcpListener::bind((address, 0)).unwrap();
    let connect = |address| move || TcpStream::connect(address).unwrap();
    let far = emulation.namespace(0).run(listen(there)).unwrap();
    let to_far = connect(far.local_addr().unwrap())();
    let near = listen(here)();
    let from_far = connect(near.local_addr().unwrap());
    let _from_far = emulation.namespace(0).run(from_far).unwrap();
    let accepted = near.accept().unwrap().0;
    let elsewhere = listen(Ipv4Addr::LOCALHOST)();
    let elsewhere = connect(elsewhere.local_addr().unwrap())();
    let found = [&to_far, &accepted, &elsewhere].map(|stream| tcp_congestion(stream).unwrap());
    assert_eq!(found, [asked, asked, default.trim()]);
}

/// For bash: `stop` stops the emulator and returns when all of its threads have stopped, which
/// takes a moment; `go_on` continues it. `now` is the time in µs.
const STANDSTILL: &str = r#"
    stands() {
        for stat in /proc/$PPID/task/*/stat; do
            read -r line <"$stat" && [[ ${line##*) } == T* ]] || return 1
        done
    }
    stop() { kill -STOP $PPID; until stands; do sleep 0.01; done; }
    go_on() { kill -CONT $PPID; }
    now() { echo "${EPOCHREALTIME/./}"; }
"#;

/// A port that answers each packet with an empty line.
fn answering_port() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    let port = socket.local_addr().expect("its address").port();
    thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 8]) {
            // The client may have ended.
            let _ = socket.send_to(b"\n", from);
        }
    });
    port
}

/// Runs a script with a link of 0.5 s; returns whether the run was too late, and its report.
fn delayed_run(script: &str) -> (bool, serde_json::Value, Output) {
    let dir = tempfile::tempdir().expect("a folder");
    let json = dir.path().join("report.json");
    let file = json.to_str().expect("a text");
    let arguments = ["link", "run", "--delay-ms", "500", "--json", file];
    let output = ff_lab(&[&arguments[..], &["--", "bash", "-c", script]].concat());
    let bytes = fs::read(json).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    (report["lateness"]["is_too_late"].as_bool().expect("a flag"), report, output)
}

/// Packets are in flight for 0.5 s; the emulator is stopped when they are due, or when they are
/// sent.
#[test]
fn a_run_that_was_late_is_marked_and_has_a_status_of_its_own() {
    let port = answering_port();
    // Repeat until it stops before the packet is due; answers to the others are still in flight.
    let due = "until began=$(now); echo >&3; ((sent += 1)); stop; (($(now) - began < 500000)); do go_on; done";
    for (script, is_late) in [
        (format!("{due}; sleep 1; go_on"), true),
        ("stop; echo >&3; sent=1; sleep 0.5; go_on".to_owned(), true),
        ("for ((; sent < 50; sent++)); do echo >&3; done".to_owned(), false),
    ] {
        let script = format!(
            "{STANDSTILL} exec 3<>/dev/udp/$FF_LAB_PEER/{port}; sent=0; {script}; \
             for ((; sent > 0; sent--)); do read -r -u 3; done; exit 7"
        );
        // A stop just after the emulator has woken for a packet of the kernel's own looks like
        // sleep, so there are three tries.
        let mut tries = (0..3).map(|_| delayed_run(&script));
        let (found, report, output) = tries.find(|(found, ..)| *found || !is_late).expect("late");
        let error = String::from_utf8(output.stderr).unwrap();
        // On a busy machine a run without a stop may be late too; then it is marked.
        let status = Some(if found { 75 } else { 7 });
        assert_eq!(output.status.code(), status, "{error}\n{report}");
        assert_eq!(error.contains("INVALID RUN"), found, "{error}");
        assert!(!found || error.contains("exit status: 7"), "{error}");
    }
}

/// A device holds 10,240 packets; the emulator is stopped while more are sent.
#[test]
fn what_a_device_drops_is_a_cause_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let port = answering_port();
    // The first of 10,540 is answered.
    let send = "echo >&3; for i in $(seq 10539); do echo x >/dev/udp/$FF_LAB_PEER/9; done";
    let script = format!(
        "{STANDSTILL} exec 3<>/dev/udp/$FF_LAB_PEER/{port}; stop; {send}; go_on; read -r -u 3"
    );
    let arguments = ["link", "run", "--json", json.to_str().unwrap(), "--", "bash", "-c"];
    let output = ff_lab(&[&arguments[..], &[&script]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let unread = report["drops"]["device_overflowed"].as_u64().unwrap();
    assert_eq!(unread, 300, "{report}");
    assert!(error.contains(&format!("{unread} packets (")), "{error}");
    assert!(error.contains("were lost before the emulator read them"), "{error}");
    // Packets that it held waited as long as the emulator was stopped.
    assert_eq!(output.status.code(), Some(75), "{error}");
    let quiet = ff_lab(&["link", "run", "--", "true"]);
    assert!(!String::from_utf8(quiet.stderr).unwrap().contains("before the emulator read"));
}

/// A lab whose command runs `first`, then starts another process by `by`; with the ids of both.
fn with_two_processes(first: &str, by: &str) -> (Child, String, String) {
    let script = format!("{first} echo $$; {by} sleep 7357 & echo $!; wait");
    let lab = Command::new(env!("CARGO_BIN_EXE_ff-lab"))
        .args(["link", "run", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut lab = lab.expect("ff-lab");
    let mut found = String::new();
    let mut out = lab.stdout.take().expect("its output");
    while found.lines().count() < 2 || !found.ends_with('\n') {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).expect("a byte"), 1, "it ended: {found}");
        found.push(char::from(byte[0]));
    }
    let [shell, sleep] = found.lines().collect::<Vec<_>>()[..] else { panic!("{found}") };
    (lab, shell.to_owned(), sleep.to_owned())
}

/// Waits until a process has ended.
fn wait_for_end_of(pid: &str) {
    let is_there = || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !(state.is_empty() || state.contains(") Z "))
    };
    let deadline = Instant::now() + PATIENCE;
    while is_there() {
        assert!(Instant::now() < deadline, "process {pid} is left");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_is_left_of_a_killed_run() {
    let (mut lab, shell, sleep) = with_two_processes("", "");
    lab.kill().unwrap();
    lab.wait().unwrap();
    // The command ends with the lab, its child with the next lab.
    wait_for_end_of(&shell);
    drop(two_hosts(Direction::default(), 0));
    wait_for_end_of(&sleep);
}

/// Ids differ in another PID namespace, so the owner cannot be identified from here.
#[test]
fn what_runs_in_another_pid_namespace_is_left_alone() {
    let script = "FF_LAB_OWNER=4194999:1 exec sleep 7359";
    let mut other = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "sh", "-c", script])
        .stdin(Stdio::null())
        .spawn()
        .expect("unshare, and root");
    let children = format!("/proc/{0}/task/{0}/children", other.id());
    let deadline = Instant::now() + PATIENCE;
    let sleep = loop {
        let child = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
        if fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name == "sleep\n") {
            break child;
        }
        assert!(Instant::now() < deadline, "{child:?} does not sleep");
        thread::sleep(Duration::from_millis(10));
    };
    // State and start time of the process.
    let stat = || {
        let text = fs::read_to_string(format!("/proc/{sleep}/stat")).expect("it is there");
        let fields: Vec<_> = text.rsplit_once(") ").expect("a name").1.split(' ').collect();
        (fields[0].to_owned(), fields[19].to_owned())
    };
    let (_, began) = stat();
    drop(two_hosts(Direction::default(), 0));
    let (state, began_now) = stat();
    assert!(state != "Z" && began_now == began, "{state}, {began}, {began_now}");
    other.kill().unwrap();
    other.wait().unwrap();
    wait_for_end_of(&sleep);
}

/// The SIGINTs that a command in a terminal received, and the time from the keys to its end. The
/// command runs `first`, then waits in a loop that begins with `waits`, in which HEARD is the file
/// of received signals; then `keys` are pressed. It uses dash, as bash forgets a SIGINT whose trap
/// waits for a program if that program ends normally.
fn heard_in_terminal(first: &str, keys: &[u8], waits: &str) -> (String, Duration) {
    let dir = tempfile::tempdir().expect("a directory");
    let [heard, ready] = ["heard", "ready"].map(|name| dir.path().join(name));
    let (heard_to, ready_to) = (heard.display(), ready.display());
    let script = format!(
        "trap \"echo INT >> {heard_to}\" INT; touch {ready_to}; {first}; \
         {waits}; do sleep 0.1; done; exit 7"
    )
    .replace("HEARD", &heard_to.to_string());
    let program = env!("CARGO_BIN_EXE_ff-lab");
    let command = format!("exec env --default-signal=INT {program} link run -- dash -c '{script}'");
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script");
    let deadline = Instant::now() + PATIENCE;
    while !ready.exists() {
        assert!(Instant::now() < deadline, "the command does not run");
        thread::sleep(Duration::from_millis(10));
    }
    let mut keyboard = terminal.stdin.take().expect("a pipe");
    let pressed = Instant::now();
    keyboard.write_all(keys).expect("a key");
    keyboard.flush().expect("a key");
    assert_eq!(terminal.wait().expect("its end").code(), Some(130));
    (fs::read_to_string(heard).expect("what it heard"), pressed.elapsed())
}

/// A terminal sends SIGINT to all its processes; the command ends long before it would be
/// forwarded.
#[test]
fn the_command_hears_ctrl_c_once() {
    /// Time after which SIGINT is forwarded; runs that took longer on a busy machine prove nothing.
    const TOLD_AGAIN: Duration = Duration::from_millis(2500);
    let run = || heard_in_terminal("true", b"\x03", "for _ in $(seq 8)");
    let (heard, _) = std::iter::repeat_with(run)
        .find(|(heard, took)| heard == "INT\n" || *took < TOLD_AGAIN)
        .expect("a run");
    assert_eq!(heard, "INT\n");
}

/// Only ff-lab receives SIGINT, forwards it, and gives the command time to end.
#[test]
fn what_only_ff_lab_was_told_in_a_terminal_the_command_hears_too() {
    let (heard, _) = heard_in_terminal("kill -INT $PPID", b"", "until [ -e HEARD ]");
    assert_eq!(heard, "INT\n");
}

/// Includes processes that ignore the signal, after the grace period, and processes without the
/// environment.
#[test]
fn a_run_that_is_asked_to_end_ends_all_that_it_has_started() {
    for (first, by, least_secs) in [("", "env -i", 0), ("trap '' TERM;", "", 5)] {
        let (mut lab, shell, sleep) = with_two_processes(first, by);
        let (pid, began) = (Pid::from_child(&lab), Instant::now());
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(lab.wait().unwrap().code(), Some(143));
        assert!(began.elapsed() >= Duration::from_secs(least_secs), "{:?}", began.elapsed());
        wait_for_end_of(&shell);
        wait_for_end_of(&sleep);
    }
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence() {
    let found = refused(&["link", "run", "--profile", "no-such", "--", "true"]);
    assert!(found.contains("no-such") && found.contains("lte-moving"), "{found}");
    let found = refused(&["link", "run", "--up", "0", "--", "true"]);
    assert!(found.contains("--up"), "{found}");
    let found = refused(&["link", "run", "--delay-ms=-4", "--", "true"]);
    assert!(found.contains("--delay-ms"), "{found}");
    let found = refused(&["link", "run", "--congestion-control", "none-such", "--", "true"]);
    assert!(found.contains("tcp_congestion_control"), "{found}");
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("falls.trace");
    fs::write(&trace, "7\n8\n3\n").unwrap();
    let found = refused(&["link", "run", "--down", trace.to_str().unwrap(), "--", "true"]);
    assert!(found.contains("falls.trace: line 3"), "{found}");
    let found = refused(&["link", "run", "--", "/no/such/program"]);
    assert!(found.contains("/no/such/program"), "{found}");
}

/// Without CAP_SYS_NICE there is no SCHED_FIFO: the run reports it and continues.
#[test]
fn without_real_time_priority_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_nice", "--inh-caps=-all", "--no-new-privs", "--"]);
    command.arg(env!("CARGO_BIN_EXE_ff-lab")).args(["link", "run", "--json"]).arg(&json);
    command.args(["--", "bash", "-c", "echo x >/dev/udp/$FF_LAB_PEER/9; sleep 0.1"]);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("without real-time priority (SCHED_FIFO was refused"), "{error}");
    // This may have made it late.
    assert!(matches!(output.status.code(), Some(0 | 75)), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(report["is_real_time"], false);
    let why = report["not_real_time_because"].as_str().unwrap();
    assert!(why.contains("SCHED_FIFO"), "{why}");
}

#[test]
fn without_root_it_says_so() {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]);
    command.arg(env!("CARGO_BIN_EXE_ff-lab")).args(["link", "run", "--", "true"]);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("need root"), "{error}");
}
