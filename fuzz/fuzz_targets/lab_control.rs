//! Any bytes from a control port: messages are taken apart, and what is read of a part is what is
//! read of the whole.
#![no_main]

use ff_lab::{Event, Reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Ok(Some((reply, length))) = Reply::parse(rest) {
        assert!(length > 0 && length <= rest.len() && reply.code < 1000 && !reply.lines.is_empty());
        assert_eq!(
            Reply::parse(&rest[..length]).expect("a message"),
            Some((reply.clone(), length))
        );
        assert_eq!(Reply::parse(&rest[..length - 1]).expect("no mistake yet"), None);
        let _ = (reply.is_ok(), reply.value("version"));
        let event = Event::from(reply);
        let _ = (event.bandwidth(), event.get("PURPOSE"), event.words().count());
        rest = &rest[length..];
    }
});
