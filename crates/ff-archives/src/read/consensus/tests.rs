//! Tests of the scanner with small documents; those with real ones are in `tests/read.rs`.

use super::*;

/// A consensus of this method with these entries.
fn text(method: u32, flavour: &str, entries: &str) -> String {
    format!(
        "@type network-status-consensus-3 1.0\nnetwork-status-version 3{flavour}\nvote-status consensus\n\
         consensus-method {method}\nvalid-after 2019-07-14 00:00:00\nknown-flags Exit Running\n{entries}\
         directory-footer\nbandwidth-weights Wbd=0 Wmm=10000 Wxx=-5\ndirectory-signature A B\n\
         -----BEGIN SIGNATURE-----\nr AAAA\n-----END SIGNATURE-----\n"
    )
}

/// Two relays of the ns flavour.
const NS: &str = "\
    r seele AAoQ1DAR6kkoo19hBAX5K0QztNw py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 192.0.2.1 9001 0\n\
    a [2001:db8::7]:9001\na 192.0.2.9:443\ns Running V2Dir Valid Odd\nv Tor 0.3.5.8\npr Cons=1-2\n\
    w Bandwidth=11 Unmeasured=1\np reject 1-65535\n\
    r titan ABElTMhEQ2myDvERVriZBDgiGlQ py8AEJA46MwVBm52k0zr1P5Trcg 2038-01-01 00:00:00 192.0.2.2 443 80 more\n\
    s Exit Fast Guard\nw Bandwidth=9007199254740992\n";

/// Two relays of the microdesc flavour.
const MICRODESC: &str = "\
    r seele AAoQ1DAR6kkoo19hBAX5K0QztNw 2019-07-13 19:30:19 192.0.2.1 9001 0\ns Running\nv other 7\n\
    r titan ABElTMhEQ2myDvERVriZBDgiGlQ 2022-11-18 21:31:58 192.0.2.2 443 0\n\
    m PSFWDSIK+sMS6+fkLrc7PSZ6L0Rkscbz2WcmKCDIdOQ\ns Exit\n";

#[test]
fn an_ns_consensus_is_read() {
    let consensus = Consensus::parse(text(28, "", NS).as_bytes()).expect("a consensus");
    assert_eq!((consensus.flavour, consensus.method), (Flavour::Ns, 28));
    assert_eq!(consensus.valid_after(), "2019-07-14 00:00:00");
    assert_eq!(consensus.valid_after_unix_secs, 1_563_062_400);
    let weights: Vec<_> = consensus.bandwidth_weights().collect();
    assert_eq!(weights, [("Wbd", 0), ("Wmm", 10_000), ("Wxx", -5)]);
    let [seele, titan] = &consensus.relays[..] else { panic!("{consensus:?}") };
    assert_eq!(hex::encode(seele.fingerprint), "000a10d43011ea4928a35f610405f92b4433b4dc");
    let Digest::Descriptor(digest) = seele.digest else { panic!("{seele:?}") };
    assert_eq!(hex::encode(digest), "a72f00109038e8cc15066e76934cebd4fe53adc8");
    assert_eq!(
        (consensus.text(seele.nickname), consensus.text(seele.version)),
        ("seele", "0.3.5.8")
    );
    let addresses: Vec<String> = consensus.addresses(seele).map(|ip| ip.to_string()).collect();
    assert_eq!(addresses, ["192.0.2.1", "2001:db8::7", "192.0.2.9"]);
    assert_eq!((seele.or_port, seele.bandwidth, seele.is_unmeasured), (9001, Some(11), true));
    let flags = [FlagBits::RUNNING, FlagBits::V2_DIR, FlagBits::VALID];
    assert!(flags.iter().all(|flag| seele.flags.has(*flag)) && !seele.flags.has(FlagBits::EXIT));
    assert_eq!(titan.bandwidth, Some(MOST_BANDWIDTH));
    assert_eq!((consensus.text(titan.version), consensus.addresses(titan).count()), ("", 1));
}

#[test]
fn a_microdesc_consensus_is_read_into_the_same_space() {
    let mut consensus = Consensus::default();
    consensus.read(text(28, "", NS).as_bytes()).expect("a consensus");
    let space = consensus.relays.as_ptr();
    consensus.read(text(33, " microdesc", MICRODESC).as_bytes()).expect("a consensus");
    assert_eq!(consensus.relays.as_ptr(), space);
    let fresh = Consensus::parse(text(33, " microdesc", MICRODESC).as_bytes());
    assert_eq!(Ok(&consensus), fresh.as_ref());
    let [seele, titan] = &consensus.relays[..] else { panic!("{consensus:?}") };
    assert_eq!((seele.digest, consensus.text(seele.version)), (Digest::None, "other 7"));
    let Digest::Microdescriptor(digest) = titan.digest else { panic!("{titan:?}") };
    assert_eq!((consensus.flavour, digest[..2].to_vec()), (Flavour::Microdesc, vec![0x3d, 0x21]));
    assert_eq!((titan.bandwidth, titan.or_port), (None, 443));
    consensus.read(b"x").expect_err("this is none");
    assert_eq!(consensus, Consensus::default());
}

