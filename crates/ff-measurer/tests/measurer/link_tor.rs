//! Opens links to a real tor, and to peers that are not the expected relay.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ff_lab::LoneRelay;
use ff_measurer::link::control::{ControlError, ControlLink, OwnedCell};
use ff_measurer::link::handshake::{LinkOptions, TargetAddr, open};
use ff_measurer::link::{Link, LinkError, Stage, client_config};
use ff_proto::cell::{BODY_LEN, CMD_CREATE_FAST, CMD_CREATED_FAST, fixed_cell};
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use tor_llcrypto::pk::ed25519::Ed25519Identity;

/// An identity of no relay.
const NOBODY: [u8; 32] = [3; 32];

fn identity(tor: &LoneRelay) -> Ed25519Identity {
    tor.ed_identity().into()
}

#[tokio::test]
async fn create_fast_is_answered() {
    let tor = LoneRelay::start().expect("a tor");
    let start = Instant::now();
    let link = open_to(tor.or_addr(), identity(&tor)).await.expect("a link");
    println!("link opened in {:?}: {link:?}", start.elapsed());
    assert_eq!(link.ed_identity, Some(identity(&tor)));
    let rsa = link.rsa_identity.expect("RSA identity").to_string();
    assert_eq!(rsa.trim_start_matches('$').to_uppercase(), tor.rsa_fingerprint());
    assert_eq!(link.link_protocol, Some(5));
    assert_ne!(*link.exporter, [0; 32]);

    let mut control = ControlLink::new(link).expect("a control link");
    for circ_id in [0x8000_0001, 0x8000_0002] {
        let cell = fixed_cell(circ_id, CMD_CREATE_FAST, &[7; 20]).expect("short body");
        control.send_cells(&cell).await.expect("sent");
        let answer = next_of(&mut control, CMD_CREATED_FAST).await;
        assert_eq!(answer.circ_id, circ_id);
        assert_eq!(answer.body.len(), BODY_LEN);
    }
    control.close().await;
}

/// After many cells in one call, more than a record holds, every answer arrives.
#[tokio::test]
async fn many_cells_at_once_are_answered() {
    let tor = LoneRelay::start().expect("a tor");
    let link = open_to(tor.or_addr(), identity(&tor)).await.expect("a link");
    let mut control = ControlLink::new(link).expect("a control link");
    let cells: Vec<u8> = (1..=100)
        .flat_map(|id| fixed_cell(0x8000_0000 | id, CMD_CREATE_FAST, &[7; 20]).expect("short"))
        .collect();
    control.send_cells(&cells).await.expect("sent");
    let mut answered = Vec::new();
    for _ in 1..=100 {
        answered.push(next_of(&mut control, CMD_CREATED_FAST).await.circ_id);
    }
    // tor keeps the order only within a circuit; its scheduler chooses among circuits.
    answered.sort_unstable();
    assert_eq!(answered, (1..=100).map(|id| 0x8000_0000 | id).collect::<Vec<u32>>());
    let too_long = control.send_cells(&vec![0; 1 << 20]).await;
    assert!(matches!(too_long, Err(ControlError::TooLong { .. })), "{too_long:?}");
    // A relay that closes the link is distinguished from one that misbehaves.
    drop(tor);
    let ended = loop {
        match control.recv_cell().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, ControlError::Closed { .. }), "{ended:?}");
}

#[tokio::test]
async fn another_identity_is_refused() {
    let tor = LoneRelay::start().expect("a tor");
    let error = open_to(tor.or_addr(), NOBODY.into()).await.expect_err("wrong identity");
    let LinkError::WrongIdentity { expected, found, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*expected, NOBODY.into());
    assert_eq!(*found, Some(identity(&tor)));
    assert!(error.to_string().contains(&identity(&tor).to_string()), "{error}");
}

#[tokio::test]
async fn man_in_the_middle_is_refused() {
    let tor = LoneRelay::start().expect("a tor");
    let (listener, addr) = listener();
    let relay = tor.or_addr();
    let (cert, key) = new_certificate();
    thread::spawn(move || {
        let (victim, _) = listener.accept().expect("accept");
        let outer = server(victim, Arc::new(Fixed(certified(cert, key))));
        relay_plaintext(outer, attacker_to(relay));
    });
    let error = open_to(addr, identity(&tor)).await.expect_err("a man in the middle");
    assert!(matches!(error, LinkError::BadCertificates { .. }), "{error:?}");
}

