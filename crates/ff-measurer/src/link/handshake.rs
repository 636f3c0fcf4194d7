//! Opens a link: TCP, TLS, Tor's link handshake, and a check of the relay's identity.
//!
//! tor-proto's client handshake does the Tor part over a stream lent to it. Then its channel and
//! reactor are dropped without having run, and the stream is taken back. The socket and the traffic
//! keys remain, as a [`Link`].
//!
//! A man in the middle fails: the peer must have the key of its TLS certificate (checked by
//! rustls), and the expected identity must have signed a certificate of exactly this TLS
//! certificate (checked by tor-proto with the CERTS cell).

use std::io;
use std::net::SocketAddr;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use safelog::MaybeSensitive;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tor_linkspec::{ChannelMethod, HasRelayIds as _, OwnedChanTarget};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_proto::memquota::{ChannelAccount, SpecificAccount as _};
use tor_proto::peer::PeerAddr;
use tor_rtcompat::tokio::TokioRustlsRuntime;
use zeroize::Zeroizing;

use crate::link::stream::{Fault, Lent, TlsStream};
use crate::link::{EXPORTER_LABEL, EXPORTER_LEN, Link, LinkError, Stage, record};

/// The relay to open a link to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetAddr {
    /// Address of its ORPort.
    pub addr: SocketAddr,
    /// The identity it must prove.
    pub ed_identity: Ed25519Identity,
}

/// Options for opening links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Time limit of the TCP connection.
    pub connect_timeout: Duration,
    /// Time limit of TLS and the Tor handshake together.
    pub handshake_timeout: Duration,
    /// Bytes of the socket's send buffer; the kernel's choice when `None`.
    pub sndbuf: Option<u32>,
    /// Bytes of the socket's receive buffer; the kernel's choice when `None`.
    pub rcvbuf: Option<u32>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(20),
            sndbuf: None,
            rcvbuf: None,
        }
    }
}

/// Opens a link to `target`; runs on tokio.
///
/// # Errors
/// A [`LinkError`] that names the peer and suggests a check. Dropping the future closes the
/// connection.
pub async fn open(target: &TargetAddr, opts: &LinkOptions) -> Result<Link, LinkError> {
    let peer = target.addr;
    let tcp = connect(peer, opts).await?;
    let mut stream = TlsStream::client(tcp, peer).map_err(|e| LinkError::setup(peer, e))?;

    let deadline = Instant::now() + opts.handshake_timeout;
    let late = |stage| LinkError::HandshakeTimeout { peer, stage, after: opts.handshake_timeout };
    timeout_at(deadline, stream.handshake())
        .await
        .map_err(|_| late(Stage::Tls))?
        .map_err(|fault| fault.into_error(peer, Stage::Tls))?;

    let lent = Lent::new(stream);
    let shaken =
        timeout_at(deadline, tor_handshake(target, &lent)).await.map_err(|_| late(Stage::Tor))?;
    let stream = lent.take_back().ok_or_else(|| LinkError::setup(peer, "the stream was lost"))?;
    match shaken {
        Ok(rsa_identity) => {
            let link = into_link(stream, peer)?;
            Ok(Link { ed_identity: Some(target.ed_identity), rsa_identity, ..link })
        }
        Err(failure) => Err(explain(stream, target, failure)),
    }
}

/// Connects the socket and sets its options.
async fn connect(peer: SocketAddr, opts: &LinkOptions) -> Result<TcpStream, LinkError> {
    let connecting = async {
        let socket = if peer.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // The buffers' sizes must be set before the handshake, which negotiates window scaling.
        opts.sndbuf.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes))?;
        opts.rcvbuf.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))?;
        let tcp = socket.connect(peer).await?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    };
    match timeout(opts.connect_timeout, connecting).await {
        Ok(connected) => connected.map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::ConnectionRefused => LinkError::Refused { peer },
            io::ErrorKind::TimedOut => {
                LinkError::ConnectTimeout { peer, after: opts.connect_timeout }
            }
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                LinkError::Unreachable { peer, source }
            }
            _ => LinkError::Io { peer, stage: Stage::Tcp, source },
        }),
        Err(_) => Err(LinkError::ConnectTimeout { peer, after: opts.connect_timeout }),
    }
}

