//! `run --check`: finds what would prevent a coordinator from starting or working, without changing
//! anything.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ff_measurer::config::is_free;
use ff_measurer::key;
use ff_plan::publish::Shelf;
use ff_proto::ids::Ed25519Id;
use ff_store::Store;

use crate::config::{Config, NetworkConfig};
use crate::daemon;
use crate::watch::client::{self, AskError};

/// Checks everything that the coordinator needs on this host.
///
/// # Errors
/// The first problem, with advice.
pub(super) fn check(config: &Config) -> Result<()> {
    let me = daemon::identity(config)?;
    let is_running = page(config, me)?;
    directory("state_dir", &config.state_dir)?;
    // A running coordinator checked its store when it started, and reading it takes long.
    if !is_running {
        store(&config.store(), me)?;
    }
    directory("publish_dir", &config.publish_dir)?;
    if config.publish_dir.is_dir() {
        Shelf::open(&config.publish_dir).context("publish_dir")?;
    }
    if let NetworkConfig::Live(live) = &config.network {
        directory("cache_dir", &live.cache_dir)?;
        live.check().context("the table [network]")?;
    }
    Ok(())
}

/// Fails unless a directory can be written to or made.
fn directory(key: &str, path: &Path) -> Result<()> {
    let is_there = |path: &&Path| fs::symlink_metadata(path).is_ok();
    let existing = path.ancestors().find(is_there).unwrap_or(Path::new("."));
    let (path, there) = (path.display(), existing.display());
    if !existing.is_dir() {
        bail!("{key} is {path}, but {there} is not a directory");
    }
    let written = tempfile::tempfile_in(existing).map(drop);
    written.with_context(|| format!("{key} is {path}, but this user cannot write to {there}"))
}

