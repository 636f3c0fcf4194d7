//! The commands `init` and `run`.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, Config, count};
use crate::console::{note, print};
use crate::key;
use crate::measurer::measurer_id;
use crate::service::server::{Service, Settings};
use crate::task::Host;

/// The default port of a measurer.
pub const PORT: u16 = 9230;
/// How long running measurements may take to end when the service ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `init`.
#[derive(Args, Debug)]
pub struct InitOptions {
    /// Write the key and measurer.toml into this directory; created if missing.
    #[arg(long, value_name = "DIR", default_value = "/etc/flashflow")]
    pub dir: PathBuf,
    /// Address at which coordinators will reach this host.
    #[arg(long, value_name = "IP:PORT",
          default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT))]
    pub listen: SocketAddr,
}

/// Options of `run`.
#[derive(Args, Debug)]
pub struct RunOptions {
    /// The config, as `ff-measurer init` writes it.
    #[arg(long, value_name = "FILE", default_value = "/etc/flashflow/measurer.toml")]
    pub config: PathBuf,
    /// Check the config, the key, the cores and the address, then exit.
    ///
    /// Exit status 1 if `run` would fail with one of them. A service may be running with the same
    /// config.
    #[arg(long)]
    pub check: bool,
    /// Check the config without reading the key, then exit. `systemctl reload` does this first.
    #[arg(long, conflicts_with = "check")]
    pub check_config: bool,
}

