//! The target's refusals, and the end of its measurements.

use std::num::NonZero;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_proto::cell::BODY_LEN;
use ff_proto::codec::DecodeError;
use ff_proto::ids::MeasurerIndex;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasBg, MeasCreate, MeasErr, MeasParams, Msg, Signed, TeamCells};
use ff_proto::session::target::{LinkId, LinkPart, Policy, TargetEvent};
use ff_proto::units::{Cells, Ratio};

use super::net::{
    CIRC, MEASUREMENT, Net, PERIOD_SECS, coordinator_key, id_of, measurer_key, params, policy,
};

const SECOND: Duration = Duration::from_secs(1);

/// The code of the only answer, which must be MEAS_ERR.
#[track_caller]
fn refusal(answers: &[Msg]) -> ErrCode {
    match answers {
        [Msg::Err(error)] => error.code,
        other => panic!("not one MEAS_ERR but {other:?}"),
    }
}

/// Sends a request with [`params`] on a new link.
fn ask(net: &mut Net) -> (LinkId, Vec<Msg>) {
    let link = net.link();
    let request = net.request(link, params());
    let answers = net.tell(link, 0, &request);
    (link, answers)
}

/// Sends a request that the relay must grant.
#[track_caller]
fn granted(net: &mut Net) -> LinkId {
    let (link, answers) = ask(net);
    assert!(matches!(answers[..], [Msg::ParamsOk(_)]), "{answers:?}");
    link
}

/// Opens a measurement link, which the relay must accept.
#[track_caller]
fn opened(net: &mut Net, measurer: u8) -> LinkId {
    let (link, answers) = create(net, measurer);
    assert!(matches!(answers[..], [Msg::Created(_)]), "{answers:?}");
    link
}

/// Tries to open a measurement link.
fn create(net: &mut Net, measurer: u8) -> (LinkId, Vec<Msg>) {
    let link = net.link();
    let message = net.create(link, measurer);
    let answers = net.tell(link, CIRC, &message);
    (link, answers)
}

/// A relay, its coordinator's link and one open measurement link.
fn with_open_link() -> (Net, LinkId, LinkId) {
    let mut net = Net::new(policy());
    let coordinator = granted(&mut net);
    let measurer = opened(&mut net, 0);
    (net, coordinator, measurer)
}

#[test]
fn coordinator_not_listed_is_refused() {
    let mut net = Net::new(Policy { coordinators: vec![id_of(&measurer_key(0))], ..policy() });
    let (link, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::COORDINATOR_NOT_ALLOWED);
    assert!(!net.is_open(link) && net.target.is_idle());
    assert!(net.target.history().is_empty(), "a refusal uses up no grant");
    assert!(matches!(&net.told[..], [TargetEvent::Refused { untold: 0, .. }]));
}

#[test]
fn disabled_relay_refuses_everybody() {
    let mut net = Net::new(Policy { enabled: false, ..policy() });
    let (link, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::DISABLED);
    assert!(!net.is_open(link));
    let (_, answers) = create(&mut net, 0);
    assert_eq!(refusal(&answers), ErrCode::UNKNOWN_MEASUREMENT);
}

#[test]
fn request_replayed_from_another_link_is_refused() {
    let mut net = Net::new(policy());
    let (first, second) = (net.link(), net.link());
    let request = net.request(first, params());
    let answers = net.tell(second, 0, &request);
    assert_eq!(refusal(&answers), ErrCode::BAD_SIGNATURE);
    assert!(!net.is_open(second));
    let answers = net.tell(first, 0, &request);
    assert!(matches!(answers[..], [Msg::ParamsOk(_)]), "on its own link it is good: {answers:?}");
}

#[test]
fn request_changed_on_the_way_is_refused() {
    let mut net = Net::new(policy());
    let link = net.link();
    let mut body = net.request(link, params()).encode().expect("it fits");
    body[4 + 17] += 1; // the duration
    assert_eq!(refusal(&net.tell_body(link, 0, &body)), ErrCode::BAD_SIGNATURE);
}

