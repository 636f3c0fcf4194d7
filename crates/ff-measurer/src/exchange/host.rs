//! One host's part of an exchange, without sockets: takes datagrams and times, gives datagrams and
//! reports.
//!
//! ```text
//!                Hello, every 200 ms                 Data, as the pace allows
//!   Knocking ────────────────────────▶ peer   Open ──────────────────────────▶ peer
//!      │  ◀──── Welcome, with the number ──────▶│ ◀── Receipt, with proof ───────
//!      └◀───────── no proof for a second ───────┘
//! ```
//!
//! Only hellos, and answers to datagrams with a valid tag, are sent to an address that has not
//! proven within the last second that it wants data. Welcomes are as long as hellos, and receipts
//! are much shorter than data.

use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::units::{BytesPerSec, MonoTime};

use super::order::{ExchangeOrder, ExchangePeer};
use super::pace::{Pace, Pacer, TICK};
use super::packet::{Header, Kind, MAX_STATEMENTS, Seal};
use super::receipt::{Arrival, Inbox, Ledger, PROOF_TIME, Verdict};
use super::report::{HostSecond, Meter, PeerSecond};

/// Interval at which a peer is asked whether it wants data.
const KNOCK_INTERVAL: Duration = Duration::from_millis(200);
/// Shortest interval between two welcomes to a peer.
const WELCOME_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between receipts.
const RECEIPT_INTERVAL: Duration = Duration::from_millis(50);
/// Without proof for this long, no data is sent to a peer.
const SILENCE: Duration = Duration::from_millis(900);
/// A welcome is valid this long if no data is sent yet.
const WELCOME_TIME: Duration = Duration::from_millis(400);
/// The greatest difference between a packet's second and ours; a greater one means that the hosts
/// do not exchange at the same time.
const MAX_SECONDS_APART: u16 = 2;
/// Largest number of packets in a batch, even if one system call takes more.
const MAX_BATCH: usize = 32;
/// A sender waits until it may send the packets of this much time, because a system call for each
/// packet costs more.
const BATCH_TIME: Duration = Duration::from_micros(500);
/// Largest size of a batch in bytes.
const MAX_BATCH_BYTES: usize = 60_000;

/// Datagrams to send: the first `len` bytes of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// The receiver.
    pub(super) to: SocketAddr,
    /// Bytes of all datagrams.
    pub(super) len: usize,
    /// Bytes of each datagram.
    pub(super) each: usize,
}

/// One host's part of an exchange.
pub(super) struct Host {
    /// Its index.
    own: u8,
    seal: Seal,
    /// The other hosts.
    peers: Vec<Peer>,
    /// Limits the host's rate.
    total: Pacer,
    /// Bytes of a data packet.
    packet_bytes: usize,
    /// When data begins.
    begin: MonoTime,
    /// When data ends.
    end: MonoTime,
    /// Counts bytes and packets by second.
    meter: Meter,
    /// The index of the peer whose turn it is to get data.
    turn: usize,
    /// Random numbers for hellos.
    random: fn() -> u64,
}

/// A host's state of a peer.
struct Peer {
    index: u8,
    addr: SocketAddr,
    /// Whether it wants data.
    door: Door,
    /// The number of a hello that has not been answered.
    to_welcome: Option<u64>,
    /// The earliest time of the next welcome.
    welcome_at: MonoTime,
    /// When the next receipts are due.
    receipt_at: MonoTime,
    /// The packets that were sent, with their proof.
    ledger: Ledger,
    inbox: Inbox,
    /// Controls its rate.
    pace: Pace,
    /// Limits its rate.
    pacer: Pacer,
    /// How the peer behaved.
    fate: PeerFate,
}

/// Whether a peer wants data.
enum Door {
    /// It is being asked.
    Knocking {
        /// The number in the hello.
        number: u64,
        /// When it is asked again.
        at: MonoTime,
    },
    Open {
        /// When it last proved that it receives.
        proven_at: MonoTime,
    },
}

/// How a peer behaved in an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerFate {
    /// Whether it has ever answered a hello.
    pub has_answered: bool,
    /// How often it fell silent, so that sending stopped.
    pub silences: u32,
    /// Packets with a valid tag from another address.
    pub from_elsewhere: u64,
}

