//! The command `downloads plan`.

use std::process::ExitCode;

use anyhow::Result;
use ff_lab::profile::Profile;

use crate::cli::plan::PlanArgs;
use crate::plan::{DownloadPlan, PlanLink, PlanSettings};
use crate::run::output::print;

/// Computes the traffic of downloads.
///
/// # Errors
/// If the profile cannot be read.
pub(super) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let link = args.profile.as_deref().map(link).transpose()?;
    let settings = PlanSettings {
        mix: args.mix.clone(),
        every_secs: args.every,
        targets: args.targets,
        data_bytes: args.data,
        directory_bytes: args.directory,
        link,
    };
    print(args.json, &DownloadPlan::of(&settings), DownloadPlan::text)
}

fn link(name: &str) -> ff_lab::Result<PlanLink> {
    let profile = Profile::find(name)?;
    let rtt = profile.up.delay.base + profile.down.delay.base;
    Ok(PlanLink {
        name: profile.name,
        bytes_per_sec: profile.down.rate.mean().map(|rate| rate.get()),
        rtt_secs: rtt.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_link() {
        let edge = link("edge").expect("a profile");
        assert_eq!((edge.bytes_per_sec, edge.rtt_secs), (Some(30_000), 0.84));
        assert!(link("nowhere").is_err());
    }
}