#[test]
fn circuit_replayed_from_another_link_is_refused() {
    let (mut net, ..) = with_open_link();
    let (first, second) = (net.link(), net.link());
    let message = net.create(first, 0);
    assert_eq!(refusal(&net.tell(second, CIRC, &message)), ErrCode::BAD_SIGNATURE);
    assert!(!net.is_open(second));
    // It used up no socket: two were announced, one is open.
    opened(&mut net, 0);
}

#[test]
fn third_grant_within_the_period_is_too_soon() {
    let mut net = Net::new(policy());
    for _ in 0..2 {
        let link = granted(&mut net);
        net.close(link);
    }
    let (_, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::TOO_SOON);
    net.pass(SECOND * u32::try_from(PERIOD_SECS - 1).expect("a day"));
    let (_, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::TOO_SOON, "a second is missing");
    net.pass(SECOND);
    granted(&mut net);
}

#[test]
fn each_coordinator_has_its_own_grants() {
    let other = SigningKey::from_bytes(&[2; 32]);
    let mut net = Net::new(Policy {
        coordinators: vec![id_of(&coordinator_key()), id_of(&other)],
        ..policy()
    });
    for _ in 0..2 {
        let link = granted(&mut net);
        net.close(link);
    }
    let link = net.link();
    let request = Signed::new(params(), &other, &net.exporter(link)).expect("within its bounds");
    let answers = net.tell(link, 0, &Msg::Params(request));
    assert!(matches!(answers[..], [Msg::ParamsOk(_)]), "{answers:?}");
}

#[test]
fn grants_are_remembered_across_a_restart() {
    let mut before = Net::new(policy());
    for _ in 0..2 {
        let link = granted(&mut before);
        before.close(link);
    }
    let mut after = Net::with_history(policy(), before.target.history().to_vec());
    let (_, answers) = ask(&mut after);
    assert_eq!(refusal(&answers), ErrCode::TOO_SOON);
    after.unix_zero += PERIOD_SECS;
    granted(&mut after);
    assert_eq!(after.target.history().len(), 1, "what is older than the period is forgotten");
}

#[test]
fn clock_that_goes_back_does_not_free_a_grant() {
    let mut net = Net::new(policy());
    for _ in 0..2 {
        let link = granted(&mut net);
        net.close(link);
    }
    net.unix_zero -= 10 * PERIOD_SECS;
    let (_, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::TOO_SOON);
}

#[test]
fn relay_is_busy_while_a_measurement_is_granted_or_running() {
    let (mut net, coordinator, measurer) = with_open_link();
    let (link, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::BUSY);
    assert!(!net.is_open(link));
    net.echo(measurer, 1);
    let (_, answers) = ask(&mut net);
    assert_eq!(refusal(&answers), ErrCode::BUSY);
    assert!(net.is_open(coordinator) && net.is_open(measurer), "others do not disturb it");
    assert_eq!(net.target.history().len(), 1, "busy uses up no grant");
}

#[test]
fn unannounced_measurer_is_refused() {
    let mut net = Net::new(policy());
    granted(&mut net);
    let (link, answers) = create(&mut net, 2);
    assert_eq!(refusal(&answers), ErrCode::UNKNOWN_MEASURER);
    assert!(!net.is_open(link));
}

#[test]
fn measurer_of_another_measurement_is_refused() {
    let mut net = Net::new(policy());
    granted(&mut net);
    let link = net.link();
    let create = MeasCreate { measurement: MeasurementId([8; 16]), public: [9; 32] };
    let message = Signed::new(create, &measurer_key(0), &net.exporter(link));
    let message = Msg::Create(message.expect("within its bounds"));
    assert_eq!(refusal(&net.tell(link, CIRC, &message)), ErrCode::UNKNOWN_MEASUREMENT);
}

