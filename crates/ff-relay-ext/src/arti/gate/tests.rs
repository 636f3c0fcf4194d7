use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ff_proto::cell::{CELL_LEN, fixed_cell};
use ff_proto::units::BytesPerSec;

use super::super::Moved;
use super::super::held::MAX_LINK_BYTES;
use super::super::ingress::Listings;
use super::*;
use crate::ingress::IngressOptions;
use crate::options::TargetOptions;

const LINK: LinkId = LinkId(1);
/// The limit in bytes per second, and the burst in bytes.
const LIMIT: (u64, u64) = (10_000, 2000);

/// A connection that accepts all bytes, or a limited number.
#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    most: Option<usize>,
    flushed: usize,
}

impl AsyncWrite for Sink {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Moved {
        let room = self.most.map_or(usize::MAX, |most| most - self.bytes.len());
        let len = bytes.len().min(room);
        self.bytes.extend_from_slice(&bytes[..len]);
        if len > 0 { Poll::Ready(Ok(len)) } else { Poll::Pending }
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An extension of a relay on which a client's link has this limit.
pub(in super::super) fn extension(limit: Option<(u64, u64)>) -> Arc<Extension> {
    of_a_slow_relay(limit, None)
}

/// The same of a relay that has a limit itself.
fn of_a_slow_relay(limit: Option<(u64, u64)>, relay: Option<u64>) -> Arc<Extension> {
    let policy = TargetOptions::default().resolve(&BTreeMap::new());
    let relay = relay.map(BytesPerSec::new);
    let extension = Extension::new(policy, None, relay).expect("it reads no file");
    if let Some((rate, burst)) = limit {
        let mut options = IngressOptions::default();
        for (name, value) in
            [("FFIngressLimit", 1), ("PerConnBWRate", rate), ("PerConnBWBurst", burst)]
        {
            options.set(name, &value.to_string()).unwrap();
        }
        extension.set_ingress(options.resolve(&BTreeMap::new()).rules);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        extension.set_listings(Listings { valid_after_secs: now, relays: HashMap::new() });
    }
    extension.greet(LINK, None);
    extension
}

/// This number of cells, of five circuits in turn, numbered from `first`.
pub(in super::super) fn cells(first: u32, count: u32) -> Vec<u8> {
    let cell = |n: u32| fixed_cell(1 + n % 5, 3, &n.to_be_bytes()).unwrap();
    (first..first + count).flat_map(cell).collect()
}

/// Writes as links do; returns the bytes that were accepted before it had to wait.
fn write(gate: &mut Gate, sink: &mut Sink, extension: &Extension, bytes: &[u8]) -> usize {
    let at = At { extension, link: LINK, traffic: Traffic::Background };
    let mut cx = Context::from_waker(Waker::noop());
    let (mut done, mut rest_of_cell) = (0, 0);
    while done < bytes.len() {
        if rest_of_cell > 0 {
            sink.bytes.extend_from_slice(&bytes[done..done + rest_of_cell]);
            done += std::mem::take(&mut rest_of_cell);
            continue;
        }
        match gate.poll_admit(sink, at, &bytes[done..], &mut cx) {
            Poll::Ready(Ok(Admitted::Taken(len))) => done += len,
            Poll::Ready(Ok(Admitted::Direct(len))) => {
                sink.bytes.extend_from_slice(&bytes[done..done + len]);
                extension.moved(LINK, Direction::Sent, Traffic::Background, len);
                done += len;
                rest_of_cell = done.next_multiple_of(CELL_LEN) - done;
            }
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => break,
        }
    }
    done
}

/// Checks that these are whole cells and that those of each circuit are in order; returns their
/// number.
pub(in super::super) fn check(bytes: &[u8]) -> usize {
    let mut last: HashMap<u32, u32> = HashMap::new();
    let (cells, rest) = bytes.as_chunks::<CELL_LEN>();
    assert!(rest.is_empty());
    for cell in cells {
        let circuit = u32::from_be_bytes(cell[..4].try_into().unwrap());
        let number = u32::from_be_bytes(cell[5..9].try_into().unwrap());
        assert_eq!(circuit, 1 + number % 5);
        let before = last.insert(circuit, number);
        assert!(before.is_none_or(|before| number == before + 5), "{before:?}, {number}");
    }
    cells.len()
}

#[test]
fn tor_proto_does_not_wait_and_the_wire_has_the_limit() {
    let begun = Instant::now();
    let extension = extension(Some(LIMIT));
    let (mut gate, mut sink) = (Gate::new(Greeting::of_opening()), Sink::default());
    let bytes = cells(0, 2000);
    for piece in bytes.chunks(100 * CELL_LEN) {
        assert_eq!(write(&mut gate, &mut sink, &extension, piece), piece.len());
    }
    let at = At { extension: &extension, link: LINK, traffic: Traffic::Background };
    let mut cx = Context::from_waker(Waker::noop());
    gate.drain(&mut sink, at, &mut cx).unwrap();
    let secs = usize::try_from(begun.elapsed().as_secs()).unwrap();
    let most = 2000 + 10_000 * (1 + secs) + 2 * CELL_LEN;
    assert!((2000..most).contains(&sink.bytes.len()), "{} bytes", sink.bytes.len());

    // Without limits all go out.
    extension.set_ingress(None);
    assert!(gate.holds_cells());
    gate.drain(&mut sink, at, &mut cx).unwrap();
    assert!(!gate.is_busy() && sink.flushed > 0);
    assert_eq!((sink.bytes.len(), check(&sink.bytes)), (bytes.len(), 2000));
    let held = extension.new_held();
    assert!(held.has_room(MAX_LINK_BYTES), "nothing counts as held any more");
}

#[test]
fn what_exceeds_the_buffer_goes_out_at_once() {
    let extension = extension(Some(LIMIT));
    let (mut gate, mut sink) = (Gate::new(Greeting::of_opening()), Sink::default());
    let bytes = cells(0, 10_000);
    assert_eq!(write(&mut gate, &mut sink, &extension, &bytes), bytes.len());
    let held = gate.held.as_ref().map_or(0, |held| held.bytes());
    assert!(held <= MAX_LINK_BYTES && held + LET_OUT_BYTES + CELL_LEN > MAX_LINK_BYTES, "{held}");
    assert_eq!(sink.bytes.len() + held, bytes.len());
    extension.set_ingress(None);
    let at = At { extension: &extension, link: LINK, traffic: Traffic::Background };
    gate.drain(&mut sink, at, &mut Context::from_waker(Waker::noop())).unwrap();
    assert_eq!(check(&sink.bytes), 10_000);
}

#[test]
fn what_waits_to_go_out_beyond_the_limit_keeps_its_place() {
    let extension = of_a_slow_relay(Some(LIMIT), Some(1));
    let (mut gate, mut sink) = (Gate::new(Greeting::of_opening()), Sink::default());
    let bytes = cells(0, 10_000);
    assert!(write(&mut gate, &mut sink, &extension, &bytes) < bytes.len());
    assert!(extension.waits_to_send(LINK), "the buffer is full");
    // As while reading, and before the next cell.
    let at = At { extension: &extension, link: LINK, traffic: Traffic::Background };
    gate.drain(&mut sink, at, &mut Context::from_waker(Waker::noop())).unwrap();
    assert!(extension.waits_to_send(LINK));
}

#[test]
fn the_end_of_a_circuit_makes_room_for_itself() {
    let extension = extension(Some(LIMIT));
    let mut gate = Gate::new(Greeting::of_opening());
    let mut sink = Sink { most: Some(5000), ..Sink::default() };
    let bytes = cells(0, 10_000);
    assert!(write(&mut gate, &mut sink, &extension, &bytes) < bytes.len());
    let end = fixed_cell(3, CMD_DESTROY, &[]).unwrap();
    assert_eq!(write(&mut gate, &mut sink, &extension, &end), end.len());
}

#[test]
fn a_peer_that_does_not_read_is_waited_for_when_the_buffer_is_full() {
    let extension = extension(Some(LIMIT));
    let mut gate = Gate::new(Greeting::of_opening());
    let mut sink = Sink { most: Some(5000), ..Sink::default() };
    let bytes = cells(0, 10_000);
    let done = write(&mut gate, &mut sink, &extension, &bytes);
    assert!((MAX_LINK_BYTES..bytes.len() / 2).contains(&done), "{done}");
    assert_eq!(write(&mut gate, &mut sink, &extension, &bytes[done..]), 0);
    sink.most = None;
    assert_eq!(write(&mut gate, &mut sink, &extension, &bytes[done..]), bytes.len() - done);
}

#[test]
fn without_rules_or_a_limit_nothing_is_held() {
    let bytes = cells(0, 10_000);
    for unlimited in [extension(None), extension(Some(LIMIT))] {
        let (mut gate, mut sink) = (Gate::new(Greeting::of_opening()), Sink::default());
        if unlimited.limits_links() {
            // As of a link that has not greeted.
            unlimited.close_link(LINK);
        }
        assert_eq!(write(&mut gate, &mut sink, &unlimited, &bytes), bytes.len());
        assert!(!gate.is_busy());
        assert_eq!(sink.bytes, bytes);
    }
}

#[test]
fn a_failed_extension_holds_nothing_back() {
    let extension = extension(Some(LIMIT));
    let (mut gate, mut sink) = (Gate::new(Greeting::of_opening()), Sink::default());
    let bytes = cells(0, 1000);
    assert_eq!(write(&mut gate, &mut sink, &extension, &bytes), bytes.len());
    assert!(gate.holds_cells());
    extension.fail();
    let at = At { extension: &extension, link: LINK, traffic: Traffic::Background };
    gate.drain(&mut sink, at, &mut Context::from_waker(Waker::noop())).unwrap();
    assert_eq!(check(&sink.bytes), 1000);
}

#[test]
fn cells_that_wait_are_dropped_with_the_link_and_one_that_is_being_written_is_not() {
    let extension = extension(Some(LIMIT));
    let mut gate = Gate::new(Greeting::of_opening());
    let mut sink = Sink { most: Some(4000), ..Sink::default() };
    write(&mut gate, &mut sink, &extension, &cells(0, 100));
    extension.set_ingress(None);
    let at = At { extension: &extension, link: LINK, traffic: Traffic::Background };
    let mut cx = Context::from_waker(Waker::noop());
    gate.drain(&mut sink, at, &mut cx).unwrap();
    gate.drop_waiting();
    sink.most = None;
    assert!(gate.poll_rest(&mut sink, &mut cx).is_ready());
    let count = check(&sink.bytes);
    assert!((1..100).contains(&count), "{count}");
    gate.drain(&mut sink, at, &mut cx).unwrap();
    assert_eq!(check(&sink.bytes), count);
    assert!(!gate.is_busy());
}
