//! Any bytes as a control message: what decodes must encode, and decode to the same again.
#![no_main]

use ff_proto::cell::BODY_LEN;
use ff_proto::msg::Msg;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Msg::decode(bytes) else { return };
    if bytes.len() > BODY_LEN {
        return;
    }
    let body = message.encode().expect("what came in a cell fits into one");
    assert_eq!(Msg::decode(&body).as_ref(), Ok(&message));
    if let Msg::Err(error) = &message {
        assert!(error.text.len() <= 200 && error.text.bytes().all(|b| (b' '..=b'~').contains(&b)));
    }
});
