//! The built `ff-demo`, as its users run it.

mod demo;
mod demo_tor;
mod figures;

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A run that has ended.
#[derive(Debug)]
struct Run {
    /// Exit status; `None` after a signal.
    status: Option<i32>,
    /// Standard output.
    stdout: String,
    /// Standard error.
    stderr: String,
}

/// Runs `ff-demo` in a directory.
fn run_in<'a>(dir: &Path, args: impl IntoIterator<Item = &'a str>) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_ff-demo"))
        .args(args)
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("ff-demo runs");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Run { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A fresh directory to run in.
fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}
