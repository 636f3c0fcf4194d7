//! Any bytes as a consensus with microdescriptors, which a 0 parts: paths that are drawn from what
//! is read keep all rules. The first byte says by which of them.
#![no_main]

use std::collections::HashSet;
use std::net::IpAddr;

use ff_archives::network::{Network, Relay};
use ff_circuits::paths::pool::Pool;
use ff_circuits::paths::{Choice, Generator, Lengths, Rules, file};
use ff_dir::consensus::Consensus;
use ff_dir::microdescriptors::Microdescriptors;
use libfuzzer_sys::fuzz_target;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

fuzz_target!(|input: &[u8]| {
    let Some((&by, rest)) = input.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let mut part = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (text, micros) = (part(), Microdescriptors::parse(&part()));
    let mut consensus = match Consensus::parse(&text) {
        Ok(consensus) => consensus,
        Err(error) => {
            assert!(error.line <= text.split('\n').count() && !error.reason.is_empty(), "{error}");
            return;
        }
    };
    // Nobody finds a text by its digest, so relays get those that are there, in turn.
    let mut digests: Vec<_> = micros.by_digest.keys().copied().collect();
    digests.sort_unstable();
    for (relay, digest) in consensus.relays.iter_mut().zip(digests) {
        relay.microdescriptor = Some(digest);
    }
    let pool = Pool::of_documents(&text, &consensus, Network::from(&consensus), &micros);
    assert_consistent(&pool, &consensus);
    // Another space between words says the same.
    let tabs = text.replace("\nr ", "\nr\t").replace("\np ", "\np\t");
    let other = Pool::of_documents(&tabs, &consensus, Network::from(&consensus), &micros);
    assert_eq!(pool.policies, other.policies);
    draw(&pool, &choice(by));
});

/// What a byte asks for.
fn choice(by: u8) -> Choice {
    let two = |shift: u8| usize::from((by >> shift) & 3);
    let rules = [Rules::Tor, Rules::Weighted, Rules::Old, Rules::Uniform][two(0)];
    let lengths = Lengths::new(&[([1, 2, 3, 8][two(2)], 1.0)]).expect("a length");
    let guards = [0, 0, 1, 3][two(4)];
    let port = if by & 64 == 0 { 443 } else { 80 };
    Choice { rules, lengths, guards, any_subnet: by & 128 != 0, port }
}

/// Each relay has its place, each number is a part.
fn assert_consistent(pool: &Pool, consensus: &Consensus) {
    let relays = &pool.network.relays;
    assert_eq!(relays.len(), consensus.relays.len());
    assert!(pool.policies.as_ref().is_none_or(|policies| policies.len() == relays.len()));
    if let Some(factors) = &pool.factors {
        let all = [factors.guard, factors.middle, factors.exit];
        assert!(all.iter().flatten().all(|part| (0.0..=1.0).contains(part)), "{factors:?}");
    }
    let first = pool.network.families();
    assert_eq!(first.len(), relays.len());
    assert!((0..).zip(&first).all(|(place, &one)| one <= place && first[one] == one), "{first:?}");
    assert!(relays.iter().all(|relay| relay.weight.is_finite() && relay.weight >= 0.0));
}

/// Draws some paths, writes them, and reads them again.
fn draw(pool: &Pool, choice: &Choice) {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut generator = match Generator::new(pool, choice, &mut rng) {
        Ok(generator) => generator,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let drawn: Vec<_> = (0..20).filter_map(|_| generator.draw(&mut rng)).collect();
    drawn.iter().for_each(|path| assert_allowed(pool, choice, path));
    if drawn.is_empty() {
        return;
    }
    let ids: Vec<String> =
        pool.network.relays.iter().map(|relay| hex::encode_upper(relay.fingerprint)).collect();
    let named: Vec<Vec<String>> = drawn
        .iter()
        .map(|path| path.iter().map(|&place| ids[place as usize].clone()).collect())
        .collect();
    let text = file::render("drawn", named.iter().map(Vec::as_slice));
    let read = file::find("f", &text, |id| ids.iter().position(|one| one == id)).expect("paths");
    let places: Vec<Vec<usize>> =
        drawn.iter().map(|path| path.iter().map(|&place| place as usize).collect()).collect();
    assert_eq!(read, places);
}

/// The /16 of a relay's first address, which in a consensus is of IPv4.
fn net(relay: &Relay) -> [u8; 2] {
    let IpAddr::V4(address) = relay.addresses[0] else { panic!("{relay:?}") };
    let [one, two, ..] = address.octets();
    [one, two]
}

/// A path is of relays that run, of which no two belong together, with a guard first and an exit
/// last.
fn assert_allowed(pool: &Pool, choice: &Choice, path: &[u32]) {
    assert!((1..=8).contains(&path.len()), "{path:?}");
    let relays: Vec<&Relay> =
        path.iter().map(|&place| &pool.network.relays[place as usize]).collect();
    assert_eq!(path.iter().collect::<HashSet<_>>().len(), path.len(), "{path:?}");
    assert!(relays.iter().all(|relay| relay.flags.running), "{path:?}");
    let is_guard = choice.rules == Rules::Uniform || relays[0].flags.guard;
    assert!(path.len() == 1 || is_guard, "{path:?}");
    let (last, place) = (relays[path.len() - 1], path[path.len() - 1] as usize);
    let policy = pool.policies.as_ref().map(|all| all[place].allows_port(choice.port));
    assert!(!last.flags.bad_exit && policy.unwrap_or(last.flags.exit), "{path:?}");
    let any_subnet = choice.any_subnet || choice.rules == Rules::Old;
    for (number, one) in relays.iter().enumerate() {
        for other in &relays[number + 1..] {
            let names = |one: &Relay, other: &Relay| one.family.contains(&other.fingerprint);
            assert!(!names(one, other) || !names(other, one), "one family: {path:?}");
            let has_key_of = |id: &String| other.family_ids.contains(id);
            assert!(!one.family_ids.iter().any(has_key_of), "one family's key: {path:?}");
            let is_near = net(one) == net(other);
            assert!(any_subnet || !is_near, "one subnet: {path:?}");
        }
    }
}
