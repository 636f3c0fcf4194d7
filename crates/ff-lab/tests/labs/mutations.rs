//! Mutated files and mutated answers of tor make no reader panic, and every profile that is
//! accepted works in a link. The fuzzers in `fuzz` go further.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ff_lab::link::{DelayTable, Direction, Jitter, Link};
use ff_lab::profile::Profile;
use ff_lab::{Delays, Reply};
use proptest::prelude::*;

/// Text of a built-in profile that uses most keys.
fn profile(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles").join(name);
    fs::read_to_string(path).expect("a profile")
}

/// Cuts out a piece and overwrites bytes.
fn mutated(text: &str, cut: (usize, usize), changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let from = cut.0 % bytes.len();
    bytes.drain(from..(from + cut.1).min(bytes.len()));
    for &(at, byte) in changes {
        let at = at % bytes.len().max(1);
        bytes.get_mut(at).into_iter().for_each(|old| *old = byte);
    }
    bytes
}

/// Sends packets through a link for a second; each arrives, is dropped, or waits.
fn drive(direction: &Direction) {
    let mut link = Link::new(direction, 1);
    for packet in 0..100_u32 {
        link.handle_packet(packet, 1500, Duration::from_millis(u64::from(packet) * 10));
    }
    let ended = std::iter::from_fn(|| link.poll_output()).count();
    let counts = link.counts();
    assert_eq!(counts.packets, 100);
    assert_eq!((ended + link.waiting()) as u64, counts.packets + counts.duplicated);
}

/// The piece to cut out and the bytes to overwrite.
fn edits() -> impl Strategy<Value = ((usize, usize), Vec<(usize, u8)>)> {
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(b"0123456789-.e\n\t #=\"[]{},+x".to_vec())];
    ((any::<usize>(), 0_usize..40), prop::collection::vec((any::<usize>(), byte), 0..4))
}

proptest! {
    #[test]
    fn a_profile_is_one_or_is_refused_in_a_line(
        moving: bool,
        (cut, changes) in edits(),
    ) {
        let text = profile(if moving { "lte-moving.toml" } else { "lossy.toml" });
        let text = String::from_utf8_lossy(&mutated(&text, cut, &changes)).into_owned();
        match Profile::parse("profile", &text, Path::new("/nothing")) {
            Ok(profile) => [profile.up, profile.down].iter().for_each(drive),
            Err(error) => {
                let error = error.to_string();
                prop_assert!(error.starts_with("profile: ") && !error.contains('\n'), "{}", error);
            }
        }
    }

    #[test]
    fn a_table_of_jitter_is_one_or_its_line_is_named((cut, changes) in edits()) {
        let text = mutated("# ms\n0\n0.5\n1.25\n\n40\n3\n", cut, &changes);
        match DelayTable::parse(&String::from_utf8_lossy(&text)) {
            Ok(table) => {
                let mut direction = Direction::default();
                direction.delay.jitter = Jitter::Table(table.into());
                drive(&direction);
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
        }
    }

    #[test]
    fn a_table_of_hosts_is_one_or_its_line_is_named((cut, changes) in edits()) {
        let text = "# one way, ms\nrelay0 relay1 12.5\n\nrelay1 exit0 0\nexit0 relay1 60000\n";
        let text = String::from_utf8_lossy(&mutated(text, cut, &changes)).into_owned();
        match Delays::table("delays", &text) {
            Ok(Delays::Table(rows)) => {
                prop_assert!(rows.iter().all(|row| row.2 <= Duration::from_secs(60)), "{:?}", rows);
            }
            Ok(other) => prop_assert!(false, "{:?}", other),
            Err(error) => {
                let error = error.to_string();
                let line = error.strip_prefix("delays: line ").and_then(|rest| rest.split_once(':'));
                let line = line.and_then(|(line, _)| line.parse().ok());
                let lines = text.lines().count();
                prop_assert!(line.is_some_and(|line: usize| (1..=lines).contains(&line)), "{}", error);
            }
        }
    }

    /// A message is parsed the same alone and with more after it; a truncated one is not a message.
    #[test]
    fn what_a_control_port_says_is_read_message_by_message((cut, changes) in edits()) {
        let text = "250-version=0.4.9.11\r\n250+ns/all=\r\nr one\r\n..two\r\n.\r\n250 OK\r\n\
            650 CIRC 5 BUILT $0123=a,$4567=b PURPOSE=GENERAL\r\n650+ONE\r\nx\r\n.\r\n650 OK\r\n515 no\r\n";
        let bytes = mutated(text, cut, &changes);
        let mut rest = &bytes[..];
        while let Ok(Some((reply, length))) = Reply::parse(rest) {
            prop_assert!((1..=rest.len()).contains(&length) && reply.code < 1000);
            prop_assert_eq!(Reply::parse(&rest[..length - 1]).expect("no mistake yet"), None);
            let alone = Reply::parse(&rest[..length]).expect("a message");
            prop_assert_eq!(alone, Some((reply, length)));
            rest = &rest[length..];
        }
    }
}
