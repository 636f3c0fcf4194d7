//! `ff-lab up`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::arti_relay::ArtiRelay;
use crate::builder::{ArtiRelayConfig, NetworkBuilder, RelayConfig};
use crate::cli::up::UpArgs;
use crate::console::{note, print};
use crate::ending::Ending;
use crate::hosts::HostsPlan;
use crate::link::Rate;
use crate::network::Network;
use crate::node::{Node, Role};
use crate::profile;

/// tor refuses a relay with less, in bytes a second.
const LEAST_LIMIT: u64 = 76_800;
/// The option by which a tor that knows FlashFlow is known.
const MEASURABLE: &str = "FFMeasurementsAllowed";
/// How often nodes are looked after.
const LOOK: Duration = Duration::from_millis(200);

/// The network as it is printed.
#[derive(Serialize)]
struct Printed<'a> {
    /// Where all of it is.
    directory: &'a Path,
    nodes: Vec<Row<'a>>,
}

/// A node as it is printed.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    /// `authority`, `exit`, `relay`, `client` or `arti-relay`.
    role: &'static str,
    /// Its RSA identity in hexadecimal digits; clients have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    /// Where relays accept links.
    #[serde(skip_serializing_if = "Option::is_none")]
    or: Option<SocketAddr>,
    /// Where an authority hands documents out.
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<SocketAddr>,
    /// Where a client takes streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    socks: Option<SocketAddr>,
    /// Its process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// A tor's control socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<PathBuf>,
}

/// Starts a network and keeps it until somebody ends it.
pub(super) fn run(args: &UpArgs) -> Result<ExitCode> {
    let builder = builder(args)?;
    let ending = Ending::of_signals().context("Failed to wait for signals")?;
    let others = args.relays + args.exits + args.arti_relays + args.clients;
    let nodes = usize::from(args.authorities) + usize::from(others);
    note(&format!("ff-lab: starting {nodes} nodes, which takes about 10 seconds"));
    let network = match builder.ending(&ending).start() {
        // Ctrl-C in a terminal ends nodes and what makes keys, too.
        Err(_) if ending.is_asked() => return Ok(ExitCode::SUCCESS),
        started => started?,
    };
    if !ending.is_asked() {
        show(args, &network)?;
    }
    while ending.sleep(LOOK).is_ok() {
        if let Some((name, log)) = ended(&network) {
            // Ctrl-C in a terminal reaches the nodes, too, and some end before this has seen it.
            if ending.sleep(LOOK).is_ok() {
                bail!("{name} ended by itself; the end of its log:\n{}", end_of(&log));
            }
        }
    }
    note("ff-lab: stopping the network");
    Ok(ExitCode::SUCCESS)
}

/// The name and the log of a node that has ended.
fn ended(network: &Network) -> Option<(&str, String)> {
    let node = network.nodes().find(|node| !node.is_running());
    let arti = || network.arti_relays().find(|relay| !relay.is_running());
    node.map(|node| (node.name(), node.log()))
        .or_else(|| arti().map(|relay| (relay.name(), relay.log())))
}

/// Describes the network.
fn builder(args: &UpArgs) -> Result<NetworkBuilder> {
    let limit = args.limit.as_deref().map(limit).transpose()?;
    if args.flashflow {
        check_knows_flashflow(args)?;
    }
    let relay = |name: String, is_exit: bool| {
        let mut relay = if is_exit { RelayConfig::exit(name) } else { RelayConfig::middle(name) };
        relay.bandwidth_rate = limit;
        if args.flashflow {
            relay = relay.torrc(format!("{MEASURABLE} 1"));
            let who = args.coordinator.iter();
            relay = who.fold(relay, |relay, id| relay.torrc(format!("FFAllowedCoordinators {id}")));
        }
        relay
    };
    let relays = (0..args.relays).map(|number| relay(format!("middle{number}"), false));
    let exits = (0..args.exits).map(|number| relay(format!("exit{number}"), true));
    let mut builder = Network::builder()
        .authorities(args.authorities.into())
        .clients(args.clients.into())
        .keep_dir(args.keep);
    if let Some(tor) = &args.tor {
        builder = builder.tor(tor);
    }
    let builder = relays.chain(exits).fold(builder, NetworkBuilder::relay);
    Ok(add_arti_relays(builder, args))
}

/// Adds the arti-relays, and the hosts that they need.
fn add_arti_relays(builder: NetworkBuilder, args: &UpArgs) -> NetworkBuilder {
    let Some(program) = args.arti_relay.as_ref().filter(|_| args.arti_relays > 0) else {
        return builder;
    };
    let section = if args.flashflow { flashflow_section(&args.coordinator) } else { String::new() };
    let relay = |number| ArtiRelayConfig::new(format!("arti{number}"), program).sections(&section);
    let builder = builder.hosts(HostsPlan::default());
    (0..args.arti_relays).map(relay).fold(builder, NetworkBuilder::arti_relay)
}

