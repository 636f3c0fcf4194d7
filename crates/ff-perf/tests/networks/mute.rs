//! A guard that opens links and then stays silent, and one whose link was given up while it opened.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ff_circuits::network::{CircuitNetwork, NetworkRelay};
use ff_circuits::record::Whose;
use ff_measurer::link::control::ControlLink;
use ff_measurer::link::{LinkIdentity, accept};
use ff_perf::client::arti::Arti;
use ff_perf::client::{Client as _, Progress};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::liars::as_known;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// More links than are opened.
const LINKS: usize = 1000;

/// Commands of cells (tor-spec 3) that create and destroy a circuit.
const CREATE2: u8 = 10;
const DESTROY: u8 = 4;

/// Reports the commands received on a link, and `None` at its end.
async fn listen(tcp: TcpStream, identity: Arc<LinkIdentity>, said: UnboundedSender<Option<u8>>) {
    // A relay that has given the link up does not complete the handshake.
    let Ok(link) = accept(tcp, &identity, PATIENCE).await else { return };
    let mut link = ControlLink::new(link).expect("tokio's socket");
    while let Ok(cell) = link.recv_cell().await {
        let _ = said.send(Some(cell.command));
    }
    let _ = said.send(None);
}

/// A silent guard, which accepts a link only with a permit, and the commands that it receives.
async fn guard(gate: Arc<Semaphore>) -> (Vec<Arc<NetworkRelay>>, UnboundedReceiver<Option<u8>>) {
    let identity = Arc::new(LinkIdentity::generate().expect("an identity"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let relay = as_known(&identity, [9; 32], &listener);
    let (said, hears) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (identity, said, gate) = (Arc::clone(&identity), said.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                gate.acquire().await.expect("it is not closed").forget();
                listen(tcp, identity, said).await;
            });
        }
    });
    (vec![Arc::new(relay)], hears)
}

/// Waits until the guard has received this.
async fn until(hears: &mut UnboundedReceiver<Option<u8>>, wanted: Option<u8>) {
    let next = async { while hears.recv().await.expect("it listens") != wanted {} };
    timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
}

/// Waits for a circuit at a silent guard, which never answers. Arti waits 5 s for a link, too
/// little on a busy machine, so a failed link is tried again.
async fn waits(client: &Arti, path: &[Arc<NetworkRelay>], progress: &mut Progress) {
    loop {
        match client.build(path, progress).await {
            Err(fault) if fault.whose == Whose::Unknown => {}
            other => panic!("nobody has answered: {:?}", other.map(drop)),
        }
    }
}

/// A circuit given up before its first hop is complete is destroyed, and keeps no link open.
#[tokio::test]
async fn what_is_given_up_at_a_mute_guard_is_gone() {
    let (path, mut hears) = guard(Arc::new(Semaphore::new(LINKS))).await;
    let client = Arti::new(&CircuitNetwork::default()).expect("Arti");
    let mut progress = Progress::new();
    tokio::select! {
        () = waits(&client, &path, &mut progress) => {}
        () = until(&mut hears, Some(CREATE2)) => {}
    }
    assert!(progress.has_link, "{progress:?}");
    until(&mut hears, Some(DESTROY)).await;
    drop(client);
    until(&mut hears, None).await;
}

/// A circuit that waits for a link opened by another circuit opens it itself if the other gives up.
#[tokio::test]
async fn a_link_that_another_circuit_gave_up_is_waited_for() {
    let gate = Arc::new(Semaphore::new(0));
    let (path, mut hears) = guard(Arc::clone(&gate)).await;
    let client = Arti::new(&CircuitNetwork::default()).expect("Arti");
    let (mut first, mut second) = (Progress::new(), Progress::new());
    let gives_up = async {
        let built = timeout(Duration::from_secs(1), client.build(&path, &mut first)).await;
        assert!(!matches!(built, Ok(Ok(_))), "nobody has answered");
        gate.add_permits(LINKS);
    };
    // The first circuit begins first, and the other waits with it.
    tokio::select! {
        biased;
        _ = async { tokio::join!(gives_up, waits(&client, &path, &mut second)) } => {}
        () = until(&mut hears, Some(CREATE2)) => {}
    }
    assert!(!first.has_link && second.has_link, "{first:?}, {second:?}");
}