#[tokio::test]
async fn relays_certificate_without_its_key_is_refused() {
    let tor = LoneRelay::start().expect("a tor");
    let (listener, addr) = listener();
    let relay = tor.or_addr();
    let (_, key) = new_certificate();
    thread::spawn(move || {
        let mut inner = attacker_to(relay);
        while inner.tls.is_handshaking() {
            inner.tls.complete_io(&mut inner.tcp).expect("TLS with tor");
        }
        let stolen = inner.tls.peer_certificates().expect("certificate")[0].clone().into_owned();
        let (victim, _) = listener.accept().expect("accept");
        relay_plaintext(server(victim, Arc::new(Fixed(certified(stolen, key)))), inner);
    });
    let error = open_to(addr, identity(&tor)).await.expect_err("a stolen certificate");
    assert!(matches!(error, LinkError::Tls { .. }), "{error:?}");
}

#[tokio::test]
async fn closed_port_is_refused() {
    // Other tests' listeners never have port 1.
    let addr = SocketAddr::from(([127, 0, 0, 1], 1));
    let error = open_to(addr, NOBODY.into()).await.expect_err("closed port");
    assert!(matches!(error, LinkError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
}

#[tokio::test]
async fn plain_web_server_is_not_tls() {
    let (listener, addr) = listener();
    thread::spawn(move || {
        let (mut tcp, _) = listener.accept().expect("accept");
        let _ = tcp.read(&mut [0; 64]);
        let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        until_hung_up(&mut tcp);
    });
    let error = open_to(addr, NOBODY.into()).await.expect_err("a web server");
    assert!(matches!(error, LinkError::NotTls { .. }), "{error:?}");
    assert!(error.to_string().contains("HTTP/1.1"), "{error}");
}

#[tokio::test]
async fn secure_web_server_is_not_tor() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
        let addr = tls_server(move |mut leg| {
            let _ = leg.tls.writer().write_all(answer);
            leg.tls.send_close_notify();
            let _ = leg.tls.complete_io(&mut leg.tcp);
            until_hung_up(&mut leg.tcp);
        });
        let error = open_to(addr, NOBODY.into()).await.expect_err("a web server");
        assert!(matches!(error, LinkError::NotTor { .. }), "{error:?}");
    }
}

/// The stage in which a silent peer's time limit is reached.
async fn silent_stage(addr: SocketAddr, handshake_timeout: Duration) -> Stage {
    let options = LinkOptions { handshake_timeout, ..options() };
    let target = TargetAddr { addr, ed_identity: NOBODY.into() };
    let error = open(&target, &options).await.expect_err("a silent peer");
    let LinkError::HandshakeTimeout { stage, .. } = error else { panic!("{error:?}") };
    stage
}

#[tokio::test]
async fn a_peer_that_is_silent_from_the_beginning_times_out() {
    // The kernel accepts the connection, but nothing is read.
    let (_listener, addr) = listener();
    assert_eq!(silent_stage(addr, Duration::from_millis(300)).await, Stage::Tls);
}

#[tokio::test]
async fn a_peer_that_is_silent_after_tls_times_out() {
    // A machine that is too busy for TLS within that time gets more.
    let mut time = Duration::from_millis(500);
    let stage = loop {
        let addr = tls_server(|mut leg| until_hung_up(&mut leg.tcp));
        let stage = silent_stage(addr, time).await;
        if stage != Stage::Tls || time > Duration::from_secs(60) {
            break stage;
        }
        time *= 2;
    };
    assert_eq!(stage, Stage::Tor);
}

#[tokio::test]
async fn peer_that_hangs_up_is_named_as_such() {
    let (listener, addr) = listener();
    thread::spawn(move || drop(listener.accept()));
    let error = open_to(addr, NOBODY.into()).await.expect_err("hung up");
    assert!(matches!(error, LinkError::Closed { stage: Stage::Tls, .. }), "{error:?}");
}

