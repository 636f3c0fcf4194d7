//! The operator's options: what tor takes and refuses, when it takes effect, and what beats what.

use std::fs;
use std::process::Command;

use ed25519_dalek::SigningKey;
use ff_lab::{Control, Error, Network};
use ff_proto::cell::CMD_DESTROY;
use ff_proto::ids::MeasurementId;
use ff_relay_ext::options;

use crate::rules::session::{next_cell, open, request, send};
use crate::rules::{Coordinator, Lab, Member, Relay, SharedLab, assert_failed, silent};
use crate::support::{coordinator, ff_tor, identity};

/// Identities of this many coordinators, with something between them.
fn identities(count: usize, separator: &str) -> String {
    let all: Vec<_> = (0..count).map(|_| identity(&coordinator())).collect();
    all.join(separator)
}

/// Runs `tor --verify-config` on some lines of a torrc: whether tor accepts them, and its whole
/// output.
pub(crate) fn verify(lines: &str) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (torrc, empty, data) =
        (dir.path().join("torrc"), dir.path().join("empty"), dir.path().join("data"));
    fs::write(&empty, "").expect("a file");
    let text = format!("DataDirectory {}\nSocksPort 0\n{lines}\n", data.display());
    fs::write(&torrc, text).expect("a file");
    let mut command = Command::new(ff_tor());
    command.arg("--verify-config").arg("-f").arg(&torrc).arg("--defaults-torrc").arg(&empty);
    let output = command.output().expect("tor runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn good_values_are_taken() {
    let two_lines = format!(
        "FFAllowedCoordinators {}\nFFAllowedCoordinators {}",
        identities(2, " "),
        identities(3, ",")
    );
    let many_lines = format!("FFAllowedCoordinators {}\n", identities(1, "")).repeat(64);
    for lines in [
        "",
        "FFMeasurementsAllowed 0",
        "FFMeasurementsAllowed 1",
        "ffmeasurementsallowed 1",
        &two_lines,
        &many_lines,
        "FFMeasurementPeriod 1 hour",
        "FFMeasurementPeriod 60 minutes",
        "FFMeasurementPeriod 3600",
        "FFMeasurementPeriod 2 days",
        "FFMeasurementPeriod 1 week",
        "FFMeasurementPeriod 1 month",
        "FFBackgroundTrafficPercent 0",
        "FFBackgroundTrafficPercent 99",
        "FFMaxMeasurementDuration 10",
        "FFMaxMeasurementDuration 10 seconds",
        "FFMaxMeasurementDuration 120 seconds",
        "FFMaxMeasurementDuration 2 minutes",
        "FFMaxMeasurementSockets 1",
        "FFMaxMeasurementSockets 32768",
    ] {
        let (is_taken, text) = verify(lines);
        assert!(is_taken && text.contains("Configuration was valid"), "{lines}:\n{text}");
    }
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn bad_values_are_refused_with_the_option_and_its_bounds() {
    let (allowed, coordinators) = (options::MEASUREMENTS_ALLOWED, options::ALLOWED_COORDINATORS);
    let (period, percent) = (options::MEASUREMENT_PERIOD, options::BACKGROUND_PERCENT);
    let (duration, sockets) = (options::MAX_DURATION, options::MAX_SOCKETS);
    let (one, too_many) = (identity(&coordinator()), identities(65, ","));
    for (name, value, what) in [
        (allowed, "2", "must be a number from 0 to 1"),
        (allowed, "-1", "must be a number from 0 to 1"),
        (allowed, "yes", "must be a number from 0 to 1"),
        (coordinators, "AAAA", "\"AAAA\" is not an Ed25519 identity"),
        (coordinators, &format!("{one} {}", &one[1..]), "is not an Ed25519 identity"),
        (coordinators, &format!("{one};{one}"), "is not an Ed25519 identity"),
        (coordinators, &too_many, "more than 64 identities"),
        (period, "59 minutes", "must be a number from 3600 to 2592000 seconds"),
        (period, "3599", "must be a number from 3600 to 2592000 seconds"),
        (period, "31 days", "must be a number from 3600 to 2592000 seconds"),
        (period, "1 fortnight", "must be a number from 3600 to 2592000 seconds"),
        (percent, "100", "must be a number from 0 to 99"),
        (percent, "-1", "must be a number from 0 to 99"),
        (percent, "25 %", "must be a number from 0 to 99"),
        (duration, "9 seconds", "must be a number from 10 to 120 seconds"),
        (duration, "121 seconds", "must be a number from 10 to 120 seconds"),
        (duration, "0", "must be a number from 10 to 120 seconds"),
        (duration, "99999999999999999999", "must be a number from 10 to 120 seconds"),
        (sockets, "0", "must be a number from 1 to 32768"),
        (sockets, "32769", "must be a number from 1 to 32768"),
    ] {
        // A good line in front of it does not hide the bad one.
        let before = if name == coordinators { format!("{name} {one}\n") } else { String::new() };
        let (is_taken, text) = verify(&format!("{before}{name} {value}"));
        assert!(!is_taken, "{name} {value}:\n{text}");
        let reason = text.lines().find(|line| line.contains("[warn] Failed to parse/validate"));
        let reason = reason.unwrap_or_else(|| panic!("{name} {value}:\n{text}"));
        assert!(reason.contains(name) && reason.contains(what), "{name} {value}: {reason}");
    }
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_testing_network_may_have_shorter_periods() {
    let authority = format!("DirAuthority nobody 127.0.0.1:1 {}", "0123456789ABCDEF".repeat(3));
    let testing = format!("TestingTorNetwork 1\n{}\n", &authority[..authority.len() - 8]);
    for (seconds, is_good) in [(9, false), (10, true), (3599, true)] {
        let (is_taken, text) = verify(&format!("{testing}FFMeasurementPeriod {seconds} seconds"));
        assert_eq!(is_taken, is_good, "{seconds}:\n{text}");
        assert!(is_good || text.contains("must be a number from 10 to 2592000"), "{text}");
    }
}

/// The network of the other tests: its consensus has an opinion on everything that a consensus
/// may decide.
static LAB: SharedLab = SharedLab::new(|| {
    let builder = Network::builder()
        .consensus_param("FFMeasurementsAllowed", 1)
        .consensus_param("FFMaxMeasurementDuration", 15)
        .consensus_param("FFBackgroundTrafficPercent", 10);
    let relays = vec![
        silent("silent"),
        silent("opposed").torrc("FFMeasurementsAllowed 0"),
        silent("longer").torrc("FFMaxMeasurementDuration 20"),
        silent("changing"),
        silent("retired"),
    ];
    Lab::start(builder, relays)
});

/// A relay's grant to a new coordinator that asks for the longest measurement: seconds, and
/// background in percent.
async fn grant(relay: &Relay<'_>) -> (u16, u8) {
    let team = [Member::new(1)];
    let granted = Coordinator::granted(&relay.target(), relay.key(), 120, &team).await;
    let (coordinator, grant) = granted;
    coordinator.end().await;
    (grant.duration_secs, grant.ratio.percent())
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn torrc_beats_the_consensus_which_beats_the_default() {
    LAB.run(async |lab| {
        assert_eq!(grant(&lab.relay("silent")).await, (15, 10));
        assert_eq!(grant(&lab.relay("longer")).await, (20, 10));
        let opposed = lab.relay("opposed");
        assert_failed(&opposed.measure(opposed.key()).await, "not_supported");
        // Our own coordinator goes by what was granted.
        let relay = lab.relay("silent");
        let (_, _, outcome) = relay.measured(|key| relay.plan(key, 2), || ()).await;
        assert_eq!((outcome.seconds.len(), outcome.ratio.percent()), (2, 10));
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn changed_options_take_effect_and_bad_ones_leave_the_old() {
    LAB.run(async |lab| {
        let relay = lab.relay("changing");
        let mut tor = relay.node.control().expect("a control connection");
        assert_eq!(grant(&relay).await, (15, 10));
        tor.setconf("FFMaxMeasurementDuration", "20 seconds").expect("a good value");
        tor.setconf("FFBackgroundTrafficPercent", "50").expect("a good value");
        assert_eq!(grant(&relay).await, (20, 50));

        for (name, value, bounds, old) in [
            ("FFMaxMeasurementDuration", "121", "from 10 to 120 seconds", "20 seconds"),
            ("FFBackgroundTrafficPercent", "100", "from 0 to 99", "50"),
        ] {
            assert_refuses(&mut tor, name, value, bounds);
            assert_eq!(tor.getconf(name).expect("an option").as_deref(), Some(old));
        }
        assert_eq!(grant(&relay).await, (20, 50));

        // As ever with tor, a reload forgets what was set so, and takes what the file says now.
        relay.node.append_torrc("FFBackgroundTrafficPercent 33").expect("a torrc");
        relay.node.reload().expect("a reload");
        assert_eq!(grant(&relay).await, (15, 33));
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_client_answers_as_a_tor_without_the_target() {
    LAB.run(async |lab| {
        let relay = lab.relay("retired");
        assert_eq!(grant(&relay).await, (15, 10));
        let mut link = open(&relay.target()).await;
        // From now on it is a client, and keeps the links that it has.
        let mut tor = relay.node.control().expect("a control connection");
        tor.setconf("ClientOnly", "1").expect("a good value");
        let measurement = MeasurementId(rand::random());
        let cells = request(&link, measurement, relay.key(), 1, &[Member::new(1)]);
        send(&mut link, &cells).await;
        // The request is dropped. A client destroys the probe's circuit.
        let cell = next_cell(&mut link).await.expect("an answer to the probe");
        assert_eq!(cell.command, CMD_DESTROY);
    });
}

/// Fails unless tor refuses the value with a message that names the option and its bounds.
fn assert_refuses(tor: &mut Control, name: &str, value: &str, bounds: &str) {
    match tor.setconf(name, value) {
        Err(Error::Refused { reply, .. }) => {
            assert!(reply.contains(name) && reply.contains(bounds), "{reply}");
        }
        other => panic!("{name} {value} is not refused: {other:?}"),
    }
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn coordinators_and_participation_change_at_runtime() {
    LAB.run(async |lab| {
        let relay = lab.relay("changing");
        let mut tor = relay.node.control().expect("a control connection");
        let (first, second) = (coordinator(), coordinator());
        let set = |tor: &mut Control, keys: &[&SigningKey]| {
            let line: String = keys
                .iter()
                .map(|key| format!(" FFAllowedCoordinators=\"{}\"", identity(key)))
                .collect();
            tor.command(&format!("SETCONF{line}")).expect("good identities");
        };
        set(&mut tor, &[&first, &second]);
        assert_refused_as_stranger(&relay, relay.key()).await;
        for key in [&first, &second] {
            let granted = Coordinator::granted(&relay.target(), key, 1, &[Member::new(1)]).await;
            granted.0.end().await;
        }
        set(&mut tor, &[&second]);
        assert_refused_as_stranger(&relay, &first).await;
        assert_refuses(&mut tor, "FFAllowedCoordinators", "nobody", "43 base64 characters");

        tor.setconf("FFMeasurementsAllowed", "0").expect("a good value");
        assert_failed(&relay.measure(&second).await, "not_supported");
        // tor and the library read the same number.
        let third = coordinator();
        set(&mut tor, &[&second, &third]);
        tor.setconf("FFMeasurementsAllowed", "01").expect("a good value");
        Coordinator::granted(&relay.target(), &third, 1, &[Member::new(1)]).await.0.end().await;
        tor.command("RESETCONF FFMeasurementsAllowed").expect("the consensus decides again");
        Coordinator::granted(&relay.target(), &second, 1, &[Member::new(1)]).await.0.end().await;
        tor.command("RESETCONF FFAllowedCoordinators").expect("then there is nobody");
        assert_refused_as_stranger(&relay, &second).await;
        relay.node.reload().expect("a reload");
        relay.assert_in_order().await;
    });
}

/// Fails unless the relay does not know the coordinator.
async fn assert_refused_as_stranger(relay: &Relay<'_>, key: &SigningKey) {
    let code = Coordinator::refused(&relay.target(), key).await;
    assert_eq!(code.name(), "coordinator_not_allowed");
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn tor_lists_the_options() {
    LAB.run(async |lab| {
        let relay = lab.relay("longer");
        let mut tor = relay.node.control().expect("a control connection");
        let listed = tor.getinfo("config/names").expect("a list");
        for name in options::names().filter(|&name| name != options::TESTING_NETWORK) {
            let line = listed.lines().find(|line| line.split(' ').next() == Some(name));
            assert!(line.is_some(), "{name} in:\n{listed}");
            tor.getconf(name).expect("an option of tor's");
        }
        let value = tor.getconf("FFMaxMeasurementDuration").expect("an option");
        assert_eq!(value.as_deref(), Some("20"));
        assert_eq!(tor.getconf("FFMeasurementsAllowed").expect("an option"), None);
    });
}
