//! Options of `status`, `explain` and `doctor`.

use std::path::PathBuf;

use clap::Args;

/// The path at which the packages install the config.
pub(super) const CONFIG: &str = "/etc/flashflow/bwauth.toml";

/// Options of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// The coordinator's config, which says where its page and its store are.
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,
    /// Address of the page, such as http://127.0.0.1:9231, instead of the config's.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub page: Option<String>,
    /// Print one JSON object: is_running, is_young, problems, and status or the contents of the
    /// store.
    #[arg(long)]
    pub json: bool,
}

/// Options of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The relay: its fingerprint or the beginning of that, or its nickname or a part of that.
    #[arg(value_name = "FINGERPRINT|NICKNAME")]
    pub relay: String,
    /// The coordinator's config.
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The coordinator's config.
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,
    /// Print a JSON object for each check, one per line.
    #[arg(long)]
    pub json: bool,
}
