//! The network's documents that a coordinator has kept, read beside it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;

use crate::daemon::config::Network;
use crate::network::consensus::Consensus;
use crate::network::descriptors::{Descriptor, Descriptors};
use crate::period::Fingerprint;

/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The directory within the cache that has the documents, and the descriptors' file in it.
const CACHE: (&str, &str) = ("documents", "descriptors");
/// The smallest file that is worth a second thread.
const SPLIT_BYTES: usize = 1 << 20;

/// The last consensus.
///
/// # Errors
/// A sentence that says why there is none.
pub fn consensus(network: &Network) -> Result<Consensus, String> {
    let path = match network {
        Network::Files(files) => files.consensus.clone(),
        Network::Live(live) => newest(&live.cache_dir.join(CACHE.0))?,
    };
    Consensus::parse(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))
}

/// What relays say of themselves; nothing of those that cannot be read.
///
/// # Errors
/// A sentence that says which file cannot be read.
pub fn descriptors(network: &Network) -> Result<HashMap<Fingerprint, Descriptor>, String> {
    let paths = match network {
        Network::Files(files) => files.descriptors.clone(),
        Network::Live(live) => vec![live.cache_dir.join(CACHE.0).join(CACHE.1)],
    };
    let mut all = HashMap::new();
    for path in paths {
        all.extend(parse(&read(&path)?));
    }
    Ok(all)
}

/// The newest consensus of a cache.
fn newest(dir: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    // Their names sort by time.
    let newest = names.filter(|name| name.starts_with("consensus-") && name.ends_with(".ns")).max();
    newest
        .map(|name| dir.join(name))
        .ok_or_else(|| format!("there is no consensus in {}", dir.display()))
}

/// Reads a file; contact lines may be of any encoding.
fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{} is longer than {MAX_FILE_BYTES} bytes", path.display()));
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Reads descriptors, by as many threads as there are cores.
fn parse(text: &str) -> HashMap<Fingerprint, Descriptor> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    let parts = parts(text, threads);
    thread::scope(|scope| {
        let reading: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(|| Descriptors::parse(part).relays)).collect();
        let read = reading.into_iter().filter_map(|thread| thread.join().ok());
        read.flatten().collect()
    })
}

/// A text in so many parts, each of which begins with a descriptor.
fn parts(text: &str, count: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    let size = (text.len() / count.max(1)).max(SPLIT_BYTES);
    while rest.len() > size {
        let from = (size..rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        // Between a signature's end and the next router there is nothing that one of both needs.
        let Some(at) = rest[from..].find("\n-----END SIGNATURE-----\n") else { break };
        let (part, behind) = rest.split_at(from + at + "\n-----END SIGNATURE-----\n".len());
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors of the real network.
    const REAL: &str = include_str!("../../tests/data/descriptors");

    #[test]
    fn descriptors_are_the_same_in_parts() {
        let text = REAL.repeat((6 * SPLIT_BYTES).div_ceil(REAL.len()));
        for count in [1, 2, 3, 8] {
            let parts = parts(&text, count);
            assert_eq!(parts.concat(), text);
            assert!(
                parts.len() <= count.max(1) && (count == 1 || parts.len() > 1),
                "{count}: {}",
                parts.len()
            );
            assert!(parts.iter().all(|part| Descriptors::parse(part).skipped.is_empty()));
        }
        assert_eq!(parse(&text), Descriptors::parse(REAL).relays);
        assert_eq!(parts("", 4), [""]);
    }

    #[test]
    fn the_newest_consensus_of_a_cache_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(newest(dir.path()).expect_err("none").contains("no consensus"));
        for name in [
            "consensus-2026-11-22-18-00-00.ns",
            "consensus-2026-11-22-19-00-00.ns",
            "consensus-2026-11-23-19-00-00.microdesc",
        ] {
            fs::write(dir.path().join(name), "").expect("written");
        }
        assert!(newest(dir.path()).expect("one").ends_with("consensus-2026-11-22-19-00-00.ns"));
    }
}
