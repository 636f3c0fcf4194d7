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
    /// Use only this network interface, such as eth1; it need not be the client's. Needs root.
    #[arg(long, value_name = "INTERFACE", value_parser = NonEmptyStringValueParser::new())]
    pub interface: Option<String>,
    /// Also serve as an onion service, on port 80: through Arti over --network, or through the tor
    /// in --by. Prints its URL as well.
    #[arg(long)]
    pub onion: bool,
    /// Have a tor publish the onion service: the directory of a tor with a control socket named
    /// `control` (cookie authentication works). It ends with this program.
    #[arg(long, value_name = "tor:DIR", requires = "onion", value_parser = by)]
    pub by: Option<PathBuf>,
    /// Publish a single onion service, which is faster but not anonymous: its tor builds one-hop
    /// circuits. The tor in --by must be configured for it.
    #[arg(long, requires = "by")]
    pub single: bool,
    /// Keep the onion service's key in this folder, with mode 0600: the address stays the same
    /// after a restart. It also holds Arti's guards and documents. Without it, each start has a
    /// new address.
    #[arg(long, value_name = "DIR", requires = "onion")]
    pub keys: Option<PathBuf>,
    /// The network of Arti's onion service, as for `downloads run`: the data directory of a tor in
    /// it, a directory with several of these, a consensus file with its microdescriptors in the
    /// same directory, or `public`.
    #[arg(long, value_name = "DIR|FILE|public", requires = "onion", conflicts_with = "by")]
    pub network: Option<PathBuf>,
    /// Allow a network with relays on the Internet. Read ETHICS.md first.
    #[arg(long, requires = "network")]
    pub public: bool,
    /// Print the URLs as one JSON object on one line: {"url": …, "onion": …}.
    #[arg(long)]
    pub json: bool,
    /// Keep the token in this file, created with mode 0600 if missing: the URL stays the same after
    /// a restart. Without it, each start has a new token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Largest download: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = some_bytes)]
    pub most: u64,
    /// Maximum number of simultaneous downloads.
    #[arg(long, value_name = "NUMBER", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=32))]
    pub downloads: u16,
    /// Time limit of a download in seconds; longer ones are cut off, so that slow clients do not
    /// keep others out.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Limit of all downloads together, per second: bytes, or with KiB, MiB, kB, MB; default:
    /// unlimited.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    pub rate: Option<u64>,
}

/// Parses the directory of the tor that publishes the onion service.
fn by(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("tor:") {
        Some(dir) if !dir.is_empty() => Ok(PathBuf::from(dir)),
        _ => Err("write tor:DIR, with the data directory of a tor".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_by_a_tor_in_a_directory() {
        assert_eq!(by("tor:/a:b"), Ok(PathBuf::from("/a:b")));
        for odd in ["", "tor", "tor:", "arti:/a", "/a"] {
            assert!(by(odd).is_err_and(|error| error.contains("tor:DIR")), "{odd}");
        }
    }
}
