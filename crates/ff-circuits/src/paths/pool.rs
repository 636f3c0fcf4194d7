//! The data for drawing paths: a network's relays, the factors of weights, and the ports that exits
//! allow.
//!
//! ```text
//!   a tor's directory ─▶ crate::network ─▶ Pool::of_documents ──┐
//!   consensus, with descriptors or microdescriptors ────────────┴▶ Pool ─▶ Generator
//!   relayinfo JSON, an hour of a store: neither footer nor policies
//! ```
//!
//! A consensus of the flavour ns has exit policies, and the families, by name and by key, are in
//! descriptors; with the flavour microdesc both are in microdescriptors. Relays without a
//! microdescriptor are left out if others have one; [`Pool`] reports missing data and does not
//! guess.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ff_archives::network::{Network, Relay};
use ff_archives::source::SourceError;
use ff_dir::DocumentError;
use ff_dir::consensus::Consensus;
use ff_dir::microdescriptors::Microdescriptors;
use ff_flow::path::Factors;
use ff_report::input::{InputError, Inputs};
use tor_netdoc::types::policy::PortPolicy;

use crate::micros::{Unreadable, microdescriptors};

/// The scale of a footer's weights if the consensus does not set it (dir-spec 3.8.3).
const SCALE: u32 = 10_000;

/// The data for drawing paths.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The relays.
    pub network: Network,
    /// The factor of weights at each place, from the consensus's footer; none without a footer.
    pub factors: Option<Factors>,
    /// Each relay's exit policy, in the order of the relays; none if the network does not have
    /// them.
    pub policies: Option<Vec<PortPolicy>>,
    /// The number of the consensus's other relays, whose microdescriptors are not in the same
    /// directory.
    pub left_out: usize,
    /// Whether no relay of the consensus has a line with its weight. It is false if all weights are
    /// 0, as in a private network without measurements.
    pub is_unweighted: bool,
}

/// Why no paths can be drawn from a file; names the file.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// It is not a network.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It is a consensus with a line that clients refuse.
    #[error("{}: {error}", .path.display())]
    Consensus {
        /// The file.
        path: PathBuf,
        /// The error with its line.
        error: DocumentError,
    },
    /// The microdescriptors in its directory cannot be read.
    #[error(transparent)]
    Micros(#[from] Unreadable),
}

impl From<Network> for Pool {
    /// From relays alone.
    fn from(network: Network) -> Self {
        Self { network, ..Self::default() }
    }
}

impl Pool {
    /// From relays of a consensus, with the data in their microdescriptors.
    #[must_use]
    pub fn of_documents(
        text: &str,
        consensus: &Consensus,
        network: Network,
        micros: &Microdescriptors,
    ) -> Self {
        let is_unweighted = consensus.relays.iter().all(|entry| entry.weight.is_none());
        let mut pool = Self { network, factors: factors(text), is_unweighted, ..Self::default() };
        let listed = lines_of_relays(text, consensus, "p");
        let named = |entry| Some((entry, micros.of(entry)?));
        let named = consensus.relays.iter().filter_map(named);
        let said: HashMap<_, _> = named.map(|(entry, micro)| (entry.fingerprint, micro)).collect();
        let relays = &mut pool.network.relays;
        let mut policies = Vec::with_capacity(relays.len());
        let rules = FamilyRules::of(text);
        for relay in relays.iter_mut() {
            let micro = said.get(&relay.fingerprint);
            let beside = micro.and_then(|micro| micro.policy.as_deref());
            policies.push(policy(beside.or_else(|| listed.get(&relay.fingerprint).copied())));
            if let Some(micro) = micro {
                relay.family.clone_from(&micro.family);
                relay.family_ids.clone_from(&micro.family_ids);
            }
            rules.apply(relay);
        }
        pool.policies = (!listed.is_empty() || !said.is_empty()).then_some(policies);
        pool
    }

