//! Drives the target with a sequence of operations, two bytes each: what, and on which link or
//! with which number. Operation 0 takes the rest of the input as a raw body.
#![no_main]

use std::num::NonZero;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_proto::cell::{BODY_LEN, Body};
use ff_proto::circuit::EchoCircuit;
use ff_proto::ids::{CryptoKind, Ed25519Id, MeasurementId};
use ff_proto::msg::{
    ErrCode, MeasCreate, MeasEnd, MeasErr, MeasParams, MeasurerGrant, Msg, Signed,
};
use ff_proto::session::target::{Arrival, GrantRecord, LinkId, Output, Policy, Target};
use ff_proto::units::{Cells, MonoTime, Ratio};
use libfuzzer_sys::fuzz_target;

/// Links that the operations name.
const LINKS: u8 = 8;
/// Sockets announced for the one measurer.
const SOCKETS: u16 = 4;
/// The measurement of every valid message.
const MEASUREMENT: MeasurementId = MeasurementId([7; 16]);

/// The relay.
struct Relay {
    /// The state machine under test.
    target: Target,
    /// The open circuit of each link.
    circuits: [Option<Box<EchoCircuit>>; LINKS as usize],
    /// The time.
    now: MonoTime,
}

fuzz_target!(|input: &[u8]| {
    let key = SigningKey::from_bytes(&[1; 32]);
    let policy = Policy {
        enabled: true,
        coordinators: vec![Ed25519Id(key.verifying_key().to_bytes())],
        period: Duration::from_secs(3600),
        ratio: Ratio::MAX,
        max_duration_secs: NonZero::new(45).expect("not 0"),
        max_sockets: 512,
    };
    let mut relay = Relay {
        target: Target::new(policy.clone(), Vec::new()),
        circuits: [const { None }; LINKS as usize],
        now: MonoTime::default(),
    };
    let mut rest = input;
    while let [operation, number, tail @ ..] = rest {
        rest = tail;
        let link = LinkId(u64::from(number % LINKS));
        let time = u64::from(*number);
        match operation % 12 {
            0 => {
                let mut body = [0; BODY_LEN];
                let length = rest.len().min(BODY_LEN);
                body[..length].copy_from_slice(&rest[..length]);
                relay.hear(link, 0x8000_0001, &body);
                return;
            }
            1 => relay.hear(link, 0, &request(&key, link)),
            2 => relay.hear(link, 0x8000_0001, &create(&key, link)),
            3 => relay.hear(link, 0, &encode(&Msg::End(MeasEnd { measurement: MEASUREMENT }))),
            4 => relay.hear(link, 0, &encode(&Msg::Err(MeasErr::new(ErrCode::ABORTED, "")))),
            5 => relay.echo(link, u64::from(number / LINKS)),
            6 => relay.target.on_background(time << 55, time),
            7 => relay.now = relay.now + Duration::from_millis(time * 10),
            8 => relay.now = relay.now + Duration::from_secs(time * 20),
            9 => relay.close(link),
            10 => relay.target.abort(ErrCode::INTERNAL, relay.now),
            _ => {
                let history: Vec<GrantRecord> = relay.target.history().to_vec();
                relay.target = Target::new(policy.clone(), history);
                relay.circuits = [const { None }; LINKS as usize];
            }
        }
        relay.target.handle_timeout(relay.now);
        relay.settle();
    }
});

impl Relay {
    /// Hands a control message to the target.
    fn hear(&mut self, link: LinkId, circ_id: u32, body: &Body) {
        self.target.handle_control(&Arrival {
            link,
            circ_id,
            has_circuits: false,
            body,
            exporter: &exporter(link),
            entropy: [2; 32],
            now: self.now,
            unix_secs: self.now.micros() / 1_000_000,
        });
        self.settle();
    }

    /// Echoes cells, if the link has a circuit.
    fn echo(&mut self, link: LinkId, cells: u64) {
        let Some(circuit) = &mut self.circuits[index(link)] else { return };
        let before = circuit.cells();
        (0..cells).for_each(|_| circuit.echo(&mut [0; BODY_LEN]));
        assert_eq!(circuit.cells(), before + cells);
        let is_counted = self.target.on_echoed(circuit.measurer(), Cells(cells), self.now);
        assert!(is_counted, "a link with a circuit is in no measurement");
    }

    /// Closes a link from outside.
    fn close(&mut self, link: LinkId) {
        self.circuits[index(link)] = None;
        self.target.handle_link_closed(link, self.now);
    }

    /// Does what the target wants done, and checks what must always hold.
    fn settle(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.target.poll_output() {
            outputs += 1;
            match output {
                Output::Send(_, cell) => assert!(Msg::decode(&cell[5..]).is_ok()),
                Output::Open(link, circuit) => {
                    assert!(self.circuits[index(link)].replace(circuit).is_none());
                }
                Output::Over(link) | Output::Close(link) => self.circuits[index(link)] = None,
                Output::Tell(_) => {}
            }
        }
        // Every link told and closed, 45 seconds reported, and what the operator is told.
        assert!(outputs <= 2 * usize::from(LINKS) + 45 + 4, "{outputs} outputs");
        let open = self.circuits.iter().flatten().count();
        assert!(open <= usize::from(SOCKETS));
        assert!(open == 0 || !self.target.is_idle(), "an idle target has no open circuit");
        assert!(open > 0 || !self.target.limits_background(), "limited without an open link");
        assert!(self.target.poll_timeout().is_some() || self.target.is_idle());
        assert!(self.target.history().len() <= 2, "more grants than the period allows");
    }
}

/// A link's place among the circuits.
fn index(link: LinkId) -> usize {
    usize::try_from(link.0).expect("a small number")
}

/// What a link's TLS exporter gives.
fn exporter(link: LinkId) -> [u8; 32] {
    [u8::try_from(link.0).expect("a small number"); 32]
}

/// A message's body.
fn encode(message: &Msg) -> Body {
    message.encode().expect("it fits")
}

/// A good MEAS_PARAMS.
fn request(key: &SigningKey, link: LinkId) -> Body {
    let id = Ed25519Id(key.verifying_key().to_bytes());
    let measurers = vec![MeasurerGrant { id, sockets: SOCKETS, address: None }];
    let crypto = CryptoKind::SUPPORTED.to_vec();
    let params = MeasParams { measurement: MEASUREMENT, duration_secs: 45, measurers, crypto };
    let request = Signed::new(params, key, &exporter(link)).expect("within its bounds");
    encode(&Msg::Params(request))
}

/// A good MEAS_CREATE.
fn create(key: &SigningKey, link: LinkId) -> Body {
    let create = MeasCreate { measurement: MEASUREMENT, public: [9; 32] };
    let create = Signed::new(create, key, &exporter(link)).expect("within its bounds");
    encode(&Msg::Create(create))
}
