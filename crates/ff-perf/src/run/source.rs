//! The command `source`.

mod onion;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use ff_measurer::secret_file;
use ff_operator::http;
use tokio::net::{TcpListener, TcpSocket};

use crate::cli::source::SourceArgs;
use crate::signals::Signals;
use crate::source::{Source, SourceLimits, Token};
use onion::Onion;

/// Longest time for which a client may read nothing. Progress is noticed late: a socket accepts
/// more when a third of its buffer is free, up to 4 MiB, so 120 s cut off a client that read 6 kB/s
/// all the time.
const STALL: Duration = Duration::from_secs(300);
/// Most connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// Longest file of a token, in bytes; a longer file is something else.
const MOST_BYTES: u64 = 4096;

/// Serves downloads until a signal.
///
/// # Errors
/// If it cannot start.
pub(super) fn run(args: &SourceArgs) -> Result<ExitCode> {
    let token = args.token_file.as_deref().map_or_else(|| Ok(Token::new()), token)?;
    let limits = SourceLimits {
        download_bytes: args.most,
        downloads: usize::from(args.downloads),
        bytes_per_sec: args.rate,
        time: Duration::from_secs(args.timeout),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start the runtime")?;
    let served = runtime.block_on(async {
        let mut signals = Signals::listen().context("Failed to listen for signals")?;
        let listener = listen(args.listen, args.interface.as_deref())?;
        let at = listener.local_addr().context("Failed to get the port")?;
        let onion = Onion::start(args, &mut signals).await?;
        super::output::show(&urls(at, onion.address(), &token, args.json))?;
        let source = Source::new(token, limits);
        tokio::select! {
            never = http::serve_to_all(listener, source.router(), STALL) => match never {},
            ended = onion.serve(source.router(), STALL) => ended.map(|()| source.given()),
            () = signals.recv() => Ok::<_, anyhow::Error>(source.given()),
        }
    });
    // A thread may still wait for tor's reply, which is no longer needed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let (whole, bytes) = served?;
    super::client::say(&format!("{whole} complete downloads, {bytes} bytes in all"));
    Ok(ExitCode::SUCCESS)
}

/// The URLs for clients, as printed.
fn urls(at: SocketAddr, onion: Option<&str>, token: &Token, is_json: bool) -> String {
    let url = |place: &str| format!("http://{place}/{}", token.as_str());
    let (direct, onion) = (url(&at.to_string()), onion.map(url));
    if is_json {
        return format!("{}\n", serde_json::json!({ "url": direct, "onion": onion }));
    }
    onion.map_or_else(|| format!("{direct}\n"), |onion| format!("{direct}\n{onion}\n"))
}

/// Listens, on one interface only if given.
fn listen(address: SocketAddr, interface: Option<&str>) -> Result<TcpListener> {
    let failed = || format!("Failed to listen at {address}");
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.with_context(failed)?;
    socket.set_reuseaddr(true).with_context(failed)?;
    if let Some(name) = interface {
        socket.bind_device(Some(name.as_bytes())).with_context(|| {
            format!("Failed to listen on interface {name} alone: is there one of that name (`ip link`), and are you root?")
        })?;
    }
    socket.bind(address).with_context(failed)?;
    socket.listen(BACKLOG).with_context(failed)
}

/// Token in a file, which is created if missing.
fn token(path: &Path) -> Result<Token> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => new_token(path),
        _ => known_token(path),
    }
}

/// Creates a token in a file. If two sources create it at once, both get the first one's token.
fn new_token(path: &Path) -> Result<Token> {
    let failed = || format!("Failed to create {}", path.display());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let token = Token::new();
    let mut file = tempfile::NamedTempFile::new_in(dir).with_context(failed)?;
    writeln!(file, "{}", token.as_str()).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(token),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => known_token(path),
        Err(error) => Err(error.error).with_context(failed),
    }
}

/// Token in an existing file, which others must not be able to read.
fn known_token(path: &Path) -> Result<Token> {
    let bytes = secret_file::read(path, MOST_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let wrong =
        |reason| anyhow!("{}: {reason}; remove the file to have a new one created", path.display());
    Token::read(text.trim_start_matches('\u{feff}')).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_urls_are_lines_or_json() {
        let token = Token::read(&"0".repeat(32)).expect("a token");
        let at = "127.0.0.1:5".parse().expect("an address");
        let direct = format!("http://127.0.0.1:5/{}", token.as_str());
        assert_eq!(urls(at, None, &token, false), format!("{direct}\n"));
        let onion = format!("http://x.onion/{}", token.as_str());
        assert_eq!(urls(at, Some("x.onion"), &token, false), format!("{direct}\n{onion}\n"));
        let text = urls(at, Some("x.onion"), &token, true);
        let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(told, serde_json::json!({ "url": direct, "onion": onion }));
        assert!(urls(at, None, &token, true).contains("\"onion\":null"));
    }

    #[test]
    fn a_token_is_made_once_and_kept_secret() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let made = token(&path).expect("a token");
        assert_eq!(fs::metadata(&path).expect("it").permissions().mode() & 0o777, 0o600);
        assert_eq!(token(&path).expect("it").as_str(), made.as_str());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
        let error = token(&path).expect_err("others read it");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        fs::write(&path, "short").expect("a file");
        let error = token(&path).expect_err("no token");
        assert!(error.to_string().contains("token") && error.to_string().contains("32"), "{error}");
        fs::write(&path, format!("\u{feff}{}\r\n", made.as_str())).expect("a file");
        assert_eq!(token(&path).expect("it").as_str(), made.as_str(), "written on Windows");
    }

    #[test]
    fn a_token_that_is_handed_over_is_taken_and_no_other_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let made = token(&path).expect("a token");
        // As systemd does; tempfile's directories are closed to others.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).expect("a mode");
        assert_eq!(token(&path).expect("it").as_str(), made.as_str());
        let link = dir.path().join("link");
        symlink(dir.path().join("none"), &link).expect("a link");
        for (odd, said) in [(&link, "link"), (&dir.path().to_owned(), "")] {
            let error = token(odd).expect_err("no file");
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("names").count(), 2, "nothing else is made");
    }

    #[test]
    fn sources_that_begin_at_once_have_one_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        // The file did not exist when they checked.
        let [one, other] = [(); 2].map(|()| new_token(&path).expect("a token"));
        assert_eq!(one.as_str(), other.as_str());
        assert_eq!(fs::read_dir(dir.path()).expect("names").count(), 1);
    }
}