#[test]
fn more_sockets_than_announced_are_refused() {
    let mut net = Net::new(policy());
    granted(&mut net);
    let links = [0, 0, 1].map(|measurer| opened(&mut net, measurer));
    for measurer in [0, 1] {
        let (link, answers) = create(&mut net, measurer);
        assert_eq!(refusal(&answers), ErrCode::TOO_MANY_SOCKETS);
        assert!(!net.is_open(link));
    }
    // A socket can be used once: closing its link does not give it back.
    net.close(links[0]);
    let (_, answers) = create(&mut net, 0);
    assert_eq!(refusal(&answers), ErrCode::TOO_MANY_SOCKETS);
}

#[test]
fn second_circuit_on_one_link_is_refused() {
    let (mut net, coordinator, measurer) = with_open_link();
    let message = net.create(measurer, 0);
    let answers = net.tell(measurer, CIRC + 1, &message);
    assert_eq!(refusal(&answers), ErrCode::UNEXPECTED_MESSAGE);
    assert!(!net.is_open(measurer));
    // The coordinator's link may not carry one either, but the measurement goes on.
    let message = net.create(coordinator, 0);
    let answers = net.tell(coordinator, CIRC, &message);
    assert_eq!(refusal(&answers), ErrCode::UNEXPECTED_MESSAGE);
    assert!(net.is_open(coordinator) && !net.target.is_idle());
}

#[test]
fn a_link_whose_measurement_is_over_has_no_part_in_the_next() {
    let (mut net, coordinator, measurer) = with_open_link();
    net.close(coordinator);
    granted(&mut net);
    assert!(net.is_lingering(measurer));
    let message = net.create(measurer, 0);
    let answers = net.tell(measurer, CIRC + 1, &message);
    assert!(
        matches!(answers.last(), Some(Msg::Err(error)) if error.code == ErrCode::UNEXPECTED_MESSAGE),
        "{answers:?}"
    );
}

#[test]
fn a_link_whose_measurement_is_over_asks_for_no_other() {
    let (mut net, coordinator, measurer) = with_open_link();
    net.close(coordinator);
    assert!(net.is_lingering(measurer) && net.target.is_idle());
    net.answers(measurer);
    let request = net.request(measurer, params());
    assert_eq!(refusal(&net.tell(measurer, 0, &request)), ErrCode::UNEXPECTED_MESSAGE);
    assert_eq!(net.target.part_of(measurer), LinkPart::None);
    assert_eq!(net.target.history().len(), 1, "that used up no grant");
    granted(&mut net);
}

#[test]
fn low_circuit_id_is_refused() {
    let mut net = Net::new(policy());
    granted(&mut net);
    for circ_id in [0, 1, 0x7fff_ffff] {
        let link = net.link();
        let message = net.create(link, 0);
        assert_eq!(refusal(&net.tell(link, circ_id, &message)), ErrCode::BAD_CIRCUIT_ID);
    }
    opened(&mut net, 0);
}

#[test]
fn public_key_that_makes_the_secret_zero_is_refused() {
    let mut net = Net::new(policy());
    granted(&mut net);
    let link = net.link();
    let create = MeasCreate { measurement: MEASUREMENT, public: [0; 32] };
    let message = Signed::new(create, &measurer_key(0), &net.exporter(link));
    let message = Msg::Create(message.expect("within its bounds"));
    assert_eq!(refusal(&net.tell(link, CIRC, &message)), ErrCode::KEY_EXCHANGE);
}

#[test]
fn closing_of_the_coordinators_link_ends_all() {
    let (mut net, coordinator, measurer) = with_open_link();
    net.echo(measurer, 10);
    assert!(net.target.limits_background());
    net.close(coordinator);
    assert!(net.target.is_idle() && !net.target.limits_background());
    assert_eq!(refusal(&net.answers(measurer)), ErrCode::COORDINATOR_GONE);
    assert!(!net.is_open(measurer));
    let Some(TargetEvent::Ended { failure, echoed_bytes, .. }) = net.told.last() else {
        panic!("{:?}", net.told);
    };
    assert_eq!((*failure, *echoed_bytes), (Some(ErrCode::COORDINATOR_GONE), 5140));
}

