//! Server descriptors, as many as a file has (dir-spec 2.1.1): what relays say of their rates and
//! families.

use std::collections::HashMap;

use super::{DocumentError, fingerprint_hex, lines};
use crate::period::Fingerprint;

/// What is read of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The least of the three numbers of `bandwidth`, in bytes a second: the advertised bandwidth.
    pub advertised_bytes_per_sec: u64,
    /// The relays that it declares as its family.
    pub family: Vec<Fingerprint>,
}

/// Reads descriptors; of a relay that has several, the last.
///
/// # Errors
/// [`DocumentError`] for a line that cannot be read, or a descriptor that is cut.
pub fn parse(text: &str) -> Result<HashMap<Fingerprint, Descriptor>, DocumentError> {
    let mut all = HashMap::new();
    let mut current: Option<(usize, Option<Fingerprint>, Descriptor)> = None;
    for (number, line) in lines(text) {
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        let bad = |what: &str| DocumentError::new(number, format!("{what} cannot be read"));
        if keyword == "router" {
            is_over(current.as_ref())?;
            current = Some((number, None, Descriptor::default()));
        }
        let Some((_, fingerprint, descriptor)) = &mut current else { continue };
        match keyword {
            "fingerprint" => {
                let digits: String = rest.split(' ').collect();
                *fingerprint =
                    Some(fingerprint_hex(&digits).ok_or_else(|| bad("the fingerprint"))?);
            }
            "bandwidth" => {
                let numbers: Option<Vec<u64>> =
                    rest.split(' ').take(3).map(|word| word.parse().ok()).collect();
                let least = numbers.filter(|numbers| numbers.len() == 3);
                let least = least.and_then(|numbers| numbers.into_iter().min());
                descriptor.advertised_bytes_per_sec = least.ok_or_else(|| bad("the bandwidth"))?;
            }
            // Nicknames among them say nothing for certain.
            "family" => descriptor.family = rest.split(' ').filter_map(fingerprint_hex).collect(),
            "router-signature" => {
                if let Some((start, fingerprint, descriptor)) = current.take() {
                    let missing = || DocumentError::new(start, "the descriptor has no fingerprint");
                    all.insert(fingerprint.ok_or_else(missing)?, descriptor);
                }
            }
            _ => {}
        }
    }
    is_over(current.as_ref())?;
    Ok(all)
}

/// Complains of a descriptor that another one follows, or the end.
fn is_over(
    current: Option<&(usize, Option<Fingerprint>, Descriptor)>,
) -> Result<(), DocumentError> {
    match current {
        Some((start, ..)) => Err(DocumentError::new(*start, "the descriptor ends too early")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two descriptors.
    const TEXT: &str = "\
        @type server-descriptor 1.0\nrouter one 192.0.2.1 443 0 0\n\
        fingerprint 846B 3EAA F0C0 7FF7 2FC7 9AEB B11F A3AD C58F 240F\n\
        bandwidth 4594304 4594304 3046428\n\
        family $0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91 $195712E96FD1C1B18D14D09E9E4E7A6416E23B2C~x name\n\
        router-signature\n-----BEGIN SIGNATURE-----\n-----END SIGNATURE-----\n\
        router two 192.0.2.2 443 0 0\nbandwidth 1000 2000 3000\n\
        fingerprint 0BC8 BA32 CC3C B0F5 98E0 C927 78F7 C094 6DFB CE91\nrouter-signature\n";

    #[test]
    fn rates_and_families_are_read() {
        let all = parse(TEXT).expect("descriptors");
        let name = |text: &str| fingerprint_hex(text).expect("a fingerprint");
        let two = name("0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91");
        let one = &all[&name("846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F")];
        assert_eq!(one.advertised_bytes_per_sec, 3_046_428);
        assert_eq!(one.family, [two, name("195712E96FD1C1B18D14D09E9E4E7A6416E23B2C")]);
        assert_eq!(all[&two].advertised_bytes_per_sec, 1000);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn errors_name_the_line() {
        for (bad, line, part) in [
            (TEXT.replace("846B 3EAA", "846B"), 3, "the fingerprint"),
            (TEXT.replace(" 3000\n", "\n"), 10, "the bandwidth"),
            (TEXT.replace("router two", "router-x two"), 0, ""),
            (TEXT.replace("CE91\nrouter-signature\n", "CE91\n"), 9, "too early"),
            (TEXT.replacen("router-signature", "x", 1), 2, "too early"),
            (TEXT.replace("fingerprint 0B", "x 0B"), 9, "no fingerprint"),
        ] {
            match parse(&bad) {
                Ok(_) => assert_eq!(line, 0, "{part} is no error"),
                Err(error) => assert!(error.line == line && error.reason.contains(part), "{error}"),
            }
        }
    }
}
