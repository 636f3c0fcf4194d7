//! Arti's relay selection over a consensus of 40 relays that covers all rules.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use base64ct::{Base64Unpadded, Encoding as _};
use ff_archives::network::Network;
use ff_circuits::paths::pool::Pool;
use ff_dir::consensus::Consensus;
use ff_dir::microdescriptors::Microdescriptors;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use sha2::{Digest as _, Sha256};
use tor_checkable::{ExternallySigned as _, Timebound as _};
use tor_netdir::{FamilyRules, MdReceiver as _, NetDir, PartialNetDir, Relay, SubnetConfig};
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::doc::netstatus::MdConsensus;
use tor_relay_selection::{
    RelayExclusion, RelaySelectionConfig, RelaySelector, RelayUsage, TargetPort,
};

use super::{Places, compare, count, ours};

/// Paths of each side.
const DRAWS: usize = 60_000;
/// Number of relays.
const RELAYS: u8 = 40;
/// A family's key.
const FAMILY: &str = "ed25519:xiRC4fYUyj3pROyHeAm5dQerbUMHrLkeOJpG21vff44";

/// Microdescriptor of a relay: families by name, one of them not mutual, families by key, and exit
/// policies.
fn microdescriptor(number: u8) -> String {
    let key =
        |first: u8| Base64Unpadded::encode_string(&[[first; 1], [number; 1]].concat().repeat(16));
    let mut text = format!("onion-key\nntor-onion-key {}\n", key(1));
    let name = |other: u8| format!("${}", hex::encode_upper([other; 20]));
    match number % 4 {
        0 => text += &format!("family {} {}\n", name(number), name((number + 20) % RELAYS)),
        1 => text += &format!("family {}\n", name((number + 4) % RELAYS)),
        _ => {}
    }
    if number % 10 == 7 {
        text += &format!("family-ids {FAMILY}\n");
    }
    match number {
        3 => text += "p accept 443\n",
        _ if number.is_multiple_of(9) => text += "p accept 80,8000-9000\n",
        _ if number % 9 == 5 || number.is_multiple_of(3) => text += "p reject 25\n",
        _ => {}
    }
    text + &format!("id ed25519 {}\n", key(2))
}

fn flags(number: u8) -> String {
    let mut flags = String::new();
    let mut add = |flag, is: bool| flags += if is { flag } else { "" };
    add("BadExit ", number == 3);
    add("Exit ", number.is_multiple_of(3) && number != 3);
    add("Fast ", number % 13 != 12);
    add("Guard ", number.is_multiple_of(2));
    add("Running ", true);
    add("Stable ", number % 7 != 6);
    flags + "V2Dir Valid"
}

/// The consensus and the microdescriptors.
fn documents() -> (String, Vec<String>) {
    let micros: Vec<String> = (0..RELAYS).map(microdescriptor).collect();
    let mut text = "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method 33\n\
        valid-after 2026-07-27 10:00:00\nfresh-until 2026-07-27 11:00:00\nvalid-until 2026-07-27 13:00:00\n\
        voting-delay 300 300\nclient-versions\nserver-versions\n\
        known-flags Authority BadExit Exit Fast Guard HSDir Running Stable V2Dir Valid\n\
        recommended-client-protocols Link=4-5\nrecommended-relay-protocols Link=4-5\n\
        required-client-protocols Link=4\nrequired-relay-protocols Link=4\nparams x=1\n\
        dir-source a F533C81CEF0BC0267857C99B2F471ADF249FA232 192.0.2.1 192.0.2.1 80 443\ncontact nobody\n\
        vote-digest 5BD8781AF9E535FAFD223C137ADE1114C212D144\n"
        .to_owned();
    for (number, micro) in (0_u8..).zip(&micros) {
        let id = Base64Unpadded::encode_string(&[number; 20]);
        let digest = Base64Unpadded::encode_string(&Sha256::digest(micro));
        let weight = 100 + 100 * (u32::from(number).pow(2) % 97);
        let _ = writeln!(
            text,
            "r r{number} {id} 2026-07-27 09:00:00 10.{}.0.{} 9001 0",
            number / 3,
            number + 1
        );
        let _ = writeln!(
            text,
            "m {digest}\ns {}\nv Tor 0.4.9.11\npr DirCache=2 Link=4-5\nw Bandwidth={weight}",
            flags(number)
        );
    }
    text += "directory-footer\nbandwidth-weights Wbd=0 Wbe=0 Wbg=4131 Wbm=10000 Wdb=10000 Web=10000 Wed=9000 Wee=9500 \
        Weg=7000 Wem=8000 Wgb=10000 Wgd=1500 Wgg=5869 Wgm=5869 Wmb=10000 Wmd=2000 Wme=700 Wmg=4131 Wmm=10000\n\
        directory-signature sha256 F533C81CEF0BC0267857C99B2F471ADF249FA232 AB3348A2C13D478A0C4F404531CDF51C27381EBB\n\
        -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n";
    (text, micros)
}

