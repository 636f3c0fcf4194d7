//! `build-arti-relay` with the source of another version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source of arti-relay in cargo's registry, which the relay under test was built from.
fn source() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.expect("a folder of cargo's").join("registry/src");
    let indices = fs::read_dir(&registry).unwrap_or_else(|error| panic!("{registry:?}: {error}"));
    let sources = indices.map(|index| index.expect("a folder").path().join("arti-relay-0.47.0"));
    sources.into_iter().find(|source| source.is_dir()).expect("cargo has unpacked arti-relay")
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status().expect("cp");
    assert!(copied.success());
}

#[test]
#[ignore = "needs arti-relay's source in cargo's registry, where build-arti-relay leaves it"]
fn places_that_another_version_has_not_are_named_and_nothing_is_built() {
    let dir = tempfile::tempdir().expect("a folder");
    let (other, prefix) = (dir.path().join("other"), dir.path().join("prefix"));
    copy(&source(), &other);
    for (file, line) in [
        ("src/main.rs", "let path_resolver = base_resolver();"),
        ("src/client.rs", "pub(crate) fn dirmgr_plugin"),
    ] {
        let text = fs::read_to_string(other.join(file)).expect("its source");
        assert!(text.contains(line), "{file}");
        fs::write(other.join(file), text.replace(line, "// gone")).expect("another source");
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/ff-relay-ext/arti/build-arti-relay");
    let mut command = Command::new(program);
    let built = command.arg("--source").arg(&other).arg("--prefix").arg(&prefix).output();
    let built = built.expect("build-arti-relay");
    let said = String::from_utf8_lossy(&built.stderr);
    assert_eq!(built.status.code(), Some(1), "{said}");
    assert!(said.contains("anchor 'state'") && said.contains("assumption 'mirror'"), "{said}");
    assert!(built.stdout.is_empty());
    let left = fs::read_dir(prefix.join("bin")).expect("its folder").count();
    assert_eq!(left, 0, "a program is there");
}
