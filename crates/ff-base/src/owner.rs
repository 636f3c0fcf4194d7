//! Advice for a user who runs a command that needs another user's file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The file that names a host's users.
const USERS: &str = "/etc/passwd";

/// What to do about a file of another user; `None` if the file is this user's or cannot be
/// examined.
#[must_use]
pub fn advice(path: &Path) -> Option<String> {
    let owner = fs::metadata(path).ok()?.uid();
    let own = rustix::process::geteuid().as_raw();
    (owner != own).then(|| advice_for(path, owner, own))
}

/// What the user `own` has to do about a file of the user `owner`.
#[must_use]
pub fn advice_for(path: &Path, owner: u32, own: u32) -> String {
    let users = fs::read(USERS).unwrap_or_default();
    sentence(&String::from_utf8_lossy(&users), path, owner, own)
}

/// The same on a host with these users.
fn sentence(users: &str, path: &Path, owner: u32, own: u32) -> String {
    let known = name(users, owner);
    let [owners, you] = [owner, own]
        .map(|user| name(users, user).map_or_else(|| format!("user {user}"), str::to_owned));
    let path = path.display();
    let todo = match (known, owner, own) {
        (_, 0, _) => {
            let you = name(users, own).map_or_else(|| own.to_string(), str::to_owned);
            format!("as root, run: chown {you} {path}")
        }
        (Some(known), _, 0) => format!("run: runuser -u {known} -- …"),
        (Some(known), _, _) => format!("run: sudo -u {known} …"),
        (None, _, _) => "run this as that user".to_owned(),
    };
    format!("{path} belongs to {owners} and you are {you}; {todo}")
}

/// The name of a user.
fn name(users: &str, number: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)?.parse() == Ok(number)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_meets_anothers_file_is_told_which_user_to_be() {
        let users = "root:x:0:0:root:/root:/bin/bash\nodd\n:::\n_ff-bwauth:x:102:110::/var/lib/flashflow:/bin/false\n\
                     alice:x:1000:1000::/home/alice:/bin/bash\n";
        let path = Path::new("/etc/flashflow/coordinator.key");
        for (owner, own, said) in [
            (102, 0, "belongs to _ff-bwauth and you are root; run: runuser -u _ff-bwauth -- …"),
            (102, 1000, "belongs to _ff-bwauth and you are alice; run: sudo -u _ff-bwauth …"),
            (1000, 102, "belongs to alice and you are _ff-bwauth; run: sudo -u alice …"),
            (0, 102, "belongs to root and you are _ff-bwauth; as root, run: chown _ff-bwauth /etc"),
            (0, 7, "belongs to root and you are user 7; as root, run: chown 7 /etc"),
            (7, 0, "belongs to user 7 and you are root; run this as that user"),
            (7, 8, "belongs to user 7 and you are user 8; run this as that user"),
        ] {
            let found = sentence(users, path, owner, own);
            assert!(
                found.starts_with(&format!("/etc/flashflow/coordinator.key {said}")),
                "{found}"
            );
        }
    }

    #[test]
    fn ones_own_file_needs_no_advice() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(advice(dir.path()), None);
        assert_eq!(advice(&dir.path().join("none")), None);
        // Only root can change a file's owner.
        if std::os::unix::fs::chown(dir.path(), Some(12_345), None).is_ok() {
            let said = advice(dir.path()).expect("it is another's");
            assert!(said.contains("belongs to user 12345 and you are root"), "{said}");
        }
    }
}