impl Host {
    /// A host's part, which begins at this time.
    pub(super) fn new(
        order: &ExchangeOrder,
        packet_bytes: u16,
        random: fn() -> u64,
        now: MonoTime,
        begin: MonoTime,
    ) -> Self {
        let bytes = u64::from(packet_bytes);
        let seconds = u16::try_from(order.duration.as_secs()).unwrap_or(u16::MAX);
        Self {
            own: order.index,
            seal: Seal::new(order.session, &order.key),
            peers: order
                .peers
                .iter()
                .map(|peer| Peer::new(peer, order.rate, bytes, random, now))
                .collect(),
            total: Pacer::new(order.rate, bytes, now),
            packet_bytes: usize::from(packet_bytes),
            begin,
            end: begin + Duration::from_secs(seconds.into()),
            meter: Meter::new(order.peers.iter().map(|peer| peer.index).collect(), seconds),
            turn: 0,
            random,
        }
    }

    /// Handles a datagram.
    pub(super) fn handle_datagram(&mut self, from: SocketAddr, datagram: &[u8], now: MonoTime) {
        let second = self.second(now);
        let opened = self.seal.open(datagram).filter(|(header, _)| header.to == self.own);
        let place = opened
            .as_ref()
            .and_then(|(header, _)| self.peers.iter().position(|peer| peer.index == header.from));
        let (Some((header, said)), Some(place)) = (opened, place) else {
            return self.count_stranger(second);
        };
        let peer = &mut self.peers[place];
        if !is_same(from, peer.addr) {
            peer.fate.from_elsewhere += 1;
            return self.count_stranger(second);
        }
        match header.kind {
            Kind::Hello => peer.to_welcome = Some(header.number),
            Kind::Welcome => peer.welcome(header.number, now),
            Kind::Data => {
                let apart = header.second.abs_diff(count_second(now, self.begin));
                // Data from before the beginning or after the end is acknowledged, but counts in no
                // second.
                let mut nothing = PeerSecond::default();
                let count = second.and_then(|second| self.meter.at(second, place));
                peer.receive(&header, datagram.len(), apart, count.unwrap_or(&mut nothing));
            }
            Kind::Receipt => {
                for statement in said {
                    let verdict = self.peers[place].ledger.check(&statement, now);
                    self.enter(verdict, place, now);
                }
            }
        }
    }

    /// Writes the next datagrams into `buffer`; `None` when there is nothing to send now.
    ///
    /// `segments` is the number of datagrams that one system call takes.
    pub(super) fn poll_transmit(
        &mut self,
        now: MonoTime,
        segments: usize,
        buffer: &mut [u8],
    ) -> Option<Outgoing> {
        for place in 0..self.peers.len() {
            if let Some(outgoing) = self.poll_control(place, now, buffer) {
                return Some(outgoing);
            }
        }
        if now < self.begin || now >= self.end {
            return None;
        }
        for step in 0..self.peers.len() {
            let place = (self.turn + step) % self.peers.len();
            if let Some(outgoing) = self.poll_data(place, now, segments, buffer) {
                self.turn = (place + 1) % self.peers.len();
                return Some(outgoing);
            }
        }
        None
    }

    /// The report of the next second that is over.
    pub(super) fn poll_second(&mut self, now: MonoTime) -> Option<HostSecond> {
        let is_past = now > self.begin + PROOF_TIME;
        let before = if is_past { count_second(now, self.begin + PROOF_TIME) } else { 0 };
        let mut second = self.meter.end(before)?;
        for (count, peer) in second.peers.iter_mut().zip(&self.peers) {
            let unproven = count.sent_bytes.saturating_sub(count.proven_bytes);
            count.lost_packets = unproven / self.packet_bytes as u64;
            count.pace = peer.pace.rate();
        }
        Some(second)
    }

    /// How long nothing needs to be done except receiving.
    pub(super) fn poll_timeout(&mut self, now: MonoTime) -> Duration {
        let mut wait = RECEIPT_INTERVAL;
        for peer in &self.peers {
            let at = match peer.door {
                Door::Knocking { at, .. } => at,
                Door::Open { .. } => peer.receipt_at,
            };
            wait = wait.min(at.since(now));
            if matches!(peer.door, Door::Open { .. }) && now >= self.begin && now < self.end {
                let batch = self.batch(peer.pace.rate().bytes_in(BATCH_TIME));
                let free = peer.pacer.time_until(batch).max(self.total.time_until(batch));
                wait = wait.min(free);
            }
        }
        if now < self.begin { wait.min(self.begin.since(now)) } else { wait }
    }

