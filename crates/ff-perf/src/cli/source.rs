//! Options of `source`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::measure::some_bytes;

/// Options of `source`.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// Listen at this address; port 0 is a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Listen and answer on this network interface only, such as eth1: not on the client's link. Needs root.
    #[arg(long, value_name = "INTERFACE", value_parser = NonEmptyStringValueParser::new())]
    pub interface: Option<String>,
    /// Keep the token in this file, created with mode 0600 if missing: the URL stays the same after a restart. Without it,
    /// each start has a new token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Largest download: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = some_bytes)]
    pub most: u64,
    /// Number of downloads at once, at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=32))]
    pub downloads: u16,
    /// How long a download may take, in seconds; then it is cut off, so that slow readers do not keep others out.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Limit of all downloads together, per second: bytes, or with KiB, MiB, kB, MB; default: unlimited.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    pub rate: Option<u64>,
}
