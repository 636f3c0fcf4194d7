//! `ff-lab up`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::builder::{NetworkBuilder, RelayConfig};
use crate::cli::up::UpArgs;
use crate::console::{note, print};
use crate::ending::Ending;
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
    /// The nodes.
    nodes: Vec<Row<'a>>,
}

/// A node as it is printed.
#[derive(Serialize)]
struct Row<'a> {
    /// Its name.
    name: &'a str,
    /// `authority`, `exit`, `relay` or `client`.
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
    /// Its control socket.
    control: PathBuf,
}

/// Starts a network and keeps it until somebody ends it.
pub(super) fn run(args: &UpArgs) -> Result<ExitCode> {
    let builder = builder(args)?;
    let ending = Ending::of_signals().context("Failed to wait for signals")?;
    let nodes = args.authorities as usize + usize::from(args.relays + args.exits + args.clients);
    note(&format!("ff-lab: {nodes} nodes start, which takes some 10 seconds"));
    let network = match builder.ending(&ending).start() {
        // Ctrl-C in a terminal ends nodes and what makes keys, too.
        Err(_) if ending.is_asked() => return Ok(ExitCode::SUCCESS),
        started => started?,
    };
    if !ending.is_asked() {
        show(args, &network)?;
    }
    let ended = || network.nodes().find(|node| !node.is_running());
    while ending.sleep(LOOK).is_ok() {
        if let Some(node) = ended() {
            // Ctrl-C in a terminal reaches the nodes, too, and some end before this has seen it.
            if ending.sleep(LOOK).is_ok() {
                bail!(
                    "{} ended by itself; the end of its log:\n{}",
                    node.name(),
                    end_of(&node.log())
                );
            }
        }
    }
    note("ff-lab: the network ends");
    Ok(ExitCode::SUCCESS)
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
    Ok(relays.chain(exits).fold(builder, NetworkBuilder::relay))
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
        "{}: this tor does not know FlashFlow; crates/ff-relay-ext/tor/build-tor makes one that does",
        tor.display()
    )
}

/// Prints where everything is.
fn show(args: &UpArgs, network: &Network) -> Result<()> {
    let printed = Printed { directory: network.dir(), nodes: network.nodes().map(row).collect() };
    let text =
        if args.json { format!("{}\n", serde_json::to_string(&printed)?) } else { table(&printed) };
    print(&text).context("Failed to print")
}

/// A node.
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
        control: node.data_dir().join("control"),
    }
}

/// All nodes as a table.
fn table(printed: &Printed<'_>) -> String {
    let mut text = format!("directory  {}\n\n", printed.directory.display());
    let _ = writeln!(
        text,
        "{:<10} {:<10} {:<40}  {:<21} control socket",
        "node", "is a", "fingerprint", "OR or SOCKS address"
    );
    for Row { name, role, fingerprint, or, socks, control, .. } in &printed.nodes {
        let address = or.or(*socks).map_or_else(String::new, |address| address.to_string());
        let fingerprint = fingerprint.unwrap_or("");
        let control = control.display();
        let _ = writeln!(text, "{name:<10} {role:<10} {fingerprint:<40}  {address:<21} {control}");
    }
    text.push_str("\nCtrl-C ends it.\n");
    text
}

/// The last lines of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