/// The step at which the Tor handshake failed.
enum TorFailure {
    /// Before the relay's certificates were checked.
    Handshake(tor_proto::Error),
    /// The certificates are not those of the expected relay on this TLS connection.
    Verify(tor_proto::Error),
    /// On our side.
    Setup(String),
}

/// Does Tor's link handshake and checks the peer's identity; returns its RSA identity.
///
/// When it returns, tor-proto has dropped its handles on `lent`.
async fn tor_handshake(
    target: &TargetAddr,
    lent: &Lent,
) -> Result<Option<RsaIdentity>, TorFailure> {
    let certificate = lent.peer_certificate().ok_or(TorFailure::Setup("no TLS peer".into()))?;
    let runtime = runtime().map_err(|e| TorFailure::Setup(e.to_string()))?;
    let expected = OwnedChanTarget::builder()
        .addrs(vec![target.addr])
        .method(ChannelMethod::Direct(vec![target.addr]))
        .ed_identity(target.ed_identity)
        .build()
        .map_err(|e| TorFailure::Setup(e.to_string()))?;

    let unverified = tor_proto::ClientChannelBuilder::new()
        .launch(lent.clone(), runtime, ChannelAccount::new_noop())
        .connect(SystemTime::now)
        .await
        .map_err(TorFailure::Handshake)?;
    let verified = unverified.verify(&expected, &certificate, None).map_err(TorFailure::Verify)?;
    let address = MaybeSensitive::not_sensitive(PeerAddr::from(target.addr));
    let (channel, _reactor) = verified.finish(address).await.map_err(TorFailure::Handshake)?;
    Ok(channel.target().rsa_identity().copied())
}

/// A tor-rtcompat runtime, which tor-proto needs but hardly uses.
fn runtime() -> io::Result<TokioRustlsRuntime> {
    /// Its TLS provider panics if rustls has no default cryptography.
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that the program has chosen one already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
    TokioRustlsRuntime::current()
}

/// The most specific error of a failed Tor handshake.
fn explain(stream: TlsStream, target: &TargetAddr, failure: TorFailure) -> LinkError {
    let peer = target.addr;
    match (stream.fault, failure) {
        (_, TorFailure::Setup(detail)) => LinkError::setup(peer, detail),
        (Some(Fault::Closed), _) if !stream.gate.is_tor() => {
            LinkError::NotTor { peer, detail: "it closed the link without a VERSIONS cell" }
        }
        (Some(fault), _) => fault.into_error(peer, Stage::Tor),
        (None, TorFailure::Handshake(source)) => {
            LinkError::TorHandshake { peer, source: Box::new(source) }
        }
        (None, TorFailure::Verify(source)) => {
            let found = stream.gate.claimed().flatten();
            match source {
                tor_proto::Error::HandshakeCertsExpired { expired_by } => {
                    LinkError::CertificatesExpired { peer, expired_by }
                }
                _ if found != Some(target.ed_identity) => {
                    LinkError::WrongIdentity { peer, expected: target.ed_identity, found }
                }
                source => LinkError::BadCertificates { peer, source: Box::new(source) },
            }
        }
    }
}