#[test]
fn abort_by_the_coordinator_ends_all_with_its_code() {
    let (mut net, coordinator, measurer) = with_open_link();
    let abort = Msg::Err(MeasErr::new(ErrCode::ABORTED, "a measurer is gone"));
    net.tell(coordinator, 0, &abort);
    assert_eq!(refusal(&net.answers(measurer)), ErrCode::ABORTED);
    assert!(!net.is_open(measurer) && !net.is_open(coordinator));
}

#[test]
fn abort_by_a_measurer_closes_its_link_only() {
    let (mut net, coordinator, measurer) = with_open_link();
    let other = opened(&mut net, 1);
    let abort = Msg::Err(MeasErr::new(ErrCode::ABORTED, "a wrong cell"));
    assert!(net.tell(measurer, 0, &abort).is_empty(), "MEAS_ERR is never answered");
    assert!(!net.is_open(measurer));
    assert!(net.is_open(other) && net.is_open(coordinator) && !net.target.is_idle());
}

#[test]
fn trouble_inside_the_relay_ends_all() {
    let (mut net, coordinator, measurer) = with_open_link();
    net.target.abort(ErrCode::INTERNAL, net.now);
    net.pass(Duration::ZERO);
    for link in [coordinator, measurer] {
        assert!(net.answers(link).iter().any(|message| {
            matches!(message, Msg::Err(error) if error.code == ErrCode::INTERNAL)
        }));
        assert!(!net.is_open(link));
    }
    assert!(net.target.is_idle());
}

#[test]
fn grant_lapses_when_nobody_starts() {
    let (mut net, coordinator, measurer) = with_open_link();
    net.pass(SECOND * 30 - Duration::from_micros(1));
    assert!(!net.target.is_idle());
    net.pass(Duration::from_micros(1));
    assert_eq!(refusal(&net.answers(coordinator)), ErrCode::NOT_STARTED);
    assert_eq!(refusal(&net.answers(measurer)), ErrCode::NOT_STARTED);
    assert!(!net.is_open(measurer) && net.target.is_idle());
    net.pass(SECOND * 2);
    assert_eq!(net.target.poll_timeout(), None);
}

#[test]
fn no_cells_start_nothing() {
    let (mut net, ..) = with_open_link();
    assert!(net.target.on_echoed(MeasurerIndex(0), Cells(0), net.now));
    assert!(!net.target.limits_background());
    // Without a measurement no cells count.
    let mut net = Net::new(policy());
    assert!(!net.target.on_echoed(MeasurerIndex(0), Cells(9), net.now));
    assert!(net.target.poll_output().is_none());
}

