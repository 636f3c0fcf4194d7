//! Functions that run the program.

use std::process::{Command, Output};

/// Runs a command of the program.
pub(crate) fn run(command: &[&str], args: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    program.args(command).args(args).output().expect("the program runs")
}

/// Output of a successful run.
pub(crate) fn prints(command: &[&str], args: &[&str]) -> String {
    let output = run(command, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}
