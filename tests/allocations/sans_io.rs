//! A cell's whole way without a socket: made, sealed, opened, echoed, and back to be checked.

use std::ops::Range;

use ff_measurer::link::record::{HEADER, Opened, Opener, RECORD_OVERHEAD, Sealer};
use ff_proto::cell::{CELL_LEN, CellAssembler, HEADER_LEN};
use ff_proto::circuit::{CircuitKeys, EchoCircuit, ForwardKey};
use ff_proto::session::SessionFailure;
use ff_proto::session::measurer::{EchoEvent, EchoLink, LinkSecrets, MEASUREMENT_CIRC_ID};

use crate::counting::ThreadCounts;
use crate::record_layer::sealer_and_opener;

/// Cells of a record.
const CELLS_PER_RECORD: usize = 6;
/// Records that are counted: 100,000 cells.
const RECORDS: usize = 12_500;
/// Records before the counting.
const WARM_UP: usize = 100;
/// Where the returning bytes are cut, so that a cell lies across the cut.
const CUT: usize = 3 * CELL_LEN + 77;

#[test]
fn a_cell_on_its_way_and_back_allocates_nothing() {
    for forward in [ForwardKey::Aes128Ctr([4; 16]), ForwardKey::CgoAes128([4; 80])] {
        let mut way = Way::new(forward);
        let mut checked = 0;
        (0..WARM_UP).for_each(|_| checked += way.carry_record());
        let before = ThreadCounts::own().allocations();
        (0..RECORDS).for_each(|_| checked += way.carry_record());
        let allocations = ThreadCounts::own().allocations() - before;
        let cells = RECORDS * CELLS_PER_RECORD;
        println!("{allocations} allocations over {cells} cells, {checked} of them checked");
        assert_eq!(allocations, 0);
        assert!(checked > cells as u64 / 200, "the checks are among what is counted");
        assert_eq!(way.target.cells(), way.link.echoed());
    }
}

/// A measurer, a target, and the record layer in both directions.
struct Way {
    /// The measurer's session.
    link: EchoLink,
    /// The target's circuit.
    target: EchoCircuit,
    /// To the target.
    there: (Sealer, Opener),
    /// To the measurer.
    back: (Sealer, Opener),
    /// The measurer's cells.
    cells: CellAssembler,
    /// The one record that is on the way.
    record: Vec<u8>,
}

impl Way {
    /// Both ends before the first cell.
    fn new(forward: ForwardKey) -> Self {
        let secrets = LinkSecrets { ephemeral: [1; 32], content: [2; 16], sampling: [3; 16] };
        let keys = CircuitKeys { forward, confirmation: [0; 32] };
        Self {
            link: EchoLink::new(MEASUREMENT_CIRC_ID, &secrets, &keys, 1e-2),
            target: EchoCircuit::new(MEASUREMENT_CIRC_ID, &keys),
            there: sealer_and_opener(),
            back: sealer_and_opener(),
            cells: CellAssembler::default(),
            record: vec![0; CELLS_PER_RECORD * CELL_LEN + RECORD_OVERHEAD],
        }
    }

    /// Takes a record of cells there and back; returns how many of them were checked.
    fn carry_record(&mut self) -> u64 {
        for cell in self.record[PLAINTEXT].as_chunks_mut::<CELL_LEN>().0 {
            self.link.write(cell);
        }
        carry(&mut self.there, &mut self.record);
        for cell in self.record[PLAINTEXT].as_chunks_mut::<CELL_LEN>().0 {
            self.target.echo(cell[HEADER_LEN..].first_chunk_mut().expect("a body's length"));
        }
        carry(&mut self.back, &mut self.record);
        let mut checked = 0;
        let (first, second) = self.record[PLAINTEXT].split_at(CUT);
        for bytes in [first, second] {
            let link = &mut self.link;
            let fed: Result<(), SessionFailure> = self.cells.feed(bytes, |cell| {
                checked += u64::from(link.handle(cell)? != EchoEvent::Echo);
                Ok(())
            });
            fed.expect("the echoes are right");
        }
        checked
    }
}

/// Where the cells are in a record.
const PLAINTEXT: Range<usize> = HEADER..HEADER + CELLS_PER_RECORD * CELL_LEN;

/// Seals a record at one end and opens it at the other.
fn carry((sealer, opener): &mut (Sealer, Opener), record: &mut [u8]) {
    sealer.seal(record).expect("the key is fresh enough");
    let opened = opener.open(record).expect("it is a good record");
    assert_eq!(opened, Opened::Data { plaintext: PLAINTEXT, wire_len: record.len() });
}

#[test]
fn the_counting_counts() {
    let before = (ThreadCounts::own().allocations(), ThreadCounts::own().live_bytes());
    let block = std::hint::black_box(vec![1_u8; 1000]);
    let after = (ThreadCounts::own().allocations(), ThreadCounts::own().live_bytes());
    assert_eq!(after, (before.0 + 1, before.1 + 1000));
    drop(block);
    assert_eq!(ThreadCounts::own().live_bytes(), before.1);
}
