//! `source`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use ff_bwauth::http;
use tokio::net::{TcpListener, TcpSocket};

use crate::cli::source::SourceArgs;
use crate::signals::Signals;
use crate::source::{Limits, Source, Token};

/// How long somebody may take nothing of a download: more than the gaps of mobile links.
const STALL: Duration = Duration::from_secs(120);
/// How many connections wait to be accepted.
const BACKLOG: u32 = 128;

/// Gives bytes until a signal.
///
/// # Errors
/// When it cannot begin.
pub(super) fn run(args: &SourceArgs) -> Result<ExitCode> {
    let token = args.token_file.as_deref().map_or_else(|| Ok(Token::new()), token)?;
    let limits = Limits {
        download_bytes: args.most,
        downloads: usize::from(args.downloads),
        bytes_per_sec: args.rate,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start the runtime")?;
    let (whole, bytes) = runtime.block_on(async {
        let mut signals = Signals::listen().context("Failed to listen for signals")?;
        let listener = listen(args.listen, args.interface.as_deref())?;
        let at = listener.local_addr().context("Failed to learn the port")?;
        super::show(&format!("http://{at}/{}\n", token.as_str()))?;
        let source = Source::new(token, limits);
        tokio::select! {
            never = http::serve_to_all(listener, source.router(), STALL) => match never {},
            () = signals.recv() => Ok::<_, anyhow::Error>(Arc::clone(&source).given()),
        }
    })?;
    super::client::say(&format!("{whole} whole downloads, {bytes} bytes in all"));
    Ok(ExitCode::SUCCESS)
}

/// Listens, on one interface if that is wished.
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

/// The token of a file, which is made if it is not there.
fn token(path: &Path) -> Result<Token> {
    let failed = || path.display().to_string();
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match new {
        Ok(mut file) => {
            let token = Token::new();
            writeln!(file, "{}", token.as_str()).with_context(failed)?;
            Ok(token)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mode = fs::metadata(path).with_context(failed)?.permissions().mode();
            if mode & 0o077 != 0 {
                bail!("{}: others can read it: chmod 600 it", path.display());
            }
            let text = fs::read_to_string(path).with_context(failed)?;
            let wrong =
                |reason| anyhow!("{}: {reason}; remove it, and a new one is made", path.display());
            Token::read(&text).map_err(wrong)
        }
        Err(error) => Err(error).with_context(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
