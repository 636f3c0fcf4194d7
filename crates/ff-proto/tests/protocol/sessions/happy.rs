//! Measurements in which all parties keep the rules.

use std::time::Duration;

use ff_proto::ids::CryptoKind;
use ff_proto::msg::{MeasBg, MeasParamsOk, TeamCells};
use ff_proto::session::coordinator::CoordinatorEvent;
use ff_proto::session::target::TargetEvent;
use ff_proto::units::Ratio;

use super::net::{
    Coordinator, LATENCY, MEASUREMENT, Measurer, Net, coordinator_key, drive, id_of, params, policy,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn three_seconds_are_measured_as_planned() {
    for &crypto in CryptoKind::SUPPORTED {
        measure_three_seconds(crypto);
    }
}

/// A measurement with this cipher.
fn measure_three_seconds(crypto: CryptoKind) {
    let mut net = Net::new(policy());
    let asked = ff_proto::msg::MeasParams { crypto: vec![crypto], ..params() };
    let mut coordinator = Coordinator::ask(&mut net, asked);
    let until = net.now + LATENCY * 2;
    drive(&mut net, &mut coordinator, &mut [], until).expect("granted");
    let grant = MeasParamsOk {
        measurement: MEASUREMENT,
        duration_secs: 3,
        ratio: Ratio::from_percent(25).expect("a ratio"),
        crypto,
    };
    assert_eq!(coordinator.events, [(until, CoordinatorEvent::Granted(grant))]);
    assert!(!net.target.is_idle());

    let mut measurers = [0, 0, 1].map(|number| Measurer::open(&mut net, number, crypto));
    let until = net.now + LATENCY * 2;
    drive(&mut net, &mut coordinator, &mut measurers, until).expect("all circuits open");
    assert!(measurers.iter().all(|measurer| measurer.echo.is_some()));
    assert!(!net.target.limits_background(), "nothing runs yet");

    // Background before the first echo cell belongs to no second.
    net.target.on_background(999, 999);
    coordinator.session.start(net.now);
    let started = net.now;
    let mut sent = 0;
    for second in 0..3_u16 {
        for tick in 0..10 {
            for measurer in &mut measurers {
                measurer.write(&mut net, 4 + tick);
                sent += 4 + tick as u64;
            }
            // The cells of the last tick of a second are in flight when the target's second ends:
            // its seconds begin when the first cell arrives.
            let until = net.now + SECOND / 10;
            drive(&mut net, &mut coordinator, &mut measurers, until).expect("all is well");
            let forwarded = 1024 * (u64::from(second) + 1);
            net.target.on_background(2 * forwarded, forwarded);
            assert!(net.target.limits_background());
        }
    }
    let until = net.now + LATENCY * 2;
    drive(&mut net, &mut coordinator, &mut measurers, until).expect("it ended");

    // A tick's background is counted at its end; the target's seconds end 20 ms later.
    let reports = (0..3_u16).map(|second| {
        let arrival = started + SECOND * (u32::from(second) + 1) + LATENCY * 2;
        let bytes = 10 * 1024 * (u64::from(second) + 1);
        // 85 cells a second on each link, of which the first measurer has two; those of the last
        // tick of a second are in flight when the next one's first four arrive.
        let cells = 89 - 4 * u64::from(second);
        let echoed = TeamCells::from_slice(&[2 * cells, cells]);
        let report = MeasBg { second, sent: bytes, received: bytes, echoed };
        (arrival, CoordinatorEvent::Background(report))
    });
    let ended = (started + SECOND * 3 + LATENCY * 2, CoordinatorEvent::Ended);
    let expected: Vec<_> = reports.chain([ended]).collect();
    assert_eq!(coordinator.events[1..], expected);
    assert!(coordinator.session.is_reported());
    assert_eq!(coordinator.session.poll_timeout(), None);

    for measurer in &measurers {
        let echo = measurer.echo.as_ref().expect("it was open");
        assert!(measurer.has_ended);
        assert!(!net.is_open(measurer.link));
        assert_eq!(echo.echoed(), echo.sent(), "nothing is lost");
        assert_eq!(measurer.checked, echo.sent(), "every cell was checked");
    }
    assert!(net.target.is_idle() && !net.target.limits_background());
    assert!(net.is_open(coordinator.link), "the coordinator may read on");
    assert_eq!(
        net.told,
        [
            TargetEvent::Granted {
                coordinator: id_of(&coordinator_key()),
                measurement: MEASUREMENT,
                duration_secs: 3,
                sockets: 3,
            },
            TargetEvent::Started(MEASUREMENT),
            TargetEvent::Ended {
                measurement: MEASUREMENT,
                coordinator: id_of(&coordinator_key()),
                failure: None,
                echoed_bytes: 514 * sent,
            },
        ]
    );
}

#[test]
fn the_relay_grants_no_more_than_its_longest_measurement() {
    let mut net = Net::new(policy());
    let asked = ff_proto::msg::MeasParams { duration_secs: 120, ..params() };
    let mut coordinator = Coordinator::ask(&mut net, asked);
    let until = net.now + LATENCY * 2;
    drive(&mut net, &mut coordinator, &mut [], until).expect("granted");
    let Some((_, CoordinatorEvent::Granted(grant))) = coordinator.events.first() else {
        panic!("no grant: {:?}", coordinator.events);
    };
    assert_eq!(grant.duration_secs, 45);
}

#[test]
fn the_coordinator_ends_early_and_nothing_on_the_way_disturbs_it() {
    let mut net = Net::new(policy());
    let mut coordinator = Coordinator::ask(&mut net, params());
    let until = net.now + LATENCY * 2;
    drive(&mut net, &mut coordinator, &mut [], until).expect("granted");
    let mut measurers = [Measurer::open(&mut net, 0, CryptoKind::CGO_AES128)];
    let until = net.now + LATENCY * 2;
    drive(&mut net, &mut coordinator, &mut measurers, until).expect("open");
    coordinator.session.start(net.now);
    measurers[0].write(&mut net, 5);
    // The first report is due 1.02 s after the start and arrives 20 ms later: it crosses the end.
    let until = net.now + SECOND + LATENCY / 2;
    drive(&mut net, &mut coordinator, &mut measurers, until).expect("runs");
    let end = coordinator.session.end();
    net.send(coordinator.link, end);
    let (until, before) = (net.now + SECOND, coordinator.events.len());
    drive(&mut net, &mut coordinator, &mut measurers, until).expect("it ended");
    assert_eq!(coordinator.events.len(), before);
    assert!(measurers[0].has_ended && net.target.is_idle());
    assert!(!net.is_open(measurers[0].link));
}