    /// Whether all seconds have been reported.
    pub(super) fn is_over(&self, now: MonoTime) -> bool {
        now > self.end + PROOF_TIME
    }

    /// How each peer behaved, by its index.
    pub(super) fn fates(&self) -> impl Iterator<Item = (u8, PeerFate)> {
        self.peers.iter().map(|peer| (peer.index, peer.fate))
    }

    /// Writes a welcome, a hello or receipts for a peer.
    fn poll_control(&mut self, place: usize, now: MonoTime, buffer: &mut [u8]) -> Option<Outgoing> {
        let second = count_second(now, self.begin);
        let peer = &mut self.peers[place];
        if now < self.end {
            peer.turn_away(now, self.begin, self.random);
        }
        let mut header = Header {
            kind: Kind::Hello,
            from: self.own,
            to: peer.index,
            second,
            number: 0,
            nonce: 0,
        };
        let mut said = Vec::new();
        if let Some(number) = peer.answer(now) {
            (header.kind, header.number) = (Kind::Welcome, number);
        } else if let Some(number) = peer.knock(now) {
            header.number = number;
        } else {
            header.kind = Kind::Receipt;
            said = peer.receipt(now)?;
        }
        let len = self.seal.seal_control(&header, &said, buffer);
        self.total.take(len as u64);
        Some(Outgoing { to: peer.addr, len, each: len })
    }

    /// Writes a batch of data for a peer, if its rate and the host's allow one.
    fn poll_data(
        &mut self,
        place: usize,
        now: MonoTime,
        segments: usize,
        buffer: &mut [u8],
    ) -> Option<Outgoing> {
        let (tick, second) = (tick(now, self.begin), self.second(now)?);
        let rate = self.peers[place].pace.rate();
        let least = self.batch(rate.bytes_in(BATCH_TIME));
        let peer = &mut self.peers[place];
        if !matches!(peer.door, Door::Open { .. }) {
            return None;
        }
        peer.pacer.set_rate(rate, now);
        let allowed = peer.pacer.packets(now).min(self.total.packets(now));
        if allowed < least {
            return None;
        }
        let count = segments.min(MAX_BATCH).min(MAX_BATCH_BYTES / self.packet_bytes).max(1);
        let count = count.min(usize::try_from(allowed).unwrap_or(count));
        let len = count * self.packet_bytes;
        for packet in buffer[..len].chunks_exact_mut(self.packet_bytes) {
            let (number, nonce) = peer.ledger.send(tick, now);
            let (from, to) = (self.own, peer.index);
            self.seal.seal(&Header { kind: Kind::Data, from, to, second, number, nonce }, packet);
            peer.pace.sent(tick);
        }
        peer.pacer.take(len as u64);
        self.total.take(len as u64);
        if let Some(count) = self.meter.at(second, place) {
            count.sent_bytes += len as u64;
        }
        Some(Outgoing { to: peer.addr, len, each: self.packet_bytes })
    }

    /// The least number of packets in a batch, from the bytes of [`BATCH_TIME`].
    fn batch(&self, bytes: u64) -> u64 {
        (bytes / self.packet_bytes as u64).clamp(1, MAX_BATCH as u64 / 2)
    }

    /// Notes the verdict on a statement.
    fn enter(&mut self, verdict: Verdict, place: usize, now: MonoTime) {
        let tick_now = tick(now, self.begin);
        match verdict {
            Verdict::Proven { tick, packets } => {
                let peer = &mut self.peers[place];
                peer.pace.proven(tick, packets);
                peer.pace.judge(tick_now);
                if let Door::Open { proven_at } = &mut peer.door {
                    *proven_at = now;
                }
                let second = tick_second(tick);
                if let Some(count) = self.meter.at(second, place) {
                    count.proven_bytes += u64::from(packets) * self.packet_bytes as u64;
                }
            }
            Verdict::False => {
                let second = self.second(now);
                if let Some(count) = second.and_then(|second| self.meter.at(second, place)) {
                    count.false_receipts += 1;
                }
            }
            Verdict::Old => {}
        }
    }

    /// Counts a datagram of no peer.
    fn count_stranger(&mut self, second: Option<u16>) {
        if let Some(second) = second.and_then(|second| self.meter.second(second)) {
            second.strangers += 1;
        }
    }

