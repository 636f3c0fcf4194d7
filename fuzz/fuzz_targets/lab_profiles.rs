//! Any bytes as a profile of a link, its trace or its table of delays, and as a table of delays
//! between hosts; whatever is read drives a link in which every packet comes to an end.
#![no_main]

use std::path::Path;
use std::time::Duration;

use ff_lab::Delays;
use ff_lab::link::{DelayTable, Direction, Jitter, Link, Rate, Trace};
use ff_lab::profile::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    if let Ok(trace) = Trace::parse(input) {
        assert!(trace.period() > Duration::ZERO && trace.mean_rate().get() > 0);
        drive(&Direction { rate: Rate::Trace(trace.into()), ..Direction::default() });
    }
    if let Ok(table) = DelayTable::parse(input) {
        let mut direction = Direction::default();
        direction.delay.jitter = Jitter::Table(table.into());
        drive(&direction);
    }
    if let Err(error) = Delays::table("delays", input) {
        assert!(error.to_string().starts_with("delays: line "), "{error}");
    }
    match Profile::parse("profile", input, Path::new("/nothing")) {
        Ok(profile) => [profile.up, profile.down].iter().for_each(drive),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});

/// Sends some packets through a link, for a second.
fn drive(direction: &Direction) {
    let mut link = Link::new(direction, 1);
    for packet in 0..100u32 {
        link.handle_packet(packet, 1500, Duration::from_millis(u64::from(packet) * 10));
    }
    let ended = std::iter::from_fn(|| link.poll_output()).count();
    let counts = link.counts();
    assert_eq!(counts.packets, 100);
    assert_eq!((ended + link.waiting()) as u64, counts.packets + counts.duplicated);
}
