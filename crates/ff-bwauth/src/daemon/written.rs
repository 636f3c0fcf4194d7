//! What came of writing a bandwidth file.

use ff_plan::publish::Shift;

/// A written bandwidth file.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The file's path.
    pub path: String,
    /// Relays with a number in the file.
    pub relays: u64,
    /// Relays in the consensus.
    pub consensus_relays: u64,
    /// Whether authorities vote with it.
    pub is_voted: bool,
    /// When it was written, in seconds since 1970.
    pub unix_secs: u64,
    /// The change of weights from the previous file that authorities voted with.
    pub since_last: Option<Shift>,
    /// The change of weights from the consensus.
    pub from_consensus: Option<Shift>,
}

/// Why no bandwidth file was written; the previous one stays.
#[derive(Clone, Debug)]
pub struct NotWritten {
    /// The reason, as a sentence.
    pub reason: String,
    /// Whether the only reason is that too few relays have a number, as in a first period.
    pub is_too_few: bool,
}

impl From<String> for NotWritten {
    /// A reason other than too few relays.
    fn from(reason: String) -> Self {
        Self { reason, is_too_few: false }
    }
}
