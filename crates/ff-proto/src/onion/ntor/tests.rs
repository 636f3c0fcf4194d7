use super::*;
use crate::ids::CryptoKind;
use crate::onion::extend::{ask_for, is_extensions};

/// The relay of these tests.
fn server() -> NtorServer {
    NtorServer { id: Ed25519Id([1; 32]), key: EphemeralKey::new([2; 32]) }
}

/// A client that has sent its handshake to it.
fn client() -> (NtorClient, Vec<u8>) {
    let message = ask_for(CryptoKind::CGO_AES128);
    NtorClient::new(server().public(), EphemeralKey::new([3; 32]), &message).unwrap()
}

/// Answers with the same message.
fn answer(request: &[u8]) -> Result<(Vec<u8>, KeySource), NtorError> {
    server().answer(request, &EphemeralKey::new([4; 32]), |message| {
        is_extensions(message).then(|| message.to_vec())
    })
}

#[test]
fn both_ends_have_the_same_keys_and_read_each_others_message() {
    let (client, request) = client();
    let (reply, mut theirs) = answer(&request).unwrap();
    let (message, mut ours) = client.finish(&reply).unwrap();
    assert_eq!(message, ask_for(CryptoKind::CGO_AES128));
    let mut keys = [[0; 100]; 2];
    ours.fill(&mut keys[0]);
    theirs.fill(&mut keys[1]);
    assert_eq!(keys[0], keys[1]);
    assert!(!request.windows(message.len()).any(|part| part == message), "it is encrypted");
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let (_, request) = client();
    for index in 0..request.len() {
        let mut changed = request.clone();
        changed[index] ^= 1;
        let expected = if index < 64 { NtorError::OtherRelay } else { NtorError::BadAuth };
        assert_eq!(answer(&changed).unwrap_err(), expected, "byte {index} of a request");
        assert!(answer(&request[..index]).is_err(), "a request of {index} bytes");
    }
    let (reply, _) = answer(&request).unwrap();
    for index in 0..reply.len() {
        let mut changed = reply.clone();
        changed[index] ^= 1;
        let error = client().0.finish(&changed).unwrap_err();
        assert_eq!(error, NtorError::BadAuth, "byte {index} of a reply");
        assert!(client().0.finish(&reply[..index]).is_err(), "a reply of {index} bytes");
    }
}

#[test]
fn points_of_small_order_and_unwanted_messages_are_refused() {
    let zero = OnionKey { key: [0; 32], ..server().public() };
    let asked = NtorClient::new(zero, EphemeralKey::new([3; 32]), &[0]);
    assert_eq!(asked.err(), Some(NtorError::BadPoint));
    let (_, mut request) = client();
    request[64..96].fill(0);
    assert_eq!(answer(&request).unwrap_err(), NtorError::BadPoint);
    let (_, request) = client();
    let refused = server().answer(&request, &EphemeralKey::new([4; 32]), |_| None);
    assert_eq!(refused.unwrap_err(), NtorError::Refused);
}
