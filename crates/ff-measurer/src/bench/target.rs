//! A target without rules, as fast as possible, to bench the real measurer.
//!
//! It follows the protocol from MEAS_CREATE on but trusts every peer: there is no coordinator, no
//! background traffic and no limit. A record is decrypted, answered and encrypted again in place.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use ed25519_dalek::SigningKey;
use ff_proto::auth::{EXPORTER_LABEL, EXPORTER_LEN, Exporter};
use ff_proto::cell::{CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT, Cell, HEADER_LEN, fixed_cell};
use ff_proto::circuit::{EchoCircuit, EphemeralKey, Exchange};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{MeasCreated, Msg};
use ff_proto::units::Cells;
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use zeroize::Zeroizing;

use super::echo::{join, spawn};
use super::{BenchError, Case, Run, io, pin, tls};
use crate::link::record::{HEADER, MAX_WIRE, Opened, Opener, Sealer, pair};
use crate::link::{Link, LinkOptions, TargetAddr};
use crate::measurer::{Measurer, MeasurerEvent, START_LEAD};
use crate::order::Order;
use crate::socket::READ_LEN;
use crate::window::MIN_NAP;

/// The cheapest cipher for the target; for the measurer all cost the same.
const CRYPTO: CryptoKind = CryptoKind::AES128_CTR;

/// A link at the target.
struct TargetSocket {
    tcp: mio::net::TcpStream,
    /// Decrypts records.
    opener: Opener,
    /// Encrypts records.
    sealer: Sealer,
    /// The link's TLS exporter.
    exporter: Exporter,
    /// The circuit, once it exists.
    circuit: Option<EchoCircuit>,
    /// Received records (those from `open` on are not decrypted yet), then, up to `sealed`, the
    /// records to send.
    buffer: Vec<u8>,
    /// Bytes in the buffer.
    filled: usize,
    /// Bytes at the front that are sealed answers.
    sealed: usize,
    /// Of these, the bytes that have been sent.
    sent: usize,
    /// Whether the socket may be readable.
    readable: bool,
    /// Whether the socket may be writable.
    writable: bool,
}

/// The result of a turn on a socket.
enum Turn {
    /// There is more to do at once.
    Busy,
    /// There is nothing to do.
    Idle,
    /// The peer is gone.
    Closed,
}

impl TargetSocket {
    /// Accepts a link.
    fn new(mut tcp: TcpStream, config: &Arc<ServerConfig>) -> Result<Self, BenchError> {
        tcp.set_nodelay(true).map_err(io("setting TCP_NODELAY"))?;
        let tls = tls::server(&mut tcp, config)?;
        let exporter = tls.export_keying_material([0; EXPORTER_LEN], EXPORTER_LABEL, None)?;
        let (sealer, opener, _) = pair(&tls.dangerous_extract_secrets()?)?;
        tcp.set_nonblocking(true).map_err(io("setting a socket up"))?;
        Ok(Self {
            tcp: mio::net::TcpStream::from_std(tcp),
            opener,
            sealer,
            exporter,
            circuit: None,
            buffer: vec![0; MAX_WIRE + READ_LEN],
            filled: 0,
            sealed: 0,
            sent: 0,
            readable: true,
            writable: true,
        })
    }

