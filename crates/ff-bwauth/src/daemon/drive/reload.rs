//! Reading the config again while the coordinator runs.

use std::path::Path;

use anyhow::Result;
use ff_base::utc::now_unix_secs as now;

use super::Daemon;
use crate::config::Config;
use crate::daemon::core::{Action, Settings, Teams};
use crate::daemon::publish::Publisher;
use crate::daemon::setup::{common, rhythm, team};

impl Daemon {
    /// Adopts the changes of a config that need no restart. An invalid config changes nothing.
    pub(super) fn reload(&mut self, path: &Path) {
        match self.take_over(path) {
            Ok(fixed) => {
                tracing::info!("the config has been reloaded");
                for name in fixed {
                    tracing::warn!("{name} has changed in the config: restart to apply it");
                }
            }
            Err(error) => tracing::error!("the old config stays in use: {error:#}"),
        }
    }

    /// As [`Daemon::reload`]; returns the changed parts that need a restart.
    fn take_over(&mut self, path: &Path) -> Result<Vec<&'static str>> {
        let (config, fixed) = self.config.with(&Config::load(path)?);
        let me = ff_measurer::measurer_id(&self.key).0;
        let all = common(&config, me)?.teams;
        let (own, remotes) = team(&config, &self.key)?;
        let (rhythm, exchange) = (rhythm(&config), config.exchange);
        let settings = Settings { rhythm, exchange, teams: Teams { all, own } };
        self.publisher = Publisher::new(&config);
        self.next_remotes = Some(remotes);
        self.config = config;
        // The action has no effect before the next tick.
        self.core.apply(Action::Reload(Box::new(settings)), now());
        Ok(fixed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use ff_measurer::key;
    use ff_proto::ids::Ed25519Id;

    use super::*;

    /// Writes a config with these lines, and a measurer of this capacity.
    fn write(path: &Path, lines: &str, capacity: &str) {
        let identity = key::identity_text(&Ed25519Id([7; 32]));
        let text = format!(
            "key = 'key'\nstate_dir = '.'\npublish_dir = 'v3bw'\n[network]\nconsensus = 'c'\ndescriptors = []\n\
             [period]\nsecret = 'secret'\n{lines}[[measurer]]\nname = 'm'\naddress = '127.0.0.1:1'\n\
             identity = '{identity}'\ncapacity = '{capacity}'\n"
        );
        fs::write(path, text).expect("written");
    }

    #[tokio::test]
    async fn a_config_that_has_changed_is_taken_over_and_a_bad_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        key::load_or_make(&dir.path().join("key")).expect("a key");
        let secret = dir.path().join("secret");
        fs::write(&secret, [6; 32]).expect("written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
        let path = dir.path().join("bwauth.toml");
        write(&path, "", "1Gbit");
        let config = Config::load(&path).expect("a config");
        let (mut daemon, _handle) = Daemon::new(&config).expect("a daemon");
        assert_eq!(daemon.take_over(&path).expect("the same"), [""; 0]);
        write(&path, "slot_secs = 60\n[publish]\nmin_relays = 9\n", "2Gbit");
        assert_eq!(daemon.take_over(&path).expect("good"), ["[period]"]);
        assert_eq!((daemon.config.publish.min_relays, daemon.config.period.slot_secs), (9, None));
        assert_eq!(daemon.config.measurers[0].capacity.get(), 250_000_000);
        for bad in ["slot_secs = 60\nwrong = 1\n", "slot_secs = 1\n"] {
            write(&path, bad, "3Gbit");
            daemon.take_over(&path).expect_err("it is not good");
            daemon.reload(&path);
            assert_eq!(daemon.config.measurers[0].capacity.get(), 250_000_000, "{bad}");
        }
    }
}
