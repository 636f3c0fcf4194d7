//! Options of `source`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::downloads::some_bytes;

/// Options of `source`.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// Where it listens; port 0 is a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Listen and answer on this network interface alone, as eth1: another link than the client's. Needs root.
    #[arg(long, value_name = "INTERFACE", value_parser = NonEmptyStringValueParser::new())]
    pub interface: Option<String>,
    /// The file with the token, made if it is not there, with mode 0600: the same URL after a restart. Without it each start
    /// has a new one.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How much one download may have: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = some_bytes)]
    pub most: u64,
    /// How many downloads may go on at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=32))]
    pub downloads: u16,
    /// How long one may take, in seconds; then it is cut off, so that slow readers do not keep others out.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// How much may be given in a second, in all: bytes, or with KiB, MiB, kB, MB; without it as much as goes.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    pub rate: Option<u64>,
}
