//! The types that C and Rust exchange by value.

use std::ffi::{CString, c_char};
use std::ptr;

use ff_proto::session::target::LinkId;

use super::FF_CELL_LEN;
use super::handle::{FfCircuit, FfLevel, HostOutput};

/// An option of the operator's, as torrc has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfOption {
    /// Its name, e.g. "FFMeasurementsAllowed"; the case does not matter.
    pub name: *const c_char,
    /// Its value, e.g. "1".
    pub value: *const c_char,
}

/// A parameter of the consensus.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfParam {
    /// Its name, that of an option.
    pub name: *const c_char,
    /// Its value.
    pub value: i64,
}

/// A MEASUREMENT cell, and where and when it came. The library keeps none of the pointers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfArrival {
    /// The link: any number that no other link has, or will have.
    pub link: u64,
    /// The cell's circuit id.
    pub circ_id: u32,
    /// Whether the link has, or has had, circuits that are not ours.
    pub has_circuits: bool,
    /// The cell's body: FF_BODY_LEN bytes.
    pub body: *const u8,
    /// What the link's TLS exporter gives for FF_EXPORTER_LABEL: FF_SECRET_LEN bytes.
    pub exporter: *const u8,
    /// FF_SECRET_LEN fresh bytes of a cryptographic random number generator.
    pub entropy: *const u8,
    /// Monotonic time in microseconds.
    pub now_micros: u64,
    /// Seconds since 1970.
    pub unix_secs: u64,
}

/// What the relay must do.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfOutputKind {
    /// Nothing more.
    None = 0,
    /// Send `cell` on `link`.
    Send = 1,
    /// `link` is a measurement link from here on: keep `circuit` with it. The circuit is the
    /// caller's now, who must give it to `ff_circuit_free`, also when the link is gone already.
    Open = 2,
    /// Send what is pending on `link` and close it.
    Close = 3,
    /// Write `text` to the log at `level`.
    Tell = 4,
    /// Store `text` in place of what was stored before, so that it survives a restart; when that
    /// fails, call `ff_target_abort`. Only for targets made without a file.
    Store = 5,
    /// The measurement of `link` is over: forget its circuit, and drop its FF_CMD_MEAS_ECHO cells.
    /// Go on reading: over unread input it would be reset, and its last message lost. Unless its
    /// peer closes it, FF_OUTPUT_KIND_CLOSE comes two seconds later.
    Over = 6,
}

/// A link's part in a measurement.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfPart {
    /// It has none: what it carries is background.
    None = 0,
    /// The measurement that is granted or running was asked for on it.
    Coordinator = 1,
    /// It has a measurement circuit.
    Measurement = 2,
    /// It had one; what it brings is dropped.
    Ending = 3,
}

/// The next thing that the relay must do. Fields of other kinds are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfOutput {
    /// What to do.
    pub kind: FfOutputKind,
    /// For FF_OUTPUT_KIND_TELL.
    pub level: FfLevel,
    /// For FF_OUTPUT_KIND_SEND, OPEN, OVER and CLOSE. It may be gone already; then drop the output.
    pub link: u64,
    /// For FF_OUTPUT_KIND_OPEN.
    pub circuit: *mut FfCircuit,
    /// For FF_OUTPUT_KIND_TELL and STORE; valid until the target's next `ff_target_poll_output`
    /// or `ff_target_free`.
    pub text: *const c_char,
    /// For FF_OUTPUT_KIND_SEND: the whole cell as it goes over the wire.
    pub cell: [u8; FF_CELL_LEN],
}

/// How much background traffic may move now. All zero means without limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FfAllowance {
    /// Whether there is a limit.
    pub is_limited: bool,
    /// Bytes that may be received, if there is one.
    pub receive_bytes: u64,
    /// Bytes that may be sent, if there is one.
    pub send_bytes: u64,
    /// Of the former, those that measurement traffic must leave to background.
    pub receive_reserved_bytes: u64,
    /// Of the latter, those that measurement traffic must leave to background.
    pub send_reserved_bytes: u64,
}

/// What the relay has been through since `ff_target_new`. Numbers only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FfTotals {
    /// Measurements granted.
    pub granted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Measurements that ended as planned.
    pub completed: u64,
    /// Measurements that did not.
    pub failed: u64,
    /// Bytes echoed, as 514 a cell.
    pub echoed_bytes: u64,
    /// Background bytes received while being measured.
    pub background_bytes: u64,
    /// How often background traffic had to wait for its share.
    pub background_waits: u64,
}

impl FfOutput {
    /// An output for C, whose text goes into `text`.
    pub(super) fn new(output: Option<HostOutput>, text: &mut CString) -> Self {
        let mut c = Self {
            kind: FfOutputKind::None,
            level: FfLevel::Info,
            link: 0,
            circuit: ptr::null_mut(),
            text: ptr::null(),
            cell: [0; FF_CELL_LEN],
        };
        let mut keep = |new: String| {
            *text = CString::new(new.replace('\0', " ")).unwrap_or_default();
            text.as_ptr()
        };
        match output {
            None => {}
            Some(HostOutput::Send(LinkId(link), cell)) => {
                (c.kind, c.link, c.cell) = (FfOutputKind::Send, link, *cell);
            }
            Some(HostOutput::Open(LinkId(link), circuit)) => {
                (c.kind, c.link) = (FfOutputKind::Open, link);
                c.circuit = Box::into_raw(circuit);
            }
            Some(HostOutput::Over(LinkId(link))) => {
                (c.kind, c.link) = (FfOutputKind::Over, link);
            }
            Some(HostOutput::Close(LinkId(link))) => {
                (c.kind, c.link) = (FfOutputKind::Close, link);
            }
            Some(HostOutput::Tell(level, new)) => {
                (c.kind, c.level, c.text) = (FfOutputKind::Tell, level, keep(new));
            }
            Some(HostOutput::Store(new)) => (c.kind, c.text) = (FfOutputKind::Store, keep(new)),
        }
        c
    }
}
