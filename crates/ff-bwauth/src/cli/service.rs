//! What `init` and `run` take.

use std::path::PathBuf;

use clap::Args;

/// Options of `init`.
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// Where the key, the secret and bwauth.toml go; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "/etc/flashflow")]
    pub dir: PathBuf,
    /// Where the store and the caches will be.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/flashflow")]
    pub state_dir: PathBuf,
}

/// Options of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The config, which `ff-bwauth init` makes.
    #[arg(long, value_name = "FILE", default_value = "/etc/flashflow/bwauth.toml")]
    pub config: PathBuf,
    /// Read the config, the key and the secret, say whether they are good, and end.
    #[arg(long)]
    pub check: bool,
    /// Move a damaged store aside and begin a new one. It does not know which relays have been asked in
    /// this period, so they may refuse.
    #[arg(long)]
    pub new_store: bool,
}