/// Arti's directory of these documents.
fn directory(text: &str, micros: &[String]) -> NetDir {
    let (_, _, unchecked) = MdConsensus::parse(text).expect("a consensus");
    let consensus = unchecked.dangerously_assume_timely().dangerously_assume_wellsigned();
    let mut directory = PartialNetDir::new(consensus, None);
    for micro in micros {
        assert!(
            directory.add_microdesc(MicrodescAndHash::parse(micro).expect("a microdescriptor"))
        );
    }
    directory.unwrap_if_sufficient().unwrap_or_else(|_| panic!("too little of it"))
}

/// A path drawn in the order of Arti's circuit manager, without persistent guards: the exit, then
/// the guard, then the middle.
fn path<'a>(
    directory: &'a NetDir,
    config: &RelaySelectionConfig<'_>,
    rng: &mut ChaCha12Rng,
) -> [Relay<'a>; 3] {
    let apart = |relays: Vec<Relay<'a>>| {
        RelayExclusion::exclude_relays_in_same_family(
            config,
            relays,
            FamilyRules::all_family_info(),
        )
    };
    let mut draw = |usage, exclusion| {
        let selector = RelaySelector::new(usage, exclusion);
        selector.select_relay(rng, directory).0.expect("a relay")
    };
    let usage = RelayUsage::exit_to_all_ports(config, vec![TargetPort::ipv4(443)]);
    let exit = draw(usage.clone(), RelayExclusion::no_relays_excluded());
    let guard = draw(RelayUsage::new_guard(), apart(vec![exit.clone()]));
    let both = apart(vec![exit.clone(), guard.clone()]);
    [guard, draw(RelayUsage::middle_relay(Some(&usage)), both), exit]
}

#[test]
fn paths_are_drawn_as_arti_draws_them() {
    let seed = rand::random::<u64>();
    let (text, micros) = documents();
    let consensus = Consensus::parse(&text).expect("a consensus");
    let network = Network::from(&consensus);
    let places: HashMap<Vec<u8>, usize> = (0..)
        .zip(&network.relays)
        .map(|(place, relay)| (relay.fingerprint.to_vec(), place))
        .collect();
    let pool =
        Pool::of_documents(&text, &consensus, network, &Microdescriptors::parse(&micros.concat()));
    let ours = ours(&pool, false, DRAWS, seed);

    let directory = directory(&text, &micros);
    let long_lived_ports = HashSet::new();
    let config = RelaySelectionConfig {
        long_lived_ports: &long_lived_ports,
        subnet_config: SubnetConfig::default(),
    };
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let theirs = || -> Places {
        let place = |relay: &Relay<'_>| places[relay.rsa_id().as_bytes()];
        count((0..DRAWS).map(|_| path(&directory, &config, &mut rng).iter().map(place).collect()))
    };
    compare("Arti", theirs, &ours, seed);
}