#[test]
fn each_measurers_cells_are_reported_whatever_becomes_of_its_links() {
    let (mut net, coordinator, first) = with_open_link();
    let links = [first, opened(&mut net, 1), opened(&mut net, 0)];
    for (link, cells) in links.into_iter().zip([1, 20, 300]) {
        net.echo(link, cells);
    }
    net.close(links[2]);
    // Cells that arrive before the host has noticed the end of a second belong to it.
    net.now = net.now + SECOND * 2;
    net.echo(links[1], 5000);
    net.pass(Duration::ZERO);
    net.close(links[0]);
    net.pass(SECOND);
    let echoed: Vec<_> = net
        .answers(coordinator)
        .iter()
        .filter_map(|message| match message {
            Msg::Bg(report) => report.echoed.map(|cells| cells.as_slice().to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(echoed, [[301, 5020], [0, 0], [0, 0]]);
}

#[test]
fn background_is_limited_only_while_running_with_open_links() {
    let mut net = Net::new(policy());
    assert!(!net.target.limits_background(), "idle");
    let coordinator = granted(&mut net);
    assert!(!net.target.limits_background(), "granted");
    let links = [opened(&mut net, 0), opened(&mut net, 1)];
    assert!(!net.target.limits_background(), "open, but no cell yet");
    net.echo(links[0], 1);
    assert!(net.target.limits_background(), "running");
    net.close(links[0]);
    assert!(net.target.limits_background(), "one link is left");
    net.close(links[1]);
    assert!(!net.target.limits_background(), "no link is left");
    let link = opened(&mut net, 0);
    assert!(net.target.limits_background(), "and again");
    // A measurement link counts as closed at once after a refusal.
    net.tell_body(link, 0, &[0xff; BODY_LEN]);
    assert!(!net.target.limits_background(), "refused");
    opened_and_ended(net, coordinator);
}

/// Runs the last part of the test above: the end of the time.
fn opened_and_ended(mut net: Net, coordinator: LinkId) {
    net.answers(coordinator);
    net.pass(SECOND * 3);
    let answers = net.answers(coordinator);
    assert!(matches!(answers[..], [Msg::Bg(_), Msg::Bg(_), Msg::Bg(_), Msg::End(_)]));
    assert!(!net.target.limits_background());
}

#[test]
fn every_second_is_reported_even_when_the_host_is_late() {
    let (mut net, coordinator, measurer) = with_open_link();
    net.target.on_background(77, 77);
    net.echo(measurer, 100);
    net.target.on_background(1000, 2000);
    net.target.on_background(1048, 2000);
    net.pass(SECOND);
    let bg = |second, bytes, cells| {
        let echoed = TeamCells::from_slice(&[cells, 0]);
        Msg::Bg(MeasBg { second, sent: bytes, received: bytes, echoed })
    };
    assert_eq!(net.answers(coordinator), [bg(0, 2048, 100)]);
    net.echo(measurer, 100);
    net.target.on_background(4096, 512);
    net.pass(SECOND * 2);
    let answers = net.answers(coordinator);
    assert_eq!(answers[..2], [bg(1, 512, 100), bg(2, 0, 0)]);
    assert!(matches!(answers[2..], [Msg::End(_)]));
}

#[test]
fn a_report_says_what_counts_and_not_what_clients_did() {
    let (mut net, coordinator, measurer) = with_open_link();
    // 1,000 cells are 514,000 bytes, of which a third may count; steps of 4,096 bytes.
    for (background, reported) in [
        (0, 0),
        (2_047, 0),
        (2_049, 4_096),
        (100_000, 98_304),
        (102_000, 102_400),
        (171_300, 171_333),
        (171_333, 171_333),
        (u64::MAX, 171_333),
    ] {
        let (mut net, coordinator, measurer) = with_open_link();
        net.echo(measurer, 1000);
        net.target.on_background(background, background);
        net.pass(SECOND);
        let bytes = reported;
        let echoed = TeamCells::from_slice(&[1000, 0]);
        let report = Msg::Bg(MeasBg { second: 0, sent: bytes, received: bytes, echoed });
        assert_eq!(net.answers(coordinator), [report], "{background}");
    }
    // Without echoed cells no background counts; and only the lesser direction was forwarded.
    net.echo(measurer, 1);
    net.pass(SECOND);
    net.target.on_background(1 << 40, 1 << 40);
    net.pass(SECOND);
    net.echo(measurer, 1000);
    net.target.on_background(u64::MAX, 0);
    net.pass(SECOND);
    let reports = net.answers(coordinator);
    let none = |second, cells| {
        let echoed = TeamCells::from_slice(&[cells, 0]);
        Msg::Bg(MeasBg { second, sent: 0, received: 0, echoed })
    };
    assert_eq!(reports[..3], [none(0, 1), none(1, 0), none(2, 1000)]);
}

#[test]
fn measurement_links_stay_open_until_their_last_message_is_read() {
    let (mut net, coordinator, measurer) = with_open_link();
    let other = opened(&mut net, 1);
    assert_eq!(net.target.part_of(coordinator), LinkPart::Coordinator);
    assert_eq!(net.target.part_of(measurer), LinkPart::Measurement);
    net.echo(measurer, 1);
    net.pass(SECOND * 3);
    assert!(net.target.is_idle());
    for link in [measurer, other] {
        assert!(matches!(net.answers(link)[..], [Msg::End(_)]));
        assert_eq!(net.target.part_of(link), LinkPart::Ending);
        assert!(net.is_lingering(link));
    }
    assert_eq!(net.target.part_of(coordinator), LinkPart::None);
    net.close(other);
    assert_eq!(net.target.part_of(other), LinkPart::None);
    net.pass(SECOND * 2 - Duration::from_micros(1));
    assert!(net.is_lingering(measurer));
    net.pass(Duration::from_micros(1));
    assert!(!net.is_lingering(measurer));
    assert_eq!(net.target.poll_timeout(), None);
}

#[test]
fn a_permission_that_is_taken_away_ends_the_measurement() {
    let nobody = Policy { coordinators: Vec::new(), ..policy() };
    let disabled = Policy { enabled: false, ..policy() };
    for (policy, code) in
        [(nobody, ErrCode::COORDINATOR_NOT_ALLOWED), (disabled, ErrCode::DISABLED)]
    {
        let (mut net, coordinator, measurer) = with_open_link();
        net.echo(measurer, 1);
        net.target.set_policy(policy, net.now);
        net.pass(Duration::ZERO);
        assert_eq!(refusal(&net.answers(measurer)), code);
        assert_eq!(refusal(&net.answers(coordinator)), code);
        assert!(net.target.is_idle());
    }
}

#[test]
fn a_coordinator_whose_messages_are_refused_again_and_again_loses_its_link() {
    let (mut net, coordinator, measurer) = with_open_link();
    for _ in 0..8 {
        let answers = net.tell_body(coordinator, 0, &[2; BODY_LEN]);
        assert_eq!(refusal(&answers), ErrCode::UNKNOWN_VERSION);
        assert!(net.is_open(coordinator));
    }
    let answers = net.tell_body(coordinator, 0, &[2; BODY_LEN]);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(refusal(&answers[1..]), ErrCode::TOO_MANY_ERRORS);
    assert!(!net.is_open(coordinator) && net.target.is_idle());
    assert_eq!(refusal(&net.answers(measurer)), ErrCode::TOO_MANY_ERRORS);
}

#[test]
fn the_log_has_no_line_for_each_of_many_refusals() {
    let (mut net, ..) = with_open_link();
    let told = |net: &Net| {
        let refusals = net.told.iter().filter_map(|event| match event {
            TargetEvent::Refused { untold, .. } => Some(*untold),
            _ => None,
        });
        refusals.collect::<Vec<_>>()
    };
    for _ in 0..100 {
        assert_eq!(refusal(&ask(&mut net).1), ErrCode::BUSY);
    }
    assert_eq!(told(&net), [0; 10]);
    net.pass(SECOND * 60);
    let link = net.link();
    net.tell_body(link, 0, &[2; BODY_LEN]);
    assert_eq!(told(&net)[10..], [90]);
    assert_eq!(net.target.refused(), 101);
}

#[test]
fn a_link_with_circuits_of_its_own_neither_measures_nor_coordinates() {
    let mut net = Net::new(policy());
    let link = net.link();
    net.has_circuits(link);
    let request = net.request(link, params());
    assert_eq!(refusal(&net.tell(link, 0, &request)), ErrCode::UNEXPECTED_MESSAGE);
    assert!(net.target.history().is_empty() && !net.is_open(link));
    granted(&mut net);
    let link = net.link();
    net.has_circuits(link);
    let create = net.create(link, 0);
    assert_eq!(refusal(&net.tell(link, CIRC, &create)), ErrCode::UNEXPECTED_MESSAGE);
    assert!(!net.is_open(link));
    // That used up no socket.
    for measurer in [0, 0, 1] {
        opened(&mut net, measurer);
    }
}

#[test]
fn more_sockets_than_the_operator_allows_are_refused() {
    let mut net = Net::new(Policy { max_sockets: 2, ..policy() });
    assert_eq!(refusal(&ask(&mut net).1), ErrCode::TOO_MANY_SOCKETS);
    assert!(net.target.history().is_empty());
    let mut net = Net::new(Policy { max_sockets: 3, ..policy() });
    granted(&mut net);
}

#[test]
fn the_shortest_measurement_that_a_policy_can_allow_is_granted() {
    let mut net = Net::new(Policy { max_duration_secs: NonZero::<u16>::MIN, ..policy() });
    let (_, answers) = ask(&mut net);
    let [Msg::ParamsOk(grant)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(grant.duration_secs, 1);
}

#[test]
fn a_grant_that_cannot_be_remembered_is_none() {
    let mut net = Net::new(policy());
    net.forgets = true;
    for _ in 0..3 {
        let (link, answers) = ask(&mut net);
        assert_eq!(refusal(&answers), ErrCode::INTERNAL);
        assert!(!net.is_open(link) && net.target.is_idle());
        assert!(net.target.history().is_empty());
    }
    net.forgets = false;
    granted(&mut net);
}

#[test]
fn a_relay_that_cannot_remember_grants_tries_seldom() {
    let mut net = Net::new(policy());
    net.forgets = true;
    for _ in 0..100 {
        assert_eq!(refusal(&ask(&mut net).1), ErrCode::INTERNAL);
    }
    assert_eq!(net.target.grants_given(), 10);
    net.forgets = false;
    assert_eq!(refusal(&ask(&mut net).1), ErrCode::INTERNAL);
    net.pass(SECOND * 60);
    granted(&mut net);
}

#[test]
fn measurement_keeps_what_it_was_granted() {
    let (mut net, coordinator, measurer) = with_open_link();
    let ratio = Ratio::from_percent(1).expect("a ratio");
    let max_duration_secs = NonZero::new(10).expect("not 0");
    let changed = Policy { ratio, max_sockets: 1, max_duration_secs, ..policy() };
    net.target.set_policy(changed, net.now);
    assert_eq!(net.target.ratio(), policy().ratio);
    net.echo(measurer, 1);
    net.pass(SECOND * 3);
    assert!(matches!(net.answers(coordinator)[..], [.., Msg::End(_)]));
    assert_eq!(net.target.ratio(), ratio);
}

#[test]
fn unknown_version_and_command_are_answered() {
    let mut net = Net::new(policy());
    for (body, code) in [
        (&[2, 1, 0, 0][..], ErrCode::UNKNOWN_VERSION),
        (&[0, 1, 0, 0], ErrCode::UNKNOWN_VERSION),
        (&[1, 0, 0, 0], ErrCode::UNKNOWN_COMMAND),
        (&[1, 9, 0, 0], ErrCode::UNKNOWN_COMMAND),
        (&[1, 9, 1, 0xf9], ErrCode::UNKNOWN_COMMAND),
        (&[1, 9, 1, 0xfa], ErrCode::MALFORMED),
        (&[1, 1, 0, 0], ErrCode::MALFORMED),
    ] {
        let link = net.link();
        let mut padded = [0; BODY_LEN];
        padded[..body.len()].copy_from_slice(body);
        assert_eq!(refusal(&net.tell_body(link, 0, &padded)), code, "{body:?}");
        assert!(!net.is_open(link));
    }
}

#[test]
fn unknown_extension_is_ignored() {
    // As Signed::new makes it, but with an extension of type 99 after the fields.
    let mut net = Net::new(policy());
    let link = net.link();
    let key = coordinator_key();
    // Accepting AES-128-CTR alone takes no extension.
    let plain = MeasParams { crypto: vec![CryptoKind::AES128_CTR], ..params() };
    let plain = net.request(link, plain).encode().expect("it fits");
    let length = usize::from(u16::from_be_bytes([plain[2], plain[3]]));
    let fields = &plain[4..4 + length - 64 - 32 - 1];
    let signer = id_of(&key).0;
    let payload = [fields, &[1, 99, 3], b"new", &signer].concat();
    let signature = ff_proto::auth::sign(&key, &net.exporter(link), 1, &payload);
    let payload = [&payload[..], &signature].concat();
    let mut body = [0; BODY_LEN];
    let length = u16::try_from(payload.len()).expect("it is short");
    body[..4].copy_from_slice(&[1, 1, length.to_be_bytes()[0], length.to_be_bytes()[1]]);
    body[4..4 + payload.len()].copy_from_slice(&payload);
    let answers = net.tell_body(link, 0, &body);
    assert!(matches!(answers[..], [Msg::ParamsOk(_)]), "{answers:?}");
}

/// Sends a request with these ciphers on a new link.
fn ask_for(net: &mut Net, crypto: &[CryptoKind]) -> Vec<Msg> {
    let link = net.link();
    let request = net.request(link, MeasParams { crypto: crypto.to_vec(), ..params() });
    net.tell(link, 0, &request)
}

#[test]
fn the_first_cipher_that_the_relay_has_is_granted() {
    const OLD: &[CryptoKind] = &[CryptoKind::AES128_CTR];
    const STRANGE: &[CryptoKind] = &[CryptoKind(9)];
    let (cgo, ctr, unknown) = (CryptoKind::CGO_AES128, CryptoKind::AES128_CTR, CryptoKind(9));
    let both = CryptoKind::SUPPORTED;
    for (supported, listed, granted) in [
        (both, vec![cgo, ctr], Some(cgo)),
        (both, vec![ctr, cgo], Some(ctr)),
        (both, vec![unknown, ctr, cgo], Some(ctr)),
        (both, vec![ctr], Some(ctr)),
        (both, vec![unknown], None),
        (OLD, vec![cgo, ctr], Some(ctr)),
        (OLD, vec![cgo], None),
        (STRANGE, vec![unknown], None),
    ] {
        let mut net = Net::new(policy());
        net.target.support_only(supported);
        let answers = ask_for(&mut net, &listed);
        match granted {
            Some(granted) => {
                let [Msg::ParamsOk(grant)] = &answers[..] else { panic!("{answers:?}") };
                assert_eq!(grant.crypto, granted, "{listed:?}");
            }
            None => assert_eq!(refusal(&answers), ErrCode::NO_COMMON_CRYPTO, "{listed:?}"),
        }
        let grants = usize::from(granted.is_some());
        assert_eq!(net.target.history().len(), grants, "a refusal uses up no grant");
    }
}

#[test]
fn bounds_of_the_request_are_kept() {
    let mut net = Net::new(policy());
    let link = net.link();
    // Accepting AES-128-CTR alone takes no extension.
    let plain = MeasParams { crypto: vec![CryptoKind::AES128_CTR], ..params() };
    let plain = net.request(link, plain).encode().expect("it fits");
    // id [16], duration [2], number of measurers [1], and for each: id [32], sockets [2].
    let good = &plain[4..4 + 19 + 2 * 34];
    let with = |at: usize, bytes: &[u8]| [&good[..at], bytes, &good[at + bytes.len()..]].concat();
    for (field, fields, extensions) in [
        ("duration", with(16, &[0, 0]), vec![0]),
        ("duration", with(16, &[0, 121]), vec![0]),
        ("number of measurers", with(18, &[0]), vec![0]),
        ("number of measurers", with(18, &[9]), vec![0]),
        ("sockets", with(85, &[0, 0]), vec![0]),
        ("sockets", with(85, &[0x10, 0x01]), vec![0]),
        ("number of crypto kinds", good.to_vec(), vec![1, 2, 0]),
        ("number of crypto kinds", good.to_vec(), [&[1_u8, 2, 17][..], &[2; 17]].concat()),
    ] {
        let payload = [&fields[..], &extensions, &[0; 32 + 64]].concat();
        let length = u16::try_from(payload.len()).expect("it is short").to_be_bytes();
        let mut body = [0; BODY_LEN];
        body[..4].copy_from_slice(&[1, 1, length[0], length[1]]);
        body[4..4 + payload.len()].copy_from_slice(&payload);
        match Msg::decode(&body) {
            Err(DecodeError::OutOfRange { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
        let link = net.link();
        assert_eq!(refusal(&net.tell_body(link, 0, &body)), ErrCode::MALFORMED, "{field}");
    }
}
