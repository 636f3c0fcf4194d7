//! A relay's memory of earlier measurements, and its behaviour when it cannot store them.

use std::fs;
use std::path::PathBuf;

use ed25519_dalek::SigningKey;
use ff_measurer::measurer_id;
use ff_proto::msg::ErrCode;

use super::LAB;
use super::lab::{Relay, assert_refused};
use super::session::{Coordinator, Member, PATIENCE, error_code};

/// Path of the relay's state file.
fn state_path(relay: &Relay<'_>) -> PathBuf {
    relay.node.data_dir().join("state")
}

/// The state file's lines of grants.
fn grant_lines(relay: &Relay<'_>) -> Vec<String> {
    let state = fs::read_to_string(state_path(relay)).expect("a state file");
    state.lines().filter(|line| line.starts_with("FFGranted ")).map(str::to_owned).collect()
}

/// How a line of the state file begins that is a grant to this coordinator.
fn grant_line(key: &SigningKey) -> String {
    format!("FFGranted {} ", measurer_id(key))
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_third_measurement_in_a_period_is_refused_also_after_a_restart() {
    LAB.run(async |lab| {
        let relay = lab.relay("period");
        let (first, second) = (relay.key(), relay.key());
        relay.measure_by_hand(first).await;
        let lines = grant_lines(&relay);
        assert!(lines.len() == 1 && lines[0].starts_with(&grant_line(first)), "{lines:?}");
        relay.node.restart().expect("a restart");

        relay.measure_by_hand(first).await;
        assert_refused(&relay.measure(first).await, "too_soon");
        assert_eq!(grant_lines(&relay).len(), 2);
        relay.node.restart().expect("a restart");

        assert_refused(&relay.measure(first).await, "too_soon");
        relay.measure_by_hand(second).await;
        let lines = grant_lines(&relay);
        let of = |key| lines.iter().filter(|line| line.starts_with(&grant_line(key))).count();
        assert_eq!((of(first), of(second), lines.len()), (2, 1, 3), "{lines:?}");
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn damaged_lines_are_named_and_dropped_and_the_others_count() {
    LAB.run(async |lab| {
        let relay = lab.relay("damaged");
        let key = relay.key();
        for _ in 0..2 {
            relay.measure_by_hand(key).await;
        }
        relay.node.stop();
        let intact = fs::read_to_string(state_path(&relay)).expect("a state file");
        let lines = grant_lines(&relay);
        let (before, after) = intact.split_once(&lines[0]).expect("the first line");
        let nonsense = "FFGranted nonsense\n".repeat(1000);
        let damaged = format!("{before}{nonsense}{}{after}", lines[0]);
        fs::write(state_path(&relay), damaged).expect("a state file");

        relay.node.restart().expect("tor starts all the same");
        // Of the last 512 lines two are good.
        let warning = relay.node.wait_for_log("ignored 510", PATIENCE).expect("a warning");
        assert!(warning.contains("[warn]") && warning.contains("last 512 lines"), "{warning}");
        assert_refused(&relay.measure(key).await, "too_soon");
        relay.measure_by_hand(relay.key()).await;
        relay.node.stop();
        let kept = grant_lines(&relay);
        assert_eq!((&kept[..2], kept.len()), (&lines[..], 3), "{kept:?}");
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_memory_that_cannot_be_written_refuses_the_measurement() {
    LAB.run(async |lab| {
        let relay = lab.relay("unwritable");
        // Tor writes into this file and then renames it. A directory's mode would not stop root.
        let obstacle = relay.node.data_dir().join("state.tmp");
        fs::create_dir(&obstacle).expect("an empty directory");
        let (_, answer) =
            Coordinator::ask(&relay.target(), relay.key(), 1, &[Member::new(1)]).await;
        assert_eq!(error_code(&answer), Some(ErrCode::INTERNAL), "{answer:?}");
        let told = relay.node.wait_for_log("the measurement is off", PATIENCE).expect("so");
        assert!(told.contains("[warn]") && told.contains("state file"), "{told}");
        let log = relay.node.log();
        assert!(!log.contains("will measure this relay"), "{log}");

        fs::remove_dir(&obstacle).expect("an empty directory");
        let key = relay.key();
        relay.measure_by_hand(key).await;
        assert!(grant_lines(&relay).iter().any(|line| line.starts_with(&grant_line(key))));
    });
}