    /// Sends sealed bytes, then reads and answers once.
    fn turn(&mut self) -> Result<Turn, BenchError> {
        while self.writable && self.sent < self.sealed {
            match self.tcp.write(&self.buffer[self.sent..self.sealed]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(_) => return Ok(Turn::Closed),
            }
        }
        if self.sent < self.sealed || !self.readable {
            return Ok(Turn::Idle);
        }
        self.buffer.copy_within(self.sealed..self.filled, 0);
        self.filled -= self.sealed;
        (self.sealed, self.sent) = (0, 0);
        let room = &mut self.buffer[self.filled..self.filled + READ_LEN];
        match self.tcp.read(room) {
            Ok(0) => return Ok(Turn::Closed),
            Ok(len) => {
                self.filled += len;
                self.readable = len == READ_LEN;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(_) => return Ok(Turn::Closed),
        }
        self.answer()?;
        Ok(if self.sealed > 0 || self.readable { Turn::Busy } else { Turn::Idle })
    }

    /// Decrypts, answers and seals all whole records in the buffer.
    fn answer(&mut self) -> Result<(), BenchError> {
        loop {
            let record = &mut self.buffer[self.sealed..self.filled];
            let Opened::Data { plaintext, wire_len } = self.opener.open(record)? else {
                return Ok(());
            };
            let record = &mut record[..wire_len];
            let (cells, _) = record[plaintext].as_chunks_mut::<CELL_LEN>();
            for cell in cells {
                answer_cell(cell, &mut self.circuit, &self.exporter);
            }
            debug_assert!(record.len() > HEADER);
            self.sealer.seal(record)?;
            self.sealed += wire_len;
        }
    }
}

/// Turns a cell into its answer.
fn answer_cell(cell: &mut Cell, circuit: &mut Option<EchoCircuit>, exporter: &Exporter) {
    let (header, body) = cell.split_at_mut(HEADER_LEN);
    match (header[4], circuit.as_mut(), body.first_chunk_mut()) {
        (CMD_MEAS_ECHO, Some(circuit), Some(body)) => circuit.echo(body),
        (CMD_MEASUREMENT, None, _) => {
            if let Some((answer, opened)) = create(cell, exporter) {
                *cell = answer;
                *circuit = Some(opened);
            }
        }
        _ => {}
    }
}

/// Answers MEAS_CREATE from any sender.
fn create(cell: &Cell, exporter: &Exporter) -> Option<(Cell, EchoCircuit)> {
    let Ok(Msg::Create(create)) = Msg::decode(&cell[HEADER_LEN..]) else { return None };
    let create = create.unverified();
    let ours = EphemeralKey::new(rand::random());
    let keys = Exchange {
        measurement: &create.measurement,
        exporter,
        measurer_public: &create.public,
        target_public: &ours.public(),
        crypto: CRYPTO,
    }
    .derive(&ours)?;
    let circ_id = u32::from_be_bytes(*cell.first_chunk()?);
    let created = MeasCreated { public: ours.public(), confirmation: keys.confirmation };
    let body = Msg::Created(created).encode().ok()?;
    let answer = fixed_cell(circ_id, CMD_MEASUREMENT, &body).ok()?;
    Some((answer, EchoCircuit::new(circ_id, &keys)))
}

/// Serves links until told to stop or until one of them closes.
fn serve(mut sockets: Vec<TargetSocket>, stop: &AtomicBool) -> Result<(), BenchError> {
    let mut poll = Poll::new().map_err(io("polling"))?;
    let both = Interest::READABLE | Interest::WRITABLE;
    for (index, socket) in sockets.iter_mut().enumerate() {
        poll.registry().register(&mut socket.tcp, Token(index), both).map_err(io("polling"))?;
    }
    let mut events = Events::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for socket in &mut sockets {
            match socket.turn()? {
                Turn::Busy => busy = true,
                Turn::Idle => {}
                Turn::Closed => return Ok(()),
            }
        }
        if !busy {
            std::thread::sleep(MIN_NAP);
        }
        let timeout = if busy { std::time::Duration::ZERO } else { 20 * MIN_NAP };
        poll.poll(&mut events, Some(timeout)).map_err(io("polling"))?;
        for event in events.iter() {
            if let Some(socket) = sockets.get_mut(event.token().0) {
                socket.readable |= event.is_readable();
                socket.writable |= event.is_writable();
            }
        }
    }
    Ok(())
}

