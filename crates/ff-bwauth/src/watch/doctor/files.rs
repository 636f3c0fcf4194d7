//! Checks the files of a coordinator.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ff_measurer::key;
use ff_plan::publish::{LATEST, Shelf};
use ff_store::{Store, StoreError};
use rustix::fs::statvfs;

use super::finding::Finding;
use crate::config::Config;
use crate::secret;

/// The number of relays for which disk space is computed: Tor has about 9,000 today.
const RELAYS: u64 = 10_000;
/// Bytes of an attempt in the store with its plan and indexes, without its seconds (doc/store.md).
const RESULT_BYTES: u64 = 325;
/// Bytes of an attempt's seconds.
const SECONDS_BYTES: u64 = 180;
/// Attempts per relay and day, in percent: some are repeated.
const ATTEMPTS_PERCENT: u64 = 110;
/// Bytes for caches, bandwidth files and the store's log.
const OTHER_BYTES: u64 = 1 << 30;

/// Carries out these checks.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    vec![
        readable("key", key::load(&config.key).map(drop), &config.key),
        readable("secret", secret::read(&config.period.secret).map(drop), &config.period.secret),
        store(&config.store()),
        disk(config),
        publishing(&config.publish_dir),
    ]
}

/// Checks a file that must be readable by its owner alone.
fn readable(about: &str, read: anyhow::Result<()>, path: &Path) -> Finding {
    match read {
        Ok(()) => Finding::ok(about, format!("{} can be read by this user only", path.display())),
        Err(error) => Finding::bad(
            about,
            format!("{error:#}"),
            "run this as the coordinator's user; the file must belong to that user or root, with mode 600, or 440 if a \
             service manager or a container provides it",
        ),
    }
}

/// Checks the store.
fn store(path: &Path) -> Finding {
    let looked = match Store::damage(path) {
        Ok(Some(damage)) | Err(damage) => Err(damage),
        Ok(None) => Store::open_read_only(path).and_then(|reader| reader.last_period()),
    };
    match looked {
        Ok(Some(period)) => {
            Finding::ok("store", format!("{}, with period {}", path.display(), period.number))
        }
        Ok(None) => Finding::ok("store", format!("{}, still empty", path.display())),
        Err(StoreError::Missing(_)) => Finding::ok(
            "store",
            format!("{} is not there yet; the coordinator makes it", path.display()),
        ),
        Err(error) => {
            Finding::bad("store", error.to_string(), "see the guide's chapter on the store")
        }
    }
}

/// The nearest ancestor directory that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

/// The size of the store in bytes once it has all records that are kept.
fn needed_bytes(config: &Config) -> u64 {
    let attempts = |days: u32| RELAYS * u64::from(days) * ATTEMPTS_PERCENT / 100;
    let keep = config.keep;
    attempts(keep.results_days) * RESULT_BYTES
        + attempts(keep.samples_days) * SECONDS_BYTES
        + OTHER_BYTES
}

/// Checks whether the disk has room for what is kept.
fn disk(config: &Config) -> Finding {
    const ABOUT: &str = "disk";
    let path = existing(&config.state_dir);
    let used = fs::metadata(config.store()).map_or(0, |file| file.len());
    let needed = needed_bytes(config).saturating_sub(used);
    let mib = |bytes: u64| bytes >> 20;
    let advice =
        format!("{} MiB more are needed with the present [keep], for {RELAYS} relays", mib(needed));
    match statvfs(path) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{} MiB are free at {}", mib(free), path.display());
            match free {
                free if free < needed / 4 => Finding::bad(ABOUT, found, advice),
                free if free < needed => Finding::warn(ABOUT, found, advice),
                _ => Finding::ok(ABOUT, format!("{found}, {} are needed", mib(needed))),
            }
        }
        Err(error) => Finding::bad(
            ABOUT,
            format!("{}: {error}", path.display()),
            "make the directory (state_dir)",
        ),
    }
}

/// Checks the directory from which authorities read bandwidth files.
fn publishing(dir: &Path) -> Finding {
    const ABOUT: &str = "bandwidth files";
    if !dir.is_dir() {
        let found = format!("{} is not there yet", dir.display());
        return Finding::warn(
            ABOUT,
            found,
            "create it, owned by the coordinator's user, with mode 755",
        );
    }
    let shelf = match Shelf::open(dir) {
        Ok(shelf) => shelf,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            let found = format!("{error}{}", source.unwrap_or_default());
            return Finding::bad(
                ABOUT,
                found,
                "it must be the coordinator's own directory (publish_dir)",
            );
        }
    };
    if let Some(closed) = closed_to_others(dir) {
        let advice = format!(
            "chmod o+x the directories above, and o+rx {}: tor runs as another user",
            dir.display()
        );
        return Finding::bad(ABOUT, format!("others may not enter {}", closed.display()), advice);
    }
    let found = match shelf.last() {
        Some(last) => format!("{LATEST} is {}", last.name.display()),
        None => "none yet".to_owned(),
    };
    Finding::ok(ABOUT, format!("{} can be written by us and read by tor; {found}", dir.display()))
}

/// The first directory of the path that users of other groups cannot enter.
fn closed_to_others(dir: &Path) -> Option<&Path> {
    let dir_is_closed = |path: &Path, bits: u32| {
        fs::metadata(path).is_ok_and(|of| of.permissions().mode() & bits != bits)
    };
    if dir_is_closed(dir, 0o005) {
        return Some(dir);
    }
    dir.ancestors()
        .skip(1)
        .filter(|path| !path.as_os_str().is_empty())
        .find(|path| dir_is_closed(path, 0o001))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::doctor::finding::Level;

    #[test]
    fn a_directory_that_tor_cannot_read_is_found() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("v3bw");
        assert_eq!(publishing(&dir).level, Level::Warn);
        fs::create_dir(&dir).expect("made");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set")
        };
        set(&dir, 0o755);
        set(above.path(), 0o700);
        assert_eq!(publishing(&dir).level, Level::Bad);
        set(above.path(), 0o755);
        // The parent of the temporary directories may be closed itself.
        let closed = closed_to_others(&dir);
        assert!(closed.is_none_or(|closed| closed != dir && closed != above.path()));
        let finding = publishing(&dir);
        assert_eq!(finding.level == Level::Ok, closed.is_none(), "{finding}");
        set(&dir, 0o750);
        assert!(publishing(&dir).found.contains("others may not enter"));
        set(&dir, 0o755);
        fs::write(dir.join(LATEST), "somebody else's").expect("written");
        let finding = publishing(&dir);
        assert!(
            finding.level == Level::Bad && finding.found.contains("is left alone"),
            "{finding}"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_bad_and_a_store_is_made() {
        let path = Path::new("/nowhere/key");
        assert_eq!(readable("key", key::load(path).map(drop), path).level, Level::Bad);
        assert_eq!(store(Path::new("/nowhere/store.sqlite")).level, Level::Ok);
        assert_eq!(existing(Path::new("/proc/nowhere/at/all")), Path::new("/proc"));
    }
}
