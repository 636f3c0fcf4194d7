//! The commands `init` and `run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ff_base::files::{self, Readers};
use ff_base::utc::now_unix_secs;
use ff_measurer::config::count;
use ff_measurer::console::{note, print};
use ff_measurer::{key, measurer_id};
use ff_plan::period::usual_slot_secs;
use ff_proto::params::Params;
use ff_store::Store;
use zeroize::Zeroizing;

use super::check;
use crate::cli::{InitArgs, RunArgs};
use crate::config::Config;
use crate::daemon::{self, Daemon};

/// Makes a key, a secret and a config, and prints the lines for other configs.
pub(super) fn init(args: &InitArgs) -> Result<ExitCode> {
    let dir = &args.dir;
    fs::create_dir_all(dir).with_context(|| format!("Failed to make {}", dir.display()))?;
    let key = key::load_or_make(&dir.join("coordinator.key"))?;
    let secret = Zeroizing::new(rand::random::<[u8; 32]>());
    write_once(&dir.join("schedule.secret"), secret.as_slice(), Readers::Owner)?;
    let text = template(&state_dir(args)?);
    write_once(&dir.join("bwauth.toml"), text.as_bytes(), Readers::Everybody)?;
    let identity = key::identity_text(&measurer_id(&key));
    note("for each measurer's config:");
    print(&format!("[[coordinator]]\nname = \"NAME\"\nidentity = \"{identity}\"\n"))?;
    note("for each relay's torrc, which must list all coordinators:");
    print(&format!("FFAllowedCoordinators {identity}\n"))?;
    note("other coordinators need the same schedule.secret: send it to them over a secure channel");
    Ok(ExitCode::SUCCESS)
}

/// The absolute path of the state directory, so that the config names the same directory as the
/// command line.
///
/// # Errors
/// When the path is not UTF-8, as a config must be.
fn state_dir(args: &InitArgs) -> Result<PathBuf> {
    let given = args.state_dir.display();
    let absolute = std::path::absolute(&args.state_dir);
    let absolute = absolute.with_context(|| format!("Failed to make the path {given} absolute"))?;
    if absolute.to_str().is_none() {
        bail!("the path {given} is not UTF-8, as a config must be: give another --state-dir");
    }
    Ok(absolute)
}

/// Writes a file unless it exists; then its directory need not be writable.
fn write_once(path: &Path, bytes: &[u8], readers: Readers) -> Result<()> {
    if !path.exists() {
        match files::write_new(path, bytes, readers) {
            Ok(()) => {
                note(&format!("wrote {}", path.display()));
                return Ok(());
            }
            Err(error) if error.is_already_there() => {}
            Err(error) => return Err(error.into()),
        }
    }
    note(&format!("{} exists and is left unchanged", path.display()));
    Ok(())
}

