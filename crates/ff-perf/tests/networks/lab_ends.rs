//! `ff-perf lab` ends its network when asked to. Needs root.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::serve::signal;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(600);

/// An experiment whose directories are below a temporary one.
struct Lab(Child);

impl Lab {
    fn start(temp: &Path, command: &str) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        program.arg("lab").args(command.split(' ')).env("TMPDIR", temp);
        program.stdout(Stdio::null()).stderr(Stdio::piped());
        Self(program.spawn().expect("the program"))
    }

    /// Sends SIGTERM; returns exit status and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        signal(self.0.id(), "TERM");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.0.try_wait().expect("its status") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = BufReader::new(self.0.stderr.take().expect("what it says"));
        let said: Vec<String> = said.lines().map_while(Result::ok).collect();
        (status.code(), said.join("\n"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes with a directory in their command line or environment, except process `but`.
fn processes_of(temp: &Path, but: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbered = entries.filter(|entry| {
        entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .is_some_and(|pid: u32| pid != but)
    });
    let of = |entry: std::fs::DirEntry| {
        let read = |name| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let environ = String::from_utf8_lossy(&read("environ")).into_owned();
        let is_one =
            [&line, &environ].iter().any(|text| text.contains(temp.to_str().expect("a path")));
        is_one.then_some(line)
    };
    numbered.filter_map(of).collect()
}

/// Waits until there is such a process.
fn wait_for(temp: &Path, lab: &Lab, is_it: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !processes_of(temp, lab.0.id()).iter().any(|line| is_it(line)) {
        assert!(Instant::now() < deadline, "never");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asks the experiment to end, and checks that nothing is left.
fn ends(temp: &Path, lab: Lab) {
    let (status, said) = lab.end();
    assert_eq!(status, Some(143), "{said}");
    assert!(said.contains("ended by signal 15"), "{said}");
    assert_eq!(processes_of(temp, 0), [""; 0]);
    let left = std::fs::read_dir(temp).expect("a directory").flatten().map(|entry| entry.path());
    assert_eq!(left.collect::<Vec<_>>(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn sigterm_ends_what_measures_and_all_nodes() {
    let temp = tempfile::tempdir().expect("a directory");
    let lab = Lab::start(temp.path(), "navigator --relays 9 --circuits 100000");
    wait_for(temp.path(), &lab, |line| line.contains("circuits run"));
    ends(temp.path(), lab);
}

#[test]
fn sigterm_ends_a_network_that_is_starting() {
    for command in ["navigator --relays 9 --short", "bound --short"] {
        let temp = tempfile::tempdir().expect("a directory");
        let lab = Lab::start(temp.path(), command);
        wait_for(temp.path(), &lab, |line| line.contains("torrc") && line.contains("auth0"));
        ends(temp.path(), lab);
    }
}
