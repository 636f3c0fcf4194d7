//! Tests of the scanner with small descriptors; those with real ones are in `tests/read.rs`.

use super::*;

/// A descriptor of 2008, with lines that were optional then.
const OLD: &str = "\
    router old 192.0.2.7 9001 0 9030\nplatform Tor 0.2.0.30 on Linux i686\nopt protocols Link 1 2 Circuit 1\n\
    published 2008-07-14 12:00:00\nopt fingerprint 0011 2233 4455 6677 8899 AABB CCDD EEFF 0011 2233\nuptime 7\n\
    bandwidth 5000 4000 3000\nonion-key\n-----BEGIN RSA PUBLIC KEY-----\nbandwidth 1 1 1\n-----END RSA PUBLIC KEY-----\n\
    family $FFEEDDCCBBAA99887766554433221100FFEEDDCC=a friend 00112233445566778899AABBCCDDEEFF00112233~b $00\n\
    overload-general 1 2008-07-14 11:00:00\nreject *:*\nrouter-signature\n\
    -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n";

#[test]
fn a_descriptor_without_ed25519_is_read() {
    let mut descriptors = Descriptors::default();
    assert_eq!(descriptors.add(OLD.as_bytes()), []);
    let [old] = &descriptors.all[..] else { panic!("{descriptors:?}") };
    let texts = (descriptors.nickname(old), descriptors.platform(old));
    assert_eq!(texts, ("old", "Tor 0.2.0.30 on Linux i686"));
    assert_eq!((old.address.to_string().as_str(), old.or_port), ("192.0.2.7", 9001));
    assert_eq!(hex::encode(old.fingerprint), "00112233445566778899aabbccddeeff00112233");
    assert_eq!((old.rate, old.burst, old.observed), (5000, 4000, 3000));
    assert_eq!((old.limit(), old.advertised()), (4000, 3000));
    assert_eq!(old.published_unix_secs, 1_216_036_800);
    assert_eq!(old.overloaded_unix_secs, Some(1_216_033_200));
    let family: Vec<String> = descriptors.family(old).iter().map(hex::encode).collect();
    assert_eq!(
        family,
        ["ffeeddccbbaa99887766554433221100ffeeddcc", "00112233445566778899aabbccddeeff00112233"]
    );
    let signed = OLD.split_inclusive("router-signature\n").next().expect("the signed part");
    assert_eq!(old.digest, <[u8; 20]>::from(Sha1::digest(signed)));
}

#[test]
fn one_bad_descriptor_costs_no_other() {
    for (from, to, line, part) in [
        ("192.0.2.7", "192.0.2", 1, "router"),
        ("router old", "router o-d", 1, "router"),
        ("router old", "extra-info old", 1, "not a server descriptor"),
        ("platform Tor", "platform \u{0}", 0, ""),
        ("2008-07-14 12", "2006-07-14 12", 4, "publication"),
        ("2008-07-14 12", "2008-07-34 12", 4, "publication"),
        ("0011 2233 4455", "0011 2233 445", 5, "fingerprint"),
        ("0011 2233 4455", "0011 2233 44555", 5, "fingerprint"),
        ("opt fingerprint", "opt odd", 1, "no fingerprint"),
        ("published", "odd", 1, "no time"),
        ("bandwidth 5000", "odd 5000", 1, "no bandwidth"),
        ("bandwidth 5000 4000 3000", "bandwidth 5000 4000", 7, "bandwidth cannot"),
        ("bandwidth 5000", "bandwidth -5000", 7, "bandwidth cannot"),
        ("bandwidth 5000", "bandwidth 9007199254740993", 7, "above 2^53"),
        ("uptime 7", "bandwidth 0 0 0", 7, "twice"),
        ("-----END RSA", "-----ODD RSA", 1, "too early"),
        ("router-signature", "odd", 1, "too early"),
        // Bridges' descriptors as published by CollecTor: with a digest and without a signature.
        ("router-signature", "router-digest 00112233", 1, "this is a bridge's descriptor"),
    ] {
        let bad = OLD.replacen(from, to, 1);
        let file = format!("@type a 1.0\n{OLD}@type a 1.0\n{bad}@type a 1.0\n{OLD}");
        let mut descriptors = Descriptors::default();
        let errors = descriptors.add(file.as_bytes());
        let start = OLD.lines().count() + 2;
        let found: Vec<_> =
            errors.iter().map(|error| (error.line - start, &*error.reason)).collect();
        if line == 0 {
            assert_eq!((found.len(), descriptors.all.len()), (0, 3));
            continue;
        }
        let [(found, reason)] = found[..] else { panic!("{part}: {errors:?}") };
        assert!(found == line && reason.contains(part), "{found} {reason}, not {line} {part}");
        assert_eq!(descriptors.all.len(), 2);
        let mut good = Descriptors::default();
        assert_eq!(good.add(format!("{OLD}{OLD}").as_bytes()), []);
        assert_eq!(descriptors, good, "nothing is left of what was bad");
    }
    let mut descriptors = Descriptors::default();
    let bytes = [OLD.as_bytes(), b"router x\xff 192.0.2.7 1 0 0\n"].concat();
    assert_eq!(descriptors.add(&bytes).len(), 1);
    assert_eq!((descriptors.all.len(), descriptors.add(b"\n").len()), (1, 0));
}

#[test]
fn wherever_a_descriptor_is_cut_it_is_an_error_or_has_lost_its_signature_alone() {
    let signature = OLD.find("-----BEGIN SIGNATURE").expect("a signature");
    let mut whole = Descriptors::default();
    assert_eq!(whole.add(OLD.as_bytes()), []);
    for end in 1..OLD.len() {
        let mut cut = Descriptors::default();
        let errors = cut.add(&OLD.as_bytes()[..end]);
        assert_eq!(
            (errors.is_empty(), cut == whole),
            (end >= signature, end >= signature),
            "{end}"
        );
    }
}
