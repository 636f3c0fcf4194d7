//! Reads the kernel's counters of a network interface, which include the traffic of all programs.

use std::fs;

use crate::budget::Counter;

/// The kernel's table for this process's network namespace.
const FILE: &str = "/proc/self/net/dev";

/// Reads the counters of an interface.
///
/// # Errors
/// One sentence if the interface does not exist or its counters cannot be read.
pub fn read(interface: &str) -> Result<Counter, String> {
    let text = fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    find(&text, interface)
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
    Ok(Counter { interface: interface.to_owned(), bytes })
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

    #[test]
    fn both_directions_are_added_up() {
        let found = find(TABLE, "wwan0").expect("counters");
        assert_eq!(found, Counter { interface: "wwan0".to_owned(), bytes: 5_070_000_000 });
        assert_eq!(find(TABLE, "lo").expect("counters").bytes, 246_912);
        let error = find(TABLE, "eth0").expect_err("it does not exist");
        assert!(error.contains("eth0") && error.contains("lo, wwan0, bad"), "{error}");
        assert!(find(TABLE, "bad").is_err_and(|error| error.contains("bad")));
        assert!(find("", "lo").is_err());
    }
}