#[test]
fn before_method_9_a_signature_is_the_footer() {
    let old = |method: &str| {
        let text = text(8, "", NS).replace("consensus-method 8\n", method);
        let start = text.find("directory-footer").expect("a footer");
        let end = text.find("directory-signature").expect("a signature");
        format!("{}{}", &text[..start], &text[end..])
    };
    for (line, method) in [("consensus-method 8\n", 8), ("", 1)] {
        let consensus = Consensus::parse(old(line).as_bytes()).expect("a consensus");
        assert_eq!((consensus.method, consensus.relays.len()), (method, 2));
        assert_eq!(consensus.bandwidth_weights().len(), 0);
    }
    let error = Consensus::parse(old("consensus-method 9\n").as_bytes()).expect_err("no footer");
    let reason = "no line `directory-footer` is before the signatures";
    assert_eq!((error.line, &*error.reason), (18, reason));
}

#[test]
fn errors_name_the_line() {
    let ns = |from: &str, to: &str| text(28, "", &NS.replace(from, to));
    let whole = text(28, "", NS);
    let half: Vec<&str> = NS.split_inclusive("1-65535\n").collect();
    for (bad, line, part) in [
        (ns("192.0.2.2", "192.0.2"), 15, "the relay"),
        (ns(" 443 80", " 65536 80"), 15, "the relay"),
        (ns("r titan", "r ti\u{e9}an"), 15, "the relay"),
        (ns("r seele AAo", "r seele AA"), 7, "the relay"),
        (ns("ABElTMhEQ2myDvERVriZBDgiGlQ", "AAoQ1DAR6kkoo19hBAX5K0QztNw"), 15, "twice"),
        (text(28, "", &format!("{}{}", half[1], half[0])), 10, "not in order"),
        (ns("=11 ", "=-1 "), 13, "the weight Bandwidth=-1 is not a whole number from 0 to 2^53"),
        (ns("9007199254740992", "9007199254740993"), 17, "Bandwidth=9007199254740993 is not"),
        (ns("9007199254740992", "99999999999999999999999"), 17, "=99999999999999999999999 is not"),
        (ns("[2001:db8::7]", "2001:db8::7"), 8, "the address"),
        (text(28, " microdesc", &MICRODESC.replace("m PS", "m P")), 11, "digest"),
        (text(28, " odd", NS), 2, "another flavour"),
        (text(28, " microdesc", NS), 7, "the relay"),
        (whole.replace("2019-07-14 00:00", "2006-12-31 23:00"), 5, "lies before 2007"),
        (whole.replace("2019-07-14 00:00", "2019-07-32 00:00"), 5, "is not a time"),
        (whole.replace("valid-after", "valid-odd"), 1, "no valid-after time"),
        (whole.replace("consensus\nc", "vote\nc"), 3, "not a consensus"),
        (whole.replace("version 3", "version 2"), 2, "version 3"),
        (whole.replace("method 28", "method 4294967296"), 4, "method"),
        (whole.replace("directory-footer\n", ""), 19, "no line `directory-footer`"),
        (whole.replace("Wmm=10000", "Wmm=2147483648"), 19, "bandwidth-weights"),
        (whole.replace("\ndirectory-signature", "\nbandwidth-weights Wbd=0\nd"), 20, "twice"),
        (whole.replace("\ndirectory-signature", "\nr a\nd"), 20, "after the footer"),
        (format!("{whole}{whole}"), 25, "another document"),
        (String::new(), 1, "not a consensus"),
        ("\n\n".to_owned(), 1, "not a consensus"),
        ("<html>".to_owned(), 1, "not a consensus"),
    ] {
        let error = Consensus::parse(bad.as_bytes()).expect_err(part);
        assert!(error.line == line && error.reason.contains(part), "{error}, not {line} {part}");
    }
}

#[test]
fn wherever_a_document_is_cut_it_is_an_error_or_has_lost_signatures_alone() {
    let whole = text(28, "", NS);
    let wanted = Consensus::parse(whole.as_bytes()).expect("a consensus");
    let weights = whole.find("directory-signature").expect("a signature");
    let behind = weights + "directory-signature A B\n".len();
    for end in 0..whole.len() - 1 {
        match Consensus::parse(&whole.as_bytes()[..end]) {
            Ok(found) => {
                assert!([weights, behind].contains(&end), "{end}");
                assert_eq!(found, wanted);
            }
            Err(error) => assert!(error.line <= 1 + whole[..end].matches('\n').count()),
        }
    }
    // Only the end of the last line may be missing, and blank lines may follow.
    for text in [&whole[..whole.len() - 1], &format!("{whole}\n")] {
        assert_eq!(Consensus::parse(text.as_bytes()).as_ref(), Ok(&wanted));
    }
}