/// Fails unless the store is missing, or undamaged, writable and this coordinator's.
fn store(path: &Path, me: Ed25519Id) -> Result<()> {
    Store::check(path, &me.0)?;
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("this user cannot write to {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether this coordinator's page answers at its address; fails if anything else does.
fn page(config: &Config, me: Ed25519Id) -> Result<bool> {
    let Some(addr) = config.watch.listen else { return Ok(false) };
    if is_free("watch.listen", addr)? {
        return Ok(false);
    }
    match client::status(&format!("http://{addr}")) {
        Err(AskError::Starting(_)) => Ok(true),
        Ok(status) if status.coordinator == key::identity_text(&me) => Ok(true),
        Ok(status) => bail!(
            "watch.listen is {addr}, where another coordinator ({}) answers: give each a port of its own",
            status.coordinator
        ),
        Err(error) => bail!(
            "watch.listen is {addr}, where another program listens ({error}): give the page another port"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;

    use ff_measurer::measurer_id;

    use super::*;

    /// Documents in files.
    const FILES: &str = "consensus = 'c'\ndescriptors = []";

    /// The files that a coordinator needs.
    fn files(dir: &Path) {
        key::load_or_make(&dir.join("key")).expect("a key");
        fs::write(dir.join("secret"), [6; 32]).expect("written");
        fs::set_permissions(dir.join("secret"), fs::Permissions::from_mode(0o600)).expect("set");
    }

    /// A config with these files.
    fn config() -> String {
        let identity = key::identity_text(&Ed25519Id([7; 32]));
        format!(
            "key = 'key'\nstate_dir = 'state'\npublish_dir = 'v3bw'\n[watch]\nlisten = '127.0.0.1:0'\n\
             [network]\n{FILES}\n[period]\nsecret = 'secret'\n[[measurer]]\nname = 'm'\n\
             address = '127.0.0.1:1'\nidentity = '{identity}'\ncapacity = '1Gbit'\n"
        )
    }

    /// The problem with this config in a directory, if it has one.
    fn problem(dir: &Path, text: &str) -> Option<String> {
        let path = dir.join("bwauth.toml");
        fs::write(&path, text).expect("written");
        let config = Config::load(&path).expect("it can be read");
        check(&config).err().map(|error| format!("{error:#}"))
    }

    /// A store in the directory, made by the coordinator with this key.
    fn made_store(dir: &Path, me: [u8; 32]) -> std::path::PathBuf {
        fs::create_dir(dir.join("state")).expect("made");
        let path = dir.join("state/store.sqlite");
        drop(Store::open(&path, me).expect("a store"));
        path
    }

    /// The identity of the directory's coordinator.
    fn me(dir: &Path) -> [u8; 32] {
        measurer_id(&key::load(&dir.join("key")).expect("a key")).0
    }

    #[test]
    fn what_a_coordinator_can_begin_or_go_on_with_is_good() {
        let dir = tempfile::tempdir().expect("a directory");
        files(dir.path());
        assert_eq!(problem(dir.path(), &config()), None, "nothing is there yet");
        assert!(!dir.path().join("state").exists(), "and nothing is made");
        let store = made_store(dir.path(), me(dir.path()));
        fs::create_dir(dir.path().join("v3bw")).expect("made");
        assert_eq!(problem(dir.path(), &config()), None);
        let running = Store::open(&store, me(dir.path())).expect("its store");
        assert_eq!(problem(dir.path(), &config()), None, "while it runs");
        drop(running);
        let live = config().replace(FILES, "cache_dir = 'cache'");
        assert_eq!(problem(dir.path(), &live), None);
    }

    #[test]
    fn what_run_refuses_or_cannot_work_with_is_found() {
        type Change = fn(&Path);
        let nothing: Change = |_| {};
        let is_file: Change = |dir| fs::write(dir.join("state"), "").expect("written");
        let garbage: Change = |dir| {
            let path = made_store(dir, me(dir));
            fs::write(path, "no database".repeat(1000)).expect("written");
        };
        let cut: Change = |dir| {
            let path = made_store(dir, me(dir));
            let bytes = fs::read(&path).expect("a store");
            fs::write(path, &bytes[..bytes.len() / 2]).expect("written");
        };
        let empty: Change = |dir| fs::write(made_store(dir, me(dir)), "").expect("written");
        let others: Change = |dir| drop(made_store(dir, [9; 32]));
        let foreign: Change = |dir| {
            fs::create_dir(dir.join("v3bw")).expect("made");
            fs::write(dir.join("v3bw/latest.v3bw"), "somebody else's").expect("written");
        };
        let readable: Change = |dir| {
            let mode = fs::Permissions::from_mode(0o644);
            fs::set_permissions(dir.join("secret"), mode).expect("set");
        };
        let keyless: Change = |dir| fs::remove_file(dir.join("key")).expect("removed");
        let [documents, live] = [FILES, "cache_dir = 'cache'"];
        let finds = |change: Change, from: &str, to: &str, part: &str| {
            let dir = tempfile::tempdir().expect("a directory");
            files(dir.path());
            change(dir.path());
            let found = problem(dir.path(), &config().replacen(from, to, 1));
            let found = found.unwrap_or_else(|| panic!("{to}: {part} is not found"));
            assert!(found.contains(part), "{found}, not {part}");
        };
        for (change, part) in [
            (is_file, "state is not a directory"),
            (foreign, "is left alone"),
            (garbage, "is damaged"),
            (cut, "is damaged"),
            (empty, "the file is empty"),
            (others, "belongs to the coordinator 0909"),
            (readable, "chmod 600"),
            (keyless, "does not exist; make it with"),
        ] {
            finds(change, "", "", part);
        }
        for (from, to, part) in [
            ("'state'", "'secret/state'", "secret is not a directory"),
            ("'v3bw'", "'key'", "key is not a directory"),
            ("'v3bw'", "'key/v3bw'", "publish_dir is "),
            ("'v3bw'", "'/proc/v3bw'", "this user cannot write to /proc"),
            (documents, "cache_dir = 'key/cache'", "key is not a directory"),
            (documents, "cache_dir = 'c'\nprivate_network = 'n'", "the table [network]: "),
            (documents, "cache_dir = 'c'\n[network.limits]\nparallel = 0", "limits.parallel"),
        ] {
            finds(nothing, from, to, part);
        }
        let dir = tempfile::tempdir().expect("a directory");
        files(dir.path());
        let myself = key::identity_text(&Ed25519Id(me(dir.path())));
        let table =
            format!("[[coordinator]]\nname = 'x'\nidentity = '{myself}'\nteam = ['1Gbit']\n");
        for network in [documents, live] {
            let text = format!("{}{table}", config().replace(documents, network));
            let found = problem(dir.path(), &text).expect("it is this one");
            assert!(found.contains("the identity of this one"), "{found}");
        }
    }

    #[test]
    fn a_page_cannot_be_where_another_program_listens() {
        let dir = tempfile::tempdir().expect("a directory");
        files(dir.path());
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = other.local_addr().expect("its address").to_string();
        // Accepts each connection and closes it.
        std::thread::spawn(move || other.incoming().for_each(drop));
        let text = config().replace("127.0.0.1:0", &addr);
        let found = problem(dir.path(), &text).expect("it is taken");
        assert!(
            found.contains(&format!("watch.listen is {addr}, where another program")),
            "{found}"
        );
    }
}
