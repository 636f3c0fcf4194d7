//! A network from start to end, with the operations that tests use.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ff_lab::{
    BwSecond, BwWatch, DownloadPlan, Error, Network, Node, RelayConfig, Result, Role,
    relay_statuses,
};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(300);

/// Held by each test, because networks on few cores slow each other down.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Command lines of processes that contain this directory.
fn processes_with(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
        let text = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    });
    processes.filter(|text| text.contains(&dir)).collect()
}

fn small_network() -> Result<Network> {
    Network::builder()
        .middles(2)
        .exits(2)
        .clients(1)
        .consensus_param("circ_max_cell_queue_size", 2500)
        .start()
}

/// Sums of bytes read and written.
fn totals(seconds: &[BwSecond]) -> (u64, u64) {
    seconds.iter().fold((0, 0), |(read, written), second| {
        (read + second.read_bytes, written + second.written_bytes)
    })
}

#[test]
fn a_network_starts_carries_downloads_and_leaves_nothing_behind() {
    let _alone = alone();
    let network = small_network().unwrap();
    println!("ready after {:?}", network.start_time());

    roles_and_documents(&network).unwrap();
    downloads_match_bandwidth_events(&network).unwrap();
    unfinished_downloads_end_with_their_value(&network).unwrap();
    a_reload_brings_new_options(&network).unwrap();
    a_restart_keeps_identity_and_port(&network).unwrap();
    connections_from_outside_are_counted(&network).unwrap();
    a_stopped_relay_ends_downloads(&network).unwrap();

    let dir: PathBuf = network.dir().to_owned();
    assert!(!processes_with(&dir).is_empty());
    let begin = Instant::now();
    drop(network);
    println!("gone after {:?}", begin.elapsed());
    assert_eq!(processes_with(&dir), [""; 0]);
    assert!(!dir.exists());
}

fn roles_and_documents(network: &Network) -> Result<()> {
    assert_eq!(network.relays().count(), 4);
    assert_eq!(network.node("exit1").role(), Role::Exit);
    let consensus = network.consensus()?;
    assert!(consensus.contains("circ_max_cell_queue_size=2500"), "{consensus}");
    let relays = relay_statuses(&consensus);
    assert_eq!(relays.len(), 5);
    for relay in &relays {
        // Stable depends on when an authority opened its own links (dir-spec, 3.4.2).
        assert!(["Fast", "Guard"].iter().all(|flag| relay.has_flag(flag)), "{relay:?}");
        let node = network.node(&relay.nickname);
        assert_eq!(node.rsa_fingerprint(), relay.fingerprint);
        assert!(node.rss_bytes()? > 1_000_000);
        assert!(node.cpu_time()? > Duration::from_millis(10));
        assert!(node.open_connections()? > 1);
    }
    let votes = network.votes()?;
    assert_eq!(relay_statuses(&votes[0].1).len(), 5);
    let key = network.node("middle0").ed_identity_base64();
    assert!(votes[0].1.contains(&format!("id ed25519 {key}")), "{key}");
    Ok(())
}

fn connections_from_outside_are_counted(network: &Network) -> Result<()> {
    let node = network.node("middle0");
    // Nodes are examined one after the other, so a connection that is being closed may be
    // miscounted.
    let wait_for = |node: &Node, count: usize| -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut found = network.outside_connections(node)?;
        while found != count && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            found = network.outside_connections(node)?;
        }
        assert_eq!(found, count);
        Ok(())
    };
    wait_for(node, 0)?;
    let streams = [0; 3].map(|_| TcpStream::connect(node.or_addr()).expect("it listens"));
    wait_for(node, 3)?;
    wait_for(network.node("middle1"), 0)?;
    drop(streams);
    wait_for(node, 0)
}

fn downloads_match_bandwidth_events(network: &Network) -> Result<()> {
    let [client, guard, target, exit] =
        ["client0", "middle0", "middle1", "exit0"].map(|name| network.node(name));
    let watch = BwWatch::start(target)?;
    let plan = DownloadPlan::through(&[guard, target, exit]).streams(3).bytes_each(8_000_000);
    let begin = Instant::now();
    let downloads = network.download(client, &plan)?;
    let bytes = downloads.wait(PATIENCE)?;
    eprintln!("downloaded {bytes} bytes within {:?}", begin.elapsed());
    assert_eq!(downloads.per_stream_bytes(), [8_000_000; 3]);
    assert_eq!((downloads.alive(), downloads.errors().len()), (0, 0));

    let mut seconds = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while totals(&seconds).1 < bytes && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
        seconds.extend(watch.take());
    }
    seconds.extend(watch.stop());
    let (read, written) = totals(&seconds);
    eprintln!("the target read {read} and wrote {written} bytes");
    // The totals since the start include these bytes once, and all other traffic.
    let mut control = target.control()?;
    for (carried, all) in [(read, "traffic/read"), (written, "traffic/written")] {
        let all = control.getinfo(all)?.parse().expect("a number");
        assert!((bytes..=all).contains(&carried), "{carried} of {bytes}, {all} in all");
    }
    Ok(())
}

