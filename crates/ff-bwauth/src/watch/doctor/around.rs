//! Checks what a coordinator depends on: its port, the network's documents, its measurers.

use std::net::{SocketAddr, TcpListener};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ff_measurer::key;
use ff_measurer::measurer_id;
use ff_measurer::service::wire::Capability;
use ff_proto::units::BytesPerSec;
use ff_team::RemoteMeasurer;
use futures::future::join_all;

use super::finding::{Finding, Level};
use super::host::{buffer, congestion};
use crate::config::{Config, MeasurerTable};
use crate::watch::client::{self, AskError};
use crate::watch::documents;
use crate::watch::status::Status;

/// The age from which a consensus counts as late, in seconds: there is a new one every hour.
const FRESH_SECS: u64 = 3 * 3600;
/// The age up to which a consensus is used for bandwidth files, in seconds.
const USABLE_SECS: u64 = 24 * 3600;
/// How far a measurer's clock may be off, in milliseconds.
const CLOCK_MILLIS: u64 = 500;
/// The least limit of open files for a measurer: it has links to several relays at once.
const MEASURER_FILES: u64 = 4096;

/// The round trip for which a link's capacity is given, in milliseconds: that of relays on other
/// continents.
const FAR_MILLIS: u64 = 200;
/// The kernel uses a part of a socket's buffer for itself: one in this many.
const USABLE_PART: u64 = 2;

/// Carries out these checks.
pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let (port, status) = port(config);
    let mut findings = vec![port, consensus(config, status.as_ref())];
    findings.extend(measurers(config).await);
    findings
}

/// Checks the page's port: free, used by this coordinator, or by another program.
fn port(config: &Config) -> (Finding, Option<Status>) {
    const ABOUT: &str = "port of the page";
    let Some(address) = config.watch.listen else {
        return (Finding::ok(ABOUT, "no page is served: watch.listen is not set"), None);
    };
    if !address.ip().is_loopback() {
        let advice = "give watch.listen an address of loopback; reach it by ssh -L";
        return (
            Finding::bad(
                ABOUT,
                format!("{address} can be reached by others, without a login"),
                advice,
            ),
            None,
        );
    }
    match client::status(&format!("http://{address}")) {
        Ok(status) => (ours(config, address, &status), Some(status)),
        Err(AskError::NotRunning { .. }) => match TcpListener::bind(address) {
            Ok(_) => (
                Finding::ok(ABOUT, format!("{address} is free: the coordinator does not run")),
                None,
            ),
            Err(error) => (
                Finding::bad(
                    ABOUT,
                    format!("{address}: {error}"),
                    "give watch.listen another port",
                ),
                None,
            ),
        },
        Err(AskError::Starting(_)) => {
            (Finding::ok(ABOUT, format!("the coordinator at {address} is starting")), None)
        }
        Err(error) => (
            Finding::bad(
                ABOUT,
                error.to_string(),
                "give watch.listen another port, or stop the other program",
            ),
            None,
        ),
    }
}

/// Whether the coordinator that answers is this one.
fn ours(config: &Config, address: SocketAddr, status: &Status) -> Finding {
    const ABOUT: &str = "port of the page";
    let me = key::load(&config.key).map(|key| key::identity_text(&measurer_id(&key)));
    match me {
        Ok(me) if me != status.coordinator => Finding::bad(
            ABOUT,
            format!("another coordinator answers at {address}: {}", status.coordinator),
            "give each a port of its own (watch.listen)",
        ),
        _ => Finding::ok(
            ABOUT,
            format!("the coordinator runs at {address}, version {}", status.version),
        ),
    }
}

/// Checks the network's documents: the coordinator's report, or the stored ones.
fn consensus(config: &Config, status: Option<&Status>) -> Finding {
    const ABOUT: &str = "consensus";
    let now = now_millis() / 1000;
    if let Some(error) = status.and_then(|status| status.network.error.as_deref()) {
        return Finding::bad(
            ABOUT,
            format!("cannot fetch a newer one: {error}"),
            "check the connection to the directory authorities",
        );
    }
    let known = status.and_then(|status| status.network.valid_after_unix_secs);
    let valid_after = match known {
        Some(valid_after) => Ok(valid_after),
        None => documents::consensus(&config.network)
            .map(|consensus| consensus.valid_after_unix_secs().unwrap_or(0)),
    };
    match valid_after {
        Err(error) => Finding::warn(
            ABOUT,
            error,
            "start the coordinator, which fetches it; with network.consensus, keep the files up to date",
        ),
        Ok(valid_after) => aged(now.saturating_sub(valid_after), known.is_some()),
    }
}

/// The finding for a consensus of this age.
fn aged(age_secs: u64, is_running: bool) -> Finding {
    const ABOUT: &str = "consensus";
    let found = format!("it became valid {} h ago", age_secs / 3600);
    let advice = "check the connection to the directory authorities, or what updates the files";
    match age_secs {
        age if age <= FRESH_SECS => Finding::ok(ABOUT, found),
        _ if !is_running => Finding::warn(
            ABOUT,
            found,
            "the coordinator does not run; when it runs, it fetches a newer one",
        ),
        age if age <= USABLE_SECS => Finding::warn(ABOUT, found, advice),
        _ => Finding::bad(ABOUT, found, advice),
    }
}

