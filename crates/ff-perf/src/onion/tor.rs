//! An onion service run by a tor, over its control port (control-spec 3.27, ADD_ONION).
//!
//! The service ends with the control connection, which a thread keeps until this is dropped. tor
//! connects streams to a port of loopback.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use ff_lab::Control;
use ff_measurer::secret_file;
use tokio::sync::oneshot;
use tor_hscrypto::pk::HsId;

use super::PORT;
use crate::client::tor::find;

/// File of the key, in tor's form: `ED25519-V3:` and base64.
const KEY: &str = "tor.key";
/// Request for a new key.
const NEW: &str = "NEW:ED25519-V3";
/// Prefix of keys: their type.
const KIND: &str = "ED25519-V3:";
/// Largest file of a key, in bytes.
const MOST_BYTES: u64 = 1024;
/// Option of a tor whose onion services are all single ones.
const SINGLE: &str = "HiddenServiceSingleHopMode";
/// Interval of checks whether the service was dropped.
const LOOK: Duration = Duration::from_millis(500);
/// tor's reply while another control connection has a service of the same key; after a restart, our
/// previous connection, whose end tor has not noticed yet.
const TAKEN: &str = "Onion address collision";
/// Most requests while the key is in use.
const TRIES: u32 = 20;

/// A running service; dropping it ends the service.
#[derive(Debug)]
pub struct TorService {
    /// Address with `.onion`.
    pub address: String,
    /// Resolves when tor has ended, with its last error.
    pub ended: oneshot::Receiver<String>,
}

/// Has the tor in a directory publish a service whose streams connect to `to`. The key is kept in
/// the folder `keys`, if given. A `single` service is not anonymous: its tor builds circuits of one
/// hop.
///
/// # Errors
/// If there is no tor, if it is not configured for such a service, if it refuses, or if the key
/// cannot be stored.
pub async fn publish(
    dir: &Path,
    keys: Option<&Path>,
    single: bool,
    to: SocketAddr,
) -> Result<TorService> {
    let named = dir.to_owned();
    let (dir, control) = in_a_thread(move || connect(&named, single)).await??;
    let known = keys.map(known_key).transpose()?.flatten();
    let key = known.as_deref().unwrap_or(NEW);
    let flags = if single { " Flags=NonAnonymous" } else { "" };
    let add = format!("ADD_ONION {key}{flags} Port={PORT},{to}");
    let (control, reply) = when_free(LOOK, control, move |control| control.command(&add)).await?;
    let reply = reply.map_err(|error| anyhow!("{}: {}", dir.display(), without_key(error)))?;
    let id = reply.value("ServiceID").filter(|id| is_name(id));
    let id = id.context("tor did not report the service's address")?;
    if let (None, Some(keys)) = (&known, keys) {
        let key = reply.value("PrivateKey").filter(|key| is_key(key));
        let key = key.context("tor did not report the service's key")?;
        keep_key(keys, key)?;
    }
    let (tell, ended) = oneshot::channel();
    let watch = move || watch(control, tell);
    thread::Builder::new().name("tor onion".to_owned()).spawn(watch)?;
    Ok(TorService { address: format!("{id}.onion"), ended })
}

/// Opens a control connection to the tor in a directory and checks that it is configured for this
/// kind of service.
fn connect(dir: &Path, single: bool) -> Result<(PathBuf, Control)> {
    let has_control = dir.join("control").exists();
    let dir = if has_control { dir.to_owned() } else { find(dir).map_err(anyhow::Error::msg)? };
    let mut control = Control::open(&dir).with_context(|| dir.display().to_string())?;
    check_mode(&dir, control.getconf(SINGLE)?.as_deref() == Some("1"), single)?;
    Ok((dir, control))
}

/// Asks for a service over a control connection, again after `pause` while its key is in use.
/// Returns the connection and the last reply. Another thread waits for tor's replies, so that
/// signals are handled meanwhile.
async fn when_free<C, T>(
    pause: Duration,
    mut control: C,
    ask: impl Fn(&mut C) -> ff_lab::Result<T> + Clone + Send + 'static,
) -> Result<(C, ff_lab::Result<T>)>
where
    C: Send + 'static,
    T: Send + 'static,
{
    let mut tries = TRIES;
    loop {
        let ask = ask.clone();
        let asked = in_a_thread(move || {
            let reply = ask(&mut control);
            (control, reply)
        });
        let (back, reply) = asked.await?;
        match reply {
            Err(ff_lab::Error::Refused { ref reply, .. }) if tries > 0 && reply.contains(TAKEN) => {
                tries -= 1;
                control = back;
                tokio::time::sleep(pause).await;
            }
            done => return Ok((back, done)),
        }
    }
}

/// Runs blocking work in another thread.
async fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("a thread that asked tor has panicked")
}

/// Keeps the control connection until the service is dropped or tor has ended.
fn watch(mut control: Control, tell: oneshot::Sender<String>) {
    while !tell.is_closed() {
        if let Err(error) = control.next_event(LOOK) {
            let _ = tell.send(error.to_string());
            return;
        }
    }
}

/// Fails if the tor is configured for the other kind of services: a tor has only one.
fn check_mode(dir: &Path, is_single: bool, wanted: bool) -> Result<()> {
    match (is_single, wanted) {
        (false, true) => bail!(
            "{}: --single: its tor is not configured for single onion services, which are not anonymous: add {SINGLE} 1, \
             HiddenServiceNonAnonymousMode 1 and SocksPort 0 to its torrc and restart it, or leave out --single",
            dir.display()
        ),
        (true, false) => bail!(
            "{}: its tor has single onion services only ({SINGLE} 1), which are not anonymous: add --single, or use another tor",
            dir.display()
        ),
        _ => Ok(()),
    }
}

