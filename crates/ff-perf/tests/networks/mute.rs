//! A guard that opens links and says nothing more, and one whose link nobody has waited for to the end.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ff_measurer::link::control::ControlLink;
use ff_measurer::link::{LinkIdentity, accept};
use ff_perf::client::arti::Arti;
use ff_perf::client::{Client as _, Progress};
use ff_perf::network::{Network, Relay};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::liars::as_known;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Commands of cells (tor-spec 3): a circuit is to be made, and ended.
const CREATE2: u8 = 10;
/// As above.
const DESTROY: u8 = 4;

/// What comes on a link, each by its command; none is its end.
async fn listen(tcp: TcpStream, identity: Arc<LinkIdentity>, said: UnboundedSender<Option<u8>>) {
    // Who has given up the link does not shake hands.
    let Ok(link) = accept(tcp, &identity, PATIENCE).await else { return };
    let mut link = ControlLink::new(link).expect("tokio's socket");
    while let Ok(cell) = link.recv_cell().await {
        let _ = said.send(Some(cell.command));
    }
    let _ = said.send(None);
}

/// Such a guard, which takes so long for each link; what it hears.
async fn guard(pause: Duration) -> (Vec<Arc<Relay>>, UnboundedReceiver<Option<u8>>) {
    let identity = Arc::new(LinkIdentity::generate().expect("an identity"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let relay = as_known(&identity, [9; 32], &listener);
    let (said, hears) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (identity, said) = (Arc::clone(&identity), said.clone());
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                listen(tcp, identity, said).await;
            });
        }
    });
    (vec![Arc::new(relay)], hears)
}

/// Waits until the guard has heard this.
async fn until(hears: &mut UnboundedReceiver<Option<u8>>, wanted: Option<u8>) {
    let next = async { while hears.recv().await.expect("it listens") != wanted {} };
    timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
}

/// A circuit that is given up before its first hop stands is destroyed, and keeps no link.
#[tokio::test]
async fn what_is_given_up_at_a_mute_guard_is_gone() {
    let (path, mut hears) = guard(Duration::ZERO).await;
    let client = Arti::new(&Network::default()).expect("Arti");
    let mut progress = Progress::new();
    tokio::select! {
        _ = client.build(&path, &mut progress) => panic!("nobody has answered"),
        () = until(&mut hears, Some(CREATE2)) => {}
    }
    assert!(progress.has_link, "{progress:?}");
    until(&mut hears, Some(DESTROY)).await;
    drop(client);
    until(&mut hears, None).await;
}

/// Whoever waits for a link that another circuit has had opened, and given up, opens it itself.
#[tokio::test]
async fn a_link_that_another_circuit_gave_up_is_waited_for() {
    let (path, mut hears) = guard(Duration::from_secs(2)).await;
    let client = Arti::new(&Network::default()).expect("Arti");
    let build = |time| {
        let (client, path) = (&client, &path);
        async move {
            let mut progress = Progress::new();
            let built = timeout(time, client.build(path, &mut progress)).await;
            (built.map(|built| built.map(drop)), progress.has_link)
        }
    };
    let both = tokio::join!(build(Duration::from_secs(1)), build(Duration::from_secs(8)));
    let (first, second) = both;
    assert!(first.0.is_err() && !first.1, "{first:?}");
    assert!(second.0.is_err() && second.1, "it had its link: {second:?}");
    until(&mut hears, Some(CREATE2)).await;
}
