//! A measurer and a relay in this process, with their links open. The allocation test has this
//! file too.

use std::num::NonZero;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_measurer::link::control::ControlLink;
use ff_measurer::link::{self, LinkOptions, TargetAddr};
use ff_measurer::{Measurer, MeasurerEvent, Order, SecondReport, WorkerTotals, measurer_id};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{MeasParams, MeasurerGrant, Msg};
use ff_proto::params::Params;
use ff_proto::session::coordinator::CoordinatorLink;
use ff_proto::session::target::Policy;
use ff_proto::units::MonoTime;
use ff_relay_ext::arti::host::RelayHost;

/// A measurement that can start. Its relay has no limit and ends when this is dropped.
pub(crate) struct Loopback {
    /// The measurer; it is dropped before its relay.
    measurer: Measurer,
    /// The coordinator's link: the grant hangs on it.
    _coordinator: ControlLink,
    /// The relay.
    _relay: RelayHost,
}

impl Loopback {
    /// Starts a relay, has it grant a measurement, and opens the measurer's links.
    pub(crate) async fn open(sockets: u16, cells_per_record: usize, duration_secs: u16) -> Self {
        // With a core for each, neither takes the other's time.
        let cores = ff_coordinator::team::cores();
        let (relay_core, measurer_cores) = match cores[..] {
            [relay, measurer, ..] => (Some(relay), vec![measurer]),
            _ => (None, Vec::new()),
        };
        let key = SigningKey::from_bytes(&rand::random());
        let granted_secs = duration_secs + SPARE_SECS;
        let policy = Policy {
            enabled: true,
            coordinators: vec![measurer_id(&key)],
            period: Duration::ZERO,
            ratio: Params::default().ratio,
            max_duration_secs: NonZero::new(granted_secs).expect("not 0"),
            max_sockets: 512,
        };
        let relay = RelayHost::start(policy, None, relay_core).expect("the relay starts");
        let order = Order {
            measurement: MeasurementId(rand::random()),
            target: TargetAddr { addr: relay.addr(), ed_identity: relay.keys().ed_identity() },
            key,
            sockets,
            rate: None,
            duration: Duration::from_secs(duration_secs.into()),
            cells_per_record,
            crypto: CRYPTO,
            check_probability: Params::default().check_probability,
            cores: measurer_cores,
            link: LinkOptions::default(),
        };
        let coordinator = grant(&order, granted_secs).await;
        let measurer = Measurer::prepare(&order).await.expect("the links open");
        assert_eq!(measurer.opened(), sockets);
        Self { measurer, _coordinator: coordinator, _relay: relay }
    }

    /// Starts the sending.
    pub(crate) fn start(&self) {
        self.measurer.start(Instant::now());
    }

    /// The next second, or the totals at the end.
    pub(crate) async fn next(&mut self) -> Result<SecondReport, Box<WorkerTotals>> {
        match self.measurer.next_event().await {
            MeasurerEvent::Second(report) => Ok(report),
            MeasurerEvent::Done(totals) => Err(totals),
            other => panic!("the measurement goes on: {other:?}"),
        }
    }
}

/// The relay grants this much more time than is measured: it ends links when its time is over, and
/// on a busy machine the measurer may reach that point seconds later.
const SPARE_SECS: u16 = 10;
/// The cipher of tor's clients, which determines an echo's cost.
const CRYPTO: CryptoKind = CryptoKind::CGO_AES128;

/// Asks for the order's measurement and waits for the grant.
async fn grant(order: &Order, duration_secs: u16) -> ControlLink {
    let request = MeasParams {
        measurement: order.measurement,
        duration_secs,
        measurers: vec![MeasurerGrant {
            id: measurer_id(&order.key),
            sockets: order.sockets,
            address: None,
        }],
        crypto: vec![CRYPTO],
    };
    let link = link::open(&order.target, &order.link).await.expect("the link opens");
    let mut link = ControlLink::new(link).expect("tokio takes the socket");
    let now = MonoTime::default();
    let (_, cells) =
        CoordinatorLink::new(request, &order.key, link.exporter(), &rand::random(), now)
            .expect("one measurer fits");
    link.send_cells(cells.as_flattened()).await.expect("the request goes out");
    let answer = link.recv_cell().await.expect("the grant comes");
    let answer = Msg::decode(&answer.body).expect("it is a message");
    assert!(matches!(answer, Msg::ParamsOk(_)), "{answer:?}");
    link
}
