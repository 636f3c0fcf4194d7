//! Options of `schedule`.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;
use ff_plan::period::usual_slot_secs;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::conflict::Conflict;

/// Options of `schedule`.
#[derive(Args, Clone, Debug)]
pub struct ScheduleArgs {
    /// A consensus, of either flavour, as a file.
    #[arg(long, value_name = "FILE")]
    pub consensus: PathBuf,
    /// Files of server descriptors: relays' capacities are then the bandwidths that they advertise,
    /// and families are measured together. Without them, capacities are the consensus' weights.
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub descriptors: Vec<PathBuf>,
    /// Files of microdescriptors, for a consensus of the microdesc flavour: families with and
    /// without keys are measured together.
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub microdescriptors: Vec<PathBuf>,
    /// The period's seed, 64 hexadecimal digits.
    #[arg(long, value_name = "HEX", value_parser = parse_seed,
          required_unless_present_any = ["greedy", "secret"])]
    pub seed: Option<[u8; 32]>,
    /// A file with the coordinators' secret, 32 random bytes: the seed is derived from it, the
    /// consensus' shared random value and the period in which the consensus became valid.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub secret: Option<PathBuf>,
    /// Pack relays into the first slots with room, without a seed, to find the shortest period; for
    /// estimates only: slots would be predictable.
    #[arg(long, conflicts_with_all = ["seed", "secret", "hours"])]
    pub greedy: bool,
    /// Capacity of each measurer of a team, both ways at once.
    #[arg(
        long,
        value_name = "RATE,...",
        value_delimiter = ',',
        default_value = "1Gbit,1Gbit,1Gbit"
    )]
    pub measurers: Vec<BytesPerSec>,
    /// Number of coordinators, each with such a team. The schedule depends on their identities,
    /// which are numbers here, so that of real coordinators differs.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=9))]
    pub coordinators: u8,
    /// The length of the period in hours.
    #[arg(long, value_name = "NUMBER", default_value_t = 24,
          value_parser = clap::value_parser!(u32).range(1..=168))]
    pub hours: u32,
    /// The length of a slot in seconds.
    #[arg(long, value_name = "NUMBER", default_value_t = usual_slot_secs(Params::default().duration_secs),
          value_parser = clap::value_parser!(u32).range(10..=600))]
    pub slot_seconds: u32,
    /// Scale all capacities to this sum, such as 608Gbit.
    #[arg(long, value_name = "RATE")]
    pub scale_to: Option<BytesPerSec>,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

impl ScheduleArgs {
    /// Rejects options that are valid alone and contradict each other.
    pub(super) fn check(&self) -> Result<(), Conflict> {
        if self.greedy && self.coordinators > 1 {
            let text =
                "--greedy needs one coordinator: several would measure a relay at the same time";
            return Err(Conflict { kind: ErrorKind::ArgumentConflict, text });
        }
        Ok(())
    }
}

fn parse_seed(text: &str) -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed)
        .map_err(|_| "not a seed: give 64 hexadecimal digits".to_owned())?;
    Ok(seed)
}
