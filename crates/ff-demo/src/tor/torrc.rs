//! The torrc of the demo's tor: a relay that keeps to itself on loopback.
//!
//! It listens on a port of its own choosing on 127.0.0.1, publishes nothing, and knows one
//! directory authority, at a port where nobody listens. So it never bootstraps and sends nothing
//! to the outside, yet it accepts links and answers what comes over them.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ff_proto::units::BytesPerSec;

/// The first line, by which a data directory is recognised as a demo's.
pub(super) const MARK: &str = "# The torrc of `ff-demo --tor`; the next demo removes it.\n";

/// The log's name in the data directory.
pub(super) const LOG: &str = "log";

/// Identity of the directory authority that does not exist.
const NOBODY: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

/// The file for a relay with this data directory, FlashFlow's options by name, and this limit.
pub(super) fn text(
    data_dir: &Path,
    options: &[(&'static str, String)],
    limit: Option<BytesPerSec>,
) -> String {
    let mut text = format!(
        "{MARK}\
         DataDirectory {dir}\n\
         Log {log}\n\
         Nickname ffdemo\n\
         Address 127.0.0.1\n\
         ORPort 127.0.0.1:auto\n\
         SocksPort 0\n\
         ExitPolicy reject *:*\n\
         AssumeReachable 1\n\
         PublishServerDescriptor 0\n\
         DirAuthority nobody orport=1 no-v2 v3ident={NOBODY} 127.0.0.1:1 {NOBODY}\n\
         # A Ctrl-C reaches tor as well, and there are no clients to wait for.\n\
         ShutdownWaitLength 0\n\
         # Traffic over loopback is limited and counted as any other.\n\
         CountPrivateBandwidth 1\n\
         # Should the demo be killed, tor notices and ends.\n\
         __OwningControllerProcess {pid}\n",
        dir = quoted("", data_dir),
        log = quoted("notice file ", &data_dir.join(LOG)),
        pid = std::process::id(),
    );
    // Without a limit it is tor's default of 1 GB/s, which is more than one core can do.
    if let Some(limit) = limit {
        // The burst is one second's worth, as the Arti relay's.
        let rate = limit.get();
        let _ = write!(text, "BandwidthRate {rate} bytes\nBandwidthBurst {rate} bytes\n");
    }
    for (name, value) in options {
        let _ = writeln!(text, "{name} {value}");
    }
    text
}

/// A value that ends with a path, in quotes: a path may contain what torrc gives a meaning.
fn quoted(before: &str, path: &Path) -> String {
    let mut text = format!("\"{before}");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            // Three octal digits, so that a digit after them is not taken for a fourth.
            _ => drop(write!(text, "\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use ff_relay_ext::options::{ALLOWED_COORDINATORS, MEASUREMENTS_ALLOWED};

    use super::*;

    /// The torrc of a relay with this limit.
    fn torrc(limit: Option<u64>) -> String {
        let options =
            [(MEASUREMENTS_ALLOWED, "1".to_owned()), (ALLOWED_COORDINATORS, "Aw".to_owned())];
        text(Path::new("/out/tor"), &options, limit.map(BytesPerSec::new))
    }

    #[test]
    fn the_relay_keeps_to_itself_and_to_its_directory() {
        let text = torrc(None);
        assert!(text.starts_with(MARK));
        let pid = format!("__OwningControllerProcess {}", std::process::id());
        for line in [
            "DataDirectory \"/out/tor\"",
            "Log \"notice file /out/tor/log\"",
            "Address 127.0.0.1",
            "ORPort 127.0.0.1:auto",
            "SocksPort 0",
            "ExitPolicy reject *:*",
            "PublishServerDescriptor 0",
            "CountPrivateBandwidth 1",
            &pid,
        ] {
            assert!(text.lines().any(|other| other == line), "no {line:?} in\n{text}");
        }
        let authorities: Vec<_> =
            text.lines().filter(|line| line.starts_with("DirAuthority ")).collect();
        assert!(matches!(authorities[..], [one] if one.contains(" 127.0.0.1:1 ")), "{text}");
    }

    #[test]
    fn flashflows_options_are_lines() {
        let text = torrc(None);
        assert!(text.ends_with("\nFFMeasurementsAllowed 1\nFFAllowedCoordinators Aw\n"), "{text}");
    }

    #[test]
    fn a_limit_is_rate_and_burst_and_no_limit_neither() {
        let text = torrc(Some(31_250_000));
        for line in ["BandwidthRate 31250000 bytes", "BandwidthBurst 31250000 bytes"] {
            assert!(text.lines().any(|other| other == line), "no {line:?} in\n{text}");
        }
        assert!(!torrc(None).contains("\nBandwidth"), "{}", torrc(None));
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted("", Path::new("/a b#c\"d\\e")), r##""/a b#c\"d\\e""##);
        assert_eq!(quoted("file ", Path::new("/é1\n")), r#""file /\303\2511\012""#);
    }
}
