//! Options of `init`, `run` and `generate`.

use std::path::PathBuf;

use clap::Args;

/// The directory of a coordinator's store, caches and bandwidth files.
pub const STATE_DIR: &str = "/var/lib/flashflow";

/// Options of `init`.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// Write the key, the secret and bwauth.toml into this directory; created if missing.
    #[arg(long, value_name = "DIR", default_value = "/etc/flashflow")]
    pub dir: PathBuf,
    /// The directory of the store and the caches.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
}

/// Options of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The config, as `ff-bwauth init` writes it.
    #[arg(long, value_name = "FILE", default_value = "/etc/flashflow/bwauth.toml")]
    pub config: PathBuf,
    /// Check the config, the key, the secret, the store, the directories and the page's address,
    /// then exit.
    ///
    /// Exit status 1 if `run` would fail with one of them. Changes nothing; a coordinator may be
    /// running with the same config.
    #[arg(long)]
    pub check: bool,
    /// Check the config without reading the key or the secret, then exit. `systemctl reload` does
    /// this first.
    #[arg(long, conflicts_with_all = ["check", "new_store"])]
    pub check_config: bool,
    /// Move a damaged store aside and create a new one. Fails if the store is not damaged. The new
    /// store takes from the copy STORE.grants which relays were asked, so that none is asked too
    /// often.
    #[arg(long)]
    pub new_store: bool,
}

/// Options of `generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Write the directories man, completions and examples into this directory; created if missing.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