/// The section by which an arti-relay lets these coordinators measure it.
fn flashflow_section(coordinators: &[String]) -> String {
    let listed = coordinators.iter().map(|id| format!("{id:?}")).collect::<Vec<_>>().join(", ");
    format!("[flashflow]\nmeasurements_allowed = true\nallowed_coordinators = [{listed}]\n")
}

/// Reads a limit.
fn limit(text: &str) -> Result<u64> {
    match profile::rate("--limit", text)? {
        Rate::Constant(rate) if rate.get() >= LEAST_LIMIT => Ok(rate.get()),
        _ => bail!(
            "--limit {text}: give a rate of at least 76.8 kB/s (614.4kbit); traces are not accepted"
        ),
    }
}

/// Looks whether relays can let themselves be measured.
fn check_knows_flashflow(args: &UpArgs) -> Result<()> {
    let Some(tor) = &args.tor else { bail!("--flashflow needs --tor") };
    let listed = Command::new(tor).arg("--list-torrc-options").output();
    let listed = listed.with_context(|| format!("Failed to run {}", tor.display()))?;
    if String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.trim() == MEASURABLE) {
        return Ok(());
    }
    bail!(
        "{}: this tor does not have FlashFlow; crates/ff-relay-ext/tor/build-tor builds one that has it",
        tor.display()
    )
}

/// Prints where everything is.
fn show(args: &UpArgs, network: &Network) -> Result<()> {
    let nodes = network.nodes().map(row).chain(network.arti_relays().map(arti_row));
    let printed = Printed { directory: network.dir(), nodes: nodes.collect() };
    let text =
        if args.json { format!("{}\n", serde_json::to_string(&printed)?) } else { table(&printed) };
    print(&text).context("Failed to print")
}

fn row(node: &Node) -> Row<'_> {
    let is_relay = node.role() != Role::Client;
    Row {
        name: node.name(),
        role: match node.role() {
            Role::Authority => "authority",
            Role::Exit => "exit",
            Role::Middle => "relay",
            Role::Client => "client",
        },
        fingerprint: is_relay.then(|| node.rsa_fingerprint()),
        or: is_relay.then(|| node.or_addr()),
        dir: node.dir_addr(),
        socks: (!is_relay).then(|| node.socks_addr()),
        pid: node.pid().ok(),
        control: Some(node.data_dir().join("control")),
    }
}

fn arti_row(relay: &ArtiRelay) -> Row<'_> {
    Row {
        name: relay.name(),
        role: "arti-relay",
        fingerprint: Some(relay.rsa_identity()),
        or: Some(relay.addr().into()),
        dir: None,
        socks: None,
        pid: Some(relay.pid()),
        control: None,
    }
}

/// All nodes as a table.
fn table(printed: &Printed<'_>) -> String {
    let mut text = format!("directory  {}\n\n", printed.directory.display());
    let _ = writeln!(
        text,
        "{:<10} {:<10} {:<40}  {:<21} {:<8} control socket",
        "node", "is a", "fingerprint", "OR or SOCKS address", "process"
    );
    for Row { name, role, fingerprint, or, socks, pid, control, .. } in &printed.nodes {
        let address = or.or(*socks).map_or_else(String::new, |address| address.to_string());
        let fingerprint = fingerprint.unwrap_or("");
        let pid = pid.map_or_else(String::new, |pid| pid.to_string());
        let control = control.as_deref().unwrap_or(Path::new("-")).display();
        let _ = writeln!(
            text,
            "{name:<10} {role:<10} {fingerprint:<40}  {address:<21} {pid:<8} {control}"
        );
    }
    text.push_str("\nCtrl-C ends it.\n");
    text
}

/// The last lines of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{self, Cli};

    /// The network of a command line.
    fn described(options: &[&str]) -> NetworkBuilder {
        let words = ["ff-lab", "up"].iter().chain(options);
        let cli::Command::Up(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not `up`");
        };
        builder(&args).unwrap()
    }

    #[test]
    fn arti_relays_bring_hosts() {
        let builder = described(&["--arti-relays", "2", "--arti-relay", "/arti"]);
        let relays = builder.arti_relays.iter();
        let relays: Vec<_> = relays.map(|one| (one.nickname.as_str(), &*one.program)).collect();
        assert_eq!(relays, [("arti0", Path::new("/arti")), ("arti1", Path::new("/arti"))]);
        assert!(builder.hosts.is_some() && builder.arti_relays[0].sections.is_empty());
        assert!(described(&[]).hosts.is_none());
    }

    #[test]
    fn coordinators_of_arti_relays_are_a_list() {
        let section = flashflow_section(&["AA".to_owned(), "BB".to_owned()]);
        let table: toml::Table = toml::from_str(&section).unwrap();
        let listed = table["flashflow"]["allowed_coordinators"].as_array().unwrap();
        assert_eq!((listed.len(), listed[1].as_str()), (2, Some("BB")));
        assert_eq!(table["flashflow"]["measurements_allowed"].as_bool(), Some(true));
    }

    #[test]
    fn one_option_needs_the_other() {
        for options in [["--arti-relays", "1"], ["--arti-relay", "/arti"]] {
            let words = ["ff-lab", "up"].into_iter().chain(options);
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains("required"), "{error}");
        }
    }
}
