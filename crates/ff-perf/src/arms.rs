//! Arms of a run: configurations of downloads that take turns, so that all are measured over the
//! same time.
//!
//! ```text
//!   FILE (TOML) ─▶ Arm: client, lines of a torrc, rules or a file of paths
//!   turn(arms, number, seed) ─▶ which arm a download belongs to; its line names the arm
//! ```
//!
//! Each round has every arm once, in a random order.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha12Rng;
use serde::Deserialize;
use toml::Spanned;

use crate::cli::measure::ClientKind;
use crate::cli::paths::{Mix, RulesArgs, SelectPaths, mix};
use crate::client::tor::Tor;

/// Configuration of one arm.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name: letters, digits, `-` and `_`.
    pub name: String,
    /// Client that builds the circuits.
    pub client: ClientKind,
    /// Whether the client chooses its own paths.
    pub as_client: bool,
    /// Options for tor.
    pub torrc: Vec<TorrcLine>,
    /// Rules for drawing relays; default: the run's.
    pub select: Option<SelectPaths>,
    /// Path lengths; default: the run's.
    pub lengths: Option<Mix>,
    /// Number of guards; default: the run's.
    pub guards: Option<usize>,
    /// File of paths.
    pub path_file: Option<PathBuf>,
    /// Bandwidth file whose weights are used to draw paths.
    pub weights: Option<PathBuf>,
}

/// An option of torrc in the file of arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrcLine {
    /// Line in the file of arms, from 1.
    pub line: usize,
    /// Name of the option.
    pub option: String,
    /// Its value.
    pub value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmsFile {
    arm: Vec<ArmFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ArmFile {
    name: Spanned<String>,
    client: Option<Spanned<String>>,
    #[serde(default)]
    as_client: bool,
    #[serde(default)]
    torrc: Vec<Spanned<String>>,
    select: Option<Spanned<String>>,
    lengths: Option<Spanned<String>>,
    guards: Option<usize>,
    path_file: Option<PathBuf>,
    weights: Option<PathBuf>,
}

impl Arm {
    /// Rules of paths: the arm's, completed by the run's.
    #[must_use]
    pub fn rules(&self, run: &RulesArgs) -> RulesArgs {
        RulesArgs {
            select: self.select.unwrap_or(run.select),
            lengths: self.lengths.as_ref().unwrap_or(&run.lengths).clone(),
            guards: self.guards.unwrap_or(run.guards),
            ..run.clone()
        }
    }

    /// Options for tor, by name and value.
    #[must_use]
    pub fn options(&self) -> Vec<(String, String)> {
        self.torrc.iter().map(|line| (line.option.clone(), line.value.clone())).collect()
    }
}

/// Longest name of an arm, in bytes.
const MOST_NAME: usize = 64;

/// Whether a name is valid for an arm; files are named by it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(is_good)
}

/// Index of the arm of download `number`.
#[must_use]
pub fn turn(arms: usize, number: u64, seed: u64) -> usize {
    let round = arms.max(1) as u64;
    let mut order: Vec<usize> = (0..arms).collect();
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    // Paths use the same seed with the stream of their number.
    rng.set_stream(!(number / round));
    order.shuffle(&mut rng);
    let at = usize::try_from(number % round).ok();
    at.and_then(|at| order.get(at)).copied().unwrap_or_default()
}

/// Reads the arms of a file. `client` is the default for arms; with `as_client` all choose their
/// own paths. Files that an arm names are relative to the file's folder.
///
/// # Errors
/// One sentence with the file and the line.
pub fn parse(
    file: &Path,
    text: &str,
    client: ClientKind,
    as_client: bool,
) -> Result<Vec<Arm>, String> {
    let reader = Reader { file, text, client, as_client };
    let found: ArmsFile = toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        reader.wrong(&error.span().unwrap_or_default(), &message)
    })?;
    let mut names = BTreeSet::new();
    let mut arms = Vec::new();
    for arm in found.arm {
        let span = arm.name.span();
        let arm = reader.arm(arm)?;
        if !names.insert(arm.name.clone()) {
            return Err(reader.wrong(&span, &format!("two arms are named {}", arm.name)));
        }
        arms.push(arm);
    }
    if arms.len() < 2 {
        return Err(format!("{}: give at least two arms, each as [[arm]]", file.display()));
    }
    Ok(arms)
}

/// Reads arms and reports errors with their lines.
struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    /// Default client.
    client: ClientKind,
    /// Whether all clients choose their own paths.
    as_client: bool,
}