/// Takes all parts of a link out of the stream, except the peer's identities.
pub(super) fn into_link(stream: TlsStream, peer: SocketAddr) -> Result<Link, LinkError> {
    let TlsStream { tcp, tls, gate, ciphertext, .. } = stream;
    let mut exporter = Zeroizing::new([0; EXPORTER_LEN]);
    tls.export_keying_material(&mut exporter[..], EXPORTER_LABEL, None)
        .map_err(|e| LinkError::setup(peer, e))?;
    let secrets = tls.dangerous_extract_secrets().map_err(|e| LinkError::setup(peer, e))?;
    let (sealer, opener, suite) = record::pair(&secrets).map_err(|e| LinkError::setup(peer, e))?;
    let tcp = tcp.into_std().map_err(|source| LinkError::Io { peer, stage: Stage::Tor, source })?;
    Ok(Link {
        tcp,
        peer,
        sealer,
        opener,
        suite,
        exporter,
        leftover_ciphertext: ciphertext,
        link_protocol: gate.link_protocol(),
        leftover_plaintext: gate.into_rest(),
        ed_identity: None,
        rsa_identity: None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::thread;

    use ff_proto::cell::{CMD_MEASUREMENT, fixed_cell};
    use futures::AsyncReadExt as _;
    use rustls::ServerConnection;

    use super::*;
    use crate::link::control::ControlLink;
    use crate::link::tls::tests::server_config;

    /// The number of cells that the server sends right after its NETINFO.
    const EARLY: u32 = 60;

    /// VERSIONS and NETINFO, as far as the stream reads them.
    fn relay_handshake() -> Vec<u8> {
        let mut bytes = vec![0, 0, 7, 0, 2, 0, 5];
        bytes.extend(fixed_cell(0, 8, &[]).expect("short body"));
        bytes
    }

    /// Sends the handshake and [`EARLY`] cells, in records that end within cells; then sends the
    /// exporter to the test, and echoes.
    fn eager_server(listener: &TcpListener, exporter: &mpsc::Sender<[u8; EXPORTER_LEN]>) {
        let (mut tcp, _) = listener.accept().expect("accept");
        let config = server_config(&rustls::crypto::aws_lc_rs::default_provider().cipher_suites);
        let mut tls = ServerConnection::new(config.into()).expect("server");
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).expect("TLS");
        }
        let mut bytes = relay_handshake();
        for circ_id in 0..EARLY {
            bytes.extend(fixed_cell(circ_id, CMD_MEASUREMENT, &[1]).expect("short body"));
        }
        for chunk in bytes.chunks(900) {
            tls.writer().write_all(chunk).expect("write");
        }
        tls.complete_io(&mut tcp).expect("send");
        let taken = tls.export_keying_material([0; EXPORTER_LEN], EXPORTER_LABEL, None);
        exporter.send(taken.expect("exporter")).expect("the test waits");
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        let mut cell = [0; 514];
        stream.read_exact(&mut cell).expect("a cell");
        stream.write_all(&cell).expect("echo");
    }

    #[tokio::test]
    async fn nothing_behind_netinfo_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let addr = listener.local_addr().expect("address");
        let (sender, exporter) = mpsc::channel();
        thread::spawn(move || eager_server(&listener, &sender));

        let tcp = connect(addr, &LinkOptions::default()).await.expect("TCP");
        let mut stream = TlsStream::client(tcp, addr).expect("TLS settings");
        stream.handshake().await.expect("TLS");
        // Wait until more bytes than the handshake can have arrived.
        let exporter = exporter.recv().expect("exporter");
        let mut lent = Lent::new(stream);
        let mut seen = vec![0; relay_handshake().len()];
        lent.read_exact(&mut seen).await.expect("the relay's handshake");
        assert_eq!(seen, relay_handshake());
        let more = timeout(Duration::from_millis(50), lent.read(&mut [0; 4096])).await;
        assert!(more.is_err(), "bytes behind NETINFO were handed out");

        let link = into_link(lent.take_back().expect("stream"), addr).expect("link");
        assert!(lent.read(&mut seen).await.is_err(), "a taken stream still works");
        assert_eq!(*link.exporter, exporter);
        let mut control = ControlLink::new(link).expect("control link");
        for circ_id in 0..EARLY {
            assert_eq!(control.recv_cell().await.expect("cell").circ_id, circ_id);
        }
        let cell = fixed_cell(77, CMD_MEASUREMENT, &[2]).expect("short body");
        control.send_cells(&cell).await.expect("sent");
        assert_eq!(control.recv_cell().await.expect("cell").circ_id, 77);
    }
}
