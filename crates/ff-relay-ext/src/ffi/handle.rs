//! The types behind the pointers that C holds.

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::net::IpAddr;

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::cell::Cell;
use ff_proto::circuit::EchoCircuit;
use ff_proto::ids::MeasurerIndex;
use ff_proto::msg::ErrCode;
use ff_proto::session::target::{Arrival, LinkId, LinkPart, Output, TargetEvent};
use ff_proto::units::{Cells, MonoTime};

use crate::background::Allowance;
use crate::memory;
use crate::options::TargetOptions;
use crate::target::{RelayTarget, Totals};

/// How much the operator wants to hear something.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfLevel {
    /// What any stranger can cause, however often.
    Info = 0,
    /// What the relay and its coordinators do.
    Notice = 1,
    /// What the operator should see to.
    Warn = 2,
}

/// The relay's side of all measurements.
#[derive(Debug)]
pub struct FfTarget {
    /// The relay's side.
    relay: RelayTarget,
    /// Whether C keeps the grants.
    host_stores: bool,
    /// The operator's options.
    options: TargetOptions,
    /// The consensus's parameters.
    params: BTreeMap<String, i64>,
    /// Outputs for C before the relay's own.
    pending: VecDeque<HostOutput>,
    /// The links that C regards as part of a measurement, to be closed after a failure.
    links: Vec<LinkId>,
    /// Whether the last output was to store a grant that has not been sent yet.
    is_storing: bool,
    /// Why it is out of service.
    failure: OnceCell<String>,
    /// Whether the failure has been reported to C.
    failure_is_told: bool,
    /// The text of the last output.
    pub(super) text: CString,
}

/// An output for C.
#[derive(Debug)]
pub(super) enum HostOutput {
    /// Send a cell.
    Send(LinkId, Box<Cell>),
    /// Keep the circuit with the link.
    Open(LinkId, Box<FfCircuit>),
    /// Drop the circuit of a link.
    Over(LinkId),
    /// Close a link.
    Close(LinkId),
    /// Store the memory.
    Store(String),
    /// Write to the log.
    Tell(FfLevel, String),
}

/// A link's measurement circuit.
#[derive(Debug)]
pub struct FfCircuit {
    /// The circuit.
    pub(super) circuit: EchoCircuit,
    /// Whether it is out of service.
    pub(super) has_failed: bool,
}

impl FfTarget {
    /// A target without options, which refuses all requests.
    pub(super) fn new(relay: RelayTarget, host_stores: bool) -> Self {
        let mut pending = VecDeque::new();
        if let Some(dropped) = relay.dropped() {
            pending.push_back(HostOutput::Tell(FfLevel::Warn, dropped.to_string()));
            if host_stores {
                pending.push_back(HostOutput::Store(memory::to_text(relay.history())));
            }
        }
        Self {
            relay,
            host_stores,
            options: TargetOptions::default(),
            params: BTreeMap::new(),
            pending,
            links: Vec::new(),
            is_storing: false,
            failure: OnceCell::new(),
            failure_is_told: false,
            text: CString::default(),
        }
    }

    /// Puts the target out of service.
    #[cold]
    pub(super) fn fail(&self, message: String) {
        // Only the first failure is reported.
        let _ = self.failure.set(message);
    }

    /// Whether the target is out of service.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Replaces the options.
    pub(super) fn set_options(&mut self, options: TargetOptions, now: MonoTime) {
        self.options = options;
        self.relay.set_policy(self.options.resolve(&self.params), now);
    }

    /// Replaces the consensus's parameters.
    pub(super) fn set_params(&mut self, params: BTreeMap<String, i64>, now: MonoTime) {
        self.params = params;
        self.relay.set_policy(self.options.resolve(&self.params), now);
    }

    /// Whether options and parameters let the relay be measured.
    pub(super) fn is_allowed(&self) -> bool {
        self.options.resolve(&self.params).enabled
    }

    /// A link's part in a measurement.
    pub(super) fn part_of(&self, link: LinkId) -> LinkPart {
        self.relay.part_of(link)
    }

    /// Handles a MEASUREMENT cell.
    pub(super) fn handle_control(&mut self, arrival: &Arrival<'_>) {
        let was_idle = self.relay.is_idle();
        self.relay.handle_control(arrival);
        if was_idle && !self.relay.is_idle() {
            self.links.push(arrival.link);
        }
        if self.host_stores {
            let text = self.relay.take_unstored().map(memory::to_text);
            self.pending.extend(text.map(HostOutput::Store));
        } else if let Err(error) = self.relay.store_memory() {
            let text = format!("{error}; the measurement is refused");
            self.pending.push_back(HostOutput::Tell(FfLevel::Warn, text));
            self.relay.take_back(arrival.now);
        }
    }