/// Time limits that a busy test machine can keep.
fn options() -> LinkOptions {
    let [connect_timeout, handshake_timeout] = [Duration::from_secs(60); 2];
    LinkOptions { connect_timeout, handshake_timeout, ..LinkOptions::default() }
}

/// Opens a link with these options.
async fn open_to(addr: SocketAddr, ed_identity: Ed25519Identity) -> Result<Link, LinkError> {
    open(&TargetAddr { addr, ed_identity }, &options()).await
}

/// The next cell with this command; others are skipped.
async fn next_of(control: &mut ControlLink, command: u8) -> OwnedCell {
    let wait = async {
        loop {
            let cell = control.recv_cell().await.expect("a cell");
            if cell.command == command {
                return cell;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("no such cell came")
}

/// A socket that listens on loopback.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let addr = listener.local_addr().expect("address");
    (listener, addr)
}

/// Waits until the peer closes the connection. Closing a socket with unread data would reset it.
fn until_hung_up(tcp: &mut TcpStream) {
    while tcp.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
}

/// A TLS server that completes its handshake and then calls `serve`.
fn tls_server(serve: impl FnOnce(Leg) + Send + 'static) -> SocketAddr {
    let (cert, key) = new_certificate();
    let (listener, addr) = listener();
    thread::spawn(move || {
        let (tcp, _) = listener.accept().expect("accept");
        let mut leg = server(tcp, Arc::new(Fixed(certified(cert, key))));
        while leg.tls.is_handshaking() {
            // A client that stops waiting closes the connection.
            if leg.tls.complete_io(&mut leg.tcp).is_err() {
                return;
            }
        }
        serve(leg);
    });
    addr
}

/// One side of a man in the middle.
struct Leg {
    tls: Connection,
    tcp: TcpStream,
}

impl Leg {
    /// Moves the available data in both directions; returns the received data, `None` at the end.
    fn turn(&mut self, send: &[u8]) -> Option<Vec<u8>> {
        self.tls.writer().write_all(send).ok()?;
        while self.tls.wants_write() && self.tls.write_tls(&mut self.tcp).is_ok() {}
        if matches!(self.tls.read_tls(&mut self.tcp), Ok(0)) {
            return None;
        }
        let state = self.tls.process_new_packets().ok()?;
        let mut plain = vec![0; state.plaintext_bytes_to_read()];
        self.tls.reader().read_exact(&mut plain).ok()?;
        Some(plain)
    }
}

/// Passes plaintext between two TLS connections until one ends.
fn relay_plaintext(mut a: Leg, mut b: Leg) {
    a.tcp.set_nonblocking(true).expect("non-blocking");
    b.tcp.set_nonblocking(true).expect("non-blocking");
    let mut to_a = Vec::new();
    while let Some(to_b) = a.turn(&to_a) {
        let Some(back) = b.turn(&to_b) else { return };
        to_a = back;
        thread::sleep(Duration::from_millis(1));
    }
}

/// The attacker's own connection to the relay; like a link, it accepts any certificate.
fn attacker_to(relay: SocketAddr) -> Leg {
    let config = client_config().expect("a configuration");
    let tls = ClientConnection::new(config, relay.ip().into()).expect("client");
    Leg { tls: tls.into(), tcp: TcpStream::connect(relay).expect("connect to tor") }
}

/// A TLS server side.
fn server(tcp: TcpStream, cert: Arc<dyn ResolvesServerCert>) -> Leg {
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(cert);
    Leg { tls: ServerConnection::new(config.into()).expect("server").into(), tcp }
}

/// A fresh self-signed certificate and its key.
fn new_certificate() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = tor_cert::x509::TlsKeyAndCert::create(
        &mut rand::rng(),
        SystemTime::now(),
        "www.example.com",
        "www.example.net",
    )
    .expect("certificate");
    let cert = CertificateDer::from(made.certificates_der()[0]).into_owned();
    let key = made.private_key_pkcs8_der().expect("key").to_vec();
    (cert, PrivatePkcs8KeyDer::from(key).into())
}

/// Joins a certificate and a key, whether or not they fit.
fn certified(cert: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Arc<CertifiedKey> {
    Arc::new(CertifiedKey::new(vec![cert], any_supported_type(&key).expect("RSA key")))
}

/// Presents the same certificate to every client.
#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
