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

/// Lowest rate limit that tor accepts, in bytes per second.
const LEAST_LIMIT: u64 = 76_800;
/// An option that only a tor with FlashFlow has.
const MEASURABLE: &str = "FFMeasurementsAllowed";
/// Interval of checks of the nodes.
const LOOK: Duration = Duration::from_millis(200);

/// The network as printed.
#[derive(Serialize)]
struct Printed<'a> {
    directory: &'a Path,
    nodes: Vec<Row<'a>>,
}

/// A node as printed.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    /// `authority`, `exit`, `relay`, `client` or `arti-relay`.
    role: &'static str,
    /// RSA identity, hexadecimal; `None` for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    /// ORPort.
    #[serde(skip_serializing_if = "Option::is_none")]
    or: Option<SocketAddr>,
    /// An authority's DirPort.
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<SocketAddr>,
    /// SocksPort.
    #[serde(skip_serializing_if = "Option::is_none")]
    socks: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Control socket of a tor.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<PathBuf>,
}

/// Runs a network until a signal ends it.
pub(super) fn run(args: &UpArgs) -> Result<ExitCode> {
    let builder = builder(args)?;
    let ending = Ending::of_signals().context("Failed to wait for signals")?;
    let others = args.relays + args.exits + args.arti_relays + args.clients;
    let nodes = usize::from(args.authorities) + usize::from(others);
    note(&format!("ff-lab: starting {nodes} nodes, which takes about 10 seconds"));
    let network = match builder.ending(&ending).start() {
        // Ctrl-C in a terminal also ends nodes and programs that generate keys.
        Err(_) if ending.is_asked() => return Ok(ExitCode::SUCCESS),
        started => started?,
    };
    if !ending.is_asked() {
        show(args, &network)?;
    }
    while ending.sleep(LOOK).is_ok() {
        if let Some((name, log)) = ended(&network) {
            // Ctrl-C in a terminal also reaches the nodes, and some end before this process sees
            // it.
            if ending.sleep(LOOK).is_ok() {
                bail!("{name} ended by itself; the end of its log:\n{}", end_of(&log));
            }
        }
    }
    note("ff-lab: stopping the network");
    Ok(ExitCode::SUCCESS)
}

/// Name and log of a node that has ended.
fn ended(network: &Network) -> Option<(&str, String)> {
    let node = network.nodes().find(|node| !node.is_running());
    let arti = || network.arti_relays().find(|relay| !relay.is_running());
    node.map(|node| (node.name(), node.log()))
        .or_else(|| arti().map(|relay| (relay.name(), relay.log())))
}

/// Configures the network.
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

/// Adds the arti-relays and their hosts.
fn add_arti_relays(builder: NetworkBuilder, args: &UpArgs) -> NetworkBuilder {
    let Some(program) = args.arti_relay.as_ref().filter(|_| args.arti_relays > 0) else {
        return builder;
    };
    let section = if args.flashflow { flashflow_section(&args.coordinator) } else { String::new() };
    let relay = |number| ArtiRelayConfig::new(format!("arti{number}"), program).sections(&section);
    let builder = builder.hosts(HostsPlan::default());
    (0..args.arti_relays).map(relay).fold(builder, NetworkBuilder::arti_relay)
}

/// Configuration section that lets these coordinators measure an arti-relay.
fn flashflow_section(coordinators: &[String]) -> String {
    let listed = coordinators.iter().map(|id| format!("{id:?}")).collect::<Vec<_>>().join(", ");
    format!("[flashflow]\nmeasurements_allowed = true\nallowed_coordinators = [{listed}]\n")
}

/// Parses a rate limit.
fn limit(text: &str) -> Result<u64> {
    match profile::rate("--limit", text)? {
        Rate::Constant(rate) if rate.get() >= LEAST_LIMIT => Ok(rate.get()),
        _ => bail!(
            "--limit {text}: give a rate of at least 76.8 kB/s (614.4kbit); traces are not accepted"
        ),
    }
}

/// Fails unless the programs contain FlashFlow.
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

/// Prints the network.
fn show(args: &UpArgs, network: &Network) -> Result<()> {
    let nodes = network.nodes().map(row).chain(network.arti_relays().map(arti_row));
    let printed = Printed { directory: network.dir(), nodes: nodes.collect() };
    let text =
        if args.json { format!("{}\n", serde_json::to_string(&printed)?) } else { table(&printed) };
    print(&text).context("Failed to write to standard output")
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
    text.push_str("\nCtrl-C stops the network.\n");
    text
}

/// Last lines of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{self, Cli};

    /// Network of a command line.
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