    /// Notes that a link has closed.
    pub(super) fn handle_link_closed(&mut self, link: LinkId, now: MonoTime) {
        self.links.retain(|&open| open != link);
        self.relay.handle_link_closed(link, now);
    }

    /// Notes the time.
    pub(super) fn handle_timeout(&mut self, now: MonoTime) {
        self.relay.handle_timeout(now);
    }

    /// Ends the current measurement.
    pub(super) fn abort(&mut self, now: MonoTime) {
        if self.is_storing {
            self.relay.take_back(now);
        } else {
            self.relay.abort(now);
        }
    }

    /// Counts a measurer's echoed cells; C itself knows whether a measurement is running.
    pub(super) fn on_echoed(&mut self, measurer: MeasurerIndex, cells: Cells, now: MonoTime) {
        self.relay.on_echoed(measurer, cells, now);
    }

    /// Counts bytes of other traffic.
    pub(super) fn on_background(&mut self, sent_bytes: u64, received_bytes: u64, now: MonoTime) {
        self.relay.on_background(sent_bytes, received_bytes, now);
    }

    /// Counts that other traffic had to wait.
    pub(super) fn on_background_wait(&mut self) {
        self.relay.on_background_wait();
    }

    /// The next output for C, in service.
    pub(super) fn poll_output(&mut self) -> Option<HostOutput> {
        let pending = self.pending.pop_front();
        // The text stored at the start has no grant that could be withdrawn.
        self.is_storing = matches!(pending, Some(HostOutput::Store(_))) && !self.relay.is_idle();
        if let Some(output) = pending {
            return Some(output);
        }
        Some(match self.relay.poll_output()? {
            Output::Send(link, cell) => HostOutput::Send(link, cell),
            Output::Open(link, circuit) => {
                self.links.push(link);
                let circuit = FfCircuit { circuit: *circuit, has_failed: false };
                HostOutput::Open(link, Box::new(circuit))
            }
            Output::Over(link) => HostOutput::Over(link),
            Output::Close(link) => {
                self.links.retain(|&open| open != link);
                HostOutput::Close(link)
            }
            Output::Tell(event) => {
                let (level, text) = describe(&event, self.relay.totals());
                HostOutput::Tell(level, text)
            }
        })
    }

    /// The next output for C, out of service: close the measured links, and report the failure
    /// once.
    pub(super) fn poll_last_output(&mut self) -> Option<HostOutput> {
        let message = self.failure.get()?;
        if let Some(link) = self.links.pop() {
            return Some(HostOutput::Close(link));
        }
        if self.failure_is_told {
            return None;
        }
        self.failure_is_told = true;
        let text =
            format!("internal error: {message}; measurements are off until the relay restarts");
        Some(HostOutput::Tell(FfLevel::Warn, text))
    }

    /// The background bytes that may move now; `None` without a limit.
    pub(super) fn background_allowance(&self) -> Option<Allowance> {
        self.relay.background_allowance()
    }

    /// When the time must be noted next.
    pub(super) fn poll_timeout(&self) -> Option<MonoTime> {
        self.relay.poll_timeout()
    }

    /// Whether the host's defences must accept a link from this address.
    pub(super) fn exempts(&self, address: IpAddr) -> bool {
        self.relay.exempts(address)
    }

    /// Notes a link from this address; returns whether the host's defences must accept it.
    pub(super) fn use_exemption(&mut self, address: IpAddr) -> bool {
        self.relay.use_exemption(address)
    }

    /// Whether no measurement is granted or running.
    pub(super) fn is_idle(&self) -> bool {
        self.relay.is_idle()
    }

    /// The relay's totals, also out of service.
    pub(super) fn totals(&self) -> Totals {
        self.relay.totals()
    }
}