/// Runs the coordinator until a signal ends it.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let config = Config::load(&args.config)?;
    if args.check_config {
        print(&format!("{} is valid\n", args.config.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.check {
        check::check(&config).with_context(|| args.config.display().to_string())?;
        print(&format!(
            "{} is valid: {}, {}, {} of {} s\n",
            args.config.display(),
            count(config.measurers.len(), "measurer"),
            count(config.coordinators.len(), "other coordinator"),
            count(config.period.slots() as usize, "slot"),
            config.period.slot_secs(),
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let made = fs::create_dir_all(&config.state_dir);
    made.with_context(|| format!("Failed to make {}", config.state_dir.display()))?;
    if args.new_store {
        let store = config.store();
        if Store::damage(&store)?.is_none() {
            bail!(
                "{} is not damaged, and a new store would have no results: start without --new-store. To begin anew anyway, stop the coordinator and move the file away, with its -wal \
                 and -shm",
                store.display()
            );
        }
        let aside = Store::move_aside(&config.store(), now_unix_secs())?;
        note(&format!("the old store is now {}", aside.display()));
    }
    let runtime = daemon::runtime()?;
    // What the page computes must not delay measurements, nor the daemon's loop the page.
    let of_page = daemon::page_runtime()?;
    runtime.block_on(async {
        let (daemon, handle) = Daemon::new(&config)?;
        let (addr, page) = daemon::page(&config, &handle).await?;
        note(&format!("ff-bwauth: running, with the store {}", config.store().display()));
        if let Some(addr) = addr {
            note(&format!("ff-bwauth: its page is http://{addr}/"));
        }
        let page = of_page.spawn(page);
        tokio::select! {
            ended = daemon.run(&args.config) => ended,
            _ = page => bail!("the page ended"),
        }
    })?;
    of_page.shutdown_timeout(Duration::from_secs(1));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

/// A new config with comments; the path is UTF-8.
pub(super) fn template(state_dir: &Path) -> String {
    let quoted = |path: &Path| toml::Value::from(&*path.to_string_lossy()).to_string();
    let (state, publish) = (quoted(state_dir), quoted(&state_dir.join("v3bw")));
    let cache = quoted(&state_dir.join("cache"));
    let measure_secs = Params::default().duration_secs;
    let slot_secs = usual_slot_secs(measure_secs);
    format!(
        r#"# A coordinator of FlashFlow, for `ff-bwauth run --config FILE`; `--check` checks this file. On SIGHUP it is read again:
# [publish], [keep], [exchange] and refresh_secs are used at once, measurers and coordinators from the next period on; all
# other changes need a restart. An invalid file is ignored.

# Relative paths are from this file's directory.

# The coordinator's key, made by `ff-bwauth init`. If systemd provides a credential with the name of this file or of
# `secret` below (LoadCredential=coordinator.key:/its/path, as in the package's unit), it is used instead. Other users must
# not be able to read these files: mode 0600, or 0440 in a directory that nobody else can enter, as for a container's
# secrets ("/run/secrets/coordinator.key").
key = "coordinator.key"

# The directory of the store and the caches, and that of the bandwidth files. A directory authority votes with
# PUBLISH_DIR/latest.v3bw: V3BandwidthsFile in its torrc.
state_dir = {state}
publish_dir = {publish}

[watch]
# The address of the page and of the metrics for Prometheus.
listen = "127.0.0.1:9231"
# Host names that requests may have besides those of loopback, for a reverse proxy.
# hosts = ["bwauth.example.org"]

[network]
# The directory of the network's documents. The network is Tor's by default; a test network needs
# private_network = "DIR", or its authorities as [[network.authority]].
cache_dir = {cache}

[period]
# The coordinators' common secret: the same 32 random bytes for all coordinators of a network. All of them
# need the same numbers in this table and each other's teams, so that all compute the same schedule.
secret = "schedule.secret"
length_secs = 86400
measure_secs = {measure_secs}
slot_secs = {slot_secs}

[exchange]
# To measure the measurers' networks, all exchange UDP with all others, up to their configured capacities, for this
# many seconds. With by_itself, the coordinator starts this when a measurer is new or has another address, as soon as no
# relay is due for long enough; `ff-bwauth measurers --measure` starts it now.
duration_secs = 60
by_itself = true

[keep]
# Number of days to keep the seconds of measurements, and their results.
samples_days = 30
results_days = 400

[publish]
every_secs = 3600
# A file is not published if it has fewer relays, or if the total, or relays with much of the weight, have
# changed by more than these factors.
min_relays = 1
max_total_factor = 2.0
max_relay_factor = 4.0
# dirauth_nickname = "NICKNAME"

# The team: the lines that `ff-measurer init` prints on each host. If the address is a name with several addresses, the
# first that accepts a connection is used.
# [[measurer]]
# name = "m1"
# address = "192.0.2.1:9230"
# identity = "…"
# capacity = "1Gbit"

# The other coordinators of the network, with the capacities of their measurers in the order of their configs.
# [[coordinator]]
# name = "bwauth-2"
# identity = "…"
# team = ["1Gbit", "1Gbit", "1Gbit"]
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_command_line_are_the_same_in_the_config() {
        let dir = tempfile::tempdir().expect("a directory");
        let here = std::env::current_dir().expect("a directory");
        for (number, (given, expected)) in [
            ("state", here.join("state")),
            ("./a/state", here.join("a/state")),
            ("/var/lib/x", PathBuf::from("/var/lib/x")),
            (r#"/a "b\c"#, PathBuf::from(r#"/a "b\c"#)),
            ("/a'b\n#", PathBuf::from("/a'b\n#")),
        ]
        .into_iter()
        .enumerate()
        {
            let dir = dir.path().join(number.to_string());
            init(&InitArgs { dir: dir.clone(), state_dir: given.into() }).expect("made");
            let text = fs::read_to_string(dir.join("bwauth.toml")).expect("a config");
            let table: toml::Table = toml::from_str(&text).expect("TOML");
            let at = |value: &toml::Value| PathBuf::from(value.as_str().expect("a path"));
            assert_eq!(at(&table["state_dir"]), expected, "{given:?}");
            assert_eq!(at(&table["publish_dir"]), expected.join("v3bw"), "{given:?}");
            assert_eq!(at(&table["network"]["cache_dir"]), expected.join("cache"), "{given:?}");
        }
    }

    #[test]
    fn a_path_that_no_config_can_hold_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let dir = tempfile::tempdir().expect("a directory");
        let state_dir = std::ffi::OsString::from_vec(b"/var/lib/\xff".to_vec()).into();
        let error = init(&InitArgs { dir: dir.path().to_owned(), state_dir }).expect_err("odd");
        assert!(error.to_string().contains("is not UTF-8"), "{error}");
        assert!(!dir.path().join("bwauth.toml").exists());
    }

    #[test]
    fn what_init_writes_can_be_read_once_there_is_a_measurer() {
        let dir = tempfile::tempdir().expect("a directory");
        let args = InitArgs { dir: dir.path().to_owned(), state_dir: dir.path().join("state") };
        init(&args).expect("it is made");
        let path = dir.path().join("bwauth.toml");
        let error = Config::load(&path).expect_err("there is no measurer");
        let said = format!("{error:#}");
        assert!(said.contains("bwauth.toml: there is no [[measurer]] table: add the"), "{said}");
        let text = fs::read_to_string(&path).expect("a config");
        let identity = key::identity_text(&ff_proto::ids::Ed25519Id([7; 32]));
        let measurer = format!(
            "[[measurer]]\nname = \"m\"\naddress = \"127.0.0.1:1\"\nidentity = \"{identity}\"\ncapacity = \"1Gbit\"\n"
        );
        fs::write(&path, format!("{text}{measurer}")).expect("written");
        let config = Config::load(&path).expect("a good config");
        assert_eq!(config.period.slots(), 5082);
        assert_eq!(config.key, dir.path().join("coordinator.key"));
        // A second run keeps the files.
        let before = fs::read(dir.path().join("schedule.secret")).expect("a secret");
        init(&args).expect("it is there");
        assert_eq!(fs::read(dir.path().join("schedule.secret")).expect("a secret"), before);
        for (bad, part) in [
            (text.replace("slot_secs = 17", "slot_secs = 10"), "slot_secs"),
            (text.replace("[keep]", "[kept]"), "kept"),
            (text.replace("127.0.0.1:9231", "0.0.0.0:9231"), "tunnel"),
            (text.replace("max_relay_factor = 4.0", "max_relay_factor = 0.5"), "max_relay_factor"),
            (text.replace("max_total_factor = 2.0", "max_total_factor = nan"), "max_total_factor"),
            (text.replace("results_days = 400", "results_days = 2"), "results_days"),
            (
                text.replace("# dirauth_nickname = \"NICKNAME\"", "dirauth_nickname = 'a b'"),
                "letters",
            ),
            (text.replace("slot_secs = 17", "slot_secs = 2147483648"), "slot"),
            (format!("{text}{}", measurer.replace("\"m\"", "\"n\"")), "another one"),
        ] {
            fs::write(&path, format!("{bad}{measurer}")).expect("written");
            let error = format!("{:#}", Config::load(&path).map(drop).expect_err(part));
            assert!(error.contains("bwauth.toml") && error.contains(part), "{part}: {error}");
        }
    }
}
