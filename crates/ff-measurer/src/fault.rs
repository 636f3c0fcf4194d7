//! Why the hot path gives up a link.

use std::io;

use ff_proto::session::SessionFailure;

use crate::link::record::RecordError;
use crate::order::LinkFailure;

/// Why a link ended.
#[derive(Debug)]
pub(crate) enum Fault {
    /// This link cannot be used any more.
    Link(LinkFailure),
    /// The measurement has failed.
    Session(SessionFailure),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Link(LinkFailure::Io(error))
    }
}

impl From<RecordError> for Fault {
    fn from(error: RecordError) -> Self {
        Self::Link(LinkFailure::Record(error))
    }
}

impl From<SessionFailure> for Fault {
    fn from(failure: SessionFailure) -> Self {
        Self::Session(failure)
    }
}