/// Checks the measurers of the team.
async fn measurers(config: &Config) -> Vec<Finding> {
    let Ok(key) = key::load(&config.key) else {
        let found = "not checked: the coordinator's key cannot be read";
        return vec![Finding::bad("measurers", found, "fix the problem with the key first")];
    };
    let ask = |table: &MeasurerTable| {
        let remote = RemoteMeasurer::new(&table.name, &table.address, table.identity, &key);
        let (name, address) = (table.name.clone(), table.address.clone());
        let capacity = table.capacity.get();
        async move {
            let about = format!("measurer {name}");
            let remote = match remote {
                Ok(remote) => remote,
                Err(error) => {
                    return vec![Finding::bad(&about, error, "correct its address in the config")];
                }
            };
            let (sent, began) = (now_millis(), Instant::now());
            match remote.describe().await {
                Ok(capability) => {
                    let way = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    let now = sent.saturating_add(way / 2);
                    described(&about, &capability, now, way, capacity)
                }
                Err(error) => {
                    let advice = format!(
                        "check that ff-measurer runs at {address}, that its firewall allows us, and that each config has the other's identity"
                    );
                    vec![Finding::bad(&about, error.to_string(), advice)]
                }
            }
        }
    };
    let asked = join_all(config.measurers.iter().map(ask)).await;
    asked.into_iter().flatten().collect()
}

/// Checks a measurer's description of itself; all parts without a problem share one line.
fn described(
    about: &str,
    of: &Capability,
    now_millis: u64,
    way_millis: u64,
    stated: u64,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let off = of.unix_millis.abs_diff(now_millis);
    if off > CLOCK_MILLIS {
        let way = if of.unix_millis > now_millis { "ahead of" } else { "behind" };
        let found = format!("its clock is {off} ms {way} ours");
        findings.push(Finding::bad(about, found, "install chrony there, and check our own clock"));
    }
    if of.open_files < MEASURER_FILES {
        let found = format!("its process may open at most {} files", of.open_files);
        let advice = format!(
            "set LimitNOFILE= of its unit to at least {MEASURER_FILES}, for links to several relays at once"
        );
        findings.push(Finding::warn(about, found, advice));
    }
    if of.rate_bytes_per_sec != 0 && of.rate_bytes_per_sec < stated {
        let found = "its operator allows less than its capacity in our config";
        findings.push(Finding::warn(
            about,
            found,
            "set capacity in the config and limits.rate there to the same value",
        ));
    }
    let buffers = buffer(about, of.send_buffer_bytes.min(of.receive_buffer_bytes));
    findings.push(Finding { found: format!("TCP buffers of {}", buffers.found), ..buffers });
    findings.push(congestion(about, Some(&of.congestion_control)));
    findings.retain(|finding| finding.level != Level::Ok);
    if findings.is_empty() {
        let buffer = of.send_buffer_bytes.min(of.receive_buffer_bytes) / USABLE_PART;
        let far = BytesPerSec::new(buffer.saturating_mul(1000) / FAR_MILLIS);
        let found = format!(
            "it answers with the right key in {way_millis} ms: version {}, {} cores; over {FAR_MILLIS} ms a link \
             without losses carries {far}",
            of.version, of.cores
        );
        findings.push(Finding::ok(about, found));
    }
    findings
}

/// The present time, in milliseconds since 1970.
fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A measurer without problems.
    fn capability() -> Capability {
        Capability {
            version: "0.1.0".to_owned(),
            cores: 4,
            unix_millis: 1_000_000,
            open_files: 65_536,
            congestion_control: "cubic".to_owned(),
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 6 << 20,
            ..Capability::default()
        }
    }

    #[test]
    fn what_is_wrong_with_a_measurer_is_a_line_each() {
        let findings = |of: &Capability| described("measurer x", of, 1_000_000, 7, 125_000_000);
        let well = &findings(&capability())[0];
        assert!(well.level == Level::Ok && well.found.contains("in 7 ms"), "{well}");
        assert!(
            well.found.contains("over 200 ms a link without losses carries 83.89 Mbit/s"),
            "{well}"
        );
        let (send_buffer_bytes, receive_buffer_bytes) = (u64::MAX, u64::MAX);
        let most = Capability { send_buffer_bytes, receive_buffer_bytes, ..capability() };
        assert_eq!(findings(&most).len(), 1, "whatever it says");
        for (of, words) in [
            (Capability { unix_millis: 1_002_000, ..capability() }, "2000 ms ahead of"),
            (Capability { unix_millis: 997_000, ..capability() }, "3000 ms behind"),
            (Capability { open_files: 1024, ..capability() }, "1024 files"),
            (Capability { rate_bytes_per_sec: 1000, ..capability() }, "allows less"),
            (Capability { congestion_control: "bbr".to_owned(), ..capability() }, "bbr"),
            (Capability { send_buffer_bytes: 1 << 20, ..capability() }, "TCP buffers of 1 MiB"),
        ] {
            let findings = findings(&of);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(
                findings[0].found.contains(words) && findings[0].level > Level::Ok,
                "{}",
                findings[0]
            );
        }
    }

    #[test]
    fn a_consensus_is_judged_by_its_age() {
        for (age_hours, is_running, level) in [
            (1, true, Level::Ok),
            (5, true, Level::Warn),
            (30, true, Level::Bad),
            (30, false, Level::Warn),
        ] {
            assert_eq!(aged(age_hours * 3600, is_running).level, level);
        }
    }
}
