//! Reads the kernel's counters of a network interface, which include the traffic of all programs.

use std::fs;
use std::path::Path;

use crate::budget::Counter;

/// The kernel's table for this process's network namespace.
const FILE: &str = "/proc/self/net/dev";
/// The kernel's folders of interfaces, by name.
const FOLDERS: &str = "/sys/class/net";
/// The kernel's id of the host's start.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the counters of an interface.
///
/// # Errors
/// One sentence if the interface does not exist or its counters cannot be read.
pub fn read(interface: &str) -> Result<Counter, String> {
    let text = fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    let counter = find(&text, interface)?;
    // The table has this interface, so that its name is one part of a path.
    let index = word(&Path::new(FOLDERS).join(interface).join("ifindex"));
    Ok(Counter { index, boot: word(Path::new(BOOT)), ..counter })
}

/// The word in a file of the kernel's; `None` if it cannot be read.
fn word(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|word| !word.is_empty())
}

/// Finds an interface in the table.
fn find(text: &str, interface: &str) -> Result<Counter, String> {
    let rows = || text.lines().filter_map(|line| line.split_once(':'));
    let Some((_, numbers)) = rows().find(|(name, _)| name.trim() == interface) else {
        let names: Vec<&str> = rows().map(|(name, _)| name.trim()).collect();
        return Err(format!(
            "there is no network interface {interface}; there are: {}",
            names.join(", ")
        ));
    };
    // Bytes received are the first of eight columns, bytes sent the first of the next eight.
    let numbers: Vec<&str> = numbers.split_ascii_whitespace().collect();
    let bytes = |column: usize| numbers.get(column)?.parse::<u64>().ok();
    let both = bytes(0).zip(bytes(8)).map(|(received, sent)| received.saturating_add(sent));
    let bytes =
        both.ok_or_else(|| format!("{FILE}: the counters of {interface} cannot be read"))?;
    Ok(Counter { interface: interface.to_owned(), bytes, ..Counter::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in Linux 6.1.
    const TABLE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  123456     100    0    0    0     0          0         0   123456     100    0    0    0     0       0          0
wwan0:5000000000 4000000    1    2    0     0          0         0 70000000  900000    0    0    0     0       0          0
  bad: 1 2 3
";

    /// The loopback interface is the first one of each network namespace.
    #[test]
    fn an_interface_has_its_number_and_the_hosts_start() {
        let found = read("lo").expect("counters");
        assert_eq!(found.index.as_deref(), Some("1"));
        assert_eq!(found.boot.map(|boot| boot.len()), Some(36), "a UUID");
        assert_eq!(word(Path::new("/nowhere")), None);
    }

    #[test]
    fn both_directions_are_added_up() {
        let found = find(TABLE, "wwan0").expect("counters");
        let interface = "wwan0".to_owned();
        let expected = Counter { interface, bytes: 5_070_000_000, ..Counter::default() };
        assert_eq!(found, expected);
        assert_eq!(find(TABLE, "lo").expect("counters").bytes, 246_912);
        let error = find(TABLE, "eth0").expect_err("it does not exist");
        assert!(error.contains("eth0") && error.contains("lo, wwan0, bad"), "{error}");
        assert!(find(TABLE, "bad").is_err_and(|error| error.contains("bad")));
        assert!(find("", "lo").is_err());
    }
}