    /// Reads a file, or an hour of a store, and descriptors of its relays. Microdescriptors are
    /// read from the same directory; if there are some, relays without one are left out. The inputs
    /// are noted; the file itself may be noted twice.
    ///
    /// # Errors
    /// [`PoolError`] when a file cannot be read, or is not a network.
    pub fn read(
        path: &Path,
        descriptors: Option<&Path>,
        inputs: &mut Inputs,
    ) -> Result<Self, PoolError> {
        let (mut network, _) = ff_archives::source::described(path, descriptors, inputs)?;
        let bytes = if path.is_file() { inputs.read(path)? } else { Vec::new() };
        let text = String::from_utf8_lossy(&bytes);
        let consensus = match Consensus::parse(&text) {
            Ok(consensus) => consensus,
            // Another kind of file, or a consensus from before there were footers.
            Err(_) if !text.contains("\ndirectory-footer") => return Ok(network.into()),
            Err(error) => return Err(PoolError::Consensus { path: path.to_owned(), error }),
        };
        let beside = path.parent().unwrap_or(Path::new("."));
        let is_named = consensus.relays.iter().any(|entry| entry.microdescriptor.is_some());
        let micros = if is_named { microdescriptors(beside)? } else { Default::default() };
        let all = network.relays.len();
        let has_one = consensus.relays.iter().filter(|entry| micros.of(entry).is_some());
        let described: HashSet<_> = has_one.map(|entry| entry.fingerprint).collect();
        // As in tor: the allowed ports and the family of such a relay are unknown.
        network.relays.retain(|one| described.is_empty() || described.contains(&one.fingerprint));
        let left_out = all - network.relays.len();
        Ok(Self { left_out, ..Self::of_documents(&text, &consensus, network, &micros) })
    }
}

/// How clients determine families, set by a consensus (proposal 321).
struct FamilyRules {
    /// By names, if both relays name each other.
    by_names: bool,
    /// By family keys that signed the relays.
    by_ids: bool,
}

impl FamilyRules {
    /// From a consensus.
    fn of(text: &str) -> Self {
        let is = |name| param(text, name) != Some(0);
        Self { by_names: is("use-family-lists"), by_ids: is("use-family-ids") }
    }

    /// Removes from a relay's families those that clients ignore.
    fn apply(&self, relay: &mut Relay) {
        if !self.by_names {
            relay.family.clear();
        }
        if !self.by_ids {
            relay.family_ids.clear();
        }
    }
}

/// A parameter of a consensus.
fn param(text: &str, name: &str) -> Option<i64> {
    let head = text.lines().take_while(|line| !line.starts_with("r "));
    let line = head.filter_map(|line| line.strip_prefix("params ")).next()?;
    let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.find(|(key, _)| *key == name)?.1.parse().ok()
}

/// The factors of weights in a consensus's footer; none if it lacks any of them.
#[must_use]
pub fn factors(text: &str) -> Option<Factors> {
    let (_, footer) = text.rsplit_once("\ndirectory-footer")?;
    let line = footer.lines().find_map(|line| line.strip_prefix("bandwidth-weights "))?;
    let pairs: HashMap<&str, i32> = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter_map(|(key, value)| Some((key, value.parse().ok()?)))
        .collect();
    let scale = param(text, "bwweightscale").and_then(|scale| scale.try_into().ok());
    Factors::of_names(
        |name| pairs.get(name).copied(),
        scale.filter(|scale| *scale > 0).unwrap_or(SCALE),
    )
}

/// The lines of relays in a consensus that begin with a keyword. Relays are counted by the rules of
/// [`Consensus::parse`]: a keyword ends at a space or a tab, text in an object is not a line, and
/// there are no relays after the footer. If the number differs nevertheless, no line is returned,
/// because it could be another relay's.
pub(crate) fn lines_of_relays<'a>(
    text: &'a str,
    consensus: &Consensus,
    wanted: &str,
) -> HashMap<[u8; 20], &'a str> {
    let (mut all, mut relays, mut last) = (HashMap::new(), consensus.relays.iter(), None);
    let (mut count, mut is_object) = (0, false);
    for line in text.lines() {
        if is_object || line.starts_with("-----BEGIN ") {
            is_object = !line.starts_with("-----END ");
            continue;
        }
        let line = line.strip_prefix("opt ").unwrap_or(line);
        match (line.split_once([' ', '\t']).unwrap_or((line, "")), last) {
            (("r", _), _) => (last, count) = (relays.next(), count + 1),
            (("directory-footer", _), _) => break,
            ((keyword, said), Some(relay)) if keyword == wanted => {
                all.insert(relay.fingerprint, said);
            }
            _ => {}
        }
    }
    if count == consensus.relays.len() { all } else { HashMap::new() }
}

