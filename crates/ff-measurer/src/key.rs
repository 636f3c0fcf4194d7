//! The key file of a host, with its only identity for other hosts: 32 bytes in base64 in a
//! [`secret_file`].

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_proto::ids::Ed25519Id;
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use crate::secret_file;

/// Size of the longest key file, in bytes.
const MAX_BYTES: u64 = 128;

/// Reads the key, or makes the file with a new one.
///
/// # Errors
/// Names the file: when it cannot be read or made, when others can read or replace it, or when it
/// has no valid key.
pub fn load_or_make(path: &Path) -> Result<SigningKey> {
    match fs::exists(path) {
        Ok(false) => make(path),
        _ => load(path),
    }
}

/// Reads the key.
///
/// # Errors
/// Those of [`load_or_make`], and when the file does not exist.
pub fn load(path: &Path) -> Result<SigningKey> {
    if matches!(fs::exists(path), Ok(false)) {
        bail!("the key {} does not exist; make it with the command init", path.display());
    }
    let text = secret_file::read(path, MAX_BYTES)?;
    let text = std::str::from_utf8(&text).unwrap_or_default().trim();
    let mut bytes = Zeroizing::new([0; 32]);
    match Base64Unpadded::decode(text, bytes.as_mut_slice()) {
        Ok(decoded) if decoded.len() == 32 => Ok(SigningKey::from_bytes(&bytes)),
        _ => bail!("{} does not contain a key, which has 43 base64 characters", path.display()),
    }
}

/// A host's identity as text: its public key in base64.
#[must_use]
pub fn identity_text(id: &Ed25519Id) -> String {
    Base64Unpadded::encode_string(&id.0)
}

/// Parses an identity.
///
/// # Errors
/// A text that describes the format.
pub fn parse_identity(text: &str) -> std::result::Result<Ed25519Id, String> {
    let bytes = Base64Unpadded::decode_vec(text.trim().trim_end_matches('='));
    match bytes.as_deref().map(<[u8; 32]>::try_from) {
        Ok(Ok(bytes)) => Ok(Ed25519Id(bytes)),
        _ => Err("not an Ed25519 identity: it should be 43 base64 characters".to_owned()),
    }
}

/// A key as the text of its file.
#[must_use]
pub fn secret_text(key: &SigningKey) -> Zeroizing<String> {
    Zeroizing::new(format!("{}\n", Base64Unpadded::encode_string(key.as_bytes())))
}

/// Makes the file with a new key.
fn make(path: &Path) -> Result<SigningKey> {
    let failed = || format!("Failed to make {}", path.display());
    let bytes = Zeroizing::new(rand::random::<[u8; 32]>());
    let text = secret_text(&SigningKey::from_bytes(&bytes));
    // Only the owner can read a temporary file; it gets its name when it is complete.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(dir).with_context(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.as_file().sync_all())
        .with_context(failed)?;
    file.persist_noclobber(path).with_context(failed)?;
    Ok(SigningKey::from_bytes(&bytes))
}

/// Parses a key of 32 bytes in base64, with or without padding.
///
/// # Errors
/// A text that describes the format.
pub fn parse_key(text: &str) -> Result<[u8; 32], String> {
    let bytes = Base64Unpadded::decode_vec(text.trim().trim_end_matches('='));
    let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| "write the 43 base64 characters of a 32-byte key".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = load_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_make(&path).unwrap().to_bytes(), key.to_bytes());

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = load_or_make(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        // Only root can change a file's owner.
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
            let error = format!("{:#}", load(&path).unwrap_err());
            assert!(error.contains("belongs to user 12345 and you are root"), "{error}");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = format!("{:#}", load(&path).unwrap_err());
        assert!(error.starts_with("other users could replace "), "{error}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, "nothing").unwrap();
        let error = load_or_make(&path).unwrap_err().to_string();
        assert!(error.contains("does not contain a key"), "{error}");
    }
}