/// Opens a link with TLS and without Tor's handshake.
fn open(addr: SocketAddr) -> Result<Link, BenchError> {
    let mut tcp = tls::connect(addr)?;
    let tls = tls::client(&mut tcp)?;
    let exporter = tls.export_keying_material([0; EXPORTER_LEN], EXPORTER_LABEL, None)?;
    let (sealer, opener, suite) = pair(&tls.dangerous_extract_secrets()?)?;
    tcp.set_nonblocking(true).map_err(io("setting a socket up"))?;
    Ok(Link {
        tcp,
        peer: addr,
        sealer,
        opener,
        exporter: Zeroizing::new(exporter),
        leftover_ciphertext: Vec::new(),
        leftover_plaintext: Vec::new(),
        ed_identity: None,
        rsa_identity: None,
        suite,
        link_protocol: None,
    })
}

/// Runs the measurer with this target.
pub(super) fn measurer(case: &Case<'_>) -> Result<Run, BenchError> {
    let listener = tls::listen()?;
    let addr = listener.local_addr().map_err(io("listening on loopback"))?;
    let (count, cores) = (case.options.sockets, case.cores);
    let config = tls::server_config()?;
    let (ready, is_ready) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let serving = spawn("server", move || {
        pin(cores.server);
        let accept = |_| {
            let (tcp, _) = listener.accept().map_err(io("accepting"))?;
            TargetSocket::new(tcp, &config)
        };
        let sockets = (0..count).map(accept).collect::<Result<Vec<_>, BenchError>>()?;
        let _ = ready.send(());
        serve(sockets, &stopped)
    })?;
    let links = (0..count).map(|_| open(addr)).collect::<Result<Vec<_>, _>>()?;
    // Records that arrive with the end of a handshake would be lost in rustls's buffer.
    let gone = |_| io("the target's handshakes")(ErrorKind::ConnectionAborted.into());
    is_ready.recv().map_err(gone)?;
    let order = Order {
        measurement: MeasurementId(rand::random()),
        target: TargetAddr { addr, ed_identity: Ed25519Identity::new([0; 32]) },
        key: SigningKey::from_bytes(&rand::random()),
        sockets: count,
        rate: None,
        // The first second is the warm-up and is not counted.
        duration: case.options.run + std::time::Duration::from_secs(1),
        cells_per_record: case.record_len / CELL_LEN,
        crypto: CRYPTO,
        check_probability: ff_proto::params::Params::default().check_probability,
        cores: cores.client.into_iter().collect(),
        link: LinkOptions::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io("starting a runtime"))?;
    let run = runtime.block_on(collect(&order, links));
    stop.store(true, Ordering::Relaxed);
    // An error of the target after the measurer's end does not matter.
    let _ = join(serving);
    run
}