/// Text of tor's error without the refused command, which contains the key.
fn without_key(error: ff_lab::Error) -> String {
    match error {
        ff_lab::Error::Refused { reply, .. } => format!("tor refuses the onion service: {reply}"),
        ff_lab::Error::Timeout { after, .. } => {
            format!("tor did not reply to ADD_ONION within {} s", after.as_secs())
        }
        error => error.to_string(),
    }
}

/// The key in a folder, if there is one.
fn known_key(keys: &Path) -> Result<Option<String>> {
    let path = keys.join(KEY);
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let bytes = secret_file::read(&path, MOST_BYTES)?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if !is_key(&text) {
        bail!(
            "{}: this is not the key of an onion service; remove the file to get a new address",
            path.display()
        );
    }
    Ok(Some(text))
}

/// Whether a text is a key in tor's form: the type, and 64 bytes in base64.
fn is_key(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    text.strip_prefix(KIND).is_some_and(|key| key.len() == 88 && key.bytes().all(is_digit))
}

/// Whether a text is an onion service's name without `.onion`; it is printed.
fn is_name(text: &str) -> bool {
    format!("{text}.onion").parse::<HsId>().is_ok()
}

/// Stores a new key with mode 0600.
fn keep_key(keys: &Path, key: &str) -> Result<()> {
    let path = keys.join(KEY);
    let failed = || format!("Failed to create {}", path.display());
    let mut file = tempfile::NamedTempFile::new_in(keys).with_context(failed)?;
    writeln!(file, "{key}").with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist_noclobber(&path).map(drop).with_context(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_key_is_kept_secret_and_read_again() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(known_key(dir.path()).expect("none"), None);
        let key = format!("{KIND}{}==", "aB+/".repeat(21) + "aB");
        keep_key(dir.path(), &key).expect("kept");
        assert_eq!(known_key(dir.path()).expect("it"), Some(key));
        let path = dir.path().join(KEY);
        assert_eq!(fs::metadata(&path).expect("it").permissions().mode() & 0o777, 0o600);
        let error = keep_key(dir.path(), "another").expect_err("there is one");
        assert!(error.to_string().contains(KEY), "{error:#}");
        fs::write(&path, "ED25519-V3:short\r\nQUIT").expect("a file");
        let error = known_key(dir.path()).expect_err("no key");
        assert!(error.to_string().contains("remove the file"), "{error:#}");
    }

    #[test]
    fn only_a_name_and_a_key_are_taken_from_a_tor() {
        // Name of the Tor Project's web site.
        let name = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid";
        assert!(is_name(name) && is_key(&format!("{KIND}{}", "A".repeat(88))));
        for odd in ["", "x", "\u{1b}[2J", &name.replacen('2', "3", 1)] {
            assert!(!is_name(odd) && !is_key(odd), "{odd:?}");
        }
    }

    #[test]
    fn a_tor_has_one_kind_of_onion_services() {
        let of = |is_single, wanted| check_mode(Path::new("/tor"), is_single, wanted);
        assert!(of(true, true).is_ok() && of(false, false).is_ok());
        let error = of(false, true).expect_err("not configured").to_string();
        assert!(
            error.contains("/tor") && error.contains("HiddenServiceNonAnonymousMode 1"),
            "{error}"
        );
        let error = of(true, false).expect_err("not anonymous").to_string();
        assert!(error.contains("add --single"), "{error}");
    }

    #[tokio::test]
    async fn a_key_that_is_in_use_is_asked_for_again_for_a_time() {
        let refused = |reply: &str| ff_lab::Error::Refused {
            command: "ADD_ONION".to_owned(),
            reply: reply.to_owned(),
        };
        for (reply, busy, times) in [
            ("550 Onion address collision", 1, 2),
            ("550 Onion address collision", u32::MAX, TRIES + 1),
            ("512 Invalid", u32::MAX, 1),
        ] {
            let ask = move |asked: &mut u32| {
                *asked += 1;
                if *asked > busy { Ok(7) } else { Err(refused(reply)) }
            };
            let (asked, found) = when_free(Duration::ZERO, 0, ask).await.expect("an answer");
            assert!(asked == times && found.is_ok() == (busy == 1), "{reply}: {asked}, {found:?}");
        }
    }

    #[tokio::test]
    async fn others_run_while_tor_does_not_reply() {
        let (tell, told) = mpsc::channel();
        // Nothing is sent in time if waiting for tor blocks other tasks.
        let ask = |told: &mut mpsc::Receiver<()>| Ok(told.recv_timeout(Duration::from_secs(30)));
        let other = async { tell.send(()) };
        let (asked, sent) = tokio::join!(when_free(Duration::ZERO, told, ask), other);
        let (_told, reply) = asked.expect("an answer");
        assert_eq!((reply.expect("a reply"), sent), (Ok(()), Ok(())));
    }

    #[test]
    fn a_refusal_does_not_show_the_key() {
        let refused = ff_lab::Error::Refused {
            command: format!("ADD_ONION {KIND}secret"),
            reply: "512 Invalid".to_owned(),
        };
        let text = without_key(refused);
        assert!(text.contains("512 Invalid") && !text.contains("secret"), "{text}");
    }
}
