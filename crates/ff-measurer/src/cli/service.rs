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

use crate::config::{self, Config};
use crate::console::{note, print};
use crate::key;
use crate::measurer::measurer_id;
use crate::service::server::Service;
use crate::task::Host;

/// The port of a measurer, unless its operator chooses another one.
pub const PORT: u16 = 9230;
/// How long running measurements have to end when the service does.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `init`.
#[derive(Args, Debug)]
pub struct InitOptions {
    /// Where the key and measurer.toml go; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "/etc/flashflow")]
    pub dir: PathBuf,
    /// Where coordinators will reach this host.
    #[arg(long, value_name = "IP:PORT",
          default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT))]
    pub listen: SocketAddr,
}

/// Options of `run`.
#[derive(Args, Debug)]
pub struct RunOptions {
    /// The config, which `ff-measurer init` makes.
    #[arg(long, value_name = "FILE", default_value = "/etc/flashflow/measurer.toml")]
    pub config: PathBuf,
    /// Read the config and the key, say whether they are good, and end.
    #[arg(long)]
    pub check: bool,
}

/// Makes a key and a config, and prints what a coordinator's operator needs.
pub(super) fn init(options: &InitOptions) -> Result<ExitCode> {
    let dir = &options.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("Failed to make {}", dir.display()))?;
    let key = key::load_or_make(&dir.join("measurer.key"))?;
    let path = dir.join("measurer.toml");
    if path.exists() {
        note(&format!("{} is there already and stays as it is", path.display()));
    } else {
        write_new(&path, &config::template(options.listen))?;
        note(&format!("wrote {}: look at its limits and add a coordinator", path.display()));
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

/// Writes a file that is not there yet, which everybody may read: the service has a user of its own.
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
    let key = key::load(&config.key)?;
    let settings = config.settings()?;
    if options.check {
        let (count, limits) = (settings.coordinators.len(), &settings.limits);
        print(&format!(
            "{} is good: {count} coordinators, {} relays at once over {} links\n",
            options.config.display(),
            limits.relays_at_once,
            limits.links,
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    if settings.coordinators.is_empty() {
        bail!("{} names no coordinator, so nobody could give work", options.config.display());
    }
    let cores = if config.cores.is_empty() { all_cores() } else { config.cores.clone() };
    let service = Service::new(Host::new(key, cores), settings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("Failed to start a runtime")?;
    runtime.block_on(serve(service, &config, &options.config))?;
    // Workers' threads that do not end are not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

/// The processor cores of this machine.
fn all_cores() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}

/// Serves until SIGTERM or SIGINT; SIGHUP has the config read again.
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
    // Connections that do not end by themselves are cut.
    let _ = tokio::time::timeout(END_TIMEOUT, serving).await;
    Ok(())
}

/// Takes over what has changed in the config; a bad one changes nothing.
fn reload(service: &Service, path: &Path) {
    match Config::load(path).and_then(|config| config.settings()) {
        Ok(settings) => {
            tracing::info!("the config has been read again");
            service.set(settings);
        }
        Err(error) => tracing::error!("the old config stays: {error:#}"),
    }
}

/// How often systemd's watchdog wants to hear of us, twice as often as it must.
#[must_use]
pub fn watchdog_period() -> Duration {
    let period = sd_notify::watchdog_enabled();
    period.map_or(Duration::from_secs(3600), |period| (period / 2).max(Duration::from_millis(100)))
}

/// Tells systemd, if it is there.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("systemd cannot be told: {error}");
    }
}