/// Runs the measurer and adds up its seconds, except the first.
async fn collect(order: &Order, links: Vec<Link>) -> Result<Run, BenchError> {
    let mut measurer = Measurer::with_links(order, links, None).await?;
    measurer.start(Instant::now() + START_LEAD);
    let (mut bytes, mut cpu_micros) = (0, 0);
    loop {
        match measurer.next_event().await {
            MeasurerEvent::Second(report) if report.second > 0 => {
                bytes += Cells(report.echoed_cells).bytes();
                cpu_micros += report.cpu_micros;
            }
            MeasurerEvent::Second(_) => {}
            MeasurerEvent::Done(_) => {
                return Ok((bytes, std::time::Duration::from_micros(cpu_micros)));
            }
            MeasurerEvent::Failed(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ff_proto::msg::MeasEnd;
    use ff_proto::units::BytesPerSec;

    use super::*;

    /// Echoes until told that the measurer has ended and no more bytes arrive, ends the measurement
    /// as a relay does, and drops later bytes. Returns whether the measurer announced the link's
    /// end, and how the stream ended.
    fn echo_and_end(
        mut target: TargetSocket,
        is_over: &AtomicBool,
    ) -> (bool, Result<(), ErrorKind>) {
        let mut last = Instant::now();
        while !is_over.load(Ordering::Relaxed)
            || last.elapsed() < Duration::from_millis(100)
            || target.sent < target.sealed
        {
            (target.readable, target.writable) = (true, true);
            match target.turn().expect("good records") {
                Turn::Busy => last = Instant::now(),
                Turn::Idle => std::thread::sleep(MIN_NAP),
                Turn::Closed => panic!("the measurer closed the link first"),
            }
        }
        let end = Msg::End(MeasEnd { measurement: MeasurementId([1; 16]) });
        let cell =
            fixed_cell(0, CMD_MEASUREMENT, &end.encode().expect("it fits")).expect("it fits");
        let mut record = vec![0; crate::link::record::RECORD_OVERHEAD + CELL_LEN];
        record[HEADER..HEADER + CELL_LEN].copy_from_slice(&cell);
        target.sealer.seal(&mut record).expect("a fresh key");
        let mut unsent = &record[..];
        while !unsent.is_empty() {
            match target.tcp.write(unsent) {
                Ok(len) => unsent = &unsent[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(MIN_NAP),
                Err(error) => panic!("{error}"),
            }
        }

        let mut bytes = target.buffer[target.sealed..target.filled].to_vec();
        let (mut at, mut is_announced) = (0, false);
        loop {
            while let Ok(opened) = target.opener.open(&mut bytes[at..]) {
                match opened {
                    Opened::Data { wire_len, .. } | Opened::Ignored { wire_len } => at += wire_len,
                    Opened::Incomplete { .. } => break,
                    Opened::Closed => {
                        is_announced = true;
                        break;
                    }
                }
            }
            let mut more = [0; 4096];
            match target.tcp.read(&mut more) {
                Ok(0) => return (is_announced, Ok(())),
                Ok(len) => bytes.extend_from_slice(&more[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(MIN_NAP),
                Err(error) => return (is_announced, Err(error.kind())),
            }
        }
    }

    #[test]
    fn a_measurer_stops_at_its_end_and_closes_each_link_when_the_target_ends_it() {
        let listener = tls::listen().expect("a port");
        let addr = listener.local_addr().expect("the port");
        let config = tls::server_config().expect("settings");
        let (count, secs) = (4, 3);
        let is_over = Arc::new(AtomicBool::new(false));
        let targets: Vec<_> = (0..count)
            .map(|_| {
                let (listener, config) = (listener.try_clone().expect("a socket"), config.clone());
                let is_over = is_over.clone();
                std::thread::spawn(move || {
                    let (tcp, _) = listener.accept().expect("a link");
                    let target = TargetSocket::new(tcp, &config).expect("TLS");
                    echo_and_end(target, &is_over)
                })
            })
            .collect();
        let links: Vec<_> = (0..count).map(|_| open(addr).expect("a link")).collect();
        let order = Order {
            measurement: MeasurementId([1; 16]),
            target: TargetAddr { addr, ed_identity: Ed25519Identity::new([0; 32]) },
            key: SigningKey::from_bytes(&[2; 32]),
            sockets: count,
            rate: Some(BytesPerSec::from_mbit(20)),
            duration: Duration::from_secs(secs),
            cells_per_record: 6,
            crypto: CRYPTO,
            check_probability: 1e-3,
            cores: Vec::new(),
            link: LinkOptions::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let totals = runtime.expect("a runtime").block_on(async {
            let mut measurer = Measurer::with_links(&order, links, None).await.expect("circuits");
            measurer.start(Instant::now());
            for _ in 0..secs {
                let event = measurer.next_event().await;
                assert!(matches!(event, MeasurerEvent::Second(_)), "{event:?}");
            }
            is_over.store(true, Ordering::Relaxed);
            match measurer.next_event().await {
                MeasurerEvent::Done(totals) => totals,
                event => panic!("{event:?}"),
            }
        });
        for target in targets {
            assert_eq!(target.join().expect("the target's thread"), (true, Ok(())));
        }
        // Cells that a target reads after its end are not echoed.
        assert!(totals.sent_cells >= totals.echoed_cells, "{totals:?}");
        assert!(totals.checked_cells > 0);
        let held = totals.held_bytes_per_socket;
        assert!((48 * 1024..64 * 1024).contains(&held), "a call's records and a checker: {held}");
    }
}