impl Reader<'_> {
    /// Error at a position in the text.
    fn wrong(&self, span: &Range<usize>, what: &str) -> String {
        format!("{}, line {}: {what}", self.file.display(), self.line(span))
    }

    /// Line of a position, from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or_default();
        before.matches('\n').count() + 1
    }

    fn arm(&self, arm: ArmFile) -> Result<Arm, String> {
        let name = arm.name.get_ref();
        if !is_name(name) {
            let what = "use 1 to 64 letters, digits, - and _ for the name of an arm";
            return Err(self.wrong(&arm.name.span(), what));
        }
        let client = self.choice::<ClientKind>("client", arm.client.as_ref())?;
        let client = client.unwrap_or(self.client);
        if let Some(line) = arm.torrc.first().filter(|_| client != ClientKind::Tor) {
            let what = format!("arm {name}: only a tor has a torrc; give client = \"tor\"");
            return Err(self.wrong(&line.span(), &what));
        }
        let has_rules = arm.select.is_some() || arm.lengths.is_some() || arm.guards.is_some();
        if arm.path_file.is_some() && (has_rules || arm.weights.is_some()) {
            let what = format!(
                "arm {name} has both a path-file and rules for drawing paths: leave one of them out"
            );
            return Err(self.wrong(&arm.name.span(), &what));
        }
        let as_client = arm.as_client || self.as_client;
        if as_client && (has_rules || arm.path_file.is_some() || arm.weights.is_some()) {
            let what = format!(
                "arm {name}: with as-client, the client chooses its paths itself; leave out select, lengths, guards, path-file \
                 and weights"
            );
            return Err(self.wrong(&arm.name.span(), &what));
        }
        let lengths = |text: &Spanned<String>| {
            mix(text.get_ref()).map_err(|reason| self.wrong(&text.span(), &reason))
        };
        let torrc = arm.torrc.iter().map(|line| self.torrc(line, !as_client));
        let below = |path: PathBuf| self.file.parent().unwrap_or(Path::new("")).join(path);
        Ok(Arm {
            name: name.clone(),
            client,
            as_client,
            torrc: torrc.collect::<Result<_, _>>()?,
            select: self.choice("select", arm.select.as_ref())?,
            lengths: arm.lengths.as_ref().map(lengths).transpose()?,
            guards: arm.guards,
            path_file: arm.path_file.map(below),
            weights: arm.weights.map(below),
        })
    }

    /// Parses a value as the command line does.
    fn choice<T: ValueEnum>(
        &self,
        key: &str,
        text: Option<&Spanned<String>>,
    ) -> Result<Option<T>, String> {
        let Some(text) = text else { return Ok(None) };
        let found = <T as ValueEnum>::from_str(text.get_ref(), false);
        found.map(Some).map_err(|_| {
            let values = T::value_variants().iter().filter_map(T::to_possible_value);
            let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
            let what = format!("{key} {:?} is not one of {}", text.get_ref(), values.join(", "));
            self.wrong(&text.span(), &what)
        })
    }

    /// Parses a torrc line; an arm with given paths must not set the options that these need.
    fn torrc(&self, text: &Spanned<String>, has_given_paths: bool) -> Result<TorrcLine, String> {
        let wrong = |what: &str| self.wrong(&text.span(), what);
        let line = text.get_ref().trim();
        let (option, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if option.is_empty()
            || !option.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err(wrong("a torrc line must have an option and its value"));
        }
        if line.chars().any(char::is_control) {
            return Err(wrong("give one torrc line per text"));
        }
        if Tor::needs(option, has_given_paths) {
            return Err(wrong(&format!(
                "{option} is the same for all arms, because ff-perf needs it: leave it out"
            )));
        }
        let (option, value) = (option.to_owned(), value.trim().to_owned());
        Ok(TorrcLine { line: self.line(&text.span()), option, value })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn arms(text: &str) -> Result<Vec<Arm>, String> {
        parse(Path::new("dir/arms.toml"), text, ClientKind::Arti, false)
    }

    #[test]
    fn arms_are_read_with_the_lines_of_their_options() {
        let text = "[[arm]]\nname = 'plain'\n[[arm]]\nname = 'bridges'\nclient = 'tor'\ntorrc = [\n  'UseBridges 1',\n  \
                    'Bridge  192.0.2.1:443 AB',\n]\nguards = 2\nweights = 'x.v3bw'\n";
        let found = arms(text).expect("arms");
        let [plain, bridges] = &found[..] else { panic!("two: {found:?}") };
        assert_eq!((plain.client, plain.guards, plain.torrc.len()), (ClientKind::Arti, None, 0));
        assert_eq!((bridges.client, bridges.guards), (ClientKind::Tor, Some(2)));
        assert_eq!(bridges.weights.as_deref(), Some(Path::new("dir/x.v3bw")));
        let [_, line] = &bridges.torrc[..] else { panic!("two: {bridges:?}") };
        assert_eq!(
            (line.line, line.option.as_str(), line.value.as_str()),
            (8, "Bridge", "192.0.2.1:443 AB")
        );
        assert_eq!(bridges.options()[0], ("UseBridges".to_owned(), "1".to_owned()));
        let own = text.replace("guards = 2\nweights = 'x.v3bw'", "as-client = true");
        let own = own.replace("UseBridges 1", "CircuitBuildTimeout 5");
        assert!(arms(&own).is_ok_and(|all| all[1].as_client && !all[0].as_client), "{own}");
    }

    #[test]
    fn arms_of_a_run_whose_clients_choose_their_paths_have_none_of_their_own() {
        let all = |text: &str| parse(Path::new("arms.toml"), text, ClientKind::Tor, true);
        let two = "[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\n";
        let learning = format!("{two}torrc = ['LearnCircuitBuildTimeout 0']\n");
        let found = all(&learning).expect("an option that such a tor may have");
        assert!(found.iter().all(|arm| arm.as_client), "{found:?}");
        for odd in ["weights = 'w'", "path-file = 'p'", "guards = 1"] {
            let error = all(&format!("{two}{odd}\n")).expect_err(odd);
            assert!(error.contains("line 4: arm b: with as-client"), "{odd}: {error}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        let one = "[[arm]]\nname = 'a'\n";
        for (rest, said) in [
            ("", "give at least two arms"),
            ("[[arm]]\nname = 'a'\n", "line 4: two arms are named a"),
            ("[[arm]]\nname = 'b/c'\n", "line 4: use 1 to 64 letters"),
            (
                "[[arm]]\nname = 'b'\nclient = 'lynx'\n",
                "line 5: client \"lynx\" is not one of arti, tor",
            ),
            ("[[arm]]\nname = 'b'\ntorrc = ['X 1']\n", "line 5: arm b: only a tor has a torrc"),
            (
                "[[arm]]\nname = 'b'\nclient = 'tor'\ntorrc = ['CircuitBuildTimeout 5']\n",
                "line 6: CircuitBuildTimeout is the same for all arms",
            ),
            (
                "[[arm]]\nname = 'b'\nclient = 'tor'\ntorrc = [\"X 1\\nY 2\"]\n",
                "line 6: give one torrc line",
            ),
            ("[[arm]]\nname = 'b'\nlengths = '9'\n", "line 5: lengths are from 1 to 8"),
            (
                "[[arm]]\nname = 'b'\npath-file = 'p'\nguards = 1\n",
                "line 4: arm b has both a path-file",
            ),
            (
                "[[arm]]\nname = 'b'\nas-client = true\nweights = 'w'\n",
                "line 4: arm b: with as-client, the client chooses",
            ),
            (
                "[[arm]]\nname = 'b'\nclient = 'tor'\nas-client = true\ntorrc = ['SocksPort 0']\n",
                "line 7: SocksPort is the same for all arms",
            ),
            ("[[arm]]\nname = 'b'\nspeed = 1\n", "line 5: unknown field `speed`"),
            ("[[arm]]\nclient = 'tor'\n", "missing field `name`"),
        ] {
            let error = arms(&format!("{one}{rest}")).expect_err(rest);
            assert!(error.starts_with("dir/arms.toml") && error.contains(said), "{said}: {error}");
        }
    }

    #[test]
    fn each_arm_comes_once_in_a_round_in_an_order_of_the_seed() {
        let mut orders = BTreeSet::new();
        for round in 0..40 {
            let order: Vec<usize> = (0..3).map(|at| turn(3, round * 3 + at, 7)).collect();
            let counts: BTreeMap<usize, usize> = order.iter().map(|arm| (*arm, 1)).collect();
            assert_eq!(counts.len(), 3);
            orders.insert(order);
        }
        assert!(orders.len() > 2, "rounds are drawn anew: {orders:?}");
        assert_eq!(turn(3, 50, 7), turn(3, 50, 7));
        assert!((0..30).any(|at| turn(3, at, 7) != turn(3, at, 8)));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "(\\[\\[arm\\]\\]\n|name = 'a'\n|name = 'b'\n|client = 'tor'\n|torrc = \\['\\PC{0,9}'\\]\n|\\PC{0,9}\n){0,9}",
        ) {
            let _ = arms(&text);
        }
    }
}