/// A policy; a relay without a valid one allows nothing (dir-spec 3.3).
fn policy(said: Option<&str>) -> PortPolicy {
    said.and_then(|said| said.parse().ok()).unwrap_or_else(PortPolicy::new_reject_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consensus of the flavour ns: three relays, two of which allow some ports.
    const NS: &str = "network-status-version 3\nvote-status consensus\nconsensus-method 33\n\
        valid-after 2019-07-14 00:00:00\nparams bwweightscale=100 use-family-ids=0\n\
        r a AAoQ1DAR6kkoo19hBAX5K0QztNw py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 192.0.2.1 9001 0\n\
        s Running Valid\np accept 80,443\nw Bandwidth=11\n\
        r b ABElTMhEQ2myDvERVriZBDgiGlQ py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 192.0.2.2 9001 0\n\
        s Running Valid\np reject 25,443\nw Bandwidth=12\n\
        r c ABElTMhEQ2myDvERVriZBDgiGlU py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 192.0.2.3 9001 0\n\
        s Running Valid\nw Bandwidth=13\n\
        directory-footer\nbandwidth-weights Wbd=0 Wgg=60 Wgm=60 Wgd=0 Wmg=40 Wmm=100 Wme=0 Wmd=0 Weg=1 Wem=2 Wee=100 \
        Wed=99\ndirectory-signature A B\n-----BEGIN SIGNATURE-----\nAA==\n-----END SIGNATURE-----\n";

    #[test]
    fn a_footer_and_policies_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("consensus");
        std::fs::write(&file, NS).expect("a file");
        let read = || Pool::read(&file, None, &mut Inputs::default()).expect("a network");
        let pool = read();
        let factors = pool.factors.expect("a footer");
        assert_eq!((factors.guard, factors.exit), ([0.6, 0.6, 0.0, 0.0], [0.01, 0.02, 1.0, 0.99]));
        let policies = pool.policies.expect("policies");
        let allowed = |port| policies.iter().map(|one| one.allows_port(port)).collect::<Vec<_>>();
        assert_eq!(allowed(443), [true, false, false]);
        assert_eq!(allowed(22), [false, true, false]);
        for odd in ["bandwidth-weights", "Wgd=0 ", "Wmd"] {
            assert_eq!(super::factors(&NS.replace(odd, "x")), None, "{odd}");
        }
        std::fs::write(&file, NS.replace("\np ", "\nx ")).expect("a file");
        assert!(read().policies.is_none() && !read().is_unweighted);
        std::fs::write(&file, NS.replace("w Bandwidth=11", "w Bandwidth=0")).expect("a file");
        assert!(!read().is_unweighted);
        std::fs::write(&file, NS.replace("\nw ", "\nx ")).expect("a file");
        assert!(read().is_unweighted);
    }

    #[test]
    fn a_weight_above_32_bits_is_named_with_its_file_and_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("consensus");
        let odd = NS.replace("Bandwidth=12", "Bandwidth=4294967296");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            Pool::read(&file, None, &mut Inputs::default())
        };
        let error = read(&odd).expect_err("clients read 32 bits").to_string();
        let line = 1 + NS.lines().position(|line| line == "w Bandwidth=12").expect("a line");
        let what =
            format!("consensus: line {line}: the weight Bandwidth=4294967296 is not a whole");
        assert!(error.contains(&what), "{error}");
        // A consensus from before there were footers has no weights that clients could refuse.
        let old = odd.replace("consensus-method 33", "consensus-method 8");
        let old = old.replace("directory-footer\n", "").replace("bandwidth-weights", "x");
        assert!(read(&old).expect("a network").factors.is_none());
    }

    #[test]
    fn who_has_no_microdescriptor_is_left_out_where_others_have_theirs() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text);
        write("consensus", include_str!("../../../ff-dir/tests/data/microdesc-consensus"))
            .expect("a file");
        let file = dir.path().join("consensus");
        let read = || {
            let pool = Pool::read(&file, None, &mut Inputs::default()).expect("a network");
            let names = pool.network.relays.iter().map(|relay| relay.nickname.clone());
            let lets_out = |policies: Vec<PortPolicy>| {
                policies.iter().map(|one| one.allows_port(443)).collect::<Vec<_>>()
            };
            (names.collect::<Vec<_>>().join(" "), pool.left_out, pool.policies.map(lets_out))
        };
        assert_eq!(read(), ("lisdex moria1 Ukko d2d4 Akka".to_owned(), 0, None));
        let all = include_str!("../../../ff-dir/tests/data/microdescriptors");
        write("cached-microdescs", all).expect("a file");
        assert_eq!((read().1, read().2), (0, Some(vec![false, false, false, true, false])));
        let others: Vec<_> =
            all.split("@last-listed").filter(|one| !one.contains("$000004ACBB")).collect();
        write("cached-microdescs", &others.join("@last-listed")).expect("a file");
        let named = "moria1 Ukko d2d4 Akka".to_owned();
        assert_eq!(read(), (named, 1, Some(vec![false, false, true, false])));
    }

    #[test]
    fn protocols_stay_with_their_relays_too() {
        let text = NS.replace("p accept 80,443", "pr Link=5").replace("r b ", "r\tb ");
        let text = text.replace("p reject 25,443", "pr\tRelay=1-4");
        let consensus = Consensus::parse(&text).expect("a consensus");
        let found = lines_of_relays(&text, &consensus, "pr");
        let found: Vec<_> =
            consensus.relays.iter().map(|one| found.get(&one.fingerprint)).collect();
        assert_eq!(found, [Some(&"Link=5"), Some(&"Relay=1-4"), None]);
    }

    #[test]
    fn policies_stay_with_their_relays_however_lines_are_set() {
        let of = |text: &str| {
            let consensus = Consensus::parse(text).expect("a consensus");
            let network = Network::from(&consensus);
            let pool = Pool::of_documents(text, &consensus, network, &Microdescriptors::default());
            pool.policies.map(|all| all.iter().map(|one| one.allows_port(443)).collect::<Vec<_>>())
        };
        let object = "-----BEGIN X-----\nr x AAoR1DAR6kkoo19hBAX5K0QztNw py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 \
            19:30:19 192.0.2.4 9001 0\np accept 443\n-----END X-----\n";
        for text in [
            NS.to_owned(),
            NS.replace("r a ", "r\ta "),
            NS.replace("r b ", "opt r b "),
            NS.replace("r c ", &format!("x\n{object}r c ")),
            NS.replace("\ndirectory-signature", "\nr x\np accept 443\ndirectory-signature"),
        ] {
            assert_eq!(of(&text), Some(vec![true, false, false]), "{text}");
        }
        // The lines of a third consecutive object are taken for the document's: then the assignment
        // of policies to relays is unknown.
        assert_eq!(of(&NS.replace("r b ", &format!("x\n{}r b ", object.repeat(3)))), None);
    }

    #[test]
    fn families_are_mutual_or_have_a_key_in_common() {
        let mut consensus = Consensus::parse(NS).expect("a consensus");
        let ids: Vec<_> = consensus.relays.iter().map(|relay| relay.fingerprint).collect();
        let micro = |family: &[[u8; 20]], ids: &[&str]| ff_dir::microdescriptors::Microdescriptor {
            family: family.to_vec(),
            family_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        let mut micros = Microdescriptors::default();
        for (relay, micro) in consensus.relays.iter_mut().zip([
            micro(&[ids[1]], &["k"]),
            micro(&[ids[0], ids[2]], &["l"]),
            micro(&[], &["m", "k"]),
        ]) {
            let digest = [relay.fingerprint[19]; 32];
            relay.microdescriptor = Some(digest);
            micros.by_digest.insert(digest, micro);
        }
        let families = |text: &str| {
            let network = Network::from(&consensus);
            Pool::of_documents(text, &consensus, network, &micros).network.families()
        };
        assert_eq!(families(&NS.replace(" use-family-ids=0", "")), [0, 0, 0]);
        assert_eq!(families(NS), [0, 0, 2], "the keys do not count");
        assert_eq!(families(&NS.replace("family-ids", "family-lists")), [0, 1, 0]);
    }

    #[test]
    fn families_of_descriptors_count_as_the_consensus_wants_it() {
        let consensus = Consensus::parse(NS).expect("a consensus");
        let families = |text: &str| {
            let mut network = Network::from(&consensus);
            for relay in &mut network.relays[..2] {
                relay.family_ids = vec!["ed25519:k".to_owned()];
            }
            let micros = Microdescriptors::default();
            Pool::of_documents(text, &consensus, network, &micros).network.families()
        };
        assert_eq!(families(&NS.replace(" use-family-ids=0", "")), [0, 0, 2]);
        assert_eq!(families(NS), [0, 1, 2], "the keys do not count");
    }
}