    /// The second at a time; `None` before the beginning and after the end.
    fn second(&self, now: MonoTime) -> Option<u16> {
        (now >= self.begin && now < self.end).then(|| count_second(now, self.begin))
    }
}

impl Peer {
    /// A peer that will be asked at once.
    fn new(
        peer: &ExchangePeer,
        total: BytesPerSec,
        packet_bytes: u64,
        random: fn() -> u64,
        now: MonoTime,
    ) -> Self {
        let secret = [random().to_be_bytes(), random().to_be_bytes()].concat();
        let pace = Pace::new(peer.rate.min(total), packet_bytes);
        Self {
            index: peer.index,
            addr: peer.addr,
            door: Door::Knocking { number: random(), at: now },
            to_welcome: None,
            welcome_at: now,
            receipt_at: now,
            ledger: Ledger::new(&<[u8; 16]>::try_from(secret).expect("two times 8 bytes")),
            inbox: Inbox::new(),
            pacer: Pacer::new(pace.rate(), packet_bytes, now),
            pace,
            fate: PeerFate::default(),
        }
    }

    /// Accepts a welcome if it answers our hello.
    fn welcome(&mut self, answered: u64, now: MonoTime) {
        if matches!(self.door, Door::Knocking { number, .. } if number == answered) {
            self.door = Door::Open { proven_at: now };
            self.fate.has_answered = true;
        }
    }

    /// The number of a hello that must be answered now.
    fn answer(&mut self, now: MonoTime) -> Option<u64> {
        if self.welcome_at > now {
            return None;
        }
        let number = self.to_welcome.take()?;
        self.welcome_at = now + WELCOME_INTERVAL;
        Some(number)
    }

    /// Notes a received data packet.
    fn receive(&mut self, header: &Header, bytes: usize, apart: u16, count: &mut PeerSecond) {
        if apart > MAX_SECONDS_APART {
            count.stale_packets += 1;
            return;
        }
        match self.inbox.receive(header.number, header.nonce) {
            Arrival::InOrder => {}
            Arrival::Reordered => count.reordered_packets += 1,
            Arrival::Duplicate => {
                count.duplicated_packets += 1;
                return;
            }
            Arrival::TooOld => {
                count.stale_packets += 1;
                return;
            }
        }
        count.received_bytes += bytes as u64;
    }

    /// Asks a peer again when it has stopped proving that it receives, or while it waits for the
    /// beginning.
    fn turn_away(&mut self, now: MonoTime, begin: MonoTime, random: fn() -> u64) {
        let Door::Open { proven_at } = self.door else { return };
        let has_begun = now >= begin;
        let (since, most) =
            if has_begun { (proven_at.max(begin), SILENCE) } else { (proven_at, WELCOME_TIME) };
        if now.since(since) <= most {
            return;
        }
        self.door = Door::Knocking { number: random(), at: now };
        if has_begun {
            self.fate.silences += 1;
            self.pace.silence(tick(now, begin));
        }
    }

    /// The number of the hello, if one is due.
    fn knock(&mut self, now: MonoTime) -> Option<u64> {
        match &mut self.door {
            Door::Knocking { number, at } if *at <= now => {
                *at = now + KNOCK_INTERVAL;
                Some(*number)
            }
            _ => None,
        }
    }

    /// The statements of a receipt, if one is due.
    fn receipt(&mut self, now: MonoTime) -> Option<Vec<super::statement::Statement>> {
        if !matches!(self.door, Door::Open { .. }) {
            return None;
        }
        if self.receipt_at <= now {
            self.receipt_at = now + RECEIPT_INTERVAL;
            self.inbox.tick();
        }
        let said: Vec<_> = std::iter::from_fn(|| self.inbox.say()).take(MAX_STATEMENTS).collect();
        (!said.is_empty()).then_some(said)
    }
}

/// Whether two addresses are the same; IPv4 addresses mapped into IPv6 count as IPv4.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

fn tick(now: MonoTime, begin: MonoTime) -> u32 {
    u32::try_from(now.since(begin).as_micros() / TICK.as_micros()).unwrap_or(u32::MAX)
}

/// The second of a tick.
fn tick_second(tick: u32) -> u16 {
    u16::try_from(tick / 10).unwrap_or(u16::MAX)
}

fn count_second(now: MonoTime, begin: MonoTime) -> u16 {
    u16::try_from(now.since(begin).as_secs()).unwrap_or(u16::MAX)
}
