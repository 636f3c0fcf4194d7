//! Files with secrets: finds them, and checks that no other user can read or replace them.
//!
//! A secret must belong to this user or to root, and nobody else may read it or change it or a
//! directory above it. Mode 0600 ensures this for the file. A service manager (systemd's
//! `LoadCredential=`) or a container provides a secret with mode 0440 instead, which a service
//! cannot change if it does not own the file. That mode is accepted if the file belongs to root or
//! root's group, or if nobody else can enter the directory.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use ff_base::owner;
use fs_mistrust::Mistrust;
use zeroize::Zeroizing;

/// The environment variable with the directory of the credentials that systemd provides to a
/// service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Prefixes by which a config names only a file in that directory.
const CREDENTIALS_PREFIXES: [&str; 2] = ["$CREDENTIALS_DIRECTORY", "${CREDENTIALS_DIRECTORY}"];
/// The number of the user root, and of its group.
const ROOT: u32 = 0;

/// The file that `path` means in a config in `dir`.
///
/// A name without a directory means systemd's credential of that name, if it exists. All other
/// relative paths start in `dir`.
///
/// # Errors
/// When the path begins with `$CREDENTIALS_DIRECTORY` and that variable is not set.
pub fn locate(path: &Path, dir: &Path) -> Result<PathBuf> {
    let credentials = std::env::var_os(CREDENTIALS).map(PathBuf::from);
    locate_in(path, dir, credentials.as_deref())
}

/// The same with this directory of credentials.
fn locate_in(path: &Path, dir: &Path, credentials: Option<&Path>) -> Result<PathBuf> {
    let named = CREDENTIALS_PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix).ok());
    if let Some(name) = named {
        let credentials = credentials.with_context(|| {
            format!(
                "{}: {CREDENTIALS} is not set; only systemd sets it, for a service with LoadCredential=",
                path.display()
            )
        })?;
        return Ok(credentials.join(name));
    }
    let is_name = path.parent() == Some(Path::new(""));
    let handed_over = credentials.filter(|_| is_name).map(|dir| dir.join(path));
    // A credential that cannot be examined counts as existing: reading it reports the error.
    let is_there = |file: &PathBuf| !matches!(fs::exists(file), Ok(false));
    Ok(handed_over.filter(is_there).unwrap_or_else(|| dir.join(path)))
}

/// Reads a secret of at most `max_bytes`.
///
/// # Errors
/// Names the file: when it cannot be read, when others can read or replace it, or when it is
/// longer.
pub fn read(path: &Path, max_bytes: u64) -> Result<Zeroizing<Vec<u8>>> {
    let failed = || format!("Failed to read {}", path.display());
    let data = fs::metadata(path).with_context(failed)?;
    check_readers(path, &data)?;
    let trusted = Mistrust::builder().controlled_by_default_env_var().build();
    let trusted = trusted.context("Failed to determine which users to trust with files")?;
    // Other readers were checked above.
    let checked = trusted.verifier().require_file().permit_readable().check(path);
    checked.map_err(|error| not_safe(path, error))?;
    if data.len() > max_bytes {
        bail!("{} has more than {max_bytes} bytes: is it the right file?", path.display());
    }
    Ok(Zeroizing::new(fs::read(path).with_context(failed)?))
}

/// The error of a secret that is not safe: the file is another user's, or others could replace it.
fn not_safe(path: &Path, error: fs_mistrust::Error) -> anyhow::Error {
    match owner::advice(path) {
        Some(advice) => anyhow::anyhow!(advice),
        None => anyhow::Error::new(error).context(format!(
            "other users could replace {}: nobody but its owner and root may write to the directories above",
            path.display()
        )),
    }
}

/// Fails if others can read the file.
fn check_readers(path: &Path, data: &Metadata) -> Result<()> {
    /// The only accepted mode for a provided secret.
    const GROUP_READS: u32 = 0o040;
    match data.mode() & 0o077 {
        0 => return Ok(()),
        GROUP_READS if is_handed_over(path, data)? => return Ok(()),
        _ => {}
    }
    bail!(
        "others can read {0} (mode {1:04o}): if nobody has, run: chmod 600 {0}; where a service manager or a container \
         provides it, set mode 0440 there, and a directory that nobody else can enter",
        path.display(),
        data.mode() & 0o7777
    )
}

/// Whether a file that its group can read was provided to this process: by root, or in a directory
/// that nobody else can enter.
fn is_handed_over(path: &Path, data: &Metadata) -> Result<bool> {
    // systemd grants a service access by an access control list, which shows as the bits of root's
    // group.
    if data.uid() == ROOT || data.gid() == ROOT {
        return Ok(true);
    }
    is_in_closed_directory(path)
}

