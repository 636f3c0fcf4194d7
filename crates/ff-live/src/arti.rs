//! Arti's directory client, and what it needs around it.
//!
//! It finds its way into the network, keeps a directory of it up to date in its own cache, and
//! fetches certificates and microdescriptors. Consensuses as text, those of the flavour ns, and
//! server descriptors are not to be had through it: [`super::server`] asks for them over its
//! channels.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tor_chanmgr::{ChanMgr, ChanMgrConfig, Dormancy};
use tor_circmgr::{CircMgr, CircMgrConfig, CircuitTiming, PathConfig, PreemptiveCircuitConfig};
use tor_dircommon::config::NetworkConfig;
use tor_dircommon::fallback::FallbackList;
use tor_dirmgr::{DirMgr, DirMgrConfig, DirMgrStore};
use tor_guardmgr::bridge::BridgeConfig;
use tor_guardmgr::{GuardMgr, GuardMgrConfig, VanguardConfig};
use tor_memquota::MemoryQuotaTracker;
use tor_netdir::params::NetParameters;
use tor_netdir::{NetDir, NetDirProvider, Timeliness};
use tor_persist::{FsStateMgr, StateMgr};
use tor_rtcompat::PreferredRuntime;
use tor_rtcompat::scheduler::TaskHandle;

use super::error::DirectoryError;

/// How long to wait between two looks at whether there is a directory.
const NAP: Duration = Duration::from_millis(50);

/// Arti's directory client.
pub(super) struct Arti {
    /// It.
    pub(super) dirs: Arc<DirMgr<PreferredRuntime>>,
    /// What makes channels to servers.
    pub(super) channels: Arc<ChanMgr<PreferredRuntime>>,
    /// Keeps the tasks going that belong to both.
    _tasks: Vec<TaskHandle>,
}

/// What its parts ask for.
struct Config {
    /// Servers for the beginning.
    fallbacks: FallbackList,
    /// Rules for paths, which are of one hop here.
    paths: PathConfig,
    /// Rules for circuits' times.
    timing: CircuitTiming,
    /// Circuits that are built ahead: none.
    ahead: PreemptiveCircuitConfig,
    /// Rules for onion services.
    vanguards: VanguardConfig,
}

impl Arti {
    /// Starts it; it is not in the network yet.
    pub(super) fn start(
        runtime: &PreferredRuntime,
        network: &NetworkConfig,
        cache_dir: &Path,
        state_dir: &Path,
    ) -> Result<Self, DirectoryError> {
        let failed = |path: &Path, error: &dyn core::fmt::Display| DirectoryError::Arti {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let mistrust = fs_mistrust::Mistrust::new();
        let state = FsStateMgr::from_path_and_mistrust(state_dir, &mistrust)
            .map_err(|error| failed(state_dir, &error))?;
        // Without the lock it only reads there, which does no harm.
        let _ = state.try_lock().map_err(|error| failed(state_dir, &error))?;
        let config = Config::new(network)?;
        let dir_config = DirMgrConfig {
            cache_dir: cache_dir.to_owned(),
            cache_trust: mistrust,
            network: network.clone(),
            schedule: Default::default(),
            tolerance: Default::default(),
            override_net_params: Default::default(),
            extensions: Default::default(),
        };
        let wrong = |error: &dyn core::fmt::Display| failed(cache_dir, error);
        let channels = ChanMgr::new(
            runtime.clone(),
            ChanMgrConfig::default(),
            Dormancy::Active,
            &NetParameters::default(),
            MemoryQuotaTracker::new_noop(),
        );
        let channels = Arc::new(channels.map_err(|error| wrong(&error))?);
        let guards = GuardMgr::new(runtime.clone(), state.clone(), &config);
        let guards = guards.map_err(|error| wrong(&error))?;
        let circuits =
            CircMgr::new(&config, state.clone(), runtime, Arc::clone(&channels), &guards);
        let circuits = Arc::new(circuits.map_err(|error| wrong(&error))?);
        let store = DirMgrStore::new(&dir_config, runtime.clone(), false);
        let store = store.map_err(|error| wrong(&error))?;
        let dirs = DirMgr::create_unbootstrapped(
            dir_config,
            runtime.clone(),
            store,
            Arc::clone(&circuits),
        );
        let dirs = dirs.map_err(|error| wrong(&error))?;
        let provider: Arc<dyn NetDirProvider> = Arc::clone(&dirs) as _;
        let mut tasks = channels
            .launch_background_tasks(runtime, Arc::clone(&provider))
            .map_err(|error| wrong(&error))?;
        tasks.extend(
            circuits
                .launch_background_tasks(runtime, &provider, state)
                .map_err(|error| wrong(&error))?,
        );
        Ok(Self { dirs, channels, _tasks: tasks })
    }

    /// The directory that it has, waiting for one until the deadline. It may be old: its relays
    /// still tell where newer ones are.
    pub(super) async fn directory(&self, deadline: Instant) -> Result<Arc<NetDir>, DirectoryError> {
        // This begins to fetch one, and does nothing if that goes on already.
        let begun = timeout_at(deadline, self.dirs.bootstrap()).await;
        loop {
            if let Ok(directory) = self.dirs.netdir(Timeliness::Unchecked) {
                return Ok(directory);
            }
            if Instant::now() >= deadline {
                let status = self.status();
                let status = match begun {
                    Ok(Err(error)) => format!("{status}; {error}"),
                    _ => status,
                };
                return Err(DirectoryError::NotBootstrapped { status });
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + NAP)).await;
        }
    }

    /// How far it has come.
    fn status(&self) -> String {
        use futures::{FutureExt as _, StreamExt as _};

        let status = self.dirs.bootstrap_events().next().now_or_never().flatten();
        status.map_or_else(|| "it has not begun".to_owned(), |status| status.to_string())
    }
}

impl Config {
    /// For this network.
    fn new(network: &NetworkConfig) -> Result<Self, DirectoryError> {
        let failed = |error: tor_config::ConfigBuildError| {
            DirectoryError::config("network", error.to_string())
        };
        let mut ahead = PreemptiveCircuitConfig::builder();
        ahead.disable_at_threshold(0);
        Ok(Self {
            fallbacks: network.fallback_caches().clone(),
            paths: PathConfig::builder().build().map_err(failed)?,
            timing: CircuitTiming::builder().build().map_err(failed)?,
            ahead: ahead.build().map_err(failed)?,
            vanguards: VanguardConfig::default(),
        })
    }
}

impl AsRef<FallbackList> for Config {
    fn as_ref(&self) -> &FallbackList {
        &self.fallbacks
    }
}

impl AsRef<[BridgeConfig]> for Config {
    fn as_ref(&self) -> &[BridgeConfig] {
        &[]
    }
}

impl AsRef<PathConfig> for Config {
    fn as_ref(&self) -> &PathConfig {
        &self.paths
    }
}

impl AsRef<CircuitTiming> for Config {
    fn as_ref(&self) -> &CircuitTiming {
        &self.timing
    }
}

impl AsRef<PreemptiveCircuitConfig> for Config {
    fn as_ref(&self) -> &PreemptiveCircuitConfig {
        &self.ahead
    }
}

impl AsRef<VanguardConfig> for Config {
    fn as_ref(&self) -> &VanguardConfig {
        &self.vanguards
    }
}

impl GuardMgrConfig for Config {
    fn bridges_enabled(&self) -> bool {
        false
    }
}

impl CircMgrConfig for Config {}
