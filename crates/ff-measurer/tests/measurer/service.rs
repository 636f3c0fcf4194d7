//! Measurers as a service: accepted peers, refusals, and the state after a peer has left.

mod exchange;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_measurer::key::identity_text;
use ff_measurer::link::TargetAddr;
use ff_measurer::service::admission::AdmissionLimits;
use ff_measurer::service::client::RemoteMeasurer;
use ff_measurer::service::server::{Coordinator, Service, Settings};
use ff_measurer::{Host, PartFailure, Task, measurer_id};
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::units::BytesPerSec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The time limit of waiting for an event: less than the minute after which a service gives up a
/// task by itself, and more than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(45);

/// A service and its peers.
struct Lab {
    service: Arc<Service>,
    key: SigningKey,
    /// Its listening address.
    addr: SocketAddr,
    /// The coordinator that may give it work.
    coordinator: SigningKey,
    /// The task of the service.
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Lab {
    /// A service with these limits.
    async fn start(limits: AdmissionLimits) -> Self {
        let (key, coordinator) = (fresh_key(), fresh_key());
        let service =
            Service::new(Host::new(key.clone(), Vec::new()), settings(&coordinator, limits));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("its address");
        let serving = tokio::spawn(service.clone().serve(listener));
        Self { service, key, addr, coordinator, serving }
    }

    /// A connection to it with this key, by a peer that expects the owner of `expected`.
    fn connect(&self, key: &SigningKey, expected: &SigningKey) -> RemoteMeasurer {
        let address = self.addr.to_string();
        RemoteMeasurer::new(&address, measurer_id(expected), key).expect("a good address")
    }

    /// Its coordinator's connection.
    fn client(&self) -> RemoteMeasurer {
        self.connect(&self.coordinator, &self.key)
    }
}

fn fresh_key() -> SigningKey {
    SigningKey::from_bytes(&rand::random())
}

/// Settings with this coordinator only.
fn settings(coordinator: &SigningKey, limits: AdmissionLimits) -> Settings {
    let id = measurer_id(coordinator);
    Settings { coordinators: vec![Coordinator { name: "test".to_owned(), id }], limits }
}

/// Limits of a test network.
fn private() -> AdmissionLimits {
    AdmissionLimits { private_targets: true, ..AdmissionLimits::default() }
}

/// A task for a relay at this address.
fn task(addr: SocketAddr) -> Task {
    Task {
        measurement: MeasurementId([0; 16]),
        target: TargetAddr { addr, ed_identity: [0; 32].into() },
        sockets: 4,
        rate: Some(BytesPerSec::from_mbit(8)),
        duration_secs: 30,
        cells_per_record: 6,
        crypto: CryptoKind::CGO_AES128,
        check_probability: 1.0,
        connect_timeout: Duration::from_secs(120),
        handshake_timeout: Duration::from_secs(120),
    }
}

/// A peer that accepts connections and is silent.
async fn silent_relay() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    (listener.local_addr().expect("its address"), listener)
}

/// The message of a refused task.
async fn refused(client: &RemoteMeasurer, task: &Task) -> String {
    let prepared = timeout(PATIENCE, client.prepare(task)).await.expect("an answer");
    let failure = prepared.err().expect("it is refused");
    assert_eq!(failure.kind, FailureKind::MeasurerFailed, "{failure}");
    failure.message
}