fn unfinished_downloads_end_with_their_value(network: &Network) -> Result<()> {
    let [client, guard, exit] = ["client0", "exit1", "exit0"].map(|name| network.node(name));
    let path = [guard, network.node("middle0"), exit];
    let downloads = network.download_through(client, &path, 2)?;
    let deadline = Instant::now() + PATIENCE;
    while downloads.per_stream_bytes().iter().any(|&bytes| bytes < 100_000) {
        assert!(Instant::now() < deadline, "{downloads:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((downloads.alive(), downloads.errors().len()), (2, 0));
    drop(downloads);
    let circuits = client.control()?.getinfo("stream-status")?;
    assert!(!circuits.contains("SUCCEEDED"), "{circuits}");
    Ok(())
}

fn a_reload_brings_new_options(network: &Network) -> Result<()> {
    let relay = network.node("middle1");
    relay.append_torrc("BandwidthRate 1000000 bytes")?;
    relay.append_torrc("BandwidthBurst 1000000 bytes")?;
    relay.reload()?;
    let rate = relay.control()?.getconf("BandwidthRate")?;
    assert_eq!(rate.as_deref(), Some("1000000"));
    relay.wait_for_log("Received reload signal (hup)", PATIENCE)?;
    Ok(())
}

fn a_restart_keeps_identity_and_port(network: &Network) -> Result<()> {
    let relay = network.node("middle1");
    let (pid, identity) = (relay.pid()?, relay.ed_identity());
    relay.restart()?;
    assert_ne!(relay.pid()?, pid);
    let listeners = relay.control()?.getinfo("net/listeners/or")?;
    assert!(listeners.contains(&relay.or_addr().to_string()), "{listeners}");
    assert_eq!(relay.ed_identity(), identity);
    let path = ["middle0", "middle1", "exit0"].map(|name| network.node(name));
    let plan = DownloadPlan::through(&path).streams(2).circuits(1).bytes_each(100_000);
    // A relay that found it down meanwhile does not try again for a minute.
    let deadline = Instant::now() + PATIENCE;
    let downloads = loop {
        match network.download(network.node("client0"), &plan) {
            Err(Error::Circuit { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_secs(1));
            }
            begun => break begun?,
        }
    };
    assert_eq!(downloads.wait(PATIENCE)?, 200_000);
    Ok(())
}

/// The relay is the first hop, whose end the client notices itself. The end of further hops is
/// reported by DESTROY, which tor keeps queued until the next cell on that link if the link had
/// something else to write at that moment (`circuitmux_append_destroy_cell`).
fn a_stopped_relay_ends_downloads(network: &Network) -> Result<()> {
    let path = ["middle1", "middle0", "exit0"].map(|name| network.node(name));
    let downloads = network.download_through(network.node("client0"), &path, 2)?;
    path[0].stop();
    assert!(matches!(path[0].control(), Err(Error::NotRunning { .. })));
    let error = downloads.wait(PATIENCE).expect_err("a lost relay");
    assert!(matches!(error, Error::Stream { .. }), "{error}");
    assert_eq!((downloads.alive(), downloads.errors().len()), (0, 2));
    Ok(())
}

#[test]
fn three_authorities_agree_at_the_same_time_as_another_network_starts() {
    let _alone = alone();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| Network::builder().exits(2).clients(1).start());
        let network = Network::builder().authorities(3).exits(1).clients(1).start().unwrap();
        println!("three authorities ready after {:?}", network.start_time());
        // Two are enough for a consensus; a late one signs the next.
        let by_all = |text: &str| text.matches("\ndirectory-signature ").count() == 3;
        network.wait_for_consensus(by_all, PATIENCE).unwrap();
        assert_eq!(network.wait_for_votes(|_| true, PATIENCE).unwrap().len(), 3);
        let other = other.join().unwrap().unwrap();
        assert_eq!(relay_statuses(&other.consensus().unwrap()).len(), 3);
    });
}

#[test]
fn a_relay_that_does_not_start_is_named_with_its_log() {
    let _alone = alone();
    let temporary = tempfile::tempdir().unwrap();
    let relay = RelayConfig::middle("odd").torrc("NoSuchOption 1");
    let network = Network::builder().exits(2).relay(relay).temp_dir(temporary.path());
    let error = network.start().unwrap_err().to_string();
    assert!(error.contains("odd ended") && error.contains("NoSuchOption"), "{error}");
    assert_eq!(processes_with(temporary.path()), [""; 0]);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}