/// An event as text for the operator's log. It has no text from a peer.
fn describe(event: &TargetEvent, totals: Totals) -> (FfLevel, String) {
    match event {
        TargetEvent::Refused { error, untold } => {
            // The other errors can be caused without a coordinator's key.
            let level = match error.code {
                ErrCode::TOO_SOON | ErrCode::BUSY => FfLevel::Notice,
                _ => FfLevel::Info,
            };
            let others = match untold {
                0 => String::new(),
                untold => format!(", and {untold} others before it"),
            };
            (level, format!("refused a request ({}): {}{others}", error.code.name(), error.text))
        }
        TargetEvent::Granted { coordinator, measurement, duration_secs, sockets } => {
            let coordinator = Base64Unpadded::encode_string(&coordinator.0);
            let text = format!(
                "coordinator {coordinator} will measure this relay for {duration_secs} seconds \
                 over {sockets} connections (measurement {measurement})"
            );
            (FfLevel::Notice, text)
        }
        TargetEvent::Started(measurement) => {
            (FfLevel::Notice, format!("measurement {measurement} has started"))
        }
        TargetEvent::Ended { measurement, failure, echoed_bytes, .. } => {
            let how = failure.map_or(String::new(), |code| format!(" early ({})", code.name()));
            let text = format!(
                "measurement {measurement} has ended{how}: {echoed_bytes} bytes echoed; clients' \
                 traffic has waited for its share {} times since the start",
                totals.background_waits
            );
            (FfLevel::Notice, text)
        }
        _ => (FfLevel::Info, "an event of a kind this version does not know".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::guard;
    use crate::ffi::status::FfStatus;
    use crate::options::MEASUREMENTS_ALLOWED;

    /// A target with a link in a measurement.
    fn measured() -> FfTarget {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        let mut target =
            FfTarget::new(RelayTarget::with_history(policy, memory::Remembered::default()), true);
        target.links.push(LinkId(7));
        target
    }

    #[test]
    fn after_a_panic_links_close_the_operator_is_told_once_and_nothing_else_happens() {
        let mut target = measured();
        let status = guard::change(Some(&mut target), |_| panic!("test {}", 1));
        assert_eq!(status, FfStatus::Panic);
        assert!(matches!(target.poll_last_output(), Some(HostOutput::Close(LinkId(7)))));
        let Some(HostOutput::Tell(FfLevel::Warn, text)) = target.poll_last_output() else {
            panic!("the operator is not told");
        };
        assert!(text.contains("test 1"), "{text}");
        assert!(target.poll_last_output().is_none());
        let status = guard::change(Some(&mut target), |_| panic!("no call may get here"));
        assert_eq!(status, FfStatus::Ok);
        let answer = guard::ask(Some(&target), 5, |_| panic!("no question may get here"));
        assert_eq!(answer, 5);
    }

    #[test]
    fn a_relay_is_allowed_to_be_measured_by_its_operator_or_else_by_the_consensus() {
        let now = MonoTime::from_micros(1);
        let consensus = |value| BTreeMap::from([(MEASUREMENTS_ALLOWED.to_owned(), value)]);
        let mut target = measured();
        assert!(!target.is_allowed());
        target.set_params(consensus(1), now);
        assert!(target.is_allowed());
        // A number, not the text "1".
        for (value, is_allowed) in [("0", false), ("01", true), (" 1 ", true)] {
            let mut options = TargetOptions::default();
            options.set(MEASUREMENTS_ALLOWED, value).unwrap();
            target.set_options(options, now);
            target.set_params(consensus(1 - i64::from(is_allowed)), now);
            assert_eq!(target.is_allowed(), is_allowed, "{value:?}");
        }
        assert!(!guard::ask(None, false, FfTarget::is_allowed));
    }

    #[test]
    fn a_panic_in_a_question_ends_service_too() {
        let target = measured();
        assert_eq!(guard::ask(Some(&target), 5, |_| panic!("test")), 5);
        assert!(target.has_failed());
        assert_eq!(guard::plain(5, || panic!("test")), 5);
    }

    #[test]
    fn a_panic_in_a_circuit_ends_it() {
        let forward = ff_proto::circuit::ForwardKey::Aes128Ctr([0; 16]);
        let keys = ff_proto::circuit::CircuitKeys { forward, confirmation: [0; 32] };
        let mut circuit = FfCircuit { circuit: EchoCircuit::new(1, &keys), has_failed: false };
        assert_eq!(guard::circuit(Some(&mut circuit), |_| FfStatus::Ok), FfStatus::Ok);
        assert_eq!(guard::circuit(Some(&mut circuit), |_| panic!("test")), FfStatus::Panic);
        assert_eq!(guard::circuit(Some(&mut circuit), |_| FfStatus::Ok), FfStatus::Panic);
    }
}