/// Waits until a connection ends.
async fn until_closed(mut link: TcpStream) {
    let mut bytes = [0; 4096];
    let reading = async { while link.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
    timeout(PATIENCE, reading).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_has_the_right_key_is_let_in_on_either_side() {
    let lab = Lab::start(private()).await;
    let capability = lab.client().describe().await.expect("its coordinator may ask");
    assert_eq!(capability.version, env!("CARGO_PKG_VERSION"));
    assert!(capability.open_files > 0 && !capability.congestion_control.is_empty());
    let stranger = fresh_key();
    let text = |key: &SigningKey| identity_text(&measurer_id(key));
    let expect = |failure: PartFailure, parts: &[String]| {
        let address = format!("no connection to it at {}: ", lab.addr);
        for part in [&[address][..], parts].concat() {
            assert!(failure.message.contains(&part), "{failure}, not {part}");
        }
    };
    let failure = lab.connect(&stranger, &lab.key).describe().await.expect_err("a stranger");
    expect(failure, &[format!("identity {} is in no [[coordinator]] table", text(&stranger))]);
    // A client does not talk to a host with another key.
    let failure = lab.connect(&lab.coordinator, &stranger).describe().await.expect_err("another");
    let [found, expected] = [text(&lab.key), text(&stranger)];
    expect(failure, &[format!("identity {found}, but the [[measurer]] table has {expected}")]);
    // A coordinator that is removed from the list loses its open connection, too.
    let client = lab.client();
    client.describe().await.expect("it may still ask");
    lab.service.set(settings(&stranger, private()));
    let (addr, _relay) = silent_relay().await;
    let message = refused(&client, &task(addr)).await;
    let own = text(&lab.coordinator);
    assert!(message.contains(&format!("{own} is in no [[coordinator]] table")), "{message}");
    let capability = lab.connect(&stranger, &lab.key).describe().await;
    capability.expect("who is no stranger any more is let in");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_does_not_allow_is_refused_with_the_reason() {
    let (addr, _relay) = silent_relay().await;
    let lab = Lab::start(AdmissionLimits::default()).await;
    let message = refused(&lab.client(), &task(addr)).await;
    assert!(message.contains("127.0.0.1") && message.contains("private_targets"), "{message}");
    let limits = AdmissionLimits { rate: Some(BytesPerSec::from_mbit(7)), ..private() };
    lab.service.set(settings(&lab.coordinator, limits));
    let message = refused(&lab.client(), &task(addr)).await;
    assert!(message.contains("more than this measurer has left"), "{message}");
    let message = refused(&lab.client(), &Task { rate: None, ..task(addr) }).await;
    assert!(message.contains("needs a rate"), "{message}");
    let odd = Task { check_probability: 0.0, ..task(addr) };
    let message = refused(&lab.client(), &odd).await;
    assert!(message.contains("probability"), "{message}");
    assert_eq!(lab.service.relays(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_coordinator_goes_the_links_to_the_relay_close() {
    let lab = Lab::start(private()).await;
    let (addr, relay) = silent_relay().await;
    let client = lab.client();
    let preparing = tokio::spawn(async move { client.prepare(&task(addr)).await.map(drop) });
    let (link, _) = timeout(PATIENCE, relay.accept()).await.expect("in time").expect("a link");
    assert_eq!(lab.service.relays(), 1);
    preparing.abort();
    until_closed(link).await;
    while lab.service.relays() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_connects_anew_ends_what_it_had_begun() {
    let lab = Lab::start(private()).await;
    let (addr, relay) = silent_relay().await;
    let old = lab.client();
    let preparing = tokio::spawn(async move { old.prepare(&task(addr)).await.map(drop) });
    let (link, _) = timeout(PATIENCE, relay.accept()).await.expect("in time").expect("a link");
    let new = lab.client();
    let again = tokio::spawn(async move { new.prepare(&task(addr)).await.map(drop) });
    until_closed(link).await;
    again.abort();
    let failure = preparing.await.expect("it ends").expect_err("it is over");
    assert!(failure.message.contains("has reconnected"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_asks_how_it_is_ends_nothing_of_the_same_coordinators() {
    let lab = Lab::start(private()).await;
    let (addr, relay) = silent_relay().await;
    let coordinator = lab.client();
    // Twice: later work on the older connection must also continue.
    for _ in 0..2 {
        let client = coordinator.clone();
        let preparing = tokio::spawn(async move { client.prepare(&task(addr)).await.map(drop) });
        let (link, _) = timeout(PATIENCE, relay.accept()).await.expect("in time").expect("a link");
        lab.client().describe().await.expect("a second program with its key");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!preparing.is_finished(), "{:?}", preparing.await);
        preparing.abort();
        until_closed(link).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_back_on_the_list_gives_work_on_its_old_connection() {
    let lab = Lab::start(private()).await;
    let (addr, relay) = silent_relay().await;
    let client = lab.client();
    client.describe().await.expect("its coordinator may ask");
    lab.service.set(Settings { limits: private(), ..Settings::default() });
    lab.service.set(settings(&lab.coordinator, private()));
    let preparing = tokio::spawn(async move { client.prepare(&task(addr)).await.map(drop) });
    let link = timeout(PATIENCE, relay.accept()).await.expect("in time").expect("a link");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!preparing.is_finished(), "{:?}", preparing.await);
    preparing.abort();
    drop(link);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_has_a_bounded_number_of_connections() {
    let lab = Lab::start(private()).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let client = lab.client();
        client.describe().await.expect("there is room");
        clients.push(client);
    }
    lab.client().describe().await.expect_err("there is no more");
    drop(clients);
    let again = async { while lab.client().describe().await.is_err() {} };
    timeout(PATIENCE, again).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_ends_says_so_and_closes_its_links() {
    let lab = Lab::start(private()).await;
    let (addr, relay) = silent_relay().await;
    let client = lab.client();
    let preparing = tokio::spawn(async move { client.prepare(&task(addr)).await.map(drop) });
    let (link, _) = timeout(PATIENCE, relay.accept()).await.expect("in time").expect("a link");
    lab.service.end();
    until_closed(link).await;
    let failure = preparing.await.expect("it ends").expect_err("it is over");
    assert!(failure.message.contains("shut down"), "{failure}");
    let served = timeout(PATIENCE, lab.serving).await.expect("it ends");
    served.expect("without a panic").expect("as it should");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_is_not_waited_for() {
    let lab = Lab::start(private()).await;
    let silent = TcpStream::connect(lab.addr).await.expect("it listens");
    // Others are accepted meanwhile.
    lab.client().describe().await.expect("its coordinator may ask");
    // Many of them do not keep others out either.
    let mut many = Vec::new();
    for _ in 0..100 {
        many.push(TcpStream::connect(lab.addr).await.expect("it listens"));
    }
    lab.client().describe().await.expect("its coordinator may ask");
    until_closed(silent).await;
    // The last of them reaches its time limit without being displaced.
    until_closed(many.pop().expect("there are many")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_measurer_is_named_with_its_address() {
    // A closed port (tcpmux's), a peer that closes each connection, and one that speaks another
    // protocol.
    let gone = SocketAddr::from(([127, 0, 0, 1], 1));
    let (ends, listener) = silent_relay().await;
    tokio::spawn(async move {
        while let Ok((link, _)) = listener.accept().await {
            drop(link)
        }
    });
    let (other, listener) = silent_relay().await;
    tokio::spawn(async move {
        while let Ok((mut link, _)) = listener.accept().await {
            link.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await.expect("sent");
            tokio::spawn(until_closed(link));
        }
    });
    for (addr, part) in [
        (gone, "connection refused"),
        (ends, "it closed the connection"),
        (other, "not a measurer"),
    ] {
        let (key, coordinator) = (fresh_key(), fresh_key());
        let client = RemoteMeasurer::new(&addr.to_string(), measurer_id(&key), &coordinator);
        let client = client.expect("a good address");
        let asking = timeout(PATIENCE, client.describe()).await.expect("an answer");
        let failure = asking.expect_err("it is not a measurer");
        assert!(failure.message.contains(&format!("no connection to it at {addr}: ")), "{failure}");
        assert!(failure.message.to_lowercase().contains(part), "{failure}, not {part}");
        assert!(!failure.message.contains("docs.rs"), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_measurer_that_hangs_is_noticed() {
    // It accepts the connection and is silent.
    let (addr, _listener) = silent_relay().await;
    let (key, coordinator) = (fresh_key(), fresh_key());
    let client = RemoteMeasurer::new(&addr.to_string(), measurer_id(&key), &coordinator);
    let client = client.expect("a good address");
    let asking = timeout(PATIENCE, client.describe()).await.expect("it does not wait for ever");
    asking.expect_err("nobody answers");
}