/// Whether only the owner of the file's directory can enter it.
fn is_in_closed_directory(path: &Path) -> Result<bool> {
    let failed = || format!("Failed to check the directory of {}", path.display());
    let real = fs::canonicalize(path).with_context(failed)?;
    let dir = fs::metadata(real.parent().unwrap_or(Path::new("/"))).with_context(failed)?;
    Ok(dir.mode() & 0o011 == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Changes a file's or a directory's mode.
    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_file_readable_by_its_group_is_accepted_in_a_closed_directory() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("secrets");
        fs::create_dir(&dir).expect("made");
        let file = dir.join("key");
        fs::write(&file, "secret").expect("written");
        let data = fs::metadata(&file).expect("it is there");
        let is_roots = data.uid() == ROOT || data.gid() == ROOT;
        for (dir_mode, mode, is_good) in [
            (0o755, 0o600, true),
            (0o755, 0o400, true),
            (0o700, 0o440, true),
            (0o500, 0o440, true),
            (0o700, 0o640, true),
            (0o755, 0o440, is_roots),
            (0o750, 0o440, is_roots),
            // Never if others can read it, or if its group can change it.
            (0o700, 0o444, false),
            (0o700, 0o604, false),
            (0o700, 0o660, false),
            (0o700, 0o610, false),
        ] {
            set(&file, mode);
            set(&dir, dir_mode);
            let read = read(&file, 100);
            set(&dir, 0o700);
            assert_eq!(read.is_ok(), is_good, "{dir_mode:o} {mode:o} {read:?}");
            if let Err(error) = read {
                let error = format!("{error:#}");
                assert!(error.contains("chmod 600") && error.contains("0440"), "{error}");
                assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
            }
        }
    }

    #[test]
    fn a_directory_is_closed_if_only_its_owner_enters() {
        let above = tempfile::tempdir().expect("a directory");
        let [open, closed] = ["open", "closed"].map(|name| above.path().join(name));
        for dir in [&open, &closed] {
            fs::create_dir(dir).expect("made");
            fs::write(dir.join("key"), "secret").expect("written");
        }
        // For a link, the directory of its target counts.
        symlink(closed.join("key"), open.join("link")).expect("a link");
        for (mode, is_closed) in
            [(0o700, true), (0o744, true), (0o750, false), (0o710, false), (0o701, false)]
        {
            set(&closed, mode);
            for path in [closed.join("key"), open.join("link")] {
                assert_eq!(is_in_closed_directory(&path).ok(), Some(is_closed), "{mode:o}");
            }
        }
        set(&open, 0o755);
        assert_eq!(is_in_closed_directory(&open.join("key")).ok(), Some(false));
    }

    #[test]
    fn a_secret_has_a_greatest_length() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        fs::write(&path, "secret").expect("written");
        set(&path, 0o600);
        assert_eq!(read(&path, 6).expect("good").as_slice(), b"secret");
        let error = read(&path, 5).expect_err("too long").to_string();
        assert!(error.contains("more than 5 bytes"), "{error}");
        let error = read(&dir.path().join("other"), 5).expect_err("not there").to_string();
        assert!(error.contains("other"), "{error}");
    }

    #[test]
    fn a_credential_takes_precedence_over_the_file_next_to_the_config() {
        let dir = tempfile::tempdir().expect("a directory");
        let (config, credentials) = (dir.path().join("etc"), dir.path().join("credentials"));
        fs::create_dir(&credentials).expect("made");
        fs::write(credentials.join("key"), "k").expect("written");
        let at = |path: &str, credentials: Option<&Path>| {
            locate_in(Path::new(path), &config, credentials).map_err(|error| error.to_string())
        };
        let with = Some(credentials.as_path());
        assert_eq!(at("key", with), Ok(credentials.join("key")));
        assert_eq!(at("key", None), Ok(config.join("key")));
        assert_eq!(at("other", with), Ok(config.join("other")));
        assert_eq!(at("./key", with), Ok(config.join("key")));
        assert_eq!(at("keys/key", with), Ok(config.join("keys/key")));
        assert_eq!(at("/run/secrets/key", with), Ok(PathBuf::from("/run/secrets/key")));
        for prefix in CREDENTIALS_PREFIXES {
            let path = format!("{prefix}/other");
            assert_eq!(at(&path, with), Ok(credentials.join("other")));
            let error = at(&path, None).expect_err("it is not set");
            assert!(error.contains("CREDENTIALS_DIRECTORY is not set"), "{error}");
        }
    }
}
