//! Programs of this workspace, and commands that end by themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of this workspace, which was built with the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let dir = test.parent().and_then(Path::parent).expect("the folder of what was built");
    let path = dir.join(name);
    assert!(path.exists(), "{} is not built: cargo build --workspace", path.display());
    path
}

/// Runs a command that ends by itself; what it prints.
pub(crate) fn finish(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}
