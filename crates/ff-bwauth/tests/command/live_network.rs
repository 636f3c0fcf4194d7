//! The documents of a private network of C tors: fetched, cached, updated, and used without the
//! network.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ff_dir::consensus::Consensus;
use ff_dir::descriptors::Descriptors;
use ff_lab::Network;
use ff_live::{DirectoryClient, DirectoryError, Documents, LiveConfig, runtime};
use tokio::time::{Instant, timeout};

/// The number of relays in the network, including its authorities.
const RELAYS: usize = 5;
/// The time limit of a wait.
const HANGS: Duration = Duration::from_secs(120);
/// The time limit of a refresh that should fail.
const IMPATIENCE: Duration = Duration::from_secs(3);

/// A client of the network with its cache in this directory.
fn client(network: &Network, dir: &Path) -> DirectoryClient {
    let config = LiveConfig::private_network(network.dir(), dir);
    DirectoryClient::new(runtime().expect("a runtime"), &config).expect("a client")
}

/// Refreshes until the documents meet this condition.
async fn refresh_until(
    client: &mut DirectoryClient,
    is_it: impl Fn(&Documents) -> bool,
) -> Documents {
    let deadline = Instant::now() + HANGS;
    loop {
        let refreshed = client.refresh(deadline).await;
        match refreshed {
            Ok(documents) if is_it(&documents) => return documents,
            not_yet => assert!(Instant::now() < deadline, "{not_yet:?}"),
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Whether the documents of all relays are there. On a slow machine some are missing at first.
fn are_complete(documents: &Documents) -> bool {
    (documents.relays, documents.descriptors.len()) == (RELAYS, RELAYS)
        && documents.microdescriptors.len() == RELAYS
}

/// Waits until the network has a consensus of all its relays whose valid-after time meets this
/// condition.
fn wait_for_consensus(network: &Network, is_it: impl Fn(u64) -> bool) {
    let fits = |text: &str| {
        let consensus = Consensus::parse(text).expect("a consensus");
        let valid_after = consensus.valid_after_unix_secs().expect("a time");
        consensus.relays.len() == RELAYS && is_it(valid_after)
    };
    let waiting = || network.wait_for_consensus(fits, HANGS);
    tokio::task::block_in_place(waiting).expect("a consensus");
}

/// Fails unless the documents of all relays are there.
fn assert_complete(documents: &Documents) {
    let relays = RELAYS;
    let consensus = Consensus::parse(&documents.consensus).expect("a consensus");
    let problems = &documents.problems;
    assert_eq!((consensus.relays.len(), documents.relays), (relays, relays));
    assert_eq!(
        (documents.missing_descriptors(), documents.microdescriptors.len()),
        (0, relays),
        "{problems:?}"
    );
    let described = Descriptors::parse(documents.descriptors_text());
    assert_eq!((described.relays.len(), described.skipped.len()), (relays, 0));
    for relay in &consensus.relays {
        assert!(described.relays.contains_key(&relay.fingerprint), "{}", relay.nickname);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_fetched_kept_brought_up_to_date_and_outlive_the_network() {
    let network = Network::builder().authorities(2).middles(2).exits(1).start().expect("a network");
    println!("network after {:?}", network.start_time());
    let dir = tempfile::tempdir().expect("a directory");
    let cache = dir.path().join("cache");
    let mut client = client(&network, &cache);
    assert!(client.last().await.expect("readable").is_none());

    let begin = Instant::now();
    let first = refresh_until(&mut client, are_complete).await;
    println!("documents after {:?} from {}: {:?}", begin.elapsed(), first.from, first.problems);
    assert_complete(&first);
    // It may be from the second authority, and the first one may have it later.
    wait_for_consensus(&network, |theirs| theirs >= first.valid_after_secs);

    let error = DirectoryClient::new(
        runtime().expect("a runtime"),
        &LiveConfig::private_network(network.dir(), &cache),
    );
    assert!(matches!(error, Err(DirectoryError::InUse { .. })), "{error:?}");

    wait_for_consensus(&network, |theirs| theirs > first.valid_after_secs);
    let begin = Instant::now();
    let newer = |documents: &Documents| {
        documents.valid_after_secs > first.valid_after_secs && are_complete(documents)
    };
    let next = refresh_until(&mut client, newer).await;
    println!("newer after {:?} from {}: {:?}", begin.elapsed(), next.from, next.problems);
    assert_complete(&next);
    assert!(next.is_fresh(SystemTime::now()) || next.fetched_at_secs >= next.valid_after_secs);
    drop(client);

    the_command_does_the_same(&network, dir.path());
    another_networks_authorities_are_not_content(&network, dir.path()).await;
    what_was_fetched_outlives_the_network(network, &cache, &next).await;
}

/// `ff-bwauth network`, and `schedule` with its files.
fn the_command_does_the_same(network: &Network, dir: &Path) {
    let program = env!("CARGO_BIN_EXE_ff-bwauth");
    let config = dir.join("config.toml");
    let text = format!(
        "other = 1\n[network]\ncache_dir = {:?}\nprivate_network = {:?}\n",
        dir.join("command"),
        network.dir(),
    );
    std::fs::write(&config, text).expect("a file");
    let run = |args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(dir).output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let deadline = Instant::now() + HANGS;
    let fetch =
        ["network", "--config", "config.toml", "--out", "out", "--deadline", "120", "--json"];
    loop {
        let (status, stdout, stderr) = run(&fetch);
        let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        let files = report["files"].as_array().expect("files").len();
        if (status, &report["documents"]["descriptors"], files) == (Some(0), &RELAYS.into(), 4) {
            break;
        }
        assert!(Instant::now() < deadline, "{stdout}{stderr}");
    }
    let files = ["--consensus", "out/consensus", "--descriptors", "out/descriptors"];
    let (status, stdout, stderr) = run(&[&["schedule", "--greedy"][..], &files].concat());
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("scheduled  5 measurements"), "{stdout}");
}

/// A client with other authorities accepts nothing from this network or from a cache of its
/// documents.
async fn another_networks_authorities_are_not_content(network: &Network, dir: &Path) {
    let nodes = dir.join("nodes");
    for node in network.authorities() {
        let copy = nodes.join(node.name());
        std::fs::create_dir_all(copy.join("keys")).expect("a directory");
        for file in ["fingerprint", "fingerprint-ed25519", "torrc"] {
            std::fs::copy(node.data_dir().join(file), copy.join(file)).expect("copied");
        }
        let number = node.name().strip_prefix("auth").expect("an authority's name");
        let certificate = format!("fingerprint {}\n", format!("A{number}").repeat(20));
        std::fs::write(copy.join("keys/authority_certificate"), certificate).expect("a file");
    }
    let config = LiveConfig::private_network(&nodes, dir.join("other"));
    let mut client =
        DirectoryClient::new(runtime().expect("a runtime"), &config).expect("a client");
    let error = client.refresh(Instant::now() + IMPATIENCE).await.expect_err("another network");
    assert!(matches!(error, DirectoryError::NotBootstrapped { .. }), "{error:?}");
    assert_eq!(client.last_error(), Some(error.to_string().as_str()));
    drop(client);
    let from = dir.join("cache/documents");
    for file in std::fs::read_dir(from).expect("a directory") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), dir.join("other/documents").join(file.file_name()))
            .expect("copied");
    }
    let client = DirectoryClient::new(runtime().expect("a runtime"), &config).expect("a client");
    assert!(client.last().await.expect("readable").is_none(), "their signatures do not count");
}

/// Without the network, the fetched documents are used and report their age.
async fn what_was_fetched_outlives_the_network(network: Network, cache: &Path, newest: &Documents) {
    let mut client = client(&network, cache);
    network.nodes().for_each(ff_lab::Node::stop);
    let begin = SystemTime::now();
    let refreshing = client.refresh(Instant::now() + IMPATIENCE);
    match timeout(HANGS, refreshing).await.expect("it keeps to its deadline") {
        // Its consensuses are valid for half a minute.
        Ok(documents) => assert!(!documents.is_stale(begin)),
        Err(error) => assert_eq!(client.last_error(), Some(error.to_string().as_str())),
    }
    let last = client.last().await.expect("readable").expect("documents");
    assert_complete(&last);
    assert_eq!((last.valid_after_secs, last.from.as_str()), (newest.valid_after_secs, "the cache"));
    let later = SystemTime::now() + Duration::from_secs(60);
    assert!(last.is_stale(later) && last.age_secs(later) >= 60);
}
