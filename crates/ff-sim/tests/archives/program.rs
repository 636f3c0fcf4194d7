//! Functions that run the program.

use std::path::Path;
use std::process::{Command, Output};

/// The path of the program.
pub(crate) const fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ff-sim")
}

/// Runs the program in this folder.
pub(crate) fn run(dir: &Path, args: &[&str]) -> Output {
    let output = Command::new(program()).current_dir(dir).args(args).output();
    output.expect("the program runs")
}

/// The output of a successful run.
pub(crate) fn prints(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}