/// Makes a key and a config, and prints the lines for a coordinator's config.
pub(super) fn init(options: &InitOptions) -> Result<ExitCode> {
    let dir = &options.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("Failed to make {}", dir.display()))?;
    let key = key::load_or_make(&dir.join("measurer.key"))?;
    let path = dir.join("measurer.toml");
    if path.exists() {
        note(&format!("{} exists and is left unchanged", path.display()));
    } else {
        write_new(&path, &config::template(options.listen))?;
        note(&format!("wrote {}: check its limits and add a coordinator", path.display()));
    }
    note("in the coordinator's config, with an address that it can reach:");
    let identity = key::identity_text(&measurer_id(&key));
    let host = if options.listen.ip().is_unspecified() {
        format!("HOST:{}", options.listen.port())
    } else {
        options.listen.to_string()
    };
    print(&format!(
        "[[measurer]]\nname = \"NAME\"\naddress = \"{host}\"\nidentity = \"{identity}\"\n\
         capacity = \"1Gbit\"\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a new file that all users may read: the service has a user of its own.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("Failed to write {}", path.display());
    let dir = path.parent().unwrap_or(Path::new("."));
    let readable = Permissions::from_mode(0o644);
    let file = tempfile::Builder::new().permissions(readable).tempfile_in(dir);
    let file = file.with_context(failed)?;
    std::fs::write(file.path(), text).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist_noclobber(path).with_context(failed)?;
    Ok(())
}

/// Serves coordinators until a signal ends it.
pub(super) fn run(options: &RunOptions) -> Result<ExitCode> {
    let config = Config::load(&options.config)?;
    let settings = config.settings()?;
    check(&config, &settings).with_context(|| options.config.display().to_string())?;
    if options.check_config {
        print(&format!("{} is valid\n", options.config.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let key = key::load(&config.key)?;
    if options.check {
        if !config::is_free("listen", config.listen)? {
            let addr = config.listen;
            note(&format!(
                "ff-measurer: {addr} is in use: correct only if this service is running"
            ));
        }
        let (coordinators, limits) = (settings.coordinators.len(), &settings.limits);
        print(&format!(
            "{} is valid: {}, {} at once over {}\n",
            options.config.display(),
            count(coordinators, "coordinator"),
            count(limits.relays_at_once.into(), "relay"),
            count(limits.links as usize, "link"),
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let cores = if config.cores.is_empty() { all_cores() } else { config.cores.clone() };
    let service = Service::new(Host::new(key, cores), settings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("Failed to start a runtime")?;
    runtime.block_on(serve(service, &config, &options.config))?;
    // Does not wait for workers' threads that do not end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

/// Fails if a service could not work with these settings.
fn check(config: &Config, settings: &Settings) -> Result<()> {
    if settings.coordinators.is_empty() {
        bail!(
            "there is no [[coordinator]] table, so no coordinator can connect: add the lines that `ff-bwauth init` prints"
        );
    }
    let usable = all_cores();
    for (index, core) in config.cores.iter().enumerate() {
        // If the system does not list its cores, any may exist.
        if !usable.is_empty() && !usable.contains(core) {
            bail!("cores names {core}, which this host does not have or this process may not use");
        }
        if config.cores[..index].contains(core) {
            bail!("cores names {core} twice: each core has one thread");
        }
    }
    Ok(())
}

/// The processor cores of this host.
fn all_cores() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}

/// Serves until SIGTERM or SIGINT; on SIGHUP, reads the config again.
async fn serve(service: Arc<Service>, config: &Config, path: &Path) -> Result<()> {
    let failed = || format!("Failed to listen at {}", config.listen);
    let listener = TcpListener::bind(config.listen).await.with_context(failed)?;
    let addr = listener.local_addr().with_context(failed)?;
    let mut serving = tokio::spawn(service.clone().serve(listener));
    let mut hangup = signal(SignalKind::hangup()).context("Failed to listen for SIGHUP")?;
    let mut terminate = signal(SignalKind::terminate()).context("Failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("Failed to listen for SIGINT")?;
    let mut watchdog = tokio::time::interval(watchdog_period());
    tracing::info!(%addr, "ready");
    note(&format!("ff-measurer: listening at {addr}"));
    notify(&[NotifyState::Ready]);
    loop {
        tokio::select! {
            result = &mut serving => {
                return result.context("The service failed")?.context("The service ended");
            }
            _ = watchdog.tick() => notify(&[NotifyState::Watchdog]),
            _ = hangup.recv() => reload(&service, path),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    notify(&[NotifyState::Stopping]);
    tracing::info!(relays = service.relays(), "ending");
    service.end();
    // Connections that do not end by themselves are closed.
    let _ = tokio::time::timeout(END_TIMEOUT, serving).await;
    Ok(())
}

/// Adopts the changes of a config; an invalid one changes nothing.
fn reload(service: &Service, path: &Path) {
    match read_again(path) {
        Ok(settings) => {
            tracing::info!("the config has been reloaded");
            service.set(settings);
        }
        Err(error) => tracing::error!("the old config stays in use: {error:#}"),
    }
}

/// The settings that a running service can adopt from a config that `run --check` accepts.
fn read_again(path: &Path) -> Result<Settings> {
    let config = Config::load(path)?;
    let settings = config.settings()?;
    check(&config, &settings)?;
    Ok(settings)
}

/// The interval of messages to systemd's watchdog: half of the one that it requires.
#[must_use]
pub fn watchdog_period() -> Duration {
    let period = sd_notify::watchdog_enabled();
    period.map_or(Duration::from_secs(3600), |period| (period / 2).max(Duration::from_millis(100)))
}

/// Notifies systemd, if it runs.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::ids::Ed25519Id;

    use super::*;

    /// The problem that `run --check` finds in the config of `init` with this replacement and this
    /// addition.
    fn problem(from: &str, to: &str, more: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("a directory");
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        init(&InitOptions { dir: dir.path().to_owned(), listen }).expect("made");
        let path = dir.path().join("measurer.toml");
        let text = std::fs::read_to_string(&path).expect("a config");
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, format!("{}{more}", text.replacen(from, to, 1))).expect("written");
        let found = run(&RunOptions { config: path, check: true, check_config: false });
        found.err().map(|error| format!("{error:#}"))
    }

    /// The table of a coordinator.
    fn table(name: &str, number: u8) -> String {
        let identity = key::identity_text(&Ed25519Id([number; 32]));
        format!("[[coordinator]]\nname = '{name}'\nidentity = '{identity}'\n")
    }

    #[test]
    fn a_config_without_coordinators_is_not_taken_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        init(&InitOptions { dir: dir.path().to_owned(), listen }).expect("made");
        let path = dir.path().join("measurer.toml");
        let error = read_again(&path).expect_err("no coordinator could connect");
        assert!(error.to_string().contains("there is no [[coordinator]] table"), "{error:#}");
        let text = std::fs::read_to_string(&path).expect("a config");
        std::fs::write(&path, format!("{text}{}", table("a", 1))).expect("written");
        assert_eq!(read_again(&path).expect("valid").coordinators.len(), 1);
    }

    #[test]
    fn a_config_is_checked_without_its_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        init(&InitOptions { dir: dir.path().to_owned(), listen }).expect("made");
        std::fs::remove_file(dir.path().join("measurer.key")).expect("removed");
        let path = dir.path().join("measurer.toml");
        let check_config =
            || run(&RunOptions { config: path.clone(), check: false, check_config: true });
        let error = check_config().expect_err("no coordinator could connect");
        let error = format!("{error:#}");
        assert!(error.contains("measurer.toml: there is no [[coordinator]]"), "{error}");
        let text = std::fs::read_to_string(&path).expect("a config");
        std::fs::write(&path, format!("{text}{}", table("a", 1))).expect("written");
        assert!(check_config().is_ok());
    }

    #[test]
    fn check_finds_what_run_refuses_or_cannot_work_with() {
        let one = table("a", 1);
        assert_eq!(problem("", "", &one), None);
        assert_eq!(problem("# cores = [0, 1]", "cores = []", &one), None);
        let untouched = problem("", "", "").expect("no coordinator can connect");
        assert!(untouched.contains("measurer.toml: there is no [[coordinator]]"), "{untouched}");
        for (from, to, part) in [
            ("\nlinks = 4096", "\nlinks = 0", "limits.links is 0"),
            ("\nrelays_at_once = 16", "\nrelays_at_once = 0", "limits.relays_at_once is 0"),
            ("# rate = \"1Gbit\"", "rate = \"0Mbit\"", "is not a rate"),
            ("# hours = \"22:00-06:00\"", "hours = \"22-6\"", "22:00-06:00"),
            ("127.0.0.1:0", "127.0.0.1", "line 4: "),
            ("127.0.0.1:0", "127.0.0.1:99999", "line 4: "),
            ("127.0.0.1:0", "http://127.0.0.1:9230", "line 4: "),
            ("127.0.0.1:0", "0.0.0.0:0", "a port that changes"),
            ("127.0.0.1:0", "192.0.2.1:9230", "this host cannot listen"),
            ("\"measurer.key\"", "\"other.key\"", "does not exist; make it with"),
            ("\"measurer.key\"", "\"measurer.toml\"", "measurer.toml"),
            ("# cores = [0, 1]", "cores = [100000]", "cores names 100000"),
            ("[limits]", "[limit]", "unknown field `limit`"),
        ] {
            let found = problem(from, to, &one).unwrap_or_else(|| panic!("{to} is not found"));
            assert!(found.contains(part), "{found}, not {part}");
        }
        let core = all_cores().first().copied().unwrap_or_default();
        let twice = problem("# cores = [0, 1]", &format!("cores = [{core}, {core}]"), &one);
        let twice = twice.expect("it is there twice");
        assert!(twice.contains(&format!("cores names {core} twice")), "{twice}");
        let same = problem("", "", &format!("{one}{}", table("b", 1))).expect("one identity");
        assert!(same.contains("the identity of another"), "{same}");
    }
}
